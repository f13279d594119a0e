package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// otherStore is a store in memory that a limiter does not know for one.
type otherStore struct{ *memstore.Store }

// history returns all that a limiter over the store says of some requests.
func history(t *testing.T, s core.Store, rules []limiter.Rule, mode limiter.FailureMode) (log []string) {
	l := gatetest.Limiter(t, limiter.Config{Store: s, Rules: rules, OnStoreError: mode,
		OnError: func(_ context.Context, err error) { log = append(log, err.Error()) },
		Hooks: &events.Hooks{Near: func(e events.Near) {
			log = append(log, fmt.Sprint("near ", e.Rule, e.Key, e.Remaining))
		}}})
	defer l.Close()

	// The third key is of no rule, and that of the sixth request fails.
	for i := range 8 {
		a := l.Admit(keyed([]string{"a", "b", "skipped", "a", "a", "panics", "a", "b"}[i]))
		log = append(log, fmt.Sprint(a.Outcome(), a.Status(), a.RetryAfter(), a.Violated(), a.Degraded(),
			a.Result().Undecided(), a.Result().Decisions(), a.Headers(), string(a.Problem()), a.NeedsContext()))
		a.Done(200)
	}

	return log
}

// tricky is byHeader, and does not apply to some requests, and fails for others.
func tricky(r core.Request) (string, bool) {
	key, _ := byHeader(r)
	if key == "panics" {
		panic("of a key function")
	}
	return key, key != "skipped"
}

// Where the keys and the answer of a store in memory are all that there is to a request, Admit has
// a shorter way. Only what a limiter asks differs, never what it answers.
func TestAdmitByTheShorterWayDecidesAlike(t *testing.T) {
	fixed := func(text string, changes ...func(*limiter.Rule)) limiter.Rule {
		r := gatetest.Rule(text, changes...)
		r.Key = tricky
		return r
	}
	name := func(s string) func(*limiter.Rule) { return func(r *limiter.Rule) { r.Name = s } }
	on := func(a limiter.Action) func(*limiter.Rule) { return func(r *limiter.Rule) { r.OnLimit = a } }
	warn := func(r *limiter.Rule) { r.Warn = core.Whole / 2 }
	open := func(r *limiter.Rule) { r.OnStoreError = limiter.FailOpen }

	for about, rules := range map[string][]limiter.Rule{
		"one rule":             {fixed("2/1m")},
		"a window":             {fixed("2/1m fixed-window")},
		"two rules":            {fixed("3/1m", name("one")), fixed("2/1h sliding-window", name("two"))},
		"degraded":             {fixed("1/1m", on(limiter.Degrade))},
		"in shadow":            {fixed("1/1m", name("one"), on(limiter.Shadow)), fixed("3/1m", name("two"))},
		"near":                 {fixed("4/1m", warn)},
		"of two one fails":     {fixed("1/1m", name("one"), open), gatetest.Rule("5/1m", name("two"))},
		"a key for all alike":  {gatetest.Rule("3/1m")},
		"a rule with a refund": {fixed("2/1m", func(r *limiter.Rule) { r.RefundIf = func(int) bool { return true } })},
	} {
		for _, mode := range []limiter.FailureMode{limiter.FailOpen, limiter.FailClosed} {

			// The limiter cannot tell that the other store is in memory.
			var logs [2][]string
			for i := range logs {
				var s core.Store = gatetest.Store() // whose clock stands still
				if i == 1 {
					s = otherStore{s.(*memstore.Store)}
				}
				logs[i] = history(t, s, rules, mode)
			}

			if !slices.Equal(logs[0], logs[1]) {
				t.Errorf("%s, fails %s:\n%q\nby the longer way\n%q", about, mode, logs[0], logs[1])
			}
		}
	}
}

// A panic of the store, which has not begun here, is an error by the shorter way too, and the store
// is not asked again.
func TestAdmitByTheShorterWaySurvivesTheStore(t *testing.T) {
	var told []string
	asked := 0
	r := gatetest.Rule("9/1m")
	r.Key = func(core.Request) (string, bool) { asked++; return "a", true }
	l := gatetest.Limiter(t, limiter.Config{Store: new(memstore.Store), Rules: []limiter.Rule{r},
		OnError:      func(_ context.Context, err error) { told = append(told, err.Error()) },
		OnStoreError: limiter.FailClosed})

	a := l.Admit(keyed("a"))
	defer a.Done(503)
	if a.Outcome() != limiter.Failed || len(told) != 1 || !strings.HasPrefix(told[0], "store: ") || asked != 1 {
		t.Errorf("%s, %q, asked for %d keys", a.Outcome(), told, asked)
	}
}
