package limiter_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// inTime returns a limiter in memory and the clock of its store.
func inTime(t *testing.T, rules ...limiter.Rule) (*limiter.Limiter, *time.Time) {
	now := epoch
	s := memstore.MustNew(memstore.Options{Clock: func() int64 { return now.UnixMicro() }})
	return newLimiter(t, s, rules...), &now
}

func mustGrant(t *testing.T, l *limiter.Limiter, rule string, n int64, until time.Time) {
	t.Helper()
	if err := l.Grant(t.Context(), rule, "k", n, until); err != nil {
		t.Fatal(err)
	}
}

func TestGrantIsOfOneRule(t *testing.T) {
	costly := rule(t, "b", "2/1h")
	costly.CostAtMost = true
	l, now := inTime(t, rule(t, "a", "2/1h"), costly)
	mustGrant(t, l, "b", 5, now.Add(time.Hour))
	wantLeft(t, l, "k", 2, 7)
	if list, err := l.Peek(t.Context(), "k"); err != nil || list[1].Decision.Credit != 5 {
		t.Errorf("%+v, %v", list, err)
	}

	// A reset leaves the credit, and a revoke takes it.
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "k", 2, 7)
	if err := l.Revoke(t.Context(), "b", "k"); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "k", 2, 2)
}

func TestCreditIsUsedAfterTheLimitAndIsGivenBackFirst(t *testing.T) {
	l, now := inTime(t, rule(t, "a", "2/1h fixed-window debt=2"))
	mustGrant(t, l, "a", 3, now.Add(time.Minute))
	res, err := l.Take(t.Context(), "k", 4)
	if err != nil || !res.Allowed() {
		t.Fatal(err)
	}
	wantLeft(t, l, "k", 1)

	// Three of four units come back: two that were lent, and one of the limit. Another process
	// knows as much.
	data, err := res.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if res, err = l.Restore(data); err != nil {
		t.Fatal(err)
	}
	if err := res.Settle(t.Context(), map[string]int64{"a": 1}); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "k", 4)
	if list, _ := l.Peek(t.Context(), "k"); list[0].Decision.Credit != 3 {
		t.Errorf("%+v", list)
	}

	// A debit is the limit's alone, and the credit is gone at its instant.
	if _, err := l.Debit(t.Context(), "k", 3); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "k", 3)
	*now = now.Add(time.Minute)
	wantLeft(t, l, "k", 0)
}

func TestWhoHasCreditDoesNotWait(t *testing.T) {
	l, now := inTime(t, rule(t, "a", "1/1h"))
	mustGrant(t, l, "a", 1, now.Add(time.Minute))
	for range 2 {
		if err := l.Wait(t.Context(), "k", 1); err != nil {
			t.Error(err)
		}
	}
	if n, err := l.TakeUpTo(t.Context(), "k", 5); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func TestGrantNamesWhatItCannotDo(t *testing.T) {
	l, now := inTime(t, rule(t, "a", "1/1h"), rule(t, "held", "1 concurrent ttl=1m"))
	later := now.Add(time.Hour)
	for i := range core.MaxCredits {
		if err := l.Grant(t.Context(), "a", "full", 1, later.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		rule, key string
		n         int64
		until     time.Time
		want      string
	}{
		{"a", "k", 1, *now, `rule "a": the end 2027-01-15T08:00:00Z has come`},
		{"a", "k", 1, time.Time{}, `rule "a": the end 0001-01-01T00:00:00Z has come`},
		{"a", "k", 1, now.Add(87660*time.Hour + time.Microsecond), "is more than ten years ahead"},
		{"a", "k", 1, time.Unix(1<<55, 0), "is more than ten years ahead"},
		{"a", "k", 0, later, "the units of a grant are not within 1 to 2^53 - 1"},
		{"a", "k", -1, later, "the cost -1 is negative"},
		{"a", "k", math.MaxInt64, later, "the units of a grant are not within 1 to 2^53 - 1"},
		{"a", "full", 1<<53 - 1, later, "9007199254740991 units and the 8 that are left are above 2^53 - 1"},
		{"a", "full", 1, later.Add(time.Minute), "the key has 8 grants, or the store has no room for one"},
		{"held", "k", 1, later, "a leased limit has no credit"},
	} {
		err := l.Grant(t.Context(), row.rule, row.key, row.n, row.until)
		if !errors.Is(err, core.ErrOp) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %s", err, row.want)
		}
	}

	err := errors.Join(l.Grant(t.Context(), "x\ny", "k", 1, later), l.Revoke(t.Context(), "x\ny", "k"))
	if want := `invalid operation: there is no rule "x\ny" under which a key could have credit`; err == nil ||
		err.Error() != want+"\n"+want {
		t.Error(err)
	}
	broken := newLimiter(t, brokenStore(func() error { return errDown }), rule(t, "a", "1/1h"))
	if err := broken.Grant(t.Context(), "a", "k", 1, later); !errors.Is(err, errDown) {
		t.Error(err)
	}
}

// Of eight callers at once, as many units are admitted as the limit and the credit have.
func TestCreditUnderContention(t *testing.T) {
	l, now := inTime(t, rule(t, "a", "100/1h"))
	mustGrant(t, l, "a", 50, now.Add(time.Minute))
	mustGrant(t, l, "a", 25, now.Add(time.Hour))
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 100 {
				if d, err := l.Allow(context.Background(), "k", 1); err == nil && d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := admitted.Load(); n != 175 {
		t.Errorf("%d admitted", n)
	}
}
