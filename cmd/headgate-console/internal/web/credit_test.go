package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// inAnHour is a time of the form, in UTC, that has not come when it is read.
func inAnHour() string { return time.Now().UTC().Add(time.Hour).Format("2006-01-02T15:04") }

// limited is a console, and an instance of a service that decides in the same Redis.
type limited struct {
	*world
	t       *testing.T
	client  *redis.Client
	limiter *limiter.Limiter
	b       *browser
}

func newLimited(t *testing.T, policies ...policy.Policy) *limited {
	t.Helper()
	s := &limited{t: t, world: newWorld(t)}
	s.client = redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { s.client.Close() })
	s.fleet.store = redisstore.MustNew(s.client, redisstore.Options{Timeout: 10 * time.Second})
	for _, p := range policies {
		_, err := s.CreatePolicy(t.Context(), s.admin, p)
		s.must(err)
	}

	compiled, err := policy.Compile("a", policies, policy.Bindings{User: func(r core.Request) (string, bool) {
		user, ok := r.Context().Value(userKey{}).(string)
		return user, ok
	}})
	s.must(err)
	s.limiter, err = limiter.New(limiter.Config{Rules: compiled.Rules(), OnStoreError: limiter.FailClosed,
		Store: redisstore.MustNew(s.client, redisstore.Options{Timeout: 10 * time.Second})})
	s.must(err)
	t.Cleanup(func() { s.limiter.Close() })
	s.b = s.as("admin")
	return s
}

type userKey struct{}

// admitted returns how many of n requests of a user the instance admits.
func (s *limited) admitted(n int, user string) (admitted int) {
	s.t.Helper()
	for range n {
		res, err := s.limiter.TakeRequest(&sample{ctx: context.WithValue(s.t.Context(), userKey{}, user),
			method: "GET", path: "/", remote: "192.0.2.7:1"})
		s.must(err)
		if res.Allowed() {
			admitted++
		}
	}
	return admitted
}

// ask sends the form of an action on a key, as the page of the key and the question have it.
func (s *limited) ask(action, policyName, key string, changes url.Values) *answer {
	s.t.Helper()
	page := s.b.look(policyName, key)
	form := page.form(action)
	if form == nil {
		s.t.Fatalf("the page of the key has no button for %s: %s", action, page.text)
	}
	question := s.b.post(action, form).want(http.StatusOK).form(action)
	for name, values := range changes {
		question[name] = values
	}
	return s.b.post(action, question)
}

// did returns what the page that the answer leads to says was done.
func (s *limited) did(a *answer) string {
	s.t.Helper()
	a.want(http.StatusSeeOther)
	return s.b.get(a.header.Get("Location")).want(http.StatusOK).notice()
}

// notice returns the text of the notice of what was done.
func (a *answer) notice() (text string) {
	a.each(func(n *html.Node) {
		if attr(n, "role") == "status" && strings.HasSuffix(attr(n, "class"), " undo") {
			text = words(n)
		}
	})
	return text
}

// redisNow is the clock by which grants end.
func (s *limited) redisNow() time.Time {
	s.t.Helper()
	now, err := s.client.Time(s.t.Context()).Result()
	s.must(err)
	return now.UTC()
}

// until returns the fields of the form for an end.
func until(t time.Time, units string) url.Values {
	return url.Values{"units": {units}, "until": {t.UTC().Format("2006-01-02T15:04:05")}, "zone": {"UTC"}}
}

func userPolicy(name, l string) policy.Policy {
	return policy.Policy{Name: name, Apps: []string{"a"}, Limit: limit(l), Key: "user"}
}

// A customer has bought 10,000 requests more, until the end of the month. docs/console.md has it.
func TestTopUpOnThePage(t *testing.T) {
	s := newLimited(t, userPolicy("api", "100/1h fixed-window"))
	if n := s.admitted(101, "alice"); n != 100 {
		t.Fatalf("%d are within the limit", n)
	}

	now := s.redisNow()
	end := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	if end.Sub(now) < time.Hour {
		end = end.AddDate(0, 1, 0)
	}
	if said := s.did(s.ask("/keys/grant", "api", "alice", until(end, "10,000"))); said != "The units were granted." {
		t.Errorf("it says %q", said)
	}
	if row, want := s.b.look("api", "alice").cell("api"), "alice | 100 of 100, 0 leftand 10,000 granted until "+
		end.Format("2006-01-02 15:04:05")+" | now"; !strings.HasPrefix(row, want) {
		t.Errorf("the page says %q, want %q", row, want)
	}
	if n := s.admitted(3, "alice"); n != 3 {
		t.Errorf("%d of 3 are admitted", n)
	}
	if d := s.peek("api", "alice"); d.Credit != 9997 {
		t.Errorf("%+v", d)
	}
}

