package limiter_test

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/findings"
)

// tellingStore tells what the test has it tell.
type tellingStore struct {
	core.Store
	events.Listeners
}

func (s *tellingStore) Report() events.Report { return events.Report{Listen: s.Add, Status: s.status} }

func (s *tellingStore) status(list []events.StoreStatus) []events.StoreStatus {
	return append(list, events.StoreStatus{Store: "telling", Keys: 7})
}

func TestStatusOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tellingStore{Store: newStore()}
		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "1/1m")},
			Hooks: &events.Hooks{}})
		defer l.Close()

		begun := time.Now()
		st := l.Status()
		if want := []events.StoreStatus{{Store: "telling", Keys: 7}}; !reflect.DeepEqual(st.Stores, want) ||
			!st.Since.Equal(begun) {
			t.Errorf("at first %+v", st)
		}
		wantCalls(t, l, events.StoreCalls{})

		// A hundred calls of 1 to 100 ms, and half a minute later three that fail after a second.
		tell := s.Hooks()
		for i := range 100 {
			tell.StoreCall(events.StoreCall{Store: "redis", Took: time.Duration(i+1) * time.Millisecond})
		}

		time.Sleep(30 * time.Second)
		for range 3 {
			tell.StoreCall(events.StoreCall{Store: "redis", Took: time.Second, Err: errors.New("connection\nrefused"),
				Type: events.Dial})
		}

		now := time.Now()
		want := events.StoreCalls{Calls: 103, Failed: 3, Recent: 103, Median: 52 * time.Millisecond, P99: time.Second,
			Max: time.Second, Last: now,
			Errors: []events.StoreError{{First: now, Last: now, Times: 3, Type: events.Dial,
				Text: "connection; refused"}}}
		wantCalls(t, l, want)

		// Only the three are recent. The totals and the errors stay.
		time.Sleep(31 * time.Second) // the first hundred are older than a minute
		want.Recent, want.Median = 3, time.Second
		wantCalls(t, l, want)

		// Now none is recent, so there are no spans to show.
		time.Sleep(30 * time.Second)
		want.Recent, want.Median, want.P99, want.Max = 0, 0, 0, 0
		wantCalls(t, l, want)
	})
}

func wantCalls(t *testing.T, l *limiter.Limiter, want events.StoreCalls) {
	t.Helper()
	if got := l.Status().Calls; !reflect.DeepEqual(got, want) {
		t.Errorf("calls %+v, want %+v", got, want)
	}
}

// However many calls fail, few are remembered.
func TestStatusOfTheStoreIsBounded(t *testing.T) {
	s := &tellingStore{Store: newStore()}
	l := newLimiter(t, s, rule(t, "a", "1/1m"))
	defer l.Close()

	for i := range 300 {
		s.Hooks().StoreCall(events.StoreCall{Took: time.Millisecond, Err: fmt.Errorf("error %d", i)})
	}

	// 256 calls and 16 errors, the latest first.
	c := l.Status().Calls
	if c.Recent != 256 || len(c.Errors) != 16 || c.Errors[0].Text != "error 299" || c.Errors[15].Text != "error 284" {
		t.Errorf("after many errors %+v", c)
	}
}

func TestStatusOfBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tellingStore{Store: newStore()}
		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "1/1m")}})
		defer l.Close()

		// b opens and closes again, a stays open.
		begun := time.Now()
		s.Hooks().Breaker(events.Breaker{Shard: "b", Open: true, Cause: errors.New("frozen")})
		s.Hooks().Breaker(events.Breaker{Shard: "a", Open: true, Cause: errors.New("gone")})
		time.Sleep(time.Second)
		s.Hooks().Breaker(events.Breaker{Shard: "b"})

		st := l.Status()
		if want := map[string]time.Time{"a": begun}; !reflect.DeepEqual(st.Away, want) {
			t.Errorf("away %v, want %v", st.Away, want)
		}
		want := []events.BreakerChange{{At: begun.Add(time.Second), Shard: "b"},
			{At: begun, Shard: "a", Open: true, Cause: "gone"}, {At: begun, Shard: "b", Open: true, Cause: "frozen"}}
		if !reflect.DeepEqual(st.Breakers, want) {
			t.Errorf("changes %+v, want %+v", st.Breakers, want)
		}

		// 32 changes are kept. The last one opens a.
		for i := range 40 {
			s.Hooks().Breaker(events.Breaker{Shard: "a", Open: i%2 == 1})
		}
		if st := l.Status(); len(st.Breakers) != 32 || len(st.Away) != 1 {
			t.Errorf("%d changes, %v away", len(st.Breakers), st.Away)
		}
	})
}

