package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

func TestWrongCredentialsAreRefused(t *testing.T) {
	w := newWorld(t)

	secret := strings.TrimPrefix(w.cast["write token"].value, "Bearer ")
	session := strings.TrimPrefix(w.cast["owner"].value, cookieName+"=")

	// The secrets are right, and something about how they are sent is not.
	for name, headers := range map[string][]string{
		"nothing":               nil,
		"another scheme":        {"Authorization", "Basic " + secret},
		"no scheme":             {"Authorization", secret},
		"no token":              {"Authorization", "Bearer "},
		"a token too long":      {"Authorization", "Bearer " + secret + "x"},
		"a session as a token":  {"Authorization", "Bearer " + session},
		"a token as a session":  {"Cookie", cookieName + "=" + secret},
		"another cookie":        {"Cookie", "other=" + session},
		"an empty cookie":       {"Cookie", cookieName + "="},
		"a wrong token instead": {"Authorization", "Bearer x", "Cookie", cookieName + "=" + session},
	} {
		a := w.ask("nobody", "GET", "/api/policies", nil, headers...).want(401).wantValue("not-logged-in", "code")
		if got := a.header.Get("WWW-Authenticate"); got != `Bearer realm="headgate console"` {
			t.Errorf("%s: the challenge is %q", name, got)
		}
	}

	// Two headers leave open which one counts.
	r := request{"GET", "/api/policies", nil, nil}.build(w.cast["write token"])
	r.Header.Add("Authorization", "Bearer x")
	w.send(r).want(401)

	// The scheme may be written in any case, and with more spaces.
	w.ask("nobody", "GET", "/api/policies", nil, "Authorization", "bearer  "+secret).want(200)
}

func TestCookieIgnoredWithoutAName(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Cookie = "" })
	w.ask("owner", "GET", "/api/policies", nil).want(401)
	w.ask("write token", "GET", "/api/policies", nil).want(200)
}

func TestCookieChangeNeedsTheSameOrigin(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{nil, 200}, // no browser
		{[]string{"Sec-Fetch-Site", "same-origin", "Origin", "https://evil.example"}, 200},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
		{[]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Origin", "http://example.com"}, 200}, // the host of the request
		{[]string{"Origin", "https://evil.example"}, 403},
		{[]string{"Origin", "null"}, 403},
	} {
		body := object{"mode": "shadow", "version": 1}
		a := w.ask("owner", "PUT", "/api/policies/p/mode", body, c.headers...)
		if a.status != c.status {
			t.Errorf("%q: %d, want %d", c.headers, a.status, c.status)
		}

		if a.status == 403 {
			a.wantValue("cross-origin", "code")
		}

		// A token is sent by no browser on its own, and reading changes nothing.
		w.ask("write token", "PUT", "/api/policies/p/mode", body, c.headers...).want(200)
		w.ask("owner", "GET", "/api/policies/p", nil, c.headers...).want(200)
	}
}

func TestTokenIsLimitedToScopeAndApps(t *testing.T) {
	w := newWorld(t)

	w.ask("administrator", "PUT", "/api/policies/shared", login(object{"apps": []string{"a", "c"}}), "If-None-Match",
		"*").want(201)
	w.ask("administrator", "PUT", "/api/policies/mine", login(object{"apps": []string{"c"}}), "If-None-Match", "*").
		want(201)

	if got := w.ask("token for c", "GET", "/api/policies", nil).
		names("policies", "name"); !slices.Equal(got, []string{"mine", "shared"}) {
		t.Errorf("the token for c sees %q", got)
	}
	if got := w.ask("token for c", "GET", "/api/apps", nil).names("apps", "name"); !slices.Equal(got, []string{"c"}) {
		t.Errorf("the token for c sees the applications %q", got)
	}
	w.ask("token for c", "PUT", "/api/policies/mine/mode", object{"mode": "off", "version": 1}).want(200)
	w.ask("token for c", "PUT", "/api/policies/shared/mode", object{"mode": "off", "version": 1}).want(403)
	w.ask("token for c", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 1}).want(404)
	w.ask("token for c", "GET", "/api/apps/a", nil).want(404)

	w.ask("read token", "GET", "/api/policies/p", nil).want(200)
	w.ask("read token", "POST", "/api/validate", login(object{"name": "x"})).want(200).wantValue(false, "may_save")
	w.ask("read token", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 1}).want(403).
		wantValue("denied", "code")
	w.ask("read token", "PUT", "/api/policies/new", login(nil), "If-None-Match", "*").want(403)
	w.ask("read token", "DELETE", "/api/policies/p?version=1", nil).want(403)
}