func (s *limited) peek(name, key string) core.Decision {
	s.t.Helper()
	u, err := s.LookUp(s.t.Context(), s.admin, name, key)
	s.must(err)
	return u.Decision
}

// After the limit as many more requests pass as were granted, and none after a revoke, or after the
// end by the clock of Redis.
func TestGrantedUnitsPassAfterTheLimit(t *testing.T) {
	s := newLimited(t, userPolicy("api", "5/1h fixed-window"), userPolicy("other", "1000/1h fixed-window"))
	s.did(s.ask("/keys/grant", "api", "alice", until(s.redisNow().Add(time.Hour), "3")))
	if n, bob := s.admitted(20, "alice"), s.admitted(20, "bob"); n != 8 || bob != 5 {
		t.Errorf("%d of alice, and %d of another", n, bob)
	}

	// A revoke ends what is left.
	s.did(s.ask("/keys/grant", "api", "alice", until(s.redisNow().Add(time.Hour), "1 000")))
	if n := s.admitted(2, "alice"); n != 2 {
		t.Errorf("%d pass", n)
	}
	if said := s.did(s.ask("/keys/revoke", "api", "alice", nil)); said !=
		"The granted units were revoked." {
		t.Errorf("it says %q", said)
	}
	if n := s.admitted(1, "alice"); n != 0 {
		t.Error("a request passes after the revoke")
	}
}

// No unit passes after the end of its grant by the clock of Redis.
func TestGrantedUnitsEndByTheClockOfRedis(t *testing.T) {
	s := newLimited(t, userPolicy("api", "5/1h fixed-window"))
	if n := s.admitted(6, "alice"); n != 5 {
		t.Fatalf("%d pass", n)
	}

	// The end is a whole second of the server's clock that has not come yet.
	end := s.redisNow().Truncate(time.Second).Add(2 * time.Second)
	got := s.ask("/keys/grant", "api", "alice", until(end, "9"))
	if s.redisNow().Before(end) {
		got.want(http.StatusSeeOther)
	}
	for s.redisNow().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	if d := s.peek("api", "alice"); d.Credit != 0 || s.admitted(1, "alice") != 0 {
		t.Errorf("after the end %+v", d)
	}

	rows := s.changes()
	want := fmt.Sprintf(`{"key":"alice","units":9,"until":%q}`, end.Format(time.RFC3339))
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].Action != "key.grant" || rows[0].After != want {
		t.Errorf("the audit log has %+v, want %s", rows, want)
	}
}

