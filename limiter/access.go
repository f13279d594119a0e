// This file applies Rule.Access, and answers those whom it denies.

package limiter

import (
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

// denial is the decision about a caller whom a rule denies: to come again does not help.
var denial = core.Decision{RetryAfter: core.Never}

// Denied reports whether the request was refused because Rule.Access of a rule denies the
// caller, and not because of a limit. Violated has the name of the rule.
func (res *Result) Denied() bool { return res != nil && res.denied }

// applyAccess applies the lists of the rule, which has some, to the caller, and reports
// whether the rule does not limit the request. If the rule denies it, nothing else
// decides. r may be nil. A Reset and a Lift are for every key.
func (res *Result) applyAccess(verb core.Verb, rule *activeRule, r core.Request, key string) (listed bool, err error) {
	if verb == core.Reset || verb == core.Lift {
		return false, nil
	}
	verdict, err := rule.Access.Of(r, key)
	if err != nil {
		return false, rule.ruleError(fmt.Errorf("the verdict of Access: %w", err))
	}
	return res.applyVerdict(verdict, verb, rule, key), nil
}

// applyVerdict carries out the verdict of the lists of the rule, and reports whether the
// rule does not limit the request.
func (res *Result) applyVerdict(verdict keyfuncs.Verdict, verb core.Verb, rule *activeRule, key string) (listed bool) {
	switch {
	case verdict == keyfuncs.Denied && rule.OnLimit == Shadow:
		res.outside = append(res.outside, outside{rule, key, nil})
	case verdict == keyfuncs.Denied:
		res.deny(verb, rule, key)
	}
	return verdict != keyfuncs.Limited
}

// deny makes the result a refusal by the rule alone.
func (res *Result) deny(verb core.Verb, rule *activeRule, key string) {
	res.calls, res.ops, res.out = res.calls[:0], res.ops[:0], res.out[:0]
	op := res.room(rule, rule.terms)
	op.Verb, op.UpTo, op.Key, op.Cost, op.MaxWait = verb, false, key, 0, 0
	res.out[0], res.denied, res.lease = denial, true, ""
}

// denialTitles are the reason phrases of the statuses for a caller who is denied.
var denialTitles = map[int]string{forbidden: "Forbidden", tooManyRequests: "Too Many Requests"}

func checkDenyStatus(status int) error {
	if status != 0 && denialTitles[status] == "" {
		return fmt.Errorf("DenyStatus: %d is not %d or %d", status, forbidden, tooManyRequests)
	}
	return nil
}

// appendDenied writes a problem without a registered type, because there is no quota that
// it could be about.
func (a *Admission) appendDenied(b []byte) []byte {
	status := a.Status()
	b = fmt.Appendf(b, `{"type":"about:blank","title":"%s","status":%d,"violated-policies":`, denialTitles[status], status)
	return append(a.appendViolated(b), '}')
}
