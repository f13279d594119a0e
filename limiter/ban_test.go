package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// banning returns a rule under which the third refusal within a minute is a ban.
func banning(t testing.TB, name, text string) limiter.Rule {
	t.Helper()
	r := rule(t, name, text)
	r.Key, r.Ban = byHeader, core.MustParseBan("3/1m for 10m max 15m")
	return r
}

// useUp lets the key use its one unit and be refused n times.
// A client that goes by any header comes back when the ban has ended.
// A rule that did not refuse adds no strike, and one that bans comes first.
// Every call about a banned key says so.
// A rule that bans refuses at once, so no call waits for it or books under it.
func TestBanAndCallsThatWait(t *testing.T) {
	for _, text := range []string{"1/1h", "1/1h fixed-window"} {
		s := newStore()
		l := newLimiter(t, s, rule(t, "other", "9/1h"), banning(t, "a", text))
		_, within := l.TakeWithin(t.Context(), "k", 1, time.Minute)
		_, reserve := l.Reserve(t.Context(), "k", 1)
		for name, err := range map[string]error{"Wait": l.Wait(t.Context(), "k", 1), "TakeWithin": within,
			"Reserve": reserve} {
			if !errors.Is(err, core.ErrOp) ||
				err.Error() != "invalid operation: a rule with a Ban refuses what is over its limit: use Take" {
				t.Errorf("%s: %v", name, err)
			}
		}

		if s.calls != 0 {
			t.Errorf("%d calls of the store", s.calls)
		}
	}
}

// A request that may wait for another rule is one refusal.
// opsOf is a store that admits everything and keeps the ops of the last step.
type opsOf struct{ last []core.Op }

func (s *opsOf) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	s.last = slices.Clone(ops)
	for i := range ops {
		out[i] = core.Decision{Allowed: true}
	}
	return nil
}

func TestBanIsPartOfTheStep(t *testing.T) {
	s := &opsOf{}
	// A ban is of a rule that refuses. One in shadow does not, and one with a limit from Override
	// does.
	shadow := withOnLimit(banning(t, "shadow", "1/1h"), limiter.Shadow)
	own := banning(t, "own", "1/1h")
	own.Override = brought
	l := newLimiter(t, s, banning(t, "a", "1/1h"), shadow, rule(t, "none", "1/1h"), own)

	q := keyed("k")
	q.Ctx = withLimit(t.Context(), limit(t, "5/1h"))
	l.Admit(q).Done(200)

	want := core.Ban{Strikes: 3, Within: time.Minute, For: 10 * time.Minute, Max: 15 * time.Minute}
	for i, banned := range []bool{true, false, false, true} {
		if b := s.last[i].Ban; (b != nil) != banned || banned && *b != want {
			t.Errorf("%s: %+v", s.last[i].Rule, b)
		}
	}

	// A lift is a step of one rule alone.
	if err := l.Lift(t.Context(), "own", "k"); err != nil {
		t.Error(err)
	}
	if op := s.last[0]; len(s.last) != 1 || op.Verb != core.Lift || op.Rule != "own" || op.Key != "k" {
		t.Errorf("%+v", s.last)
	}
}

