package failover

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// granting returns the Grant of n units to the key of op for an hour.
func granting(op core.Op, n int64) core.Op {
	op.Verb, op.Cost, op.CreditUntil = core.Grant, n, time.Now().Add(time.Hour).UnixMicro()
	return op
}

// A key with credit has in an outage what its limit has left, and the credit afterwards.
func TestCreditIsOfThePrimaryAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// Three units of the limit are left, and one of the credit: the copy has the three.
		op := take(t, "k", "5/1h fixed-window", 1)
		one(t, s, granting(op, 2))
		all := op
		all.Cost = 7
		d := one(t, s, all)
		if !d.Allowed || d.FromCredit != 2 || d.Fallback {
			t.Fatalf("%+v", d)
		}
		back := all.Refund(d)
		back.Cost = 4
		if d := one(t, s, back); d.Remaining != 4 || d.Credit != 2 {
			t.Fatalf("%+v", d)
		}

		openNow(t, s, f)
		for i := range 3 {
			if d := one(t, s, op); d.Allowed != (i < 2) || !d.Fallback || d.Credit != 0 {
				t.Errorf("take %d of the outage: %+v", i, d)
			}
		}

		// A grant or a revoke is an error, also in a step with what could wait, and is not carried
		// out later.
		revoke := op
		revoke.Verb = core.Revoke
		reset := op
		reset.Verb = core.Reset
		for _, ops := range [][]core.Op{{granting(op, 5)}, {revoke}, {reset, granting(op, 5)}} {
			if err := s.Apply(t.Context(), ops, make([]core.Decision, len(ops))); !errors.Is(err, ErrOpen) {
				t.Errorf("%s: %v", ops[0].Verb, err)
			}
		}
		if n := s.Stats().Waits; n != 0 {
			t.Errorf("%d operations wait", n)
		}

		f.rise()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if d := one(t, f.Store, core.Op{Verb: core.Peek, Rule: op.Rule, Key: op.Key, Limit: op.Limit}); d.Credit != 2 {
			t.Errorf("afterwards: %+v", d)
		}
	})
}
