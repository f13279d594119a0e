package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// bansBob returns the rule with an Override that bans bob until the instant.
func bansBob(r limiter.Rule, until time.Time) limiter.Rule {
	r.Key = byHeader
	r.Override = func(_ context.Context, key string) (core.Limit, bool, error) {
		if key == "bob" {
			return core.Limit{}, false, limiter.BannedUntil(until)
		}
		return core.Limit{}, false, nil
	}
	return r
}

func TestOverrideBansUntilAnInstant(t *testing.T) {
	const problem = `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
		`"title":"Request not satisfied due to detection of abnormal request pattern",` +
		`"status":429,"detail":"Retry after 90 seconds.","violated-policies":["a"]}`
	const headers = "Retry-After: 90\nCache-Control: no-store\n" +
		"X-Ratelimit-Limit: 5\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 946684890\n" +
		"Ratelimit-Policy: \"a\";q=5;w=3600\nRatelimit: \"a\";r=0;t=90\n"

	for _, onLimit := range []limiter.Action{limiter.Reject, limiter.Degrade, limiter.Wait(time.Hour)} {
		t.Run(onLimit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTicking()
				r := bansBob(withOnLimit(rule(t, "a", "5/1h"), onLimit), time.Now().Add(90*time.Second))
				l := newLimiter(t, s, rule(t, "first", "9/1h"), r, rule(t, "last", "9/1h"))

				a := l.Admit(keyed("bob"))
				answer, _ := a.Answer()
				res := a.Result()
				if answer.Status != 429 || string(answer.Body) != problem || lines(a) != headers || s.calls != 0 {
					t.Errorf("%d\n%s\n%s\n%d calls of the store", answer.Status, answer.Body, lines(a), s.calls)
				}
				if !res.Banned() || res.Denied() || res.Undecided() || res.RetryAfter() != 90*time.Second ||
					!slices.Equal(res.Violated(), []string{"a"}) {
					t.Errorf("banned %t, denied %t, %s, %v", res.Banned(), res.Denied(), res.RetryAfter(),
						res.Violated())
				}
				a.Done(429)

				// Another key is counted, and so is this one from the end of the ban on.
				for _, row := range []struct {
					key   string
					after time.Duration
					want  int
				}{{"eve", 0, 200}, {"bob", 90*time.Second - time.Microsecond, 429}, {"bob", time.Microsecond, 200}} {
					time.Sleep(row.after)

					a := l.Admit(keyed(row.key))
					got := 200
					if answer, refused := a.Answer(); refused {
						got = answer.Status
					}
					if got != row.want {
						t.Errorf("%s after another %s: %d, want %d", row.key, row.after, got, row.want)
					}
					a.Done(got)
				}

				wantLeft(t, l, "bob", 9, 4, 9)
			})
		})
	}
}

// What has no request bans and reports too. No call waits for the end of a ban.
func TestOverrideBansEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = time.Minute
		ctx, s, end := t.Context(), newTicking(), time.Now().Add(span)
		var seen recorder
		var met []events.Ban
		r := bansBob(rule(t, "a", "5/1h"), end)
		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{r}, Observer: &seen,
			Hooks: &events.Hooks{Ban: func(b events.Ban) { met = append(met, b) }}})

		banned := core.Decision{Banned: true, RetryAfter: span, ResetAfter: span, At: time.Now().UnixMicro()}
		if d, err := l.Allow(ctx, "bob", 1); err != nil || d != banned {
			t.Errorf("Allow: %+v, %v", d, err)
		}
		told := []events.Request{{Verdict: events.Banned, Rules: []events.Rule{
			{Name: "a", Key: "bob", Limit: &r.Limit, Verdict: events.Banned, Decision: banned}}}}
		if got := seen.take(); !reflect.DeepEqual(got, told) {
			t.Errorf("the observer: %+v", got)
		}

		takeBanned(t, l, banned)

		// All of them met one ban, and none of them the store or the clock.
		if !reflect.DeepEqual(met, []events.Ban{{Rule: "a", Key: "bob", For: span}}) || s.calls != 0 ||
			!time.Now().Before(end) {
			t.Errorf("%+v, %d calls of the store", met, s.calls)
		}
		if err := l.Reset(ctx, "bob"); err != nil || s.calls != 1 {
			t.Errorf("Reset: %v, %d calls of the store", err, s.calls)
		}
	})
}

// takeBanned has the other calls meet the ban of bob.
func takeBanned(t *testing.T, l *limiter.Limiter, banned core.Decision) {
	t.Helper()
	ctx := t.Context()
	if n, err := l.TakeUpTo(ctx, "bob", 5); err != nil || n != 0 {
		t.Errorf("TakeUpTo: %d, %v", n, err)
	}
	if res, err := l.TakeWithin(ctx, "bob", 1, time.Hour); err != nil || res.Allowed() || !res.Banned() {
		t.Errorf("TakeWithin: %t, %v", res.Banned(), err)
	}
	if list, err := l.Peek(ctx, "bob"); err != nil || len(list) != 1 || list[0].Decision != banned {
		t.Errorf("Peek: %+v, %v", list, err)
	}
	var e *limiter.WaitError
	if err := l.Wait(ctx, "bob", 1); !errors.As(err, &e) || !errors.Is(err, limiter.ErrLimited) ||
		e.RetryAfter != banned.RetryAfter {
		t.Errorf("Wait: %v", err)
	}
}

// The lists come first. A Shadow rule reports whom it would turn away, and counts them as it counts
// whom its lists deny.
func TestOverrideBansBehindAccess(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(*limiter.Rule)
		verdict events.Verdict
		status  int // 0 for a request that passes
	}{
		{"allowed", func(r *limiter.Rule) { r.Access = accessTo("bob", "") }, events.Allowed, 0},
		{"denied", func(r *limiter.Rule) { r.Access = accessTo("", "bob") }, events.Denied, 403},
		{"shadow", func(r *limiter.Rule) { r.OnLimit = limiter.Shadow }, events.ShadowRefused, 0},
		{"none of the keys in force", func(r *limiter.Rule) { r.Enforce = 1 }, events.ShadowRefused, 0},
		{"closed", func(r *limiter.Rule) { r.OnStoreError = limiter.FailClosed }, events.Banned, 429},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen recorder
				r := bansBob(rule(t, "a", "5/1h"), time.Now().Add(time.Minute))
				row.change(&r)
				l := configured(t, limiter.Config{Store: newTicking(), Observer: &seen,
					Rules: []limiter.Rule{rule(t, "other", "9/1h"), r}})

				a := l.Admit(keyed("bob"))
				answer, refused := a.Answer()
				if refused != (row.status != 0) || answer.Status != row.status {
					t.Errorf("%d", answer.Status)
				}

				got := seen.take()[0]
				banned := row.verdict == events.Banned || row.verdict == events.ShadowRefused
				if last := got.Rules[len(got.Rules)-1]; got.Verdict != row.verdict ||
					banned && (last.Name != "a" || !last.Decision.Banned || last.Decision.RetryAfter != time.Minute) {
					t.Errorf("%+v", got)
				}
				a.Done(200)
			})
		})
	}
}

// Wrapped errors ban too. An end that has come bans no more.
func TestBannedUntilIsAnError(t *testing.T) {
	var err error
	r := rule(t, "a", "5/1h")
	r.Override = func(context.Context, string) (core.Limit, bool, error) { return core.Limit{}, false, err }
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}})

	for _, row := range []struct {
		err    error
		banned bool
	}{
		{limiter.BannedUntil(time.Now().Add(time.Hour)), true},
		{fmt.Errorf("of the program: %w", limiter.BannedUntil(time.Now().Add(time.Hour))), true},
		{limiter.BannedUntil(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), true},
		{limiter.BannedUntil(time.Unix(math.MaxInt64-62135596800, 0)), true}, // the last instant of all
		{limiter.BannedUntil(time.Now().Add(-time.Microsecond)), false},
		{limiter.BannedUntil(time.Time{}), false},
	} {
		err = row.err
		if d, got := l.Allow(t.Context(), "k", 1); got != nil || d.Banned != row.banned || d.Allowed == row.banned ||
			row.banned && d.RetryAfter <= 0 {
			t.Errorf("%v: %+v, %v", row.err, d, got)
		}
	}
	if text := limiter.BannedUntil(epoch).Error(); text != "headgate: banned until 2027-01-15T08:00:00Z" {
		t.Errorf("%s", text)
	}
}

// A banned part refuses the request alone, and a correction is carried out in spite of the ban.
func TestOverrideBansAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		l := newLimiter(t, s, bansBob(rule(t, "a", "5/1h"), time.Now().Add(time.Minute)))
		parts := []limiter.Part{{Request: keyed("eve"), Verb: core.Take, Cost: 1},
			{Request: keyed("bob"), Verb: core.Take, Cost: 1}}

		a := l.AdmitParts(t.Context(), parts)
		if a.Outcome() != limiter.Refused || a.DeniedPart() != 1 || !a.Result().Banned() || s.calls != 0 ||
			a.RetryAfter() != 60 {
			t.Errorf("%s, part %d, banned %t, %d calls, %d s", a.Outcome(), a.DeniedPart(), a.Result().Banned(),
				s.calls, a.RetryAfter())
		}
		a.Done(429)

		a = l.AdmitParts(t.Context(), []limiter.Part{{Request: keyed("bob"), Verb: core.Refund, Cost: 1}})
		if a.Outcome() != limiter.Pass || s.calls != 1 {
			t.Errorf("a refund: %s, %d calls", a.Outcome(), s.calls)
		}
		a.Done(200)
	})
}

// accessTo returns lists of one key that is allowed and one that is denied.
func accessTo(allow, deny string) *keyfuncs.Access {
	var lists keyfuncs.Lists
	if allow != "" {
		lists.Allow.Keys = []string{allow}
	}
	if deny != "" {
		lists.Deny.Keys = []string{deny}
	}
	return keyfuncs.MustAccess(lists)
}

// A rate that comes with a part is in place of the key's limit, and not of its ban.
func TestOverrideBansAPartWithARate(t *testing.T) {
	l := newLimiter(t, newTicking(), bansBob(rule(t, "a", "5/1h"), time.Now().Add(time.Minute)))
	rate := core.Limit{Quota: 3, Period: time.Hour}
	for key, banned := range map[string]bool{"bob": true, "eve": false} {
		a := l.AdmitParts(t.Context(), []limiter.Part{{Request: keyed(key), Verb: core.Take, Cost: 1, Rate: &rate}})
		if res := a.Result(); res.Banned() != banned || res.Allowed() == banned {
			t.Errorf("%s: banned %t, allowed %t", key, res.Banned(), res.Allowed())
		}
		a.Done(200)
	}
}

// The bans of Override and of the rule are told apart: the end of one is not that of the other.
func TestBansByOverrideAndRuleAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		imposed, end := true, time.Now().Add(year)
		r := rule(t, "a", "1/1h")
		r.Ban = core.Ban{Strikes: 1, Within: time.Hour, For: time.Hour, Max: time.Hour}
		r.Override = func(context.Context, string) (core.Limit, bool, error) {
			if imposed {
				return core.Limit{}, false, limiter.BannedUntil(end)
			}
			return core.Limit{}, false, nil
		}

		var met []events.Ban
		l := configured(t, limiter.Config{Store: newTicking(), Rules: []limiter.Rule{r},
			Hooks: &events.Hooks{Ban: func(b events.Ban) { met = append(met, b) }}})
		ask := func() {
			if _, err := l.Allow(t.Context(), "bob", 1); err != nil {
				t.Error(err)
			}
		}

		// To lift the ban of the rule does not end that of Override.
		ask()
		if err := l.Lift(t.Context(), "a", "bob"); err != nil {
			t.Error(err)
		}
		ask()

		imposed = false
		ask() // takes the unit
		ask() // is over the limit, and is banned
		want := []events.Ban{{Rule: "a", Key: "bob", For: year}, {Rule: "a", Key: "bob", For: time.Hour}}
		if !slices.Equal(met, want) {
			t.Errorf("%+v, want %+v", met, want)
		}
	})
}
