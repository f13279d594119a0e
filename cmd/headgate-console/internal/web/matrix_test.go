package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
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
	own := url.Values{"password": {password}}

	policyForm := func(name string) url.Values {
		return filled("name", name, "apps", "a", "version", "1")
	}

	// A policy that a user may not see is a 404, and one that they see but may not change a 403.
	seen := [6]int{303, 404, 200, 404, 200, 200}
	edits := [6]int{401, 404, 403, 404, 303, 303}

	all := [6]int{303, 200, 200, 200, 200, 200}
	managed := [6]int{401, 403, 403, 403, 403, 303}
	manages := [6]int{303, 403, 403, 403, 403, 200}

	// The columns are those of roles, in that order.
	return []cell{
		{"GET /{$}", "/", nil, all},
		{"GET /search", "/search?q=p", nil, all},
		{"GET /live", "/live?app=a", nil, [6]int{303, 404, 200, 404, 200, 200}},
		{"GET /login", "/login", nil, [6]int{200, 200, 200, 200, 200, 200}},
		{"POST /login", "/login", url.Values{"name": {"x"}, "password": {"y"}}, [6]int{401, 401, 401, 401, 401, 401}},

		{"GET /login/code", "/login/code", nil, [6]int{303, 303, 303, 303, 303, 303}}, // without a password before
		{"POST /login/code", "/login/code", url.Values{"code": {"000000"}}, [6]int{401, 401, 401, 401, 401, 401}},
		{"GET /login/oidc", "/login/oidc", nil, [6]int{404, 404, 404, 404, 404, 404}}, // without a provider
		{"GET /login/oidc/callback", "/login/oidc/callback?state=x&code=y", nil, [6]int{404, 404, 404, 404, 404, 404}},

		{"GET /policies", "/policies", nil, all},
		// A change of policies needs the owner of all their applications.
		{"POST /policies/bulk", "/policies/bulk",
			url.Values{"policy": {"1:bulk"}, "do": {"off"}, "confirm": {"yes"}}, edits},
		// Users take back what they have changed themselves at an instant, which is nothing here.
		{"POST /policies/undo", "/policies/undo", url.Values{"at": {"1"}}, [6]int{401, 404, 404, 404, 404, 404}},
		{"GET /deleted", "/deleted", nil, all},
		// A new policy needs an application in which one is an owner, so a viewer gets no form.
		{"GET /new", "/new", nil, [6]int{303, 403, 403, 200, 200, 200}},
		{"POST /new", "/new", policyForm("fresh"), [6]int{401, 403, 403, 403, 303, 303}},
		{"GET /policies/{name}", "/policies/p", nil, seen},
		{"GET /policies/{name}/live", "/policies/p/live", nil, seen},
		{"GET /policies/{name}/edit", "/policies/p/edit", nil, [6]int{303, 404, 403, 404, 200, 200}},
		{"POST /policies/{name}/edit", "/policies/edit/edit", policyForm("edit"), edits},

		{"POST /policies/{name}/mode", "/policies/mode/mode",
			url.Values{"version": {"1"}, "mode": {"off"}, "confirm": {"yes"}}, edits},
		{"POST /policies/{name}/overrides", "/policies/p/overrides",
			url.Values{"key": {"192.0.2.1"}, "limit": {"9/1m"}}, edits},
		{"GET /policies/{name}/delete", "/policies/p/delete", nil, [6]int{303, 404, 403, 404, 200, 200}},
		{"POST /policies/{name}/delete", "/policies/delete/delete",
			url.Values{"version": {"1"}, "confirm": {"yes"}}, edits},
		{"GET /policies/{name}/history", "/policies/p/history", nil, seen},
		{"POST /policies/{name}/rollback", "/policies/back/rollback",
			url.Values{"version": {"2"}, "to": {"1"}, "confirm": {"yes"}}, edits},
		{"GET /policies/{name}/diff", "/policies/p/diff?from=0&to=1", nil, seen},
		{"POST /policies/{name}/undo", "/policies/undo/undo", url.Values{"version": {"1"}}, edits},
		{"POST /policies/{name}/mode", "/policies/later/mode",
			url.Values{"version": {"1"}, "mode": {"shadow"}, "for": {"1"}}, edits},
		{"POST /policies/{name}/pause", "/policies/p/pause", nil, [6]int{401, 404, 403, 404, 422, 422}},
		{"GET /banner", "/banner", nil, all},
		{"GET /unable", "/unable?of=p", nil, all},

		{"GET /validate", "/validate?name=x", nil, all},
		{"GET /drawing.svg", "/drawing.svg?limit=1/s", nil, all},

		{"GET /keys", "/keys?policy=p&key=x", nil, [6]int{303, 200, 200, 422, 200, 200}},
		{"GET /keys/live", "/keys/live?app=a", nil, [6]int{303, 404, 200, 404, 200, 200}},
		{"POST /keys/try", "/keys/try", url.Values{"app": {"a"}, "method": {"GET"}, "path": {"/"},
			"address": {"192.0.2.1"}}, [6]int{401, 404, 200, 404, 200, 200}},
		{"POST /keys/reset", "/keys/reset", url.Values{"policy": {"p"}, "key": {"x"}, "confirm": {"yes"}},

			[6]int{401, 422, 403, 422, 303, 303}},
		{"POST /keys/ban", "/keys/ban", url.Values{"policy": {"banning"}, "key": {"x"}, "for": {"10m"},
			"confirm": {"yes"}}, [6]int{401, 422, 403, 422, 303, 303}},
		{"POST /keys/allow", "/keys/allow", url.Values{"policy": {"allow"}, "key": {"192.0.2.7"},
			"version": {"1"}, "confirm": {"yes"}}, [6]int{401, 422, 403, 422, 303, 303}},
		{"POST /keys/lift", "/keys/lift", url.Values{"policy": {"p"}, "key": {"x"}, "confirm": {"yes"}},
			[6]int{401, 422, 403, 422, 303, 303}},
		{"POST /keys/limit", "/keys/limit", url.Values{"policy": {"limit"}, "key": {"192.0.2.7"},
			"limit": {"9/1m"}, "version": {"1"}, "confirm": {"yes"}}, [6]int{401, 422, 403, 422, 303, 303}},
		// 192.0.2.7 is counted as an address, which all of these are about.
		{"POST /keys/grant", "/keys/grant", url.Values{"policy": {"p"}, "key": {"192.0.2.7"}, "units": {"5"},
			"until": {inAnHour()}, "zone": {"UTC"},
			"confirm": {"yes"}}, [6]int{401, 422, 403, 422, 303, 303}},
		{"POST /keys/revoke", "/keys/revoke", url.Values{"policy": {"p"}, "key": {"192.0.2.7"},
			"confirm": {"yes"}}, [6]int{401, 422, 403, 422, 303, 303}},
		{"POST /keys/debit", "/keys/debit", url.Values{"policy": {"p"}, "key": {"192.0.2.7"}, "units": {"5"},
			"confirm": {"yes"}}, [6]int{401, 422, 403, 422, 303, 303}},
		{"GET /alerts", "/alerts", nil, all},
		{"POST /alerts", "/alerts", hookForm("a"), [6]int{401, 403, 403, 403, 200, 200}},
		{"GET /alerts", "/alerts?webhook=new", nil, [6]int{303, 403, 403, 200, 200, 200}},
		{"GET /alerts", "/alerts?webhook=HOOK", nil, [6]int{303, 404, 404, 404, 200, 200}},
		{"POST /alerts/{webhook}", "/alerts/HOOK", hookForm("a"), [6]int{401, 404, 404, 404, 303, 303}},
		{"POST /alerts/{webhook}/status", "/alerts/HOOK/status", url.Values{"do": {"off"}},
			[6]int{401, 404, 404, 404, 303, 303}},
		{"POST /alerts/{webhook}/secret", "/alerts/HOOK/secret", nil, [6]int{401, 404, 404, 404, 200, 200}},
		{"POST /alerts/{webhook}/test", "/alerts/HOOK/test", nil, [6]int{401, 404, 404, 404, 303, 303}},
		{"POST /alerts/{webhook}/delete", "/alerts/HOOK/delete", nil, [6]int{401, 404, 404, 404, 303, 303}},

		{"GET /import", "/import", nil, all},
		{"POST /import", "/import", url.Values{"format": {"yaml"}, "data": {bundle("plan")}},
			[6]int{401, 403, 403, 403, 200, 200}},
		{"POST /import", "/import", url.Values{"format": {"yaml"}, "confirm": {"yes"}, "base": {"BASE"}},
			[6]int{401, 403, 403, 403, 303, 303}},
		{"GET /export", "/export", nil, all},

		// Nothing is published here.
		{"GET /takeover", "/takeover", nil, [6]int{303, 403, 403, 403, 403, 404}},
		{"POST /takeover", "/takeover", url.Values{"version": {"1.x"}, "confirm": {"yes"}},
			[6]int{401, 403, 403, 403, 403, 404}},

		{"GET /apps", "/apps", nil, all},
		{"POST /apps", "/apps", url.Values{"name": {"new"}}, managed},
		{"POST /apps/describe", "/apps/describe", url.Values{"name": {"a"}, "description": {"x"}}, managed},
		{"GET /apps/delete", "/apps/delete?name=b", nil, manages},
		{"POST /apps/delete", "/apps/delete", url.Values{"name": {"spare"}, "confirm": {"yes"}}, managed},
		{"GET /users", "/users", nil, manages},
		{"POST /users", "/users", url.Values{"name": {"added"}}, [6]int{401, 403, 403, 403, 403, 200}},
		{"GET /users/{name}", "/users/spare", nil, manages},
		{"POST /users/{name}/role", "/users/spare/role", url.Values{"app": {"a"}, "role": {"viewer"}}, managed},
		{"POST /users/{name}/status", "/users/spare/status", url.Values{"do": {"disable"}}, managed},
		{"POST /users/{name}/password", "/users/spare/password", url.Values{"confirm": {"yes"}},
			[6]int{401, 403, 403, 403, 403, 200}},
		{"POST /users/{name}/tokens", "/users/spare/tokens", url.Values{"confirm": {"yes"}}, managed},
		{"POST /users/{name}/second-factor", "/users/spare/second-factor", url.Values{"confirm": {"yes"}}, managed},
		{"GET /audit", "/audit", nil, manages},
		{"GET /audit/export", "/audit/export?outcome=refused", nil, manages},
		{"GET /settings", "/settings", nil, manages},
		{"POST /settings/backup", "/settings/backup", own, [6]int{401, 403, 403, 403, 403, 200}},
		{"POST /settings", "/settings", url.Values{"idle": {"1h"}, "life": {"12h"}}, managed},

		{"GET /account", "/account", nil, all},
		{"GET /account/second-factor", "/account/second-factor", nil, all},
		{"POST /account/second-factor", "/account/second-factor", own, [6]int{401, 200, 200, 200, 200, 200}},
		{"POST /account/second-factor/confirm", "/account/second-factor/confirm", url.Values{"code": {"000000"}},
			[6]int{401, 422, 422, 422, 422, 422}},
		{"POST /account/second-factor/codes", "/account/second-factor/codes", own,
			[6]int{401, 404, 404, 404, 404, 404}},
		{"POST /account/second-factor/off", "/account/second-factor/off", own, [6]int{401, 404, 404, 404, 404, 404}},
		{"POST /account/tokens", "/account/tokens", mine, [6]int{401, 200, 200, 200, 200, 200}},
		{"POST /account/tokens/revoke", "/account/tokens/revoke", url.Values{"id": {"none"}},
			[6]int{401, 404, 404, 404, 404, 404}},
		{"POST /account/sessions/end", "/account/sessions/end", url.Values{"id": {"none"}},
			[6]int{401, 404, 404, 404, 404, 404}},
		{"POST /account/password", "/account/password",
			url.Values{"old": {password}, "password": {"seven green canals"}, "repeat": {"seven green canals"}},
			[6]int{401, 303, 303, 303, 303, 303}},
		{"POST /logout", "/logout", nil, [6]int{401, 303, 303, 303, 303, 303}},
	}
}

