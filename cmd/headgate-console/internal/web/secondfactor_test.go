package web

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// codeOf goes on to the next time step, and returns its code of a secret.
func (w *world) codeOf(secret string) url.Values {
	w.t.Helper()
	w.pass(30 * time.Second)
	code, err := totp.GenerateCode(secret, w.now())
	w.must(err)
	return url.Values{"code": {code}}
}

// shown returns the secrets that a page shows.
func (a *answer) shown() (list []string) {
	a.each(func(n *html.Node) {
		if n.Data == "code" && (attr(n, "id") == "secret" || n.Parent.Data == "li") {
			list = append(list, strings.ReplaceAll(words(n), " ", ""))
		}
	})
	return list
}

func TestSecondFactorOnThePages(t *testing.T) {
	w := newWorld(t)
	w.person("x", nil)
	b := w.as("x")
	own := url.Values{"password": {password}}

	// A session that was left open must not suffice to set up a second factor.
	if got := b.submit(factorPath, factorPath, url.Values{"password": {"wrong"}}).
		want(http.StatusUnprocessableEntity); got.mistake("password") != "it is not your password" {
		t.Errorf("beside the password it says %q", got.mistake("password"))
	}

	page := b.submit(factorPath, factorPath, own).want(http.StatusOK)
	page.legible("the set-up")
	secret := page.shown()[0]

	// A cache or a log of answers would keep the secret.
	if got := page.header.Get("Content-Encoding") + page.header.Get("ETag"); got != "" {
		t.Errorf("the page with the secret has %q", got)
	}

	// A wrong code keeps the secret: the device has it already.
	if got := b.post(factorPath+"/confirm", url.Values{"code": {"000000"}}).
		want(http.StatusUnprocessableEntity); got.shown()[0] != secret || got.mistake("code") == "" {
		t.Errorf("after a wrong code the page is\n%s", got.text)
	}

	if strings.Contains(b.get(factorPath).text, secret) {
		t.Error("an answer to a GET has the secret")
	}

	// The first code that is right turns the factor on and shows the recovery codes, once.
	recovery := b.post(factorPath+"/confirm", w.codeOf(secret)).want(http.StatusOK)
	recovery.legible("the recovery codes")
	codes := recovery.shown()
	if len(codes) != 10 {
		t.Fatalf("the page shows %q", codes)
	}
	b.get(factorPath).want(http.StatusOK).legible("the second factor that is on")

	// To send the same form again changes nothing.
	b.post(factorPath+"/confirm", w.codeOf(secret)).goes(factorPath + "?done=setup")
	b.post("/logout", nil).goes("/login?done=out")

	w.signInWithCode(b, secret)
	w.signInWithRecoveryCode(codes)
}

// signInWithCode logs x in with the password and a code.
func (w *world) signInWithCode(b *browser, secret string) {
	t := w.t
	t.Helper()
	in := url.Values{"name": {"x"}, "password": {password}, "next": {"/keys?policy=p"}}

	// The password leads to the code, with a cookie that is no session.
	first := b.post("/login", in).goes("/login/code?next=%2Fkeys%3Fpolicy%3Dp")
	for _, c := range first.cookies() {
		if c.Name == "headgate" {
			t.Error("the password alone makes a session")
		}
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" {
			t.Errorf("a cookie is %+v", c)
		}
	}

	// Without the code, every page still leads to the log-in.
	b.get("/keys").goes("/login?next=%2Fkeys")
	code := b.get("/login/code?next=/keys").want(http.StatusOK)
	code.legible("the page for the code")

	if code.byID("code") == nil || attr(code.byID("code"), "autocomplete") != "one-time-code" {
		t.Error("a device cannot fill in the code")
	}

	// The wrong code does not end the log-in.
	b.post("/login/code", url.Values{"code": {"000000"}}).want(http.StatusUnauthorized).legible("a wrong code")
	form := w.codeOf(secret)
	form.Set("next", "/keys?policy=p")
	b.post("/login/code", form).goes("/keys?policy=p")

	b.get("/keys").want(http.StatusOK)
	b.post("/login/code", form).want(http.StatusUnauthorized) // the log-in has ended
	b.get("/login/code?next=/keys").goes("/login?next=%2Fkeys")

	// Another log-in cannot use the code that was seen over a shoulder.
	other := w.browser()
	other.post("/login", in).goes("/login/code?next=%2Fkeys%3Fpolicy%3Dp")
	other.post("/login/code", form).want(http.StatusUnauthorized) // the code was used
}

