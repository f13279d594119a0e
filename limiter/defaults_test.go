package limiter_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// pointerStore has methods on its pointer, and would panic if it were nil.
type pointerStore struct{ inner core.Store }

func (s *pointerStore) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return s.inner.Apply(ctx, ops, out)
}

func (s *pointerStore) Back() (core.Standby, func()) {
	return core.Standby{Store: s, Strict: s.inner, Fallback: s.inner}, nil
}

func TestConfigStore(t *testing.T) {
	t.Run("nil is a store in memory", func(t *testing.T) {
		l := configured(t, limiter.Config{Rules: []limiter.Rule{rule(t, "a", "2/1h fixed-window")}})
		for _, want := range []limiter.Outcome{limiter.Pass, limiter.Pass, limiter.Refused} {
			if got := admit(l); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
	t.Run("two limiters without a store share no counts", func(t *testing.T) {
		one := configured(t, limiter.Config{Rules: []limiter.Rule{rule(t, "a", "1/1h")}})
		two := configured(t, limiter.Config{Rules: []limiter.Rule{rule(t, "a", "1/1h")}})
		admit(one)
		if got := admit(two); got != limiter.Pass {
			t.Errorf("%s", got)
		}
	})

	// A nil pointer in an interface is not nil: it would panic with the first request.
	rows := map[string]core.Store{
		"the Store is a nil *memstore.Store; leave it out for a store in memory":            (*memstore.Store)(nil),
		"the Store is a nil *limiter_test.pointerStore; leave it out for a store in memory": (*pointerStore)(nil),
		"the Store is a nil limiter_test.brokenStore; leave it out for a store in memory":   brokenStore(nil),
		"the Store is a nil limiter_test.mapOnly; leave it out for a store in memory":       mapOnly(nil),
	}

	for want, store := range rows {
		t.Run(want, func(t *testing.T) {
			l, err := limiter.New(limiter.Config{Store: store})
			if l != nil || err == nil || err.Error() != want {
				t.Errorf("%v, %v", l, err)
			}
		})
	}
}

func TestRuleNameOfTheOnlyRule(t *testing.T) {
	nameless := rule(t, "", "5/1m fixed-window")
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{nameless}})
	a := l.Admit(get())

	if got := a.Result().Decisions()[0].Rule; got != "default" {
		t.Errorf("%q", got)
	}
	if text := lines(a); !strings.Contains(text, `"default";q=5;w=60`) {
		t.Errorf("headers %s", text)
	}
	a.Done(200)

	// The name is the one that the store knows, whether it is written or left out.
	if err := l.SetRules([]limiter.Rule{rule(t, "default", "5/1m fixed-window")}); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "k", 4)

	const want = `rule 1 "": the name is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`
	if err := l.SetRules([]limiter.Rule{rule(t, "a", "5/1m"), nameless}); err == nil || err.Error() != want {
		t.Errorf("two rules: %v", err)
	}
}

func TestRuleWithoutAKey(t *testing.T) {
	j, ctx := &journal{}, context.Background()
	var reported []string
	keyless := rule(t, "jobs", "2/1h fixed-window")
	keyless.Key, keyless.OnStoreError = nil, limiter.FailOpen
	l := configured(t, limiter.Config{Store: newStore(),
		Rules: []limiter.Rule{rule(t, "a", "9/1h fixed-window"), keyless}, Logger: j.logger(),
		OnError: func(_ context.Context, err error) { reported = append(reported, err.Error()) }})

	const want = `rule 1 "jobs": the Key function is nil, so no request can be counted`
	var e *limiter.RuleError
	if err := l.CheckRequests(); !errors.As(err, &e) || e.Index != 1 || err.Error() != want {
		t.Errorf("CheckRequests: %v", err)
	}

	if res, err := l.Take(ctx, "k", 1); err != nil || !res.Allowed() {
		t.Errorf("Take: %t, %v", res.Allowed(), err)
	}

	for range 2 { // although the rule fails open for a store that cannot decide
		if got := admit(l); got != limiter.Failed {
			t.Errorf("Admit: %s", got)
		}
	}
	wantLeft(t, l, "k", 8, 1)

	if len(reported) != 2 || reported[0] != want || reported[1] != want {
		t.Errorf("OnError got %q", reported)
	}

	if got := j.codes(); got != "HG009 jobs" {
		t.Errorf("logged %q", got)
	}

	keyless.Key = keyfuncs.Global
	if err := l.SetRules([]limiter.Rule{keyless}); err != nil || l.CheckRequests() != nil {
		t.Errorf("with a key: %v, %v", err, l.CheckRequests())
	}
	if got := admit(l); got != limiter.Pass {
		t.Errorf("with a key: %s", got)
	}
}

func TestCheckRequestsOfANilLimiter(t *testing.T) {
	if err := (*limiter.Limiter)(nil).CheckRequests(); err == nil || err.Error() != "headgate: the limiter is nil" {
		t.Errorf("got %v", err)
	}
}

// mapOnly is a store that is a map.
type mapOnly map[string]core.State

func (mapOnly) Apply(context.Context, []core.Op, []core.Decision) error { return nil }

// silent is an observer that does nothing.
type silent struct{}

func (*silent) Observe(context.Context, *events.Request) {}

func TestNewRefusesNilObserver(t *testing.T) {
	l, err := limiter.New(limiter.Config{Observer: (*silent)(nil)})
	if want := "the Observer is a nil *limiter_test.silent; leave it out for none"; l != nil || err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := limiter.New(limiter.Config{Observer: &silent{}}); err != nil {
		t.Error(err)
	}
}
