package web

import (
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// Every address that a page asks for by itself is one that keeps no session.
func TestPagesPollRoutesThatKeepNoSession(t *testing.T) {
	polled := map[string]bool{}
	for _, r := range routes {
		if r.poll {
			polled[strings.TrimPrefix(r.pattern, "GET ")] = true
		}
	}

	var asked []string
	names, err := fs.Glob(sources, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := sources.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`data-refresh="([^"?]*)`).FindAllStringSubmatch(string(text), -1) {
			path, _, _ := strings.Cut(m[1], "{{with")
			path = regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(path, "{name}")
			asked = append(asked, path)
			if !polled[path] {
				t.Errorf("a page asks for %s by itself, and that keeps its session", path)
			}
		}
	}
	if len(asked) < len(polled) || !slices.Contains(asked, "/live") {
		t.Errorf("pages ask for %v", asked)
	}
}

func TestOpenPageDoesNotKeepItsSession(t *testing.T) {
	w := newWorld(t)
	w.must(w.SaveSettings(t.Context(), w.admin, service.Settings{SessionIdle: 5 * time.Minute, SessionLife: time.Hour}))
	page, reload, person := w.as("admin"), w.as("admin"), w.as("admin")
	for range 4 {
		w.pass(time.Minute)
		page.get("/live?app=a").want(http.StatusOK)
		reload.get("/?app=a&refresh=5").want(http.StatusOK)
		person.get("/?app=a").want(http.StatusOK)
	}

	w.pass(time.Minute)
	page.get("/live?app=a").want(http.StatusSeeOther)
	reload.get("/?app=a&refresh=5").want(http.StatusSeeOther)
	person.get("/?app=a").want(http.StatusOK)
}

func TestSigningInAgainEndsTheSessionBefore(t *testing.T) {
	w, b := asAdmin(t)
	before := b.cookie("headgate")
	b.post("/login", map[string][]string{"name": {"admin"}, "password": {password}}).want(http.StatusSeeOther)
	if b.cookie("headgate") == before {
		t.Fatal("the session is the same")
	}
	b.get("/policies").want(http.StatusOK)

	if _, err := w.Authenticate(t.Context(), before, service.Meta{}); err == nil {
		t.Error("the session before goes on")
	}
}

// cookie returns the value of a cookie that the browser has.
func (b *browser) cookie(name string) string {
	r, err := http.NewRequest(http.MethodGet, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.client.Jar.Cookies(r.URL) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}
