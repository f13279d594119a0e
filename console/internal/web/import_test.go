package web

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestImportShowsThePlanFirst(t *testing.T) {
	w := newWorld(t)
	w.policy("old", "5/1m")
	b := w.as("admin")
	plan := b.submit("/import", "/import", url.Values{"data": {bundle("new")}, "missing": {"remove"}}).want(http.StatusOK)
	for _, want := range []string{"What the import would do", ">create<", ">delete<", "10/1m"} {
		if !strings.Contains(plan.text, want) {
			t.Errorf("%q is not in the plan", want)
		}
	}
	if _, err := w.Policy(t.Context(), w.admin, "new"); err == nil {
		t.Error("the plan was carried out")
	}
	b.post("/import/apply", plan.form("/import/apply")).goes("/policies?done=imported")
	if _, err := w.Policy(t.Context(), w.admin, "new"); err != nil {
		t.Error(err)
	}
	if _, err := w.Policy(t.Context(), w.admin, "old"); err == nil {
		t.Error("what the import does not name is there")
	}
}

func TestImportStalePlanIsShownAgain(t *testing.T) {
	w := newWorld(t)
	b := w.as("admin")
	plan := b.submit("/import", "/import", url.Values{"data": {bundle("new")}}).want(http.StatusOK).form("/import/apply")
	w.policy("other", "5/1m")
	again := b.post("/import/apply", plan).want(http.StatusConflict)
	if _, err := w.Policy(t.Context(), w.admin, "new"); err == nil {
		t.Error("the old plan was carried out")
	}
	b.post("/import/apply", again.form("/import/apply")).goes("/policies?done=imported")
}

func TestImportUploadFormatFollowsTheName(t *testing.T) {
	w := newWorld(t)
	b := w.as("admin")
	got := b.upload("policies.JSON", `{"policies":[{"name":"up","apps":["a"],"limit":"5/1m","key":"ip"}]}`).want(http.StatusOK)
	if !strings.Contains(got.text, ">create<") || got.form("/import/apply").Get("format") != "json" {
		t.Error("there is no plan for the file")
	}
	wrong := b.upload("policies.json", `{"policies":[{"name":"Bad","apps":["zzz"],"limit":"often","key":"x"}]}`).want(http.StatusUnprocessableEntity)
	if !strings.Contains(wrong.text, "often") || wrong.form("/import").Get("data") == "" {
		t.Errorf("the mistakes are not shown, or the text is lost: %s", wrong.text)
	}
	b.upload("big.yaml", strings.Repeat("x", maxImport)).want(http.StatusRequestEntityTooLarge)
}

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
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")
	for _, format := range []string{"yaml", "json"} {
		got := b.get("/export?format=" + format).want(http.StatusOK)
		if d := got.header.Get("Content-Disposition"); d != "attachment; filename=policies."+format {
			t.Errorf("%s: it is %q", format, d)
		}
		plan := b.submit("/import", "/import", url.Values{"data": {got.text}, "format": {format}}).want(http.StatusOK)
		if !strings.Contains(plan.text, "Nothing would change") {
			t.Errorf("%s: the import of the export would change something", format)
		}
	}
}
