// Bans as the steps of a store decide them.

package limiter_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

func useUp(t *testing.T, l *limiter.Limiter, key string, n int) {
	t.Helper()
	for i := range n + 1 {
		if d, err := l.Allow(t.Context(), key, 1); err != nil || d.Allowed != (i == 0) {
			t.Errorf("take %d: %+v, %v", i, d, err)
		}
	}
}

func TestBanAnswers(t *testing.T) {
	const refused = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded",` +
		`"status":429,"detail":"Retry after 1 second.","violated-policies":["a"]}`
	banned := func(after string) string {
		return `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
			`"title":"Request not satisfied due to detection of abnormal request pattern",` +
			`"status":429,"detail":"Retry after ` + after + `.","violated-policies":["a"]}`
	}
	rows := []struct {
		pause  time.Duration
		retry  time.Duration
		banned bool
		body   string
	}{
		// One unit a second. The third refusal within a minute is a ban of 10 minutes.
		{0, 0, false, ""},
		{0, time.Second, false, refused},
		{0, time.Second, false, refused},
		{0, 10 * time.Minute, true, banned("600 seconds")},
		// Requests during a ban do not make it longer.
		{time.Minute, 9 * time.Minute, true, banned("540 seconds")},
		{9*time.Minute - time.Microsecond, time.Microsecond, true, banned("1 second")},
		{time.Microsecond, 0, false, ""}, // the refusals during the ban were no strikes
		{0, time.Second, false, refused},
		{0, time.Second, false, refused},
		{0, 15 * time.Minute, true, banned("900 seconds")}, // twice as long would be above Max
		{30*time.Minute - time.Microsecond, 0, false, ""},
		{0, time.Second, false, refused},
		{0, time.Second, false, refused},
		{0, 15 * time.Minute, true, banned("900 seconds")},
		{30 * time.Minute, 0, false, ""}, // after 15 minutes of good conduct
		{0, time.Second, false, refused},
		{0, time.Second, false, refused},
		{0, 10 * time.Minute, true, banned("600 seconds")},
	}
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := configured(t, limiter.Config{Store: newTicking(),
			Rules: []limiter.Rule{banning(t, "a", "1/1s fixed-window")}, Observer: &seen})
		for i, row := range rows {
			time.Sleep(row.pause)

			a := l.Admit(keyed("k"))
			res := a.Result()
			if string(a.Problem()) != row.body || res.RetryAfter() != row.retry ||
				res.Banned() != row.banned || res.Allowed() != (row.retry == 0) {
				t.Errorf("%d: %s after %s, want %s after %s", i, a.Problem(), res.RetryAfter(), row.body, row.retry)
			}

			if e := seen.take(); len(e) != 1 || e[0].Rules[0].Decision.Banned != row.banned ||
				(e[0].Verdict == events.Banned) != row.banned {
				t.Errorf("%d: %+v", i, e)
			}

			a.Done(200)
		}
	})
}

func TestBanInHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), banning(t, "a", "1/1s fixed-window"))
		useUp(t, l, "k", 3)
		want := "Retry-After: 600\nCache-Control: no-store\nX-Ratelimit-Limit: 1\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 946685400\n" +
			"Ratelimit-Policy: \"a\";q=1;w=1\nRatelimit: \"a\";r=0;t=600\n"
		if got := lines(l.Admit(keyed("k"))); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

func TestBanIsOfTheRuleThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := banning(t, "day", "9/24h fixed-window")
		l := newLimiter(t, newTicking(), rule(t, "all", "1/1h fixed-window"), day,
			banning(t, "second", "1/1s fixed-window"))

		useUp(t, l, "k", 3)
		res, _ := l.Take(t.Context(), "k", 1)

		a := l.Admit(keyed("k"))
		// The rule that bans comes first, before one with a longer wait, and day has refused
		// nothing.
		want := `"second";r=0;t=600, "all";r=0;t=3600, "day";r=8;t=86400`
		if _, got, _ := strings.Cut(lines(a), "Ratelimit: "); strings.TrimSpace(got) != want ||
			!slices.Equal(res.Violated(), []string{"all", "second"}) {
			t.Errorf("%s, and %q refused", got, res.Violated())
		}

		if list := res.Decisions(); list[0].Decision.Banned || list[1].Decision.Banned || !list[2].Decision.Banned ||
			!res.Banned() {
			t.Errorf("%+v", list)
		}
	})
}

func TestBanInCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Two refusals here. The third is that of TakeUpTo, and begins the ban.
		l := newLimiter(t, newTicking(), banning(t, "a", "1/1s fixed-window"))
		useUp(t, l, "k", 2)

		if n, err := l.TakeUpTo(t.Context(), "k", 5); n != 0 || err != nil {
			t.Errorf("TakeUpTo: %d, %v", n, err)
		}

		// A minute later nine are left of the ban, in whatever call asks.
		time.Sleep(time.Minute)
		want := core.Decision{Banned: true, RetryAfter: 9 * time.Minute, At: time.Now().UnixMicro()}
		if d, err := l.Allow(t.Context(), "k", 1); d != want || err != nil {
			t.Errorf("Allow: %+v, %v", d, err)
		}

		list, err := l.Peek(t.Context(), "k")
		if err != nil || list[0].Decision != want {
			t.Errorf("Peek: %+v, %v", list, err)
		}

		res, err := l.TakeRequest(keyed("k"))
		if err != nil || res.Decisions()[0].Decision != want || !res.Banned() {
			t.Errorf("TakeRequest: %+v, %v", res.Decisions(), err)
		}

		// Reset ends the ban and forgets the strikes before it, so that two more refusals are no
		// ban.
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		useUp(t, l, "k", 2)

		if (*limiter.Result)(nil).Banned() {
			t.Error("a nil Result is banned")
		}
	})
}

func TestBanCountsRequestsThatMayWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := withOnLimit(rule(t, "slow", "1/1s fixed-window"), limiter.Wait(time.Minute))
		l := newLimiter(t, newTicking(), slow, banning(t, "a", "1/1h fixed-window"))
		// The rule that waits may let a request ask more than once. Each is one refusal all the
		// same: the third bans.
		for i, want := range []struct{ allowed, banned bool }{{true, false}, {false, false}, {false, false},
			{false, true}} {
			a := l.Admit(keyed("k"))
			if res := a.Result(); res.Allowed() != want.allowed || res.Banned() != want.banned {
				t.Errorf("request %d: allowed %t, banned %t", i, res.Allowed(), res.Banned())
			}
			a.Done(200)
		}
	})
}

func TestBanAndAccess(t *testing.T) {
	s := newStore()
	r := listed(t, "a", "1/1h fixed-window")

	r.Ban = banning(t, "a", "1/1h").Ban
	l := newLimiter(t, s, r)

	for _, q := range []struct {
		key, peer string
		outcome   limiter.Outcome
	}{{"carol", "192.0.2.1:1", limiter.Pass}, {"bob", "10.1.2.3:1", limiter.Pass},
		{"mallory", "192.0.2.1:1", limiter.Refused}} {
		for range 10 {
			a := l.Admit(callerFrom(q.key, q.peer))
			if a.Outcome() != q.outcome || a.Result().Banned() {
				t.Errorf("%s from %s: %s, banned %t", q.key, q.peer, a.Outcome(), a.Result().Banned())
			}
			a.Done(200)
		}
	}

	if s.calls != 0 {
		t.Errorf("%d calls of the store", s.calls)
	}

	// A ban is of the key: it holds from elsewhere, and does not reach the network that is allowed.
	useUp(t, l, "bob", 3) // who is not on a list by the key
	banned := l.Admit(callerFrom("bob", "192.0.2.1:1"))
	passes := l.Admit(callerFrom("bob", "10.1.2.3:1"))

	if !banned.Result().Banned() || passes.Outcome() != limiter.Pass {
		t.Errorf("banned %t, and %s from the allowed network", banned.Result().Banned(), passes.Outcome())
	}
}

func TestLiftEndsABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := banning(t, "a", "1/1h fixed-window")
		r.Access = keyfuncs.MustAccess(keyfuncs.Lists{Deny: keyfuncs.Callers{Keys: []string{"mallory"}}})

		l := newLimiter(t, newTicking(), r, banning(t, "b", "9/1h fixed-window"))
		// Both keys are banned, and one ban is lifted.
		useUp(t, l, "k", 3)
		useUp(t, l, "other", 3)

		if err := l.Lift(t.Context(), "a", "k"); err != nil {
			t.Fatal(err)
		}

		// The unit is still spent. The strikes are forgotten, so that it takes three more refusals.
		for i, want := range []core.Decision{
			{RetryAfter: time.Hour}, {RetryAfter: time.Hour}, {RetryAfter: time.Hour, Banned: true},
		} {
			want.ResetAfter, want.At = time.Hour, time.Now().UnixMicro()
			if d, err := l.Allow(t.Context(), "k", 1); d != want || err != nil {
				t.Errorf("%d: %+v, %v", i, d, err)
			}
		}

		if d, _ := l.Allow(t.Context(), "other", 1); !d.Banned {
			t.Errorf("other: %+v", d)
		}

		// To lift what was never banned is no mistake. To name no rule is.
		for _, key := range []string{"mallory", "nobody", ""} {
			if err := l.Lift(t.Context(), "a", key); err != nil {
				t.Errorf("%q: %v", key, err)
			}
		}

		err := l.Lift(t.Context(), "x\ny", "k")
		if err == nil || err.Error() != `headgate: there is no rule "x\ny" whose ban could be lifted` {
			t.Errorf("%v", err)
		}
	})
}
