package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/console/internal/service"
)

// These are the users of the matrix, in the order of its columns.
var roles = []string{"nobody", "stranger", "viewer", "elsewhere", "owner", service.FirstUser}

// cell is a request, and its status for each user.
type cell struct {
	pattern string
	path    string
	form    url.Values
	want    [6]int
}

// matrix has a row for every route. Each row that changes something changes other
// objects, so that it does not affect the rows after it.
func matrix() []cell {
	mine := url.Values{"label": {"x"}, "scope": {"read"}, "days": {"1"}}
	policyForm := func(name string) url.Values {
		d := blank()
		d.Name, d.Apps, d.Version = name, []string{"a"}, 1
		return d.values()
	}
	seen := [6]int{303, 404, 200, 404, 200, 200}
	edits := [6]int{401, 404, 403, 404, 303, 303}
	all := [6]int{303, 200, 200, 200, 200, 200}
	managed := [6]int{401, 403, 403, 403, 403, 303}
	manages := [6]int{303, 403, 403, 403, 403, 200}
	return []cell{
		{"GET /{$}", "/", nil, [6]int{303, 303, 303, 303, 303, 303}},
		{"GET /login", "/login", nil, [6]int{200, 200, 200, 200, 200, 200}},
		{"POST /login", "/login", url.Values{"name": {"x"}, "password": {"y"}}, [6]int{401, 401, 401, 401, 401, 401}},

		{"GET /policies", "/policies", nil, all},
		{"GET /deleted", "/deleted", nil, all},
		{"GET /new", "/new", nil, [6]int{303, 403, 403, 200, 200, 200}},
		{"POST /new", "/new", policyForm("fresh"), [6]int{401, 403, 403, 403, 303, 303}},
		{"GET /policies/{name}", "/policies/p", nil, seen},
		{"GET /policies/{name}/edit", "/policies/p/edit", nil, [6]int{303, 404, 403, 404, 200, 200}},
		{"POST /policies/{name}/edit", "/policies/edit/edit", policyForm("edit"), edits},
		{"POST /policies/{name}/mode", "/policies/mode/mode", url.Values{"version": {"1"}, "mode": {"off"}}, edits},
		{"GET /policies/{name}/delete", "/policies/p/delete", nil, [6]int{303, 404, 403, 404, 200, 200}},
		{"POST /policies/{name}/delete", "/policies/delete/delete", url.Values{"version": {"1"}}, edits},
		{"GET /policies/{name}/history", "/policies/p/history", nil, seen},
		{"POST /policies/{name}/rollback", "/policies/back/rollback", url.Values{"version": {"2"}, "to": {"1"}}, edits},
		{"GET /validate", "/validate?name=x", nil, all},
		{"GET /drawing.svg", "/drawing.svg?limit=1/s", nil, all},

		{"GET /tester", "/tester", nil, all},
		{"POST /tester", "/tester", url.Values{"app": {"a"}, "method": {"GET"}, "path": {"/"}, "address": {"192.0.2.1"}}, [6]int{401, 200, 200, 200, 200, 200}},
		{"GET /keys", "/keys", nil, all},
		{"POST /keys", "/keys", url.Values{"policy": {"p"}, "key": {"x"}}, [6]int{401, 422, 200, 422, 200, 200}},
		{"POST /keys/reset", "/keys/reset", url.Values{"policy": {"p"}, "key": {"x"}, "confirm": {"yes"}}, [6]int{401, 422, 403, 422, 303, 303}},
		{"GET /bans", "/bans", nil, all},
		{"POST /bans/lift", "/bans/lift", url.Values{"policy": {"p"}, "key": {"eA"}}, edits},
		{"GET /stats", "/stats?app=a", nil, [6]int{303, 404, 200, 404, 200, 200}},
		{"GET /stats/live", "/stats/live?app=a", nil, [6]int{303, 404, 200, 404, 200, 200}},

		{"GET /import", "/import", nil, all},
		{"POST /import", "/import", url.Values{"format": {"yaml"}, "data": {bundle("plan")}}, [6]int{401, 403, 403, 403, 200, 200}},
		{"POST /import/apply", "/import/apply", url.Values{"format": {"yaml"}, "data": {bundle("applied")}, "base": {"BASE"}}, [6]int{401, 403, 403, 403, 303, 303}},
		{"GET /export", "/export", nil, all},

		{"GET /apps", "/apps", nil, all},
		{"POST /apps", "/apps", url.Values{"name": {"new"}}, managed},
		{"POST /apps/describe", "/apps/describe", url.Values{"name": {"a"}, "description": {"x"}}, managed},
		{"GET /apps/delete", "/apps/delete?name=b", nil, manages},
		{"POST /apps/delete", "/apps/delete", url.Values{"name": {"spare"}}, managed},
		{"GET /users", "/users", nil, manages},
		{"POST /users", "/users", url.Values{"name": {"added"}}, [6]int{401, 403, 403, 403, 403, 200}},
		{"GET /users/{name}", "/users/spare", nil, manages},
		{"POST /users/{name}/role", "/users/spare/role", url.Values{"app": {"a"}, "role": {"viewer"}}, managed},
		{"POST /users/{name}/status", "/users/spare/status", url.Values{"do": {"disable"}}, managed},
		{"POST /users/{name}/password", "/users/spare/password", nil, [6]int{401, 403, 403, 403, 403, 200}},
		{"GET /audit", "/audit", nil, manages},
		{"GET /settings", "/settings", nil, manages},
		{"POST /settings", "/settings", url.Values{"idle": {"1h"}, "life": {"12h"}}, managed},

		{"GET /account", "/account", nil, all},
		{"POST /account/tokens", "/account/tokens", mine, [6]int{401, 200, 200, 200, 200, 200}},
		{"POST /account/tokens/revoke", "/account/tokens/revoke", url.Values{"id": {"none"}}, [6]int{401, 404, 404, 404, 404, 404}},
		{"POST /account/sessions/end", "/account/sessions/end", url.Values{"id": {"none"}}, [6]int{401, 404, 404, 404, 404, 404}},
		{"POST /account/password", "/account/password", url.Values{"old": {password}, "password": {"another password"}, "repeat": {"another password"}}, [6]int{401, 303, 303, 303, 303, 303}},
		{"POST /logout", "/logout", nil, [6]int{401, 303, 303, 303, 303, 303}},
	}
}