// Whether requests passed undecided is known although nothing is logged.
func TestStatusTroubles(t *testing.T) {
	for _, logger := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
		synctest.Test(t, func(t *testing.T) {
			open := brokenStore(func() error { return errors.New("first\nline") })
			l := configured(t, limiter.Config{Store: open, Rules: []limiter.Rule{rule(t, "a", "1/1m")}, Logger: logger})
			defer l.Close()

			begun := time.Now()
			// The three come 40 s apart, so the trouble lasts.
			for range 3 {
				_, _ = l.Take(t.Context(), "k", 1) // which fails, as the test wants
				time.Sleep(40 * time.Second)
			}

			want := events.Trouble{What: "the store cannot decide, so OnStoreError does", Passed: 3, First: begun,
				Last:   begun.Add(80 * time.Second),
				Active: true, Err: "first; line"}
			if st := l.Status(); !reflect.DeepEqual(st.Troubles, []events.Trouble{want}) {
				t.Errorf("troubles %+v, want %+v", st.Troubles, want)
			}

			// After a minute without an error it is over, and the next error begins another: its
			// count goes on, its time is new.
			time.Sleep(20 * time.Second)
			if st := l.Status(); st.Troubles[0].Active {
				t.Error("a minute later the trouble is active")
			}
			_, _ = l.Take(t.Context(), "k", 1)
			if got := l.Status().Troubles[0]; got.Passed != 4 || !got.First.Equal(begun.Add(140*time.Second)) {
				t.Errorf("the next one is %+v", got)
			}
		})
	}
}

func TestStatusFindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newStore(), rule(t, "a", "1/1m"))
		defer l.Close()

		for range 2 {
			l.Warn(core.Finding{Code: "HG042", Rule: "a", Text: "it is odd"})
		}

		want := []findings.Found{{Finding: core.Finding{Code: "HG042", Rule: "a", Text: "it is odd"}, At: time.Now()}}
		if got := l.Status().Findings; !reflect.DeepEqual(got, want) {
			t.Errorf("findings %+v, want %+v", got, want)
		}
	})
}

func TestStatusWaitersAndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases, waits := rule(t, "leases", "3 concurrent ttl=1m"),
			withOnLimit(rule(t, "waits", "3/1m"), limiter.Wait(time.Hour))
		l := configured(t, limiter.Config{Store: newTicking(), Rules: []limiter.Rule{leases, waits}, MaxWaiters: 5})

		want := func(waiting int, leases int64) {
			t.Helper()
			if st := l.Status(); st.Waiting != waiting || st.MaxWaiting != 5 || st.Leases != leases {
				t.Errorf("%d of %d waiting, %d leases; want %d of 5, %d", st.Waiting, st.MaxWaiting, st.Leases,
					waiting, leases)
			}
		}

		var admitted []*limiter.Admission
		// Three requests use up both limits: the leases and the units of waits.
		for range 3 {
			admitted = append(admitted, l.Admit(get()))
		}
		want(0, 3)

		// Two leases are given back, so that a fourth request waits for waits alone.
		admitted[0].Done(200)
		admitted[1].Done(200)
		l.AwaitReleases()
		want(0, 1)
		go func() { l.Admit(get()).Done(200) }()
		synctest.Wait()
		want(1, 1)

		// The wait ends within the minute, and the lease of the fourth with it.
		time.Sleep(time.Minute)
		synctest.Wait()
		want(0, 1)

		admitted[2].Done(200)
		l.AwaitReleases()
		want(0, 0)

		if err := l.Close(); err != nil || !l.Status().Closed {
			t.Errorf("after Close: %v, closed %v", err, l.Status().Closed)
		}
	})
}

func TestStatusRules(t *testing.T) {
	closed := rule(t, "closed", "1/1m")
	closed.OnStoreError = limiter.FailClosed
	l := newLimiter(t, newStore(), closed, rule(t, "other", "5/1h"))
	defer l.Close()
	got := l.Status().Rules
	if len(got) != 2 || got[0].Rule.Name != "closed" || got[0].OnStoreError != limiter.FailClosed ||
		got[1].Rule.Limit.String() != "5/1h" || got[1].OnStoreError != limiter.FailOpen || !got[0].Since.IsZero() {
		t.Errorf("rules %+v", got)
	}
}
