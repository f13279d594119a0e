package limiter_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// lists allow one network and one key, and deny others.
var lists = keyfuncs.MustAccess(keyfuncs.Lists{
	Allow: keyfuncs.Callers{Networks: []string{"10.0.0.0/8"}, Keys: []string{"carol"}},
	Deny:  keyfuncs.Callers{Networks: []string{"10.6.0.0/16", "2001:db8::/32"}, Keys: []string{"mallory"}},
})

// listed returns a rule with these lists.
func listed(t testing.TB, name, text string) limiter.Rule {
	t.Helper()
	r := rule(t, name, text)
	r.Key, r.Access = byHeader, lists
	return r
}

// callerFrom returns a request of the caller from the address.
func callerFrom(key, peer string) *test.Request {
	q := keyed(key)
	q.Peer = peer
	return q
}

func TestAccessAnswers(t *testing.T) {
	const quota = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded",` +
		`"status":429,"detail":"Retry after 3600 seconds.","violated-policies":["a"]}`
	const denied = `{"type":"about:blank","title":"Forbidden","status":403,"violated-policies":["a"]}`
	rows := []struct {
		name, key, peer string
		status          [2]int // of two requests
		body            string // of the second
		headers         string
		others          int64 // left under the other rule
	}{
		// The second of two requests of bob is over the limit of one. Who is on a list is not
		// counted by this rule.
		{"limited", "bob", "192.0.2.1:1", [2]int{0, 429}, quota, "Retry-After: 3600\nCache-Control: no-store\n", 8},
		{"an allowed network", "bob", "10.1.2.3:1", [2]int{0, 0}, "", "", 7},
		{"a mapped address", "bob", "[::ffff:10.1.2.3]:1", [2]int{0, 0}, "", "", 7},
		// An allowed key passes before the network is looked at; a denial of either wins over an
		// allowed network.
		{"an allowed key", "carol", "192.0.2.1:1", [2]int{0, 0}, "", "", 7},
		{"an allowed key from a denied network", "carol", "10.6.0.1:1", [2]int{0, 0}, "", "", 7},
		{"a denied network in an allowed one", "bob", "10.6.0.1:1", [2]int{403, 403}, denied,
			"Cache-Control: no-store\n", 9},
		{"a denied network", "bob", "[2001:db8::1%eth0]:1", [2]int{403, 403}, denied, "Cache-Control: no-store\n", 9},
		{"a denied key", "mallory", "192.0.2.1:1", [2]int{403, 403}, denied, "Cache-Control: no-store\n", 9},
		{"a denied key from an allowed network", "mallory", "10.0.0.1:1", [2]int{403, 403}, denied,
			"Cache-Control: no-store\n", 9},
		{"no address", "bob", "@", [2]int{0, 429}, quota, "Retry-After: 3600\nCache-Control: no-store\n", 8},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := newStore()
			l := configured(t, limiter.Config{Store: s, Headers: limiter.NoHeaders,
				Rules: []limiter.Rule{rule(t, "other", "9/1h"), listed(t, "a", "1/1h"), rule(t, "last", "9/1h")}})
			for i, want := range row.status {
				a := l.Admit(callerFrom(row.key, row.peer))
				answer, _ := a.Answer()
				if answer.Status != want || a.Result().Denied() != (want == 403) {
					t.Errorf("request %d: status %d, denied %t", i, answer.Status, a.Result().Denied())
				}
				if i == 1 && (string(answer.Body) != row.body || lines(a) != row.headers) {
					t.Errorf("%s\n%s", answer.Body, lines(a))
				}
				a.Done(answer.Status)
			}

			// A denied request costs no call, and the other rule no unit.
			if calls := s.calls; row.status[0] == 403 && calls != 0 {
				t.Errorf("%d calls of the store", calls)
			}
			if got := left(t, l, "k")[0]; got != row.others {
				t.Errorf("the other rule has %d left, want %d", got, row.others)
			}
		})
	}
}