func bundle(name string) string {
	return "policies:\n- name: " + name + "\n  apps: [a]\n  limit: 10/1m\n  key: ip\n"
}

func TestMatrixOfRoutesAndRoles(t *testing.T) {
	rows := matrix()
	for _, r := range routes() {
		if !slices.ContainsFunc(rows, func(c cell) bool { return c.pattern == r.pattern }) {
			t.Errorf("the matrix has no row for %s", r.pattern)
		}
	}
	for i, role := range roles {
		t.Run(role, func(t *testing.T) {
			w := newWorld(t)
			w.peopled()
			b := w.browser()
			if role != "nobody" {
				b = w.as(role)
			}
			for _, c := range rows {
				before := w.refusals()
				if got := w.ask(b, c).status; got != c.want[i] {
					t.Errorf("%s: the status is %d and not %d", c.pattern, got, c.want[i])
				}
				if c.want[i] == http.StatusForbidden && w.refusals() != before+1 {
					t.Errorf("%s: %d refusals are in the audit log and not one", c.pattern, w.refusals()-before)
				}
			}
		})
	}
}

// refusals returns the number of refusals in the audit log.
func (w *world) refusals() int {
	w.t.Helper()
	rows, err := w.Audit(w.t.Context(), w.admin, service.AuditQuery{Outcome: service.Refused, PerPage: service.MaxPerPage})
	w.must(err)
	return len(rows)
}

// peopled adds the users and objects of the matrix.
func (w *world) peopled() {
	w.t.Helper()
	w.person("stranger", nil)
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	w.person("elsewhere", map[string]service.Role{"b": service.Owner})
	w.person("owner", map[string]service.Role{"a": service.Owner})
	w.person("spare", nil)
	w.must(w.CreateApp(w.t.Context(), w.admin, "spare", ""))
	for _, name := range []string{"p", "edit", "mode", "delete", "back"} {
		w.policy(name, "5/1m")
	}
	p, err := w.Policy(w.t.Context(), w.admin, "back")
	w.must(err)
	p.Priority = 1
	_, err = w.UpdatePolicy(w.t.Context(), w.admin, p)
	w.must(err)
}

func (w *world) ask(b *browser, c cell) *answer {
	w.t.Helper()
	if !strings.HasPrefix(c.pattern, http.MethodPost) {
		return b.get(c.path)
	}
	if c.form.Get("base") == "BASE" {
		p, err := w.Publishing(w.t.Context(), w.admin)
		w.must(err)
		c.form = url.Values{"format": c.form["format"], "data": c.form["data"], "base": {number(p.Version)}}
	}
	return b.post(c.path, c.form)
}

// Users who have not changed their one-time password see no other page.
func TestOneTimePasswordOnlyAllowsItsChange(t *testing.T) {
	w := newWorld(t)
	oneTime, err := w.CreateUser(t.Context(), w.admin, "new")
	w.must(err)
	b := w.browser()
	b.post("/login", url.Values{"name": {"new"}, "password": {oneTime}}).goes("/account")
	for _, path := range []string{"/policies", "/new", "/tester", "/stats", "/import", "/export", "/apps", "/keys", "/drawing.svg?limit=1/s"} {
		b.get(path).goes("/account")
	}
	b.post("/account/tokens", url.Values{"label": {"x"}, "scope": {"read"}, "days": {"1"}}).goes("/account")
	form := url.Values{"old": {oneTime}, "password": {"a new password"}, "repeat": {"a new password"}}
	b.submit("/account", "/account/password", form).goes("/account?done=password")
	b.get("/policies").want(http.StatusOK)
}
