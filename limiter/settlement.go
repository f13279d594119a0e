package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// settlement is what a caller has reported to [Result.Settle]: the units that were used,
// by rule. It is never written.
type settlement struct{ actual map[string]int64 }

// errNoResult is the error of Settle on a nil Result.
var errNoResult = fmt.Errorf("%w: there is no result to settle: set Config.KeepResult to find it in the context", core.ErrOp)

// Settle corrects what the request was charged to what it has used. actual has the units
// used, by the names of rules. Units that were not used are given back, except those that
// the passage of time has given back already. Units beyond the charge are charged too, if
// need be beyond the limit; see [core.Debit] and [core.Limit.MaxDebt]. Rules that are not
// named keep their charge, and so do all if Settle is never called. Only the first call
// counts; later ones return nil and do nothing, and a named rule is then not refunded by
// Rule.RefundIf or by Refund. A rule that one of these has refunded before is not settled.
//
// All rules are settled in one step of the store, which also releases the leases. The step
// of a request that an adapter admitted is carried out when the handler has ended, however
// it ends, or with the connection that it has taken over. It does not delay the answer, and
// its error goes to Config.OnError. In all other cases Settle carries it out before it
// returns, whether or not ctx has ended. After an error of the store the units are those
// charged or those used, and the leases are released later.
//
// A mistake in actual is an error that wraps [core.ErrOp] and names the rules, and nothing
// is settled: a negative number; a rule that does not exist, that charged the request
// nothing, or that has a concurrency limit; more units than were charged under a limit
// without debt. A rule that the request has passed uncounted is no mistake and stays
// uncharged: a Degrade or Shadow rule that was over its limit, a rule whose Access does not
// limit the caller, and a rule that the store did not decide. The error on a nil Result
// wraps core.ErrOp too: a request has a result in its context under Config.KeepResult.
func (res *Result) Settle(ctx context.Context, actual map[string]int64) error {
	if res == nil {
		return errNoResult
	}
	if err := res.checkActual(actual); err != nil {
		return err
	}
	s := &settlement{actual: maps.Clone(actual)}
	if !res.settlement.CompareAndSwap(nil, s) || res.admitted && !res.ended.Load() {
		return nil
	}
	ops := res.settleOps()
	settled := len(ops)
	if res.lease != "" && res.endLeases() {
		ops = append(ops, res.leaseRefunds()...)
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	err := res.applyRefunds(ctx, ops, settled)
	if err != nil {
		res.limiter.addReleases(ops)
	}
	return err
}

// checkActual returns every mistake in the units reported to Settle.
func (res *Result) checkActual(actual map[string]int64) error {
	var errs []error
	for _, rule := range slices.Sorted(maps.Keys(actual)) {
		if fault := res.actualFault(rule, actual[rule]); fault != "" {
			errs = append(errs, fmt.Errorf("%w: rule %q: %s", core.ErrOp, rule, fault))
		}
	}
	return errors.Join(errs...)
}

// actualFault returns what is wrong with n units used under the rule, or "".
func (res *Result) actualFault(rule string, n int64) string {
	i := len(res.calls) - 1
	for i >= 0 && res.calls[i].rule.Name != rule {
		i--
	}
	switch {
	case n < 0:
		return fmt.Sprintf("%d units cannot be used", n)
	case i < 0 && res.mayPassUncounted(rule), i >= 0 && res.ops[i].Soft && !res.out[i].Allowed:
		return ""
	case i < 0 || !res.charged(i):
		return "it charged nothing that could be settled"
	case res.leased(i):
		return "leases are released, not settled"
	case n > res.out[i].Taken && res.ops[i].Limit.MaxDebt() == 0:
		return fmt.Sprintf("%d units are more than the %d charged, and %s has no debt", n, res.out[i].Taken, res.ops[i].Limit)
	}
	return ""
}

// mayPassUncounted reports whether a request may pass the rule of the name without being
// counted: the store did not decide, or the lists of the rule exempt callers.
func (res *Result) mayPassUncounted(name string) bool {
	r := res.set.named(name)
	return r != nil && (res.Undecided() || res.allowed && r.Access != nil)
}

// settles reports whether rule i is settled instead of refunded.
func (res *Result) settles(i int) bool {
	s := res.settlement.Load()
	if s == nil {
		return false
	}
	_, named := s.actual[res.calls[i].rule.Name]
	return named
}

// correct reports whether the charge of rule i is to be refunded or settled now: it has
// not been before.
func (res *Result) correct(i int) bool {
	return atomic.CompareAndSwapUint32(&res.calls[i].corrected, 0, 1)
}

// settleOps returns the ops that settle the named rules.
func (res *Result) settleOps() (ops []core.Op) {
	s := res.settlement.Load()
	if s == nil {
		return nil
	}
	for i := range res.ops {
		used, named := s.actual[res.calls[i].rule.Name]
		if !named || !res.charged(i) || !res.correct(i) {
			continue
		}
		op := res.refundOp(i)
		if op.Cost -= used; op.Cost < 0 {
			op = res.ops[i]
			op.Verb, op.Cost, op.Soft, op.MaxWait = core.Debit, used-res.out[i].Taken, false, 0
			if op.Windows != nil {
				op.Windows = res.calls[i].terms.windowsNow() // the request may have begun in another window
			}
		}
		if op.Cost > 0 {
			ops = append(ops, op)
		}
	}
	return ops
}