// A caller on a list is not counted, neither as a request nor as a refusal.
func TestBanMistakes(t *testing.T) {
	ban := func(span, longest time.Duration) core.Ban {
		return core.Ban{Strikes: 20, Within: time.Minute, For: span, Max: longest}
	}
	rows := []struct {
		name  string
		ban   core.Ban
		rule  string
		on    limiter.Action
		wants []string
	}{
		{"no refusals", core.Ban{For: time.Minute, Max: time.Hour}, "1/1h", limiter.Reject,
			[]string{"Ban: strikes 0 is not within 1 to 2147483648; within 0s is not within 1ms to 9600h0m0s"}},
		{"too many refusals", core.Ban{Strikes: 2147483649, Within: time.Minute, For: time.Minute, Max: time.Hour},
			"1/1h", limiter.Reject,
			[]string{`Ban: strikes 2147483649 is not within 1 to 2147483648`}},
		{"no For and no Max", ban(0, 0), "1/1h", limiter.Reject,
			[]string{"Ban: for 0s is not within 1ms to 9600h0m0s; max 0s is not within 1ms to 9600h0m0s"}},
		{"For above Max", ban(time.Hour, time.Minute), "1/1h", limiter.Reject,
			[]string{"Ban: for is above max"}},
		{"nanoseconds", ban(time.Minute+1, time.Hour), "1/1h", limiter.Reject,
			[]string{"Ban: for 1m0.000000001s is not a whole number of microseconds"}},
		{"a rule that waits", ban(time.Minute, time.Hour), "1/1h", limiter.Wait(time.Second),
			[]string{"Ban: only a rule that refuses requests can ban, and OnLimit is wait 1s"}},
		{"a rule that degrades", ban(time.Minute, time.Hour), "1/1h", limiter.Degrade,
			[]string{"Ban: only a rule that refuses requests can ban, and OnLimit is degrade"}},
		{"leases", ban(time.Minute, time.Hour), "5 concurrent ttl=1m", limiter.Reject,
			[]string{"Ban: a concurrency limit cannot ban, because leases have to be renewed"}},
		{"all at once", core.Ban{For: time.Hour, Max: time.Minute}, "5 concurrent ttl=1m", limiter.Degrade,
			[]string{"Ban: strikes 0 is not within 1 to 2147483648; within 0s is not within 1ms to 9600h0m0s; for is above max",
				"Ban: only a rule that refuses requests can ban, and OnLimit is degrade",
				"Ban: a concurrency limit cannot ban, because leases have to be renewed"}},
		{"of a Shadow rule", core.Ban{}, "1/1h", limiter.Shadow, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := withOnLimit(rule(t, "a", row.rule), row.on)
			r.Ban = row.ban

			_, err := limiter.New(limiter.Config{Rules: []limiter.Rule{r}})
			// Every mistake is there, each behind the name of the rule.
			want := ""
			for _, w := range row.wants {
				want += "\n" + `rule 0 "a": ` + w
			}
			if got := fmt.Sprint(err); err != nil && got != want[1:] || err == nil && want != "" {
				t.Errorf("%s, want%s", got, want)
			}

			l := newLimiter(t, newStore(), rule(t, "a", "1/1h"))
			// SetRules finds the same mistakes.
			if again := l.SetRules([]limiter.Rule{r}); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("SetRules: %v", again)
			}
		})
	}
}

func TestBanOfALimitFromOverride(t *testing.T) {
	r := banning(t, "a", "1/1h")
	r.Override, r.OnStoreError = brought, limiter.FailClosed
	l := newLimiter(t, newStore(), r)
	_, err := l.Take(withLimit(t.Context(), limit(t, "5 concurrent ttl=1m")), "k", 1)
	want := `rule 0 "a": the limit from Override: Ban: a concurrency limit cannot ban, because leases have to be renewed`
	if !errors.Is(err, limiter.ErrUndecided) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// listing is a store that lists bans.
type listing struct {
	core.Store
	rules []string
	most  int
	list  func() ([]core.Banned, error)
}

func (s *listing) Report() events.Report { return events.Report{Bans: s.bans} }

func (s *listing) bans(_ context.Context, rules []string, most int) ([]core.Banned, error) {
	s.rules, s.most = rules, most
	return s.list()
}

func TestBansAreThoseOfTheRulesThatBan(t *testing.T) {
	list := []core.Banned{{Rule: "a", Key: "<script>\x00", Until: 7}}
	s := &listing{Store: newStore(), list: func() ([]core.Banned, error) { return list, errDown }}
	l := newLimiter(t, s, banning(t, "a", "1/1h"),
		rule(t, "b", "1/1h"), withOnLimit(banning(t, "c", "1/1h"), limiter.Shadow), banning(t, "d", "1/1h"))

	got, err := l.Bans(t.Context())
	// Only the rules that can ban are asked about. What was found comes back beside the error.
	if !reflect.DeepEqual(got, list) || !errors.Is(err, errDown) || !slices.Equal(s.rules, []string{"a", "d"}) ||
		s.most != 10_000 {
		t.Errorf("%v, %v for %d of %q", got, err, s.most, s.rules)
	}

	s.list = func() ([]core.Banned, error) { panic("list") }
	if _, err := l.Bans(t.Context()); err == nil || err.Error() != `store: panic: "list"` {
		t.Errorf("%v", err)
	}

	// Where no rule bans no store is asked.
	if err := l.SetRules([]limiter.Rule{rule(t, "b", "1/1h")}); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Bans(t.Context()); got != nil || err != nil {
		t.Errorf("without a ban: %v, %v", got, err)
	}

	// A store that cannot list them says so by its name.
	if _, err := newLimiter(t, newStore(), banning(t, "a", "1/1h")).
		Bans(t.Context()); !errors.Is(err, errors.ErrUnsupported) ||
		err.Error() != "headgate: a *limiter_test.mapStore cannot list bans: unsupported operation" {
		t.Errorf("%v", err)
	}
}

// Lift ends a ban, forgets the ones before, and keeps the count.
func TestLiftFailsWithTheStore(t *testing.T) {
	l := newLimiter(t, brokenStore(func() error { return errDown }), banning(t, "a", "1/1h"))
	if err := l.Lift(t.Context(), "a", "k"); !errors.Is(err, errDown) {
		t.Errorf("%v", err)
	}
}