// signInWithRecoveryCode logs x in with the password and a recovery code, replaces the others,
// and turns the second factor off.
func (w *world) signInWithRecoveryCode(codes []string) {
	t, recovery := w.t, codes[0]
	t.Helper()

	other := w.browser()

	// A page of another site is not where the log-in leads.
	in := url.Values{"name": {"x"}, "password": {password}, "next": {"https://evil.example"}}
	other.post("/login", in).goes("/login/code?next=%2F")

	other.post("/login/code", url.Values{"code": {recovery}, "next": {"https://evil.example"}}).
		goes(factorPath + "?done=recovered")

	// One of the ten is used up.
	other.get(factorPath).has("9 recovery codes were not used")

	// The password alone would make a code with which to turn the factor off.
	renew := url.Values{"password": {password}, "code": {recovery}}
	for _, code := range []string{"", recovery} {
		renew.Set("code", code)
		if got := other.submit(factorPath, factorPath+"/codes", renew).
			want(http.StatusUnprocessableEntity); got.mistake("renew") == "" || got.mistake("password") != "" {
			t.Errorf("new codes with the code %q are no mistake", code)
		}
	}
	renew.Set("code", codes[1])
	fresh := other.submit(factorPath, factorPath+"/codes", renew).want(http.StatusOK).shown()
	if len(fresh) != 10 || fresh[0] == recovery {
		t.Errorf("the new codes are %q", fresh)
	}

	// What weakens the account needs the password again.
	if got := other.submit(factorPath, factorPath+"/off", url.Values{"password": {"wrong"}}).
		want(http.StatusUnprocessableEntity); got.mistake("off") == "" {
		t.Error("a wrong password is no mistake")
	}

	off := url.Values{"password": {password}, "code": {recovery}}
	if got := other.submit(factorPath, factorPath+"/off", off).
		want(http.StatusUnprocessableEntity); got.mistake("code") == "" || got.mistake("off") != "" {
		t.Error("a recovery code of before is no mistake")
	}

	off.Set("code", fresh[0])
	other.submit(factorPath, factorPath+"/off", off).goes(factorPath + "?done=factoroff")
	w.browser().post("/login", url.Values{"name": {"x"}, "password": {password}}).goes("/")
}

// The picture has only dark squares on a light one, inside its frame.
func TestSecondFactorPicture(t *testing.T) {
	w := newWorld(t)
	page := w.as("admin").submit(factorPath, factorPath, url.Values{"password": {password}})
	for kind := range page.shape() {
		if strings.HasPrefix(kind, "svg style") || strings.HasPrefix(kind, "img src") &&
			strings.Contains(page.text, "data:") {
			t.Errorf("the content policy forbids %s", kind)
		}
	}
	path := regexp.MustCompile(`<path d="((?:M\d+ \d+h\d+v1h-\d+z)+)"`).FindStringSubmatch(page.text)
	if path == nil {
		t.Fatalf("there is no picture:\n%s", page.text)
	}
}

// An administrator removes the second factor of another after a page that says what it means.
func TestSecondFactorRemovedByAnAdministrator(t *testing.T) {
	w := newWorld(t)
	x := w.person("x", nil)

	setup, err := w.BeginSecondFactor(t.Context(), x, password)
	w.must(err)
	_, err = w.ConfirmSecondFactor(t.Context(), x, w.codeOf(setup.Secret).Get("code"))
	w.must(err)

	b := w.as("admin")
	if !strings.Contains(b.get("/users").text, "second factor") {
		t.Error("the list of users does not say who has one")
	}

	page := b.submit("/users/x", "/users/x/second-factor", nil).want(http.StatusOK)
	page.has("All sessions of x end")

	if u, err := w.User(t.Context(), w.admin, "x"); err != nil || !u.SecondFactor {
		t.Errorf("it was removed without a confirmation: %+v %v", u, err)
	}

	// The user gets in with the password alone again, which the helper checks.
	b.post("/users/x/second-factor", page.form("/users/x/second-factor")).goes("/users/x?done=factorremoved")
	w.as("x")
}

