package web

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

func TestStaticServesOnlyItsFiles(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8",
		"live.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		got := b.get("/static/" + name).want(http.StatusOK)
		if got.header.Get("Content-Type") != kind || got.text == "" {
			t.Errorf("%s is a %q of %d bytes", name, got.header.Get("Content-Type"), len(got.text))
		}

		// A browser asks again with the tag, and is sent nothing.
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/static/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("If-None-Match", got.header.Get("ETag"))
		b.do(r).want(http.StatusNotModified)
	}

	// Templates lie beside these files in the program, and folders are not listed.
	for _, path := range []string{"/static/", "/static/none", "/static/..%2ftemplates%2flogin.html", "/static/."} {
		if got := b.get(path); got.status == http.StatusOK {
			t.Errorf("%s is served", path)
		}
	}
}

func TestAuditHasTheRequestID(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	got := w.as("admin").submit("/policies/p", "/policies/p/mode", url.Values{"mode": {"shadow"}}).
		want(http.StatusSeeOther)
	list, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "policy.update"})
	w.must(err)
	if id := got.header.Get("X-Request-Id"); len(list) != 1 || id == "" || list[0].RequestID != id {
		t.Errorf("the entries are %+v, and the answer says %q", list, id)
	}
}