func bundle(name string) string {
	return "policies:\n- name: " + name + "\n  apps: [a]\n  limit: 10/1m\n  key: ip\n"
}

func TestMatrixOfRoutesAndRoles(t *testing.T) {
	rows := matrix()
	for _, r := range routes {
		if !slices.ContainsFunc(rows, func(c cell) bool { return c.pattern == r.pattern }) {
			t.Errorf("the matrix has no row for %s", r.pattern)
		}
	}
	for i, role := range roles {
		t.Run(role, func(t *testing.T) {
			// Each role has a console of its own, as the changes of one would be conflicts of the
			// next.
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

				// A refusal is audited once, whichever of the checks finds it.
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
	rows, err := w.Audit(w.t.Context(), w.admin,
		service.AuditQuery{Outcome: service.Refused, Limit: service.MaxPerPage})
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

	// Each of these is changed by one row.
	for _, name := range []string{"p", "edit", "mode", "delete", "back", "allow", "limit", "bulk", "undo",
		"later"} {
		w.policy(name, "5/1m")
	}

	_, err := w.CreatePolicy(w.t.Context(), w.admin,
		policy.Policy{Name: "banning", Apps: []string{"a"}, Limit: limit("5/1m"), Key: "user",
			Ban: core.MustParseBan("20/1m for 10m max 24h")})
	w.must(err)

	// A roll-back needs a second version.
	p, err := w.Policy(w.t.Context(), w.admin, "back")
	w.must(err)
	p.Priority = 1
	_, err = w.UpdatePolicy(w.t.Context(), w.admin, p)
	w.must(err)

	w.hook = w.watch("http://127.0.0.1:1").ID
}

func (w *world) ask(b *browser, c cell) *answer {
	w.t.Helper()
	c.path = strings.Replace(c.path, "HOOK", w.hook, 1)
	if !strings.HasPrefix(c.pattern, http.MethodPost) {
		return b.get(c.path)
	}

	// What is imported must be of the newest version.
	if c.form.Get("base") == "BASE" {
		p, err := w.Publishing(w.t.Context(), w.admin)
		w.must(err)
		text, err := packed(bundle("applied"))
		w.must(err)
		c.form = url.Values{"format": c.form["format"], "confirm": c.form["confirm"], "packed": {text},
			"base": {number(p.Version)}}
	}

	return b.post(c.path, c.form)
}

// Users who have not changed their one-time password see no other page.
func TestOneTimePasswordOnlyAllowsItsChange(t *testing.T) {
	w := newWorld(t)
	oneTime, err := w.CreateUser(t.Context(), w.admin, "new")
	w.must(err)
	b := w.browser()

	// The first password opens a session, which leads to the change and nowhere else.
	b.post("/login", url.Values{"name": {"new"}, "password": {oneTime}}).goes("/account")
	for _, path := range []string{"/policies", "/new", "/", "/live", "/import", "/export",
		"/apps", "/keys", "/drawing.svg?limit=1/s"} {
		b.get(path).goes("/account")
	}

	// A token would go around the change.
	b.post("/account/tokens", url.Values{"label": {"x"}, "scope": {"read"}, "days": {"1"}}).goes("/account")
	form := url.Values{"old": {oneTime}, "password": {"seven green canals"}, "repeat": {"seven green canals"}}
	b.submit("/account", "/account/password", form).goes("/account?done=password")

	b.get("/policies").want(http.StatusOK)
}