func TestWrongTokensAreLimitedByAddress(t *testing.T) {
	at := noon
	w := newWorld(t, func(o *Options) { o.Clock = func() time.Time { return at } })
	from := func(address, as string, headers ...string) answer {
		r := request{"GET", "/api/apps", nil, headers}.build(w.cast[as])
		r.RemoteAddr = address
		return w.send(r)
	}

	wrong := []string{"Authorization", "Bearer hgt_wrong"}
	for range 1000 {
		from("192.0.2.1:1", "nobody").want(401) // a request without a token is no attempt
		from("192.0.2.1:1", "write token").want(200)
	}

	// Wrong tokens and wrong sessions are counted together, by the address without its port.
	for i := range wrongTokens {
		if i%2 == 0 {
			from("192.0.2.1:2", "nobody", wrong...).want(401)
		} else {
			from("192.0.2.1:3", "nobody", "Cookie", cookieName+"=wrong").want(401)
		}
	}

	a := from("192.0.2.1:4", "nobody", wrong...).want(429).wantValue("limited", "code")
	if got := a.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}

	// The right token is not even looked at, as it might be the hit of a search. Another address is
	// free.
	from("192.0.2.1:5", "write token").want(429)
	from("192.0.2.2:1", "write token").want(200)

	// A microsecond before the second ends it is still too early, and then one attempt is free.
	at = at.Add(time.Second - time.Microsecond)
	if got := from("192.0.2.1:4", "nobody", wrong...).want(429).header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}

	at = at.Add(time.Microsecond)
	from("192.0.2.1:4", "nobody", wrong...).want(401)
	from("192.0.2.1:4", "nobody", wrong...).want(429)
}

func TestRequestIDIsKeptOrMade(t *testing.T) {
	w := newWorld(t)

	// An id of the client's is kept, so that its log and the console's can be compared.
	a := w.ask("owner", "GET", "/api/policies/none", nil, "X-Request-Id", "build-7_x.Y").want(404).
		wantValue("build-7_x.Y", "request_id")
	if got := a.header.Get("X-Request-Id"); got != "build-7_x.Y" {
		t.Error(got)
	}

	// One that could spoil a log is replaced by 16 characters.
	for _, bad := range []string{"", "a b", "é", "<x>", strings.Repeat("x", 65)} {
		got := w.ask("owner", "GET", "/api/apps", nil, "X-Request-Id", bad).header.Get("X-Request-Id")
		if got == bad || len(got) != 16 {
			t.Errorf("%q became %q", bad, got)
		}
	}

	w.ask("owner", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 1}, "X-Request-Id", "mine").want(200)
	if log := w.audit(service.AuditQuery{Action: "policy.update"}); len(log) != 1 || log[0].RequestID != "mine" {
		t.Errorf("the audit log has %+v", log)
	}
}

func TestUnknownRouteIsAProblem(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/api/", "/api/none", "/api/policies/", "/api/policies/p/none", "/api//policies",
		"/api/policies/../users", "/api/./me"} {
		w.ask("administrator", "GET", path, nil).want(404).wantValue("not-found", "code")
	}
	a := w.ask("administrator", "POST", "/api/policies/p", login(nil)).want(405).wantValue("method-not-allowed", "code")
	if got := a.header.Get("Allow"); got != "DELETE, GET, HEAD, PUT" {
		t.Errorf("Allow is %q", got)
	}
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.api)
	defer server.Close()

	// A recorder would keep a body that a server leaves out, so the answer is from a server.
	r, err := http.NewRequest("HEAD", server.URL+"/api/policies/p", nil)
	if err != nil {
		t.Fatal(err)
	}

	r.Header.Set("Authorization", w.cast["read token"].value)
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	server.Client().CloseIdleConnections()

	if response.StatusCode != 200 || response.Header.Get("ETag") != `"1"` {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
}