// A denial tells nothing about counts, whatever headers are chosen.
func TestAccessDeniesWithoutNumbers(t *testing.T) {
	for _, status := range []int{0, 403, 429} {
		r := listed(t, "a", "1/1h")
		r.DenyStatus = status
		l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r},
			CustomHeaders: func([]limiter.RuleDecision) []limiter.Header {
				return []limiter.Header{{Name: "X-Left", Value: "1"}}
			}})

		a := l.Admit(callerFrom("mallory", "192.0.2.1:1"))
		answer, _ := a.Answer()
		want := max(status, 403)
		if answer.Status != want || a.RetryAfter() != 0 || lines(a) != "Cache-Control: no-store\n" ||
			a.Result().RetryAfter() != core.Never {
			t.Errorf("DenyStatus %d: %d with %q, Retry-After %d, %s", status, answer.Status, lines(a), a.RetryAfter(),
				a.Result().RetryAfter())
		}
		a.Done(want)
	}

	r := listed(t, "a", "1/1h")
	r.DenyStatus = 401
	if _, err := limiter.New(limiter.Config{Rules: []limiter.Rule{r}}); err == nil ||
		err.Error() != `rule 0 "a": DenyStatus: 401 is not 403 or 429` {
		t.Errorf("%v", err)
	}
}

func TestAccessByAction(t *testing.T) {
	for onLimit, want := range map[limiter.Action]events.Verdict{
		limiter.Reject:          events.Denied,
		limiter.Wait(time.Hour): events.Denied,
		limiter.Degrade:         events.Denied,
		limiter.Shadow:          events.ShadowRefused,
	} {
		t.Run(onLimit.String(), func(t *testing.T) {
			var seen recorder
			r := withOnLimit(listed(t, "a", "1/1h"), onLimit)
			l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}, Observer: &seen})
			// A denial has no cost and no time after which it would end.
			told := []events.Request{{Verdict: want,
				Rules: []events.Rule{{Name: "a", Key: "mallory", Limit: &r.Limit, Verdict: want,
					Decision: core.Decision{RetryAfter: core.Never}}}}}

			for i := range 3 {
				a := l.Admit(callerFrom("mallory", "192.0.2.1:1"))
				if got := seen.take(); !reflect.DeepEqual(got, told) ||
					(a.Outcome() == limiter.Pass) != want.Passes() || a.Degraded() {
					t.Errorf("request %d: %s, %+v", i, a.Outcome(), got)
				}
				a.Done(200)
			}

			// A request that is allowed meets no rule, so its event has none.
			a := l.Admit(callerFrom("carol", "192.0.2.1:1"))
			if got := seen.take(); !reflect.DeepEqual(got,
				[]events.Request{{Verdict: events.Allowed, Rules: []events.Rule{}}}) || a.Outcome() != limiter.Pass ||
				lines(a) != "" {
				t.Errorf("allowed: %s, %+v, %q", a.Outcome(), got, lines(a))
			}
			a.Done(200)

			// One on no list is limited as ever.
			a = l.Admit(callerFrom("bob", "192.0.2.1:1"))
			if got := seen.take(); len(got) != 1 || got[0].Rules[0].Verdict != events.Allowed ||
				!got[0].Rules[0].Decision.Allowed {
				t.Errorf("limited: %+v", got)
			}
			a.Done(200)
		})
	}
}

