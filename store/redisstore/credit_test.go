package redisstore

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
)

// Of eight callers in two processes, as many units are admitted as the limit and the credit have,
// in batches in which the key comes many times.
func TestCreditUnderContention(t *testing.T) {
	t.Parallel()
	o := Options{Prefix: redistest.Prefix(t), Timeout: patient}
	c := connect(t, redistest.Addr(t))
	all := []*Store{MustNew(c, o), MustNew(c, o)}
	for _, text := range []string{"100/1h", "100/1h fixed-window", "100/1h sliding-log", "100/1h token-bucket"} {
		op := core.Op{Rule: text, Key: "k", Limit: limit(t, text), Cost: 1}
		grant := op
		grant.Verb, grant.Cost = core.Grant, 25
		for i := range time.Duration(3) {
			grant.CreditUntil = time.Now().Add(time.Hour + i*time.Minute).UnixMicro()
			apply(t, all[0], grant)
		}

		var admitted, lent atomic.Int64
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for range 40 {
					out := make([]core.Decision, 1)
					if err := all[i%2].Apply(t.Context(), []core.Op{op}, out); err != nil {
						t.Error(err)
					}
					admitted.Add(out[0].Taken)
					lent.Add(out[0].FromCredit)
				}
			})
		}
		callers.Wait()
		if a, b := admitted.Load(), lent.Load(); a != 175 || b != 75 {
			t.Errorf("%s: %d admitted, %d of them by credit", text, a, b)
		}
	}
}

// The time to live of a key covers its latest credit.
func TestCreditOutlivesTheUnits(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.Addr(t))
	s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient})
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1/1s"), Cost: 1}
	grant := op
	grant.Verb, grant.CreditUntil = core.Grant, time.Now().Add(24*time.Hour).UnixMicro()
	apply(t, s, grant)
	apply(t, s, op, op)
	if left := c.PTTL(t.Context(), keyOf(s, &op)).Val(); left < 23*time.Hour {
		t.Errorf("the key lives for %v", left)
	}
}

// A ban of a key with credit is listed.
func TestBanOfAKeyWithCreditIsListed(t *testing.T) {
	t.Parallel()
	now := storetest.Epoch
	s := MustNew(connect(t, redistest.Addr(t)), Options{Prefix: redistest.Prefix(t), Timeout: patient,
		Clock: func() int64 { return now }})
	for i := range int64(core.MaxCredits) {
		apply(t, s, core.Op{Verb: core.Grant, Rule: "r", Key: "k", Limit: limit(t, "1/1s"), Cost: 1,
			CreditUntil: now + 3600e6 + i})
	}
	banning(t, s, s.wire.clock)("r", "k", time.Minute)
	list, err := s.Report().Bans(t.Context(), []string{"r"}, 10)
	if err != nil || len(list) != 1 || list[0].Until != now+60e6 {
		t.Errorf("%+v, %v", list, err)
	}
}

// The credit of a key is listed by its ends, without what has ended or is used up, and whatever
// else the key holds.
func TestCreditsOfAKey(t *testing.T) {
	t.Parallel()
	now := storetest.Epoch
	o := Options{Clock: func() int64 { return now }, Secret: []byte("a secret of 16 bytes")}
	s, c := fresh(t, redistest.Addr(t), o)
	op := core.Op{Rule: "r", Key: "k\x00}", Limit: limit(t, "2/1h sliding-log"), Cost: 1,
		Ban: &core.Ban{Strikes: 1, Within: time.Hour, For: time.Hour, Max: time.Hour}}
	want := func(want ...Credit) {
		t.Helper()
		if list, err := s.Credits(t.Context(), op.ID()); err != nil || !slices.Equal(list, want) {
			t.Errorf("%v, %v, want %v", list, err, want)
		}
	}
	grant := func(n, after int64) {
		t.Helper()
		g := op
		g.Verb, g.Cost, g.CreditUntil = core.Grant, n, storetest.Epoch+after
		apply(t, s, g)
	}

	want()
	apply(t, s, op, op)
	apply(t, s, op) // which is refused, so that the key is banned
	want()
	grant(5, 3e6)
	grant(1<<53-10, 1e6)
	grant(2, 3e6)
	want(Credit{1<<53 - 10, now + 1e6}, Credit{7, now + 3e6})

	op.Ban = nil
	taken := op
	taken.Cost = 1<<53 - 10
	apply(t, s, taken)
	want(Credit{7, now + 3e6})
	if d := apply(t, s, core.Op{Verb: core.Peek, Rule: "r", Key: op.Key, Limit: op.Limit})[0]; d.Credit != 7 {
		t.Errorf("%+v", d)
	}
	now += 3e6
	want()

	// A value that is cut off has no credit, and one of a later format is an error.
	for value, wrong := range map[string]error{
		"\xfe\x02\x01": nil, "\xfe\x02": nil, "": nil, "\xfe\x03\x01": ErrFormat,
	} {
		c.Set(t.Context(), keyOf(s, &op), value, time.Hour)
		if list, err := s.Credits(t.Context(), op.ID()); !errors.Is(err, wrong) || len(list) > 0 {
			t.Errorf("%q: %v, %v", value, list, err)
		}
	}
}
