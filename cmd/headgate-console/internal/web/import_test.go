package web

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

func TestImportShowsThePlanFirst(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("old", "5/1m")
	plan := b.submit("/import", "/import", url.Values{"data": {bundle("new")}, "missing": {"remove"}}).
		want(http.StatusOK)

	// The plan names what is created and deleted, with the limit that is new.
	for _, want := range []string{"What the import would do", ">create<", ">delete<", "10/1m"} {
		if !strings.Contains(plan.text, want) {
			t.Errorf("%q is not in the plan", want)
		}
	}

	// Until it is agreed to, nothing has changed.
	if _, err := w.Policy(t.Context(), w.admin, "new"); err == nil {
		t.Error("the plan was carried out")
	}

	b.post("/import", plan.form("/import")).goes("/policies?done=imported")
	if _, err := w.Policy(t.Context(), w.admin, "new"); err != nil {
		t.Error(err)
	}
	if _, err := w.Policy(t.Context(), w.admin, "old"); err == nil {
		t.Error("what the import does not name is there")
	}
}

func TestImportStalePlanIsShownAgain(t *testing.T) {
	w, b := asAdmin(t)
	plan := b.submit("/import", "/import", url.Values{"data": {bundle("new")}}).want(http.StatusOK).
		form("/import")
	w.policy("other", "5/1m")
	again := b.post("/import", plan).want(http.StatusConflict)
	if _, err := w.Policy(t.Context(), w.admin, "new"); err == nil {
		t.Error("the old plan was carried out")
	}
	b.post("/import", again.form("/import")).goes("/policies?done=imported")
}

func TestImportUploadFormatFollowsTheName(t *testing.T) {
	_, b := asAdmin(t)

	// The name of the file decides, in any case of letters, and not the choice in the form.
	got := b.upload("policies.JSON", `{"policies":[{"name":"up","apps":["a"],"limit":"5/1m","key":"ip"}]}`).
		want(http.StatusOK)
	if !strings.Contains(got.text, ">create<") || got.form("/import").Get("format") != "json" {
		t.Error("there is no plan for the file")
	}

	// A person corrects the text on the page instead of uploading the file again.
	wrong := b.upload("policies.json", `{"policies":[{"name":"Bad","apps":["zzz"],"limit":"often","key":"x"}]}`).
		want(http.StatusUnprocessableEntity)
	if !strings.Contains(wrong.text, "often") || wrong.form("/import").Get("data") == "" {
		t.Errorf("the mistakes are not shown, or the text is lost: %s", wrong.text)
	}

	b.upload("big.yaml", strings.Repeat("x", maxImport)).want(http.StatusRequestEntityTooLarge)
}

// A plan of many changes shows some of them, deletions first, and counts the others. The page is
// small though it has the text, and all of it is imported.
func TestImportOfManyPoliciesHasASmallPage(t *testing.T) {
	w := newWorld(t)

	for i := range 5 {
		w.policy(fmt.Sprintf("z%d", i), "5/1m")
	}

	// An ampersand takes five bytes in HTML, so a page of all changes would be large.
	text := strings.Builder{}
	text.WriteString("policies:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "- name: p%03d\n  description: '%s'\n  apps: [a]\n  limit: 10/1m\n  key: ip\n", i,
			strings.Repeat("&", 50))
	}

	b := w.as("admin")
	plan := b.submit("/import", "/import", url.Values{"data": {text.String()}, "missing": {"remove"}}).
		want(http.StatusOK)

	shown := strings.Count(plan.text, "<article")
	if n := len(plan.text); n > maxSteps+10_000 || shown < 30 || strings.Count(plan.text, ">delete<") != 5 {
		t.Errorf("the page has %d bytes and %d changes, of which %d are deletions", n, shown,
			strings.Count(plan.text, ">delete<"))
	}

	// With the five deletions there are 1005 changes.
	if more := fmt.Sprintf("and %d more.", 1005-shown); !strings.Contains(plan.text, more) {
		t.Errorf("the page does not say %q", more)
	}

	b.post("/import", plan.form("/import")).goes("/policies?done=imported")
	if page, err := w.Policies(t.Context(), w.admin, service.Query{}); err != nil || page.Total != 1000 {
		t.Errorf("there are %d policies and not 1000 (%v)", page.Total, err)
	}
}

func TestImportPlanCutsLongValues(t *testing.T) {
	w := newWorld(t)
	networks := make([]string, 150)
	for i := range networks {
		networks[i] = fmt.Sprintf("10.0.%d.0/24", i)
	}
	text := bundle("new") + "  access: {allow: {networks: [" + strings.Join(networks, ", ") + "]}}\n"
	plan := w.as("admin").submit("/import", "/import", url.Values{"data": {text}}).want(http.StatusOK)
	if n := len(plan.text); n > 10_000 || !strings.Contains(plan.text, "10.0.0.0/24") ||
		!strings.Contains(plan.text, "…</ins>") {
		t.Errorf("the page has %d bytes", n)
	}
}