// Users who have to set up a second factor see nothing else until they have.
func TestSecondFactorRequiredOnThePages(t *testing.T) {
	w := newWorld(t)
	w.person("x", nil)
	b, admin := w.as("x"), w.as("admin")

	// An administrator without a second factor would be locked out by this setting.
	everyone := url.Values{"idle": {"1h"}, "life": {"12h"}, "factor": {"everyone"}, "days": {"90"}}
	if got := admin.submit("/settings", "/settings", everyone).
		want(http.StatusUnprocessableEntity); !strings.Contains(got.mistake("factor"), "of your own first") {
		t.Errorf("beside the field it says %q", got.mistake("factor"))
	}

	secret := admin.submit(factorPath, factorPath, url.Values{"password": {password}}).shown()[0]
	admin.post(factorPath+"/confirm", w.codeOf(secret)).want(http.StatusOK)
	admin.submit("/settings", "/settings", everyone).goes("/settings?done=settings")

	if got := admin.get("/settings").form("/settings"); got.Get("factor") != "everyone" || got.Get("days") != "90" {
		t.Errorf("the settings are %v", got)
	}

	// The session of x began before the setting, and it holds from the next request on.
	for _, path := range []string{"/", "/policies", "/account", "/keys", "/live", "/export", "/audit"} {
		b.get(path).goes(factorPath)
	}

	// A token would go around the factor.
	b.post("/account/tokens", url.Values{"label": {"x"}, "scope": {"read"}, "days": {"1"}}).goes(factorPath)
	page := b.get(factorPath).want(http.StatusOK)
	page.legible("the second factor that is required")

	// The page has no links to pages that only lead back to it.
	page.has("requires a second factor of you").lacks(`href="/policies"`)

	secret = b.submit(factorPath, factorPath, url.Values{"password": {password}}).shown()[0]
	b.post(factorPath+"/confirm", w.codeOf(secret)).want(http.StatusOK)
	b.get("/policies").want(http.StatusOK)

	// A new user has two things to set up.
	boss, err := w.AuthenticateByProxy(t.Context(), service.FirstUser, service.Meta{})
	w.must(err)
	oneTime, err := w.CreateUser(t.Context(), boss, "new") // who first has to change the password
	w.must(err)
	b = w.browser()

	b.post("/login", url.Values{"name": {"new"}, "password": {oneTime}}).goes("/account")
	b.get("/policies").goes("/account")
	b.get(factorPath).goes("/account")

	// The password comes first, and then the factor.
	form := url.Values{"old": {oneTime}, "password": {password}, "repeat": {password}}
	b.submit("/account", "/account/password", form).goes("/account?done=password")
	b.get("/account").goes(factorPath)
	b.get(factorPath).want(http.StatusOK)
}

func TestTokensSayWhenTheyEnd(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(o *Options) { o.Clock = func() time.Time { return now } })
	b := w.as("admin")

	create := func(form url.Values) *answer {
		form.Set("label", form.Get("days")+form.Get("until"))
		form.Set("scope", "read")
		return b.submit("/account", "/account/tokens", form)
	}

	last := now.UTC().AddDate(0, 0, 20).Format(time.DateOnly)
	create(url.Values{"days": {"30"}}).want(http.StatusOK)
	create(url.Values{"until": {last}}).want(http.StatusOK)

	// The day that is chosen is the last one, so the token ends as the next begins.
	list, err := w.Tokens(t.Context(), w.admin)
	w.must(err)
	if got := list[0].Expires.Format(time.RFC3339); len(list) != 2 || got != now.UTC().AddDate(0, 0, 21).
		Format(time.DateOnly)+"T00:00:00Z" {
		t.Errorf("the token ends at %s", got)
	}

	// A token in the past, or beyond all limits, is a mistake of the day.
	for until, field := range map[string]string{"x": "until", "2020-01-01": "until", "9999-01-01": "until"} {
		if got := create(url.Values{"until": {until}}).want(http.StatusUnprocessableEntity); got.mistake(field) == "" {
			t.Errorf("%s: there is no mistake beside the field", until)
		}
	}

	if got := create(url.Values{"days": {"0"}}).want(http.StatusUnprocessableEntity); got.mistake("life") == "" {
		t.Error("no days at all are no mistake")
	}

	// The warning begins endsSoon before the end, to the second, and is of no use once it is
	// reached.
	for _, row := range []struct {
		at      time.Time
		warning bool
		state   string
	}{
		{list[0].Expires.Add(-endsSoon - time.Second), false, "Revoke"},
		{list[0].Expires.Add(-endsSoon), true, "Revoke"},
		{list[0].Expires.Add(-time.Second), true, "Revoke"}, {list[0].Expires, false, "expired"},
	} {
		now = row.at
		page := b.get("/account").want(http.StatusOK)

		warned := strings.Contains(page.text, `<a href="#token-`+list[0].ID+`">`)
		cells := words(page.byID("token-" + list[0].ID))
		if warned != row.warning || !strings.Contains(cells, row.state) ||
			strings.Contains(cells, "soon") != row.warning {
			t.Errorf("at %s: warned %t, and the row is %q", row.at, warned, cells)
		}
	}

	// The administrator's limit of 90 days takes the longer choices away.
	w.must(w.SaveSettings(t.Context(), w.admin,
		service.Settings{SessionIdle: time.Hour, SessionLife: time.Hour, TokenLife: 90 * 24 * time.Hour}))
	page := b.get("/account").want(http.StatusOK)
	page.has("A token may last 90 days at most").lacks("365 days")
}
