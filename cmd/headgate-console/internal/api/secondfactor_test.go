package api

import (
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

func TestSecondFactor(t *testing.T) {
	w := newWorld(t)
	own := object{"password": password}
	post := func(path string, body object) answer { return w.ask("owner", "POST", "/api/second-factor"+path, body) }

	w.ask("owner", "GET", "/api/second-factor", nil).want(200).wantValue(false, "on").wantValue(false, "required")

	// A session alone must not suffice to set up a factor or to be rid of it.
	post("", object{"password": "wrong"}).wantField("password")
	secret := post("", own).want(201).get("secret").(string)
	post("/confirm", object{"code": "000000"}).wantField("code")

	// The code is that of the console's clock, which stands at noon.
	code, err := totp.GenerateCode(secret, noon)
	if err != nil {
		t.Fatal(err)
	}

	codes := post("/confirm", object{"code": code}).want(200).get("recovery_codes").([]any)
	if len(codes) != 10 {
		t.Errorf("%d recovery codes, want 10", len(codes))
	}

	// It is on and confirmed, so there is nothing to confirm or to begin.
	post("/confirm", object{"code": code}).want(404)
	post("", own).want(422)
	w.ask("owner", "GET", "/api/second-factor", nil).want(200).wantValue(true, "on").wantValue(10, "recovery_codes").
		wantValue("2026-03-01T12:00:00Z", "since")
	w.ask("administrator", "GET", "/api/users/owner", nil).want(200).wantValue(true, "second_factor")

	// The password alone would make a code with which to turn the factor off.
	post("/recovery-codes", own).wantField("code")
	proof := object{"password": password, "code": codes[0]}
	fresh := post("/recovery-codes", proof).want(200).get("recovery_codes").([]any)
	if len(fresh) != 10 || fresh[0] == codes[0] {
		t.Errorf("the new recovery codes are %v", fresh)
	}

	post("/off", object{"password": "wrong", "code": fresh[0]}).wantField("password")
	post("/off", object{"password": password, "code": code}).wantField("code") // it was used
	post("/off", object{"password": password, "code": fresh[0]}).want(204)
	w.ask("owner", "GET", "/api/second-factor", nil).want(200).wantValue(false, "on")

	// The first is the name of no user. The second is the administrator, who has the account's page
	// for this.
	w.ask("administrator", "DELETE", "/api/users/administrator/second-factor", nil).want(404)
	w.ask("administrator", "DELETE", "/api/users/admin/second-factor", nil).wantField("name")
}

// Users who have to set up a second factor may do only that; tokens go on.
func TestSecondFactorRequiredOfSessions(t *testing.T) {
	w := newWorld(t, withRedis)

	// An administrator without a second factor would be locked out by the setting.
	settings := object{"session_idle": 3600, "session_life": 43200, "second_factor": "everyone"}
	w.ask("administrator", "PUT", "/api/settings", settings).wantField("second_factor")

	// The proxy vouches for the second factor of those whom it signs in.
	boss, err := w.AuthenticateByProxy(t.Context(), service.FirstUser, service.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	err = w.SaveSettings(t.Context(), boss,
		service.Settings{SessionIdle: time.Hour, SessionLife: time.Hour, SecondFactor: service.ForEveryone})
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{"/api/policies", "/api/instances", "/api/tokens", "/api/export", "/api/publishing"} {
		w.ask("owner", "GET", path, nil).want(403).wantValue("second-factor", "code")
	}

	// What is needed to set it up stays open.
	w.ask("owner", "GET", "/api/me", nil).want(200).wantValue(true, "must_set_up_second_factor")
	w.ask("owner", "GET", "/api/second-factor", nil).want(200).wantValue(true, "required")

	w.ask("write token", "GET", "/api/policies", nil).want(200)
	w.ask("write token", "GET", "/api/me", nil).want(200).wantValue(false, "must_set_up_second_factor")
}

// An expired token gets a 401 that says so, however often it comes.
func TestTokenExpiredSaysSo(t *testing.T) {
	w := newWorld(t)
	expired := w.cast["write token"]

	// A day later the token of the cast has ended.
	later := func() time.Time { return noon.Add(24 * time.Hour) }
	s, err := service.New(service.Options{DB: w.db, Clock: later})
	if err != nil {
		t.Fatal(err)
	}
	w.api.o.Service = s

	// Expired tokens are no guesses, so the limit of wrong tokens does not count them.
	for range wrongTokens + 10 {
		a := w.send(request{"GET", "/api/policies", nil, nil}.build(expired)).want(401).
			wantValue("token-expired", "code")
		if got, want := a.header.Get("WWW-Authenticate"),
			`Bearer realm="headgate console", error="invalid_token", error_description="the token has expired"`; got != want {
			t.Fatalf("the challenge is %q, want %q", got, want)
		}
	}
}

func TestTokenEndsAtATime(t *testing.T) {
	w := newWorld(t)

	create := func(change object) answer {
		body := object{"label": "x", "scope": "read"}
		for k, v := range change {
			body[k] = v
		}
		return w.ask("owner", "POST", "/api/tokens", body)
	}

	// Three ways to say the end: an instant, days, and none, which is a mistake.
	create(object{"expires": "2026-04-01T00:00:00Z"}).want(201).wantValue("2026-04-01T00:00:00Z", "token", "expires")
	create(object{"days": 365}).want(201).wantValue("2027-03-01T12:00:00Z", "token", "expires")

	for _, change := range []object{{"expires": "tomorrow"}, {"expires": "2026-04-01"},
		{"expires": "2026-03-01T12:00:00Z"}, {"expires": "2027-03-02T12:00:01Z"},
		{"expires": "2026-04-01T00:00:00Z", "days": 1}} {
		create(change).wantField("expires")
	}

	create(object{}).wantField("days")
	create(object{"days": 367}).wantField("days")

	// The setting of 30 days holds for new tokens at once.
	w.ask("administrator", "PUT", "/api/settings",
		object{"session_idle": 3600, "session_life": 3600, "token_life": 30 * 86400}).want(200).
		wantValue(30*86400, "token_life").wantValue("nobody", "second_factor")
	create(object{"days": 31}).wantField("days")
	create(object{"days": 30}).want(201)
}

func TestAuditAsAFile(t *testing.T) {
	w := newWorld(t)

	// The same query makes a file and a list, which then have the same entries.
	a := w.ask("administrator", "GET",
		"/api/audit/csv?action=user.&outcome=done&actor=admin&object=user:owner&since=2026-03-01T12:00:00Z&until=2026-03-01T12:00:01Z",
		nil).want(200)
	if got := a.header.Get("Content-Disposition"); got != `attachment; filename="audit.csv"` {
		t.Errorf("the file is %q", got)
	}

	list := w.ask("administrator", "GET",
		"/api/audit?action=user.&outcome=done&actor=admin&object=user:owner&since=2026-03-01T12:00:00Z&until=2026-03-01T12:00:01Z",
		nil).want(200)
	entries := list.get("entries").([]any)
	if rows := lines(a.text); len(entries) == 0 || rows != len(entries)+1 {
		t.Errorf("%d rows, and %d entries", rows, len(entries))
	}

	w.ask("administrator", "GET", "/api/audit/csv?since=x", nil).wantField("since")
	w.ask("administrator", "GET", "/api/audit/csv?per_page=1", nil).wantField("per_page")
}

func lines(text string) (n int) {
	for _, c := range text {
		if c == '\n' {
			n++
		}
	}
	return n
}
