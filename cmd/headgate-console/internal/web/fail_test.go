package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

func TestDatabaseOutageKeepsInput(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

	form := b.get("/policies/p/edit").form("/policies/p/edit")
	form.Set("description", "a lot of <work>")

	// Half an hour of typing must not be lost because the database is away for a second.
	got := w.away(http.MethodPost, "/policies/p/edit", form).want(http.StatusServiceUnavailable)
	if kept := got.form("/policies/p/edit"); kept.Get("description") != "a lot of <work>" ||
		kept.Get("version") != "1" || kept.Get("quota") != "5" {
		t.Errorf("of the form it keeps %v", kept)
	}

	b.post("/policies/p/edit", with(got.form("/policies/p/edit"), "do", "save")).goes("/policies/p?done=saved")

	// The page says that it failed, and nothing of how it is built.
	for _, path := range []string{"/policies", "/policies/p", "/", "/account"} {
		got := w.away(http.MethodGet, path, nil).want(http.StatusServiceUnavailable)
		for _, word := range []string{"sql", "SQL", "deadline", "goroutine", ".go:"} {
			if strings.Contains(got.text, word) {
				t.Errorf("%s: the page says %q", path, word)
			}
		}
	}

	w.away(http.MethodPost, "/login", url.Values{"name": {"admin"}, "password": {password}}).
		want(http.StatusServiceUnavailable)
}

// away returns the answer to a request of the administrator that times out before the
// database answers.
func (w *world) away(method, path string, form url.Values) *answer {
	w.t.Helper()

	// The session is a real one, so the request fails at the database and not before.
	s, err := w.Login(w.t.Context(), "admin", password, service.Meta{Address: "192.0.2.1:1"})
	w.must(err)

	// The deadline passed long ago, so that no statement is carried out.
	ctx, cancel := context.WithDeadline(w.t.Context(), time.Unix(1, 0))
	defer cancel()

	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: Options{}.Cookie(), Value: s.Token})

	rec := httptest.NewRecorder()
	w.pages.ServeHTTP(rec, r)

	a := &answer{t: w.t, status: rec.Code, header: rec.Header(), text: rec.Body.String()}
	a.doc, err = html.Parse(strings.NewReader(a.text))
	w.must(err)
	return a
}

func TestSessionEndKeepsInputButPasswords(t *testing.T) {
	w := newWorld(t)
	form := url.Values{"name": {"x"}, "old": {"secret one"}, "password": {"secret two"}, "repeat": {"secret two"}}
	got := w.browser().post("/new", form).want(http.StatusUnauthorized)
	if got.form("/new").Get("name") != "x" || strings.Contains(got.text, "secret") {
		t.Errorf("the page is %s", got.text)
	}
}

func TestFormTooLargeIsRefused(t *testing.T) {
	_, b := asAdmin(t)
	b.post("/new", url.Values{"description": {strings.Repeat("x", maxForm)}}).want(http.StatusRequestEntityTooLarge)
	b.post("/login", url.Values{"name": {strings.Repeat("x", maxForm)}}).want(http.StatusRequestEntityTooLarge)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/new", strings.NewReader("a=%zz"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	b.do(r).want(http.StatusBadRequest)
}

func TestLoginTooManyAttemptsShowsTheWait(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	form := url.Values{"name": {"admin"}, "password": {"wrong"}}

	// A hundred is far above what is permitted, whatever that is.
	for range 100 {
		got := b.post("/login", form)
		if got.status == http.StatusTooManyRequests {
			if got.header.Get("Retry-After") == "" || got.form("/login").Get("name") != "admin" {
				t.Error("the page does not show when to try again, or forgets the name")
			}
			return
		}
		got.want(http.StatusUnauthorized)
	}
	t.Error("a hundred wrong passwords were not limited")
}

func TestMissingPagesAreNotFound(t *testing.T) {
	_, b := asAdmin(t)
	for _, path := range []string{"/nowhere", "/policies/none", "/policies/none/edit", "/policies/none/history",
		"/policies/%2e%2e", "/users/none", "/apps/delete?name=none", "/?app=none", "/live?app=none", "/static/none"} {
		b.get(path).want(http.StatusNotFound)
	}
}

func TestRedisOutageIsShown(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	w.fleet.away = errors.New("a secret address does not answer")
	b := w.as("admin")
	got := b.get("/keys?policy=p&key=x").want(http.StatusServiceUnavailable)
	live := b.get("/").want(http.StatusOK)
	if strings.Contains(got.text+live.text, "secret") || !strings.Contains(live.text, "Redis does not answer") {
		t.Error("the pages say too much or too little")
	}
	form := url.Values{"app": {"a"}, "method": {"GET"}, "path": {"/"}, "address": {"192.0.2.1"}}
	b.post("/keys/try", form).want(http.StatusOK)
}

// A Redis that is frozen refuses nothing: it lets the time of a question pass.
func TestFrozenRedisIsNamedAsTheReason(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	w.must(w.Outbox().Published(t.Context(), 1, "41-known"))
	w.fleet.away = fmt.Errorf("read tcp 10.0.0.1:6379: %w", context.DeadlineExceeded)
	b := w.as("admin")

	key := url.Values{"policy": {"p"}, "key": {"192.0.2.7"}, "units": {"1"}, "until": {inAnHour()}, "zone": {"UTC"}}
	for path, form := range map[string]url.Values{
		"/keys/reset": confirmed(key), "/keys/lift": confirmed(key),
		"/keys/grant": confirmed(key), "/keys/revoke": confirmed(key), "/keys/debit": confirmed(key),
	} {
		got := b.post(path, form).want(http.StatusServiceUnavailable)
		if !strings.Contains(got.text, "Redis does not answer") || strings.Contains(got.text, "database") {
			t.Errorf("%s: the page says %s", path, got.text)
		}
	}

	// So does a look-up, which changes nothing.
	b.get("/keys?policy=p&key=192.0.2.7").want(http.StatusServiceUnavailable).
		has("Redis does not answer").lacks("The database does not answer")

	// The page says what was published last, which the database knows.
	live := b.get("/").want(http.StatusOK)
	live.has("Published last, as far as the console knows: <code>41-known</code>").lacks("nothing yet")
}

// A Redis that refuses a command is not called one that does not answer.
func TestRefusalOfRedisIsNamedAsTheReason(t *testing.T) {
	s := newLimited(t, policy.Policy{Name: "p", Apps: []string{"a"}, Limit: limit("5/1h"), Key: "ip"})
	s.must(s.client.Do(t.Context(), "ACL", "SETUSER", "default", "-eval", "-evalsha").Err())
	form := confirmed(url.Values{"policy": {"p"}, "key": {"192.0.2.7"}})
	got := s.b.post("/keys/reset", form).want(http.StatusServiceUnavailable)
	got.has("The user of the console may not do this in Redis.").lacks("does not answer")
}

// confirmed returns a form that was confirmed.
func confirmed(form url.Values) url.Values {
	form = maps.Clone(form)
	form.Set("confirm", "yes")
	return form
}
