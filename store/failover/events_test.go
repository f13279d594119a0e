package failover

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// Every change of the breaker is told, in order, and the status follows.
func TestEventsOfTheBreaker(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		t.Run(fmt.Sprintf("fallback %t", fallback), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				f := newFake()
				var o Options
				away := events.PassesUndecided
				if fallback {
					o.Fallback, away = memory(), events.FallbackDecides
				}

				s := over(t, f, o)
				defer s.Close()

				// The same hooks are told of each change once, however many limiters share the
				// store.
				h := &events.Hooks{Breaker: func(e events.Breaker) { told = append(told, fmt.Sprintf("%+v", e)) }}
				s.Report().Listen(h)
				s.Report().Listen(h) // a second limiter with the same hooks
				s.Report().Listen(nil)

				wantStatus(t, s, events.StoreStatus{Store: "failover", Of: s})

				// While the primary is away the status says for how many requests, and why.
				openNow(t, s, f)
				synctest.Wait()
				var local uint64
				if fallback {
					local = s.Stats().Local
				}

				wantStatus(t, s, events.StoreStatus{Store: "failover", Of: s, Mode: away, Away: []string{""},
					Opened: 1, Local: local, Cause: errDown})

				// After the return the cause stays as the latest one.
				f.rise()
				time.Sleep(time.Second)
				synctest.Wait()
				wantStatus(t, s, events.StoreStatus{Store: "failover", Of: s, Opened: 1, Local: local, Cause: errDown})

				want := []string{fmt.Sprintf("{Shard: Open:true Fallback:%t Cause:down}", fallback),
					fmt.Sprintf("{Shard: Open:false Fallback:%t Cause:<nil>}", fallback)}
				if !slices.Equal(told, want) {
					t.Errorf("told %q, want %q", told, want)
				}
			})
		})
	}
}

// wantStatus checks the status of s itself.
func wantStatus(t *testing.T, s *Store, want events.StoreStatus) {
	t.Helper()
	if got := s.Report().Status(nil)[0]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The status of the stores under a store is part of its own, the primary's first.
func TestStatusOfTheStoresUnderAStore(t *testing.T) {
	s := over(t, memstore.MustNew(memstore.Options{}), Options{Fallback: memory()})
	defer s.Close()
	one(t, s, take(t, "k", "5/1s", 1))
	var kinds []string
	for _, st := range s.Report().Status(nil) {
		kinds = append(kinds, fmt.Sprint(st.Store, " ", st.Keys))
	}
	if want := []string{"failover 0", "memory 1", "memory 1"}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
}

// While the primary is bypassed, the cause is why the latest probe failed: a server that did
// not answer at first may refuse connections later.
func TestCauseIsThatOfTheLatestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()
		openNow(t, s, f)

		// The probes meet another error than the calls that opened the breaker.
		refused := errors.New("refused")
		f.be(after(0, refused))
		time.Sleep(time.Second)
		one(t, s, take(t, "k", "5/1s", 1))

		if err := s.Cause(); !errors.Is(err, refused) || errors.Is(err, errDown) {
			t.Errorf("%v", err)
		}
	})
}