func TestImportWithManyMistakesHasASmallPage(t *testing.T) {
	_, b := asAdmin(t)

	// The shorter text fits into the page once more, and the longer one does not.
	for policies, again := range map[int]bool{maxFaults + 1: true, 3000: false} {
		text := "policies:\n" + strings.Repeat("- {name: p, apps: [a], limit: often, key: ip}\n", policies)
		got := b.submit("/import", "/import", url.Values{"data": {text}}).want(http.StatusUnprocessableEntity)

		faults := 2*policies - 1 // each limit, and each name but the first
		for _, want := range []string{fmt.Sprintf("Nothing was imported: %d mistakes", faults),
			"These are the first 100."} {
			if !strings.Contains(got.text, want) {
				t.Errorf("%d policies: the page does not say %q", policies, want)
			}
		}

		if n := strings.Count(got.text, "<li><strong>p</strong>"); n != maxFaults {
			t.Errorf("%d policies: %d mistakes are shown", policies, n)
		}

		shown := strings.TrimSpace(got.form("/import").Get("data"))
		if shown != map[bool]string{true: strings.TrimSpace(text)}[again] ||
			strings.Contains(got.text, "too long to be shown here again") == again {
			t.Errorf("%d policies: the text is shown again, or not: want %v", policies, again)
		}
	}
}

// What a confirmation carries is bounded, and of the user who sends it.
func TestImportConfirmationIsChecked(t *testing.T) {
	w := newWorld(t)
	w.person("owner", map[string]service.Role{"b": service.Owner})
	plan := w.as("admin").submit("/import", "/import", url.Values{"data": {bundle("new")}}).want(http.StatusOK).
		form("/import")

	// The owner of another application may not import it, though the administrator may.
	w.as("owner").post("/import", plan).want(http.StatusForbidden)

	bomb, err := packed(strings.Repeat(" ", policy.MaxBytes+1))
	w.must(err)
	for field, value := range map[string]string{"packed": bomb, "base": "-1"} {
		wrong := maps.Clone(plan)
		wrong.Set(field, value)
		w.as("admin").post("/import", wrong).want(http.StatusBadRequest)
	}
	for _, cut := range []string{"", "no base64!", plan.Get("packed")[:20], bomb[:len(bomb)-8]} {
		wrong := maps.Clone(plan)
		wrong.Set("packed", cut)
		w.as("admin").post("/import", wrong).want(http.StatusBadRequest)
	}
	if _, err := w.Policy(t.Context(), w.admin, "new"); err == nil {
		t.Error("a form that is wrong was carried out")
	}

	w.as("admin").post("/import", plan).goes("/policies?done=imported")
}

// The largest text that cannot be made smaller fits into a form, and comes back as it was.
func TestImportIsPacked(t *testing.T) {
	data := make([]byte, policy.MaxBytes)
	rand.NewChaCha8([32]byte{}).Read(data)
	for _, want := range []string{string(data), "", "a: 'ü'\r\n\x00 <\"&>\n\n"} {
		text, err := packed(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpacked(text)
		if len(text) > maxImport-maxForm || got != want || err != nil || strings.Trim(text, alphabet) != "" {
			t.Errorf("%d bytes became %d, and %d again (%v)", len(want), len(text), len(got), err)
		}
	}
}

// alphabet is what a packed text is made of.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func (b *browser) upload(name, data string) *answer {
	b.t.Helper()
	var body bytes.Buffer

	m := multipart.NewWriter(&body)
	f, err := m.CreateFormFile("file", name)
	if err != nil {
		b.t.Fatal(err)
	}
	f.Write([]byte(data))
	m.WriteField("format", "yaml")
	m.Close()

	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+"/import", &body)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", m.FormDataContentType())
	return b.do(r)
}

func TestExportCanBeImported(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

	for _, format := range []string{"yaml", "json"} {
		got := b.get("/export?format=" + format).want(http.StatusOK)
		if d := got.header.Get("Content-Disposition"); d != "attachment; filename=policies."+format {
			t.Errorf("%s: it is %q", format, d)
		}

		// An export of one application must not hold what another has.
		if other := b.get("/export?app=b&format=" + format).want(http.StatusOK); strings.Contains(
			other.text, "5/1m") || !strings.Contains(b.get("/export?app=a&format="+format).text, "5/1m") {
			t.Errorf("%s: the export of another application is %s", format, other.text)
		}

		// The import of an export changes nothing, so the export is complete.
		plan := b.submit("/import", "/import", url.Values{"data": {got.text}, "format": {format}}).want(http.StatusOK)
		if !strings.Contains(plan.text, "Nothing would change") {
			t.Errorf("%s: the import of the export would change something", format)
		}
	}
}
