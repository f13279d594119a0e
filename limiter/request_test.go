package limiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// perRule has a rule by user, which costs 3, one for all, and one that is not
// about the request.
func perRule(t *testing.T) *limiter.Limiter {
	t.Helper()
	user, all, others := rule(t, "user", "5/1h fixed-window"),
		rule(t, "all", "9/1h fixed-window"), rule(t, "others", "1/1h")
	user.Key = byHeader
	user.Cost = func(core.Request) int64 { return 3 }
	all.OnLimit = limiter.Wait(time.Minute)
	others.Key = func(core.Request) (string, bool) { return "", false }
	return newLimiter(t, newStore(), user, all, others)
}

// summary returns a list of decisions as "rule remaining", with "over" for a refusal.
func summary(list []limiter.RuleDecision) string {
	var words []string
	for _, d := range list {
		word := fmt.Sprintf("%s %d", d.Rule, d.Decision.Remaining)
		if !d.Decision.Allowed {
			word += " over"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestRequestIsCountedByEachRulesOwnKeyAndCost(t *testing.T) {
	l := perRule(t)
	wantPeek := func(key, want string) {
		t.Helper()
		list, err := l.PeekRequest(keyed(key))
		if got := summary(list); err != nil || got != want {
			t.Errorf("peek of %s: %s, %v; want %s", key, got, err, want)
		}
	}

	// Each rule has its own key and cost: 3 for each user, and 1 for all. The third applies to
	// none.
	wantPeek("ann", "user 5, all 9")
	res, err := l.TakeRequest(keyed("ann"))
	if got := summary(res.Decisions()); err != nil || !res.Allowed() || got != "user 2, all 8" {
		t.Errorf("take: %s, %v", got, err)
	}
	// A peek says what a request would meet: 2 units do not hold another of 3.
	wantPeek("ann", "user 2 over, all 8")
	wantPeek("bob", "user 5, all 8")

	res, err = l.TakeRequest(keyed("ann"))
	if err != nil || res.Allowed() || strings.Join(res.Violated(), " ") != "user" || res.RetryAfter() != time.Hour {
		t.Errorf("take over the limit: %t, %v by %v", res.Allowed(), err, res.Violated())
	}

	if a := l.Admit(keyed("bob")); a.Outcome() != limiter.Pass {
		t.Errorf("admit: %s", a.Outcome())
	}
	wantPeek("bob", "user 2 over, all 7")

	// A reset is of the request's key under each rule, which is that of all users under the second.
	if err := l.ResetRequest(keyed("ann")); err != nil {
		t.Error(err)
	}
	wantPeek("ann", "user 5, all 9")
	wantPeek("bob", "user 2 over, all 9")
}

func TestTakeRequestDoesNotWait(t *testing.T) {
	r := withOnLimit(rule(t, "a", "1/1s"), limiter.Wait(time.Minute))
	l := newLimiter(t, newStore(), r)
	for _, want := range []bool{true, false, false} {
		res, err := l.TakeRequest(get())
		if err != nil || res.Allowed() != want || res.Waited() != 0 {
			t.Errorf("allowed %t after %s, %v; want %t", res.Allowed(), res.Waited(), err, want)
		}
	}
}

func TestRequestThatCannotBeDecidedAbout(t *testing.T) {
	// Faults of the rule itself, for which it fails open, and a call that can decide nothing at
	// all.
	broken := rule(t, "a", "5/1h")
	broken.Key = func(core.Request) (string, bool) { panic("k") }
	keyless := rule(t, "b", "5/1h")
	keyless.Key = nil
	negative := rule(t, "c", "5/1h")
	negative.Cost = func(core.Request) int64 { return -1 }

	for _, row := range []struct {
		name     string
		l        *limiter.Limiter
		r        core.Request
		want     string
		takeFree bool // the take is allowed, and ResetRequest does not fail
	}{
		{"no limiter", nil, keyed("ann"), "headgate: the limiter is nil", false},
		{"no request", perRule(t), nil, "the request is nil", false},
		{"no key", newLimiter(t, newStore(), keyless), keyed("ann"),
			`rule 0 "b": the Key function is nil, so no request can be counted`, false},
		{"a panic", newLimiter(t, newStore(), broken), keyed("ann"), `rule 0 "a": panic: "k"`, true},
		{"a negative cost", newLimiter(t, newStore(), negative), keyed("ann"), `rule 0 "c": the cost is negative`,
			true},
	} {
		t.Run(row.name, func(t *testing.T) {
			list, err := row.l.PeekRequest(row.r)
			if list != nil || err == nil || !contains(err, row.want) {
				t.Errorf("peek: %v, %v", list, err)
			}

			res, err := row.l.TakeRequest(row.r)
			if res == nil || res.Allowed() != row.takeFree || err == nil || !contains(err, row.want) {
				t.Errorf("take: %t, %v", res.Allowed(), err)
			}

			err = row.l.ResetRequest(row.r)
			// A reset needs the key and no cost.
			if row.name == "a negative cost" {
				if err != nil {
					t.Errorf("reset: %v", err)
				}
			} else if err == nil || !contains(err, row.want) {
				t.Errorf("reset: %v", err)
			}
		})
	}

	if _, err := perRule(t).PeekRequest(nil); !errors.Is(err, core.ErrOp) {
		t.Errorf("no request: %v", err)
	}
}

func TestTakeRequestUnitsReplacesTheCostOfRules(t *testing.T) {
	// The cost of the call replaces that of the rules, and CostAtMost still bounds it.
	costly := rule(t, "costly", "10/1m fixed-window")
	costly.Cost = func(core.Request) int64 { return 9 }
	capped := rule(t, "capped", "3/1m fixed-window")
	capped.CostAtMost = true
	l := newLimiter(t, newStore(), costly, rule(t, "plain", "10/1m fixed-window"), capped)

	for cost, want := range map[int64][3]int64{4: {6, 6, 0}} {
		res, err := l.TakeRequestUnits(get(), cost)
		if err != nil || !res.Allowed() {
			t.Fatalf("allowed %t, %v", res.Allowed(), err)
		}
		wantLeft(t, l, "k", want[:]...)
	}

	if res, err := l.TakeRequestUnits(get(), 0); err != nil || !res.Allowed() {
		t.Errorf("a request of no units: allowed %t, %v", res.Allowed(), err)
	}

	if res, err := l.TakeRequestUnits(get(), -1); !errors.Is(err, core.ErrOp) || res == nil || res.Allowed() {
		t.Errorf("a negative cost: %v", err)
	}
	wantLeft(t, l, "k", 6, 6, 0)
}
