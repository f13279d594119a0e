package api

import (
	"maps"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// columns are the actors of the matrix, in its order.
var columns = []string{"administrator", "owner", "viewer", "stranger", "write token", "read token", "token for c",
	"administrator's token", "backup token", "newcomer", "disabled", "disabled's token", "nobody"}

// good is the status of the row.
const good = 0

// These are rows of the matrix: the status of a route for each user.
var (
	toAll      = []int{good, good, good, good, good, good, good, good, good, good, good, good, good}
	toSettled  = []int{good, good, good, good, good, good, good, good, 403, 403, 401, 401, 401}
	toReaders  = []int{good, good, good, 404, good, good, 404, good, 403, 403, 401, 401, 401}
	toWriters  = []int{good, good, 403, 404, good, 403, 404, good, 403, 403, 401, 401, 401}
	toNamers   = []int{good, good, 403, 422, good, 403, 422, good, 403, 403, 401, 401, 401}
	toCreators = []int{good, good, 403, 403, good, 403, 403, good, 403, 403, 401, 401, 401}
	toManagers = []int{good, 403, 403, 403, 403, 403, 403, 403, 403, 403, 401, 401, 401}
	toBackups  = []int{403, 403, 403, 403, 403, 403, 403, 403, good, 403, 401, 401, 401}
)

// expectation is a request to a route, and the expected answers.
type expectation struct {
	request
	status int
	want   []int
}

// expectations returns the expectations by the pattern of the route.
func expectations() map[string]expectation {
	all := map[string]expectation{}
	maps.Copy(all, expectedOfPolicies())
	maps.Copy(all, expectedOfUsers())
	maps.Copy(all, expectedOfOthers())
	return all
}

func get(path string, want []int) expectation {
	return expectation{request{"GET", path, nil, nil}, 200, want}
}

func do(method, path string, body any, status int, want []int, headers ...string) expectation {
	return expectation{request{method, path, body, headers}, status, want}
}

func expectedOfPolicies() map[string]expectation {
	const yaml = "policies:\n- name: new\n  apps: [a]\n  limit: 1/1s\n  key: ip\n"

	// A request fits to the world that each actor finds: p is of the application a, and has the
	// version 1.
	return map[string]expectation{
		"GET /api/policies":        get("/api/policies", toSettled),
		"GET /api/policies/{name}": get("/api/policies/p", toReaders),
		"PUT /api/policies/{name}": do("PUT", "/api/policies/p", login(nil), 200, toWriters,
			"If-Match", `"1"`),
		"DELETE /api/policies/{name}": do("DELETE", "/api/policies/p", nil, 204, toWriters,
			"If-Match", `"1"`),
		"PUT /api/policies/{name}/mode": do("PUT", "/api/policies/p/mode", object{"mode": "off"}, 200,
			toWriters, "If-Match", `"1"`),
		"GET /api/policies/{name}/history":           get("/api/policies/p/history", toReaders),
		"GET /api/policies/{name}/shadow":            get("/api/policies/p/shadow", toReaders),
		"GET /api/policies/{name}/history/{version}": get("/api/policies/p/history/1", toReaders),
		"GET /api/policies/{name}/diff":              get("/api/policies/p/diff?from=0&to=1", toReaders),
		"POST /api/policies/{name}/rollback": do("POST", "/api/policies/p/rollback", object{"to": 1}, 200,
			toWriters, "If-Match", `"1"`),
		"POST /api/policies/{name}/key": do("POST", "/api/policies/p/key", object{"key": "192.0.2.1"},
			200, toReaders),
		"POST /api/policies/{name}/key/reset": do("POST", "/api/policies/p/key/reset",
			object{"key": "192.0.2.1"}, 204, toWriters),
		"GET /api/policies/{name}/bans": get("/api/policies/p/bans", toReaders),
		"POST /api/policies/{name}/bans/lift": do("POST", "/api/policies/p/bans/lift",
			object{"key": "192.0.2.1"}, 204, toWriters),
		// p has no ban, so those who may ban keys learn that.
		"POST /api/policies/{name}/bans": do("POST", "/api/policies/p/bans",
			object{"key": "x", "for": "10m"}, 422, toWriters),
		"POST /api/policies/{name}/key/allow": do("POST", "/api/policies/p/key/allow",
			object{"key": "192.0.2.1"}, 200, toWriters, "If-Match", `"1"`),
		"POST /api/policies/{name}/key/limit": do("POST", "/api/policies/p/key/limit",
			object{"key": "192.0.2.1", "limit": "9/1m"}, 200, toWriters, "If-Match", `"1"`),
		"POST /api/policies/{name}/key/grant": do("POST", "/api/policies/p/key/grant",
			object{"key": "192.0.2.1", "units": 5, "until": "2030-01-31T09:00:00Z"}, 204, toWriters),
		"POST /api/policies/{name}/key/revoke": do("POST", "/api/policies/p/key/revoke",
			object{"key": "192.0.2.1"}, 204, toWriters),
		"POST /api/policies/{name}/key/debit": do("POST", "/api/policies/p/key/debit",
			object{"key": "192.0.2.1", "units": 5}, 200, toWriters),
		"GET /api/policies/{name}/overrides": get("/api/policies/p/overrides", toReaders),
		"POST /api/policies/{name}/overrides": do("POST", "/api/policies/p/overrides",
			object{"changes": []object{{"key": "192.0.2.1", "limit": "9/1m"}}}, 200, toWriters),
		"PUT /api/policies/{name}/overrides/{key}": do("PUT", "/api/policies/p/overrides/192.0.2.1",
			object{"limit": "9/1m"}, 200, toWriters),
		// There is none yet, so those who may remove it learn that.
		"DELETE /api/policies/{name}/overrides/{key}": do("DELETE", "/api/policies/p/overrides/192.0.2.1",
			nil, 404, toWriters),
		"POST /api/validate": do("POST", "/api/validate", login(nil), 200, toSettled),
		"POST /api/test":     do("POST", "/api/test", object{"path": "/"}, 200, toSettled),
		"GET /api/export":    get("/api/export", toSettled),
		"POST /api/import/plan": do("POST", "/api/import/plan", yaml, 200, toCreators,
			"Content-Type", "application/yaml"),
		"GET /api/overrides": get("/api/overrides", toSettled),
		"POST /api/overrides/plan": do("POST", "/api/overrides/plan",
			object{"overrides": object{"p": object{"192.0.2.1": "9/1m"}}}, 200, toNamers),
		"POST /api/overrides": do("POST", "/api/overrides",
			object{"overrides": object{"p": object{"192.0.2.1": "9/1m"}}}, 200, toNamers),
		"POST /api/import": do("POST", "/api/import", yaml, 200, toCreators, "Content-Type",
			"application/yaml"),
	}
}

func expectedOfUsers() map[string]expectation {
	return map[string]expectation{
		"GET /api/apps":           get("/api/apps", toSettled),
		"GET /api/apps/{app}":     get("/api/apps/a", toReaders),
		"PUT /api/apps/{app}":     do("PUT", "/api/apps/new", object{}, 201, toManagers),
		"DELETE /api/apps/{app}":  do("DELETE", "/api/apps/c", nil, 204, toManagers),
		"GET /api/apps/{app}/top": get("/api/apps/a/top", toReaders),
	}
}

func expectedOfOthers() map[string]expectation {
	return map[string]expectation{
		"GET /api/openapi.json":     get("/api/openapi.json", toAll),
		"POST /api/backup":          do("POST", "/api/backup", nil, 200, toBackups),
		"GET /api/publishing":       get("/api/publishing", toSettled),
		"GET /api/instances":        get("/api/instances", toSettled),
		"GET /api/traffic":          get("/api/traffic?app=a&policy=p&step=1m", toReaders),
		"GET /api/traffic/policies": get("/api/traffic/policies?app=a", toReaders),
		"GET /api/traffic/apps":     get("/api/traffic/apps", toSettled),
		"GET /api/traffic/csv":      get("/api/traffic/csv?app=a", toReaders),
	}
}

// withRedis gives an API a publisher.
func withRedis(o *Options) {
	o.Publishing = func() publish.Status { return publish.Status{At: noon, Published: 1} }
}

func TestMatrixOfRoutesAndActors(t *testing.T) {
	expected := expectations()
	for _, route := range routes() {
		e, ok := expected[route.pattern]
		if !ok || len(e.want) != len(columns) {
			t.Errorf("%s: nothing is expected of it", route.pattern)
			continue
		}
		delete(expected, route.pattern)
		t.Run(route.pattern, func(t *testing.T) { e.try(t) })
	}

	// What is left is expected of a route that is no longer there.
	for pattern := range expected {
		t.Errorf("%s is no route", pattern)
	}
}

// try sends the request as each user. Each change has its own world.
func (e expectation) try(t *testing.T) {
	w := newWorld(t, withRedis)

	for i, name := range columns {
		want := e.want[i]
		if want == good {
			want = e.status
		}

		// What only reads can share a world.
		if e.method != "GET" {
			w = newWorld(t, withRedis)
		}

		before := w.refusals()
		a := w.send(e.build(w.cast[name]))
		if a.status != want {
			t.Errorf("%s: %d, want %d\n%s", name, a.status, want, a.text)
		}

		// A 401 says how to authenticate, and no other status does.
		if challenge := a.header.Get("WWW-Authenticate"); (want == 401) != (challenge != "") {
			t.Errorf("%s: WWW-Authenticate is %q", name, challenge)
		}

		// The newcomer is refused for the password, which is no refusal of a permission.
		if want == 403 && name != "newcomer" && w.refusals() != before+1 {
			t.Errorf("%s: the refusal is not in the audit log", name)
		}
	}
}

// refusals returns the number of refusals in the audit log.
func (w *world) refusals() int {
	w.t.Helper()
	return len(w.audit(service.AuditQuery{Outcome: service.Refused, Limit: service.MaxPerPage}))
}

// audit returns entries of the audit log, the newest first.
func (w *world) audit(q service.AuditQuery) []service.Entry {
	w.t.Helper()
	list, err := w.Audit(w.t.Context(), w.actor("administrator"), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// actor returns a user with a cookie, for the service.
func (w *world) actor(as string) service.Actor {
	w.t.Helper()
	cookie := w.cast[as]
	actor, err := w.Authenticate(w.t.Context(), cookie.value[len(cookieName)+1:], service.Meta{})
	if err != nil {
		w.t.Fatal(err)
	}
	return actor
}
