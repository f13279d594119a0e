package web

import (
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// transfer is the page of imports and exports.
type transfer struct {
	service.Import
	Packed   string // Data as the form of a plan sends it again
	Faults   []service.Fault
	Wrong    int  // mistakes, with those that are not in Faults
	Cut      bool // the data is too long to be shown
	Mistake  string
	Mistakes mistakes // in the form of a plan
	Plan     *service.Plan
	Counts   map[string]int
	Changing bool // the plan changes something
	Steps    []service.PlanStep
	More     int64  // changes that are not in Steps
	Added    string // the applications that it adds, or ""
}

func importPage(r *request) error {
	return r.show(http.StatusOK, "import", "Import and export", transfer{Import: service.Import{Format: service.YAML}})
}

// admitImport asks for permission to import, and for a place in memory.
func admitImport(r *request) (done func(), err error) {
	return r.Service.AdmitImport(r.req.Context(), r.actor, false)
}

// sendImport shows what the import of a form would do, or carries out a plan that the user has
// confirmed.
func sendImport(r *request) error {
	if r.confirmed() {
		return applyImport(r)
	}

	t, err := r.sentImport()
	if err != nil {
		return err
	}
	plan, err := r.Service.PlanImport(r.req.Context(), r.actor, t.Import)
	if err != nil {
		return r.importRefused(t, err)
	}
	return r.showPlan(http.StatusOK, t, plan)
}

// showPlan shows what an import would do, with the data in the form that confirms it.
func (r *request) showPlan(status int, t transfer, plan service.Plan) (err error) {
	t.Plan, t.Counts = &plan, plan.Counts()

	// A plan that changes nothing is not carried out.
	if t.Changing = t.Counts["keep"] < len(plan.Steps); t.Changing {
		if t.Packed, err = packed(string(t.Data)); err != nil {
			return err
		}
	}

	t.Steps = shownSteps(plan)
	t.More = int64(len(plan.Steps) - t.Counts["keep"] - len(t.Steps))

	t.Added = firstOf(plan.Apps, maxAdded)
	return r.show(status, "import", "What the import would do", t)
}

// Bounds of what a page of an import shows.
const (
	maxSteps    = 50_000 // bytes of all changes
	maxValue    = 1000   // bytes of a value before or after a change
	maxRepeated = 40_000 // bytes of a text that has mistakes
	maxFaults   = 100
	maxAdded    = 50 // applications

	// These are about what the page adds to the values.
	sizeOfStep, sizeOfChange = 250, 150
)

// shownSteps returns the changes of a plan that are shown, the deletions first.
func shownSteps(plan service.Plan) (list []service.PlanStep) {
	size := 0
	for _, action := range []string{"delete", "update", "create"} {
		for _, step := range plan.Steps {
			if step.Action != action {
				continue
			}

			// The plan keeps its values: they are shortened in a copy.
			step.Changes = slices.Clone(step.Changes)
			size += sizeOfStep
			for i := range step.Changes {
				c := &step.Changes[i]
				c.Before, c.After = shortened(c.Before), shortened(c.After)
				size += sizeOfChange + len(html.EscapeString(c.Before+c.After))
			}

			// The first step is shown whatever its size, so that a page is never empty.
			if size > maxSteps && len(list) > 0 {
				return list
			}
			list = append(list, step)
		}
	}
	return list
}

// shortened returns the beginning of a long value.
func shortened(s string) string {
	if len(s) <= maxValue {
		return s
	}
	return strings.ToValidUTF8(s[:maxValue], "") + "…"
}

// packed returns the data of an import in a form of text that is small and has no character which
// a page or a browser would change.
func packed(data string) (string, error) {
	var text strings.Builder
	encoder := base64.NewEncoder(base64.RawURLEncoding, &text)
	w := gzip.NewWriter(encoder)
	_, err := io.WriteString(w, data)
	err = errors.Join(err, w.Close(), encoder.Close())
	return text.String(), err
}

// unpacked returns the data that was packed, of as many bytes as the service reads.
func unpacked(text string) (string, error) {
	r, err := gzip.NewReader(base64.NewDecoder(base64.RawURLEncoding, strings.NewReader(text)))
	if err != nil {
		return "", errBadForm
	}
	data, err := io.ReadAll(io.LimitReader(r, policy.MaxBytes+1))
	if err != nil || len(data) > policy.MaxBytes {
		return "", errBadForm
	}
	return string(data), nil
}

// applyImport imports the data that comes with the confirmation of its plan, unless the policies
// were changed since the plan was made.
func applyImport(r *request) error {
	base, err := strconv.ParseInt(r.field("base"), 10, 64)
	if err != nil || base < 0 {
		return errBadForm
	}
	data, err := unpacked(r.field("packed"))
	if err != nil {
		return err
	}
	t := transfer{Import: r.importOf(data)}
	sent := t.Import
	sent.Base = &base

	_, err = r.Service.Import(r.req.Context(), r.saying(), sent)
	if errors.Is(err, service.ErrMoved) {
		t.Mistake = "The policies were changed since the plan was made, so nothing was imported. This is the plan now."
		return r.planAgain(t, http.StatusConflict)
	}

	if m := mistakesOf(err); len(m) == 1 && m["comment"] != nil {
		t.Mistakes = m
		return r.planAgain(t, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return r.importRefused(t, err)
	}
	return r.seeOther("/policies", "imported")
}

// planAgain shows the current plan of the import.
func (r *request) planAgain(t transfer, status int) error {
	plan, err := r.Service.PlanImport(r.req.Context(), r.actor, t.Import)
	if err != nil {
		return r.importRefused(t, err)
	}
	return r.showPlan(status, t, plan)
}

// importRefused shows the mistakes of an import.
func (r *request) importRefused(t transfer, err error) error {
	var invalid *service.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}

	t.Wrong = len(invalid.Faults)
	t.Faults = invalid.Faults[:min(t.Wrong, maxFaults)]

	// A long text is not sent back in the page. The user has it in a file, or in the clipboard.
	if len(html.EscapeString(string(t.Data))) > maxRepeated {
		t.Data, t.Cut = nil, true
	}

	status := http.StatusUnprocessableEntity
	if errors.Is(err, service.ErrDenied) {
		status = http.StatusForbidden
	}
	return r.show(status, "import", "Import and export", t)
}

// importOf returns the import of data, as the form has it done.
func (r *request) importOf(data string) service.Import {
	return service.Import{
		Data: []byte(data), Format: service.Format(r.field("format")), Missing: service.Missing(r.field("missing")),
	}
}

// sentImport reads the form. A file takes precedence over the text.
func (r *request) sentImport() (transfer, error) {
	t := transfer{Import: r.importOf(strings.ReplaceAll(r.field("data"), "\r\n", "\n"))}
	f, head, err := r.req.FormFile("file")

	switch {
	case errors.Is(err, http.ErrMissingFile), errors.Is(err, http.ErrNotMultipart):
		return t, nil
	case err != nil:
		return t, errBadForm
	}

	defer f.Close()

	// A field for a file that was left empty is sent as a file without a name.
	if head.Size == 0 {
		return t, nil
	}

	if t.Data, err = io.ReadAll(f); err != nil {
		return t, errBadForm
	}

	// The name of a file says its format better than the choice beside it, which people forget.
	if strings.HasSuffix(strings.ToLower(head.Filename), ".json") {
		t.Format = service.JSON
	}
	return t, nil
}

func export(r *request) error {
	format, kind := service.YAML, "application/yaml"
	if r.query("format") == "json" {
		format, kind = service.JSON, "application/json"
	}

	data, err := r.Service.Export(r.req.Context(), r.actor, format, r.query("app"))
	if err != nil {
		return err
	}

	r.w.Header().Set("Content-Type", kind)
	r.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=policies.%s", format))
	_, _ = r.w.Write(data) // the client may have gone
	return nil
}
