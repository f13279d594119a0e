package web

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// Each line of the audit log leads to what was acted on, if it is still there.
func TestAuditLeadsToWhatWasActedOn(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"kept", "gone"} {
		w.policy(name, "5/1m")
	}
	w.person("ann", map[string]service.Role{"a": service.Viewer})
	w.must(w.CreateApp(t.Context(), w.admin, "other", ""))
	settings, err := w.Settings(t.Context(), w.admin)
	w.must(err)
	settings.SessionIdle += time.Minute
	w.must(w.SaveSettings(t.Context(), w.admin, settings))
	w.must(w.DeletePolicy(t.Context(), w.admin, "gone", 1))

	// A ban leads to its key, and an override of many keys to the policy.
	const odd = `<b>&"x"/../ é`
	w.add(policy.Policy{Name: "people", Apps: []string{"a"}, Key: "user",
		Limit: core.MustParseLimit("5/1m")})
	w.must(w.ImposeBan(t.Context(), w.admin, "people", odd, time.Hour))
	_, err = w.SetOverride(t.Context(), w.admin, "people", service.OverrideChange{Key: "x:*", Limit: "7/1m"})
	w.must(err)

	got := map[string]string{}
	page := w.as(service.FirstUser).get("/audit").want(http.StatusOK)
	for row := range page.doc.Descendants() {
		if row.Type != html.ElementNode || row.Data != "tr" {
			continue
		}
		var cells []string
		path := ""
		for n := range row.Descendants() {
			if n.Type == html.ElementNode && n.Data == "td" {
				cells = append(cells, words(n))
			}
			if n.Type == html.ElementNode && n.Data == "a" {
				path = attr(n, "href")
			}
		}
		if len(cells) > 2 {
			got[cells[1]+" "+cells[2]] = path
		}
	}

	for line, want := range map[string]string{
		"policy.create policy:kept":               "/policies/kept",
		"policy.create policy:gone":               "",
		"policy.delete policy:gone":               "",
		"user.create user:ann":                    "/users/ann",
		"app.create app:other":                    "/policies?app=other",
		"settings.update settings":                "/settings",
		"ban.impose policy:people":                keysPath("people", odd),
		"override.set policy:people":              "/policies/people",
		"session.login user:" + service.FirstUser: "/users/" + service.FirstUser,
	} {
		path, ok := got[line]
		if !ok || path != want {
			t.Errorf("%s leads to %q (is there: %t), want %q", line, path, ok, want)
		}
	}
	if t.Failed() {
		t.Log(fmt.Sprint(slices.Sorted(maps.Keys(got))))
	}
}