func TestAccessByKeyAlone(t *testing.T) {
	ctx := t.Context()
	s := newStore()
	l := newLimiter(t, s, rule(t, "other", "9/1h"), listed(t, "a", "1/1h"), rule(t, "last", "9/1h"))

	calls := map[string]func() error{
		"Wait":    func() error { return l.Wait(ctx, "mallory", 1) },
		"Reserve": func() error { _, err := l.Reserve(ctx, "mallory", 1); return err },
	}
	// A denial is no limit: it does not end with time, so it is an error of another kind.
	for name, call := range calls {
		err := call()
		var e *limiter.WaitError
		if !errors.As(err, &e) || !errors.Is(err, limiter.ErrDenied) || errors.Is(err, limiter.ErrLimited) ||
			e.RetryAfter != core.Never || err.Error() != "headgate: denied (a)" {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The allowed key takes more than the one unit of the limit.
	for range 3 {
		if err := l.Wait(ctx, "carol", 1); err != nil {
			t.Errorf("an allowed key: %v", err)
		}
	}
}

func TestAccessRefusesWithoutAnError(t *testing.T) {
	ctx := t.Context()
	s := newStore()
	l := newLimiter(t, s, rule(t, "other", "9/1h"), listed(t, "a", "1/1h"), rule(t, "last", "9/1h"))

	res, err := l.TakeWithin(ctx, "mallory", 1, time.Hour)
	if err != nil || res.Allowed() || !res.Denied() || !slices.Equal(res.Violated(), []string{"a"}) {
		t.Errorf("TakeWithin: %v, %v", res.Violated(), err)
	}

	if d, err := l.Allow(ctx, "mallory", 1); err != nil || d != (core.Decision{RetryAfter: core.Never}) {
		t.Errorf("Allow: %+v, %v", d, err)
	}

	if n, err := l.TakeUpTo(ctx, "mallory", 5); err != nil || n != 0 {
		t.Errorf("TakeUpTo: %d, %v", n, err)
	}

	list, err := l.Peek(ctx, "mallory")
	if err != nil || len(list) != 1 || list[0].Rule != "a" || list[0].Decision.Allowed {
		t.Errorf("Peek: %+v, %v", list, err)
	}

	// The lists know the key, so the store was not needed.
	if s.calls != 0 {
		t.Errorf("%d calls of the store", s.calls)
	}
}

// A Reset is for every key.
func TestAccessLetsAnyKeyBeReset(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, listed(t, "a", "1/1h"))
	if err := l.Reset(t.Context(), "mallory"); err != nil || s.calls != 1 {
		t.Errorf("%v, %d calls", err, s.calls)
	}
}

// The lists decide before a store that is away, and leave nothing behind for the next
// request in the memory of this one.
func TestAccessNeedsNoStore(t *testing.T) {
	r := listed(t, "a", "1 concurrent ttl=1m")
	l := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown }),
		OnStoreError: limiter.FailOpen,
		Rules:        []limiter.Rule{listed(t, "jobs", "1 concurrent ttl=1m"), r}})

	// A denied request, one whose store fails, and again: what one leaves in the memory the next
	// must not find.
	for _, row := range []struct {
		key  string
		want limiter.Outcome
	}{{"mallory", limiter.Refused}, {"bob", limiter.Pass}, {"mallory", limiter.Refused}, {"carol", limiter.Pass}} {
		a := l.Admit(callerFrom(row.key, "192.0.2.1:1"))
		if a.Outcome() != row.want || a.HoldsLeases() || a.Result().Denied() != (row.want == limiter.Refused) {
			t.Errorf("%s: %s", row.key, a.Outcome())
		}
		a.Done(200)
	}
}

func TestAccessMayFail(t *testing.T) {
	r := rule(t, "a", "1/1h")
	// The Address function returns what is no address, so that the lists cannot decide.
	r.Access = keyfuncs.MustAccess(keyfuncs.Lists{Deny: keyfuncs.Callers{Networks: []string{"10.0.0.0/8"}},
		Address: func(core.Request) (string, bool) { return "alice", true }})
	for failure, want := range map[limiter.FailureMode]limiter.Outcome{limiter.FailOpen: limiter.Pass,
		limiter.FailClosed: limiter.Failed} {
		var reported error
		r.OnStoreError = failure
		l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r},
			OnError: func(_ context.Context, err error) { reported = err }})
		if got := admit(l); got != want {
			t.Errorf("%s: %s", failure, got)
		}
		if reported == nil || reported.Error() != `rule 0 "a": the verdict of Access: the Address function of the lists returned a text that is no address` {
			t.Errorf("%s: %v", failure, reported)
		}
	}
}