// After a debit the key is refused for as long as the reference says.
func TestDebitOnThePageRefusesAsTheReferenceSays(t *testing.T) {
	s := newLimited(t, userPolicy("api", "10/1h debt=6"))
	for range 10 {
		s.admitted(1, "alice")
	}
	first := s.peek("api", "alice")
	if said := s.did(s.ask("/keys/debit", "api", "alice", url.Values{"units": {"4"}})); said !=
		"The units were charged." {
		t.Errorf("it says %q", said)
	}

	// The reference is asked at the instants of the store. No unit is back meanwhile, so it does
	// not matter at which of them the debit was.
	got := s.peek("api", "alice")
	began := first.At + first.RetryAfter.Microseconds() - 360e6 // a unit is back after six minutes
	state, op := &core.State{}, core.Op{Rule: "api", Key: "alice", Limit: limit("10/1h debt=6"), Cost: 10}
	want := make([]core.Decision, 1)
	for _, each := range []struct {
		verb core.Verb
		cost int64
		at   int64
	}{{core.Take, 10, began}, {core.Debit, 4, first.At}, {core.Peek, 1, got.At}} {
		op.Verb, op.Cost = each.verb, each.cost
		core.Decide([]core.Op{op}, []*core.State{state}, each.at, want)
	}
	if got != want[0] || got.Allowed || got.RetryAfter <= 4*6*time.Minute {
		t.Errorf("%+v, want %+v", got, want[0])
	}
	if n := s.admitted(1, "alice"); n != 0 {
		t.Error("a request passes in spite of the debt")
	}

	// Two of five fit into what is left of the debt, which the page and the audit log say.
	if said := s.did(s.ask("/keys/debit", "api", "alice", url.Values{"units": {"5"}})); said !=
		"Not all of the units were charged: the debt of the key is full." {
		t.Errorf("it says %q", said)
	}
	rows, err := s.Audit(t.Context(), s.admin, service.AuditQuery{Action: "key.debit"})
	s.must(err)
	if len(rows) != 3 || rows[0].Note != "2 of the 5 units were charged: the debt of the key is full" ||
		rows[1].After != `{"key":"alice","units":5}` || rows[2].After != `{"key":"alice","units":4}` {
		t.Errorf("%+v", rows)
	}
}

// What cannot be is said at its field, and changes nothing.
func TestCreditFormNamesMistakes(t *testing.T) {
	s := newLimited(t, userPolicy("api", "5/1h debt=2"), userPolicy("jobs", "2 concurrent ttl=1m"),
		userPolicy("log", "5/1h sliding-log"),
		policy.Policy{Name: "ip", Apps: []string{"a"}, Limit: limit("5/1h"), Key: "ip"})
	end := s.redisNow().Add(time.Hour)
	form := func(values url.Values, change ...string) url.Values {
		for i := 0; i < len(change); i += 2 {
			values.Set(change[i], change[i+1])
		}
		return values
	}

	for _, row := range []struct {
		action, policy, key string
		form                url.Values
		field, want         string
	}{
		{"grant", "api", "k", until(end, "0"), "units", "it is not a whole number from 1 to 9007199254740991"},
		{"grant", "api", "k", until(end, "-1"), "units", "it is not a whole number from 1 to"},
		{"grant", "api", "k", until(end, "9007199254740992"), "units", "it is not a whole number from 1 to"},
		{"grant", "api", "k", until(end, "1.5"), "units", "it is not a whole number, such as 500"},
		{"grant", "api", "k", until(end, "1,0"), "units", "it is not a whole number, such as 500"},
		{"grant", "api", "k", until(end, ""), "units", "it is not a whole number, such as 500"},
		{"grant", "api", "k", until(end.Add(-2*time.Hour), "1"), "until", "it has come already"},
		{"grant", "api", "k", until(end.AddDate(10, 0, 1), "1"), "until", "it is more than ten years ahead"},
		{"grant", "api", "k", form(until(end, "1"), "until", ""), "until", "it is not a date and a time"},
		{"grant", "api", "k", form(until(end, "1"), "zone", "Nowhere"), "zone", "it is not the name of a time zone"},
		{"grant", "jobs", "k", until(end, "1"), "policy", "its keys have no credit"},
		{"grant", "ip", "alice", until(end, "1"), "key", "is not an address"},
		{"grant", "api", strings.Repeat("k", 10<<10), until(end, "1"), "key", "10240 bytes are more than 1000"},
		{"debit", "api", "k", url.Values{"units": {"0"}}, "units", "it is not a whole number from 1 to 7"},
		{"debit", "api", "k", url.Values{"units": {"8"}}, "units", "it is not a whole number from 1 to 7"},
		{"debit", "api", "k", url.Values{"units": {"x"}}, "units", "it is not a whole number, such as 500"},
		{"debit", "log", "k", url.Values{"units": {"1"}}, "policy", "has no debt"},
		{"debit", "jobs", "k", url.Values{"units": {"1"}}, "policy", "has no debt"},
	} {
		before := len(s.changes())
		row.form.Set("policy", row.policy)
		row.form.Set("key", readable(row.key))
		got := s.b.post("/keys/"+row.action, confirmed(row.form)).want(http.StatusUnprocessableEntity)
		atField := strings.Contains(got.text, `<a href="#`+row.field+`">`) || got.mistake(row.field) != ""
		if !atField || !strings.Contains(got.text, row.want) {
			t.Errorf("%s %v: the page says %s", row.action, row.form, got.text)
		}
		if n := len(s.changes()) - before; n != 0 {
			t.Errorf("%s %v: the audit log has %d rows more", row.action, row.form, n)
		}
		if len(row.key) > service.MaxKey || row.policy == "jobs" {
			continue
		}
		if d := s.peek(row.policy, row.key); d.Credit != 0 || d.Remaining != 5 {
			t.Errorf("%s %v: the key is %+v", row.action, row.form, d)
		}
	}
}

