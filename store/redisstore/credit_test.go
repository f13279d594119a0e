package redisstore

import (
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