// The ninth end is one too many, and the audit log has that it was refused.
func TestNinthGrantIsRefused(t *testing.T) {
	s := newLimited(t, userPolicy("api", "5/1h debt=2"))
	end := s.redisNow().Add(time.Hour)
	for i := range core.MaxCredits {
		s.did(s.ask("/keys/grant", "api", "k", until(end.Add(time.Duration(i)*time.Minute), "1")))
	}
	got := s.ask("/keys/grant", "api", "k", until(end.Add(time.Hour), "1")).want(http.StatusUnprocessableEntity)
	got.has("the key has 8 grants with other ends")
	row := s.changes()[0]
	if row.Outcome != service.Refused || !strings.Contains(row.Note, "the key has 8 grants") {
		t.Errorf("%+v", row)
	}
	s.ask("/keys/grant", "api", "k", until(end, "9007199254740990")).want(http.StatusUnprocessableEntity)
	if d := s.peek("api", "k"); d.Credit != core.MaxCredits {
		t.Errorf("%+v", d)
	}
}

// changes returns the rows of the audit log about changes of keys, the newest first.
func (s *limited) changes() (list []service.Entry) {
	s.t.Helper()
	for _, action := range []string{"key.grant", "key.revoke", "key.debit"} {
		rows, err := s.Audit(s.t.Context(), s.admin, service.AuditQuery{Action: action, Limit: service.MaxPerPage})
		s.must(err)
		list = append(list, rows...)
	}
	return list
}

// A key holds whatever a client sent, and each gets units of its own.
func TestCreditOfHostileKeys(t *testing.T) {
	s := newLimited(t, userPolicy("api", "1/1h fixed-window"))
	keys := append(injections()[:20], "\xff\x00\n", strings.Repeat("<b>", 333), "a b\x1b[2J", "%00", "{}*")
	for _, key := range keys {
		s.b.look("api", key).harmless("/keys")
		got := s.ask("/keys/grant", "api", key, until(s.redisNow().Add(time.Hour), "2"))
		page := s.b.get(got.want(http.StatusSeeOther).header.Get("Location"))
		page.harmless("the page of the key")
		if row := page.cell("api"); !strings.Contains(row, "and 2 granted until ") {
			t.Errorf("%q: %q", key, row)
		}
		if n := s.admitted(5, key); n != 3 {
			t.Errorf("%q: %d are admitted", key, n)
		}
	}
	s.b.get("/audit").want(http.StatusOK).harmless("/audit")
}

// A key of a later format is left as it is, and the page says why.
func TestKeyOfALaterFormatIsExplained(t *testing.T) {
	s := newLimited(t, userPolicy("api", "5/1h"))
	s.must(s.client.Set(t.Context(), "hg:{k}:api:g", "\xfe\x09later", time.Hour).Err())
	form := until(s.redisNow().Add(time.Hour), "2")
	form.Set("policy", "api")
	form.Set("key", "k")
	for _, path := range []string{"/keys/grant", "/keys/revoke", "/keys/debit", "/keys/reset"} {
		got := s.b.post(path, confirmed(form)).want(http.StatusUnprocessableEntity)
		if !strings.Contains(got.text, "a newer version of headgate has written") {
			t.Errorf("%s: %s", path, got.text)
		}
	}
	s.b.get("/keys?policy=api&key=k").want(http.StatusUnprocessableEntity).
		has("a newer version of headgate has written")
	if v := s.client.Get(t.Context(), "hg:{k}:api:g").Val(); v != "\xfe\x09later" {
		t.Errorf("it is %q", v)
	}
}
