package events

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
)

// Observer receives requests, for metrics and logs. It is called once for each request that
// a limiter decides about, in the goroutine of the request, when the decision is known. It
// must be quick and safe for concurrent use. A panic is an error of the limiter, and no
// request suffers from it.
//
// A request is a call of Admit, AdmitParts, Take, TakeWithin, TakeRequest, TakeRequestUnits,
// TakeUpTo, Allow, Wait or Reserve.
// Calls that return an error about their arguments, which wraps core.ErrOp, are none, nor are
// questions such as Peek, or repairs such as Reset.
type Observer interface {
	// Observe must not keep r, nor anything that it refers to, after it returns. ctx is that
	// of the request.
	Observe(ctx context.Context, r *Request)
}

// Func is a function that is an [Observer].
type Func func(ctx context.Context, r *Request)

// Observe calls f.
func (f Func) Observe(ctx context.Context, r *Request) { f(ctx, r) }

// Counter is an [Observer] that counts plain requests without an event, as the event is most
// of what an observer costs. A request is plain if some rule applies to it, it asks each of its
// rules for one unit, and the store itself admitted or refused it at once. Its verdict is Allowed
// or Refused, and it has no error, wait or fallback. For a plain request the limiter calls
// the [RuleCounter] of each of its rules, and then CountRequest once. All others go to Observe.
//
// A type that embeds a Counter and has an Observe of its own needs the other methods too.
type Counter interface {
	Observer

	// CountRequest counts a plain request. It is called in place of Observe, and the same
	// holds for it.
	CountRequest(ctx context.Context, r Plain)

	// RuleCounter returns what counts the decisions of the rule on plain requests, or nil if
	// Observe shall have all requests to which the rule applies. A limiter calls it once for
	// each rule that it puts in force. It uses the result for all requests that begin under
	// these rules, some of which may end after the rules were replaced. So the result must be
	// of use as long as the Counter is. After a panic Observe has the requests.
	RuleCounter(rule string) RuleCounter
}

// Plain is a request that is plain, as [Counter] says.
type Plain struct {
	// Verdict is Allowed or Refused.
	Verdict Verdict

	// Rule is the first rule that refused the request, "" if it passes.
	Rule string

	// Remaining is the least that is left under any of its rules.
	Remaining int64
}

// RuleCounter counts the decisions of one rule on plain requests.
type RuleCounter interface {
	// Count counts one decision. v is the verdict of the rule: Allowed if the request is, and
	// otherwise any that a rule can have on a refused request. ctx is that of the request. The
	// same holds for Count as for Observe.
	Count(ctx context.Context, v Verdict)
}

// Request is what became of one request.
type Request struct {
	// Verdict is that on the whole request. Of the rules' it is the one that decides: that
	// of a rule which does not let the request pass, the most lasting first; otherwise
	// FailedOpen, Degraded, ShadowRefused, Waited and Allowed, in this order.
	Verdict Verdict

	// Fallback reports whether the fallback of the store decided under some rule.
	Fallback bool

	// Waited is how long the request waited for its turn.
	Waited time.Duration

	// Err is why some rule was not decided, nil if all were. Its text may be logged.
	Err error

	// Rules has the rules that apply to the request, in the order of the limiter where the
	// store decided about all. It lacks those whose Access exempts the caller and, after an
	// error that ends a request, those that were not reached. Under Limiter.AdmitParts they
	// are in the order of the parts, and a rule is there once for each count that parts of
	// the same Verb lead to.
	Rules []Rule
}

// Rule is what became of a request under one rule.
type Rule struct {
	// Name is the name of the rule.
	Name string

	// Key is the key that the request was counted by, as the rule's key function returns
	// it: a digest if the key function hashes secrets, and otherwise whatever the client
	// sent, of any length and with any bytes. It is for finding who is refused. It must
	// never be a label of a metric or part of a log line, and must be escaped where it is
	// shown. "" if a function of the rule failed. Clone it to keep it.
	Key string

	// Verdict is that of the rule on the request.
	Verdict Verdict

	// Limit is the limit of the key. It is never nil and never changes.
	Limit *core.Limit

	// Cost is how many units the request asked for, and Charged how many it was charged. A
	// request that does not pass is charged nothing.
	Cost, Charged int64

	// Waited is how long the request waited for its turn under this rule.
	Waited time.Duration

	// Decision is that of the store or, if its Fallback is set, of the fallback. It is zero
	// if nothing was decided; see Err.
	Decision core.Decision

	// Err is why the rule was not decided, or nil.
	Err error
}

// Join returns an observer that calls each of the others in turn. It ignores those that are
// nil, and returns nil if all are. The result is a [Counter] if all of the others are. A rule
// for which one of them has no RuleCounter has none in the result.
func Join(observers ...Observer) Observer {
	var list several
	for _, o := range observers {
		if o != nil {
			list = append(list, o)
		}
	}

	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}

	// The result is a Counter only if each of them is: plain requests go to Observe otherwise.
	for _, o := range list {
		if _, ok := o.(Counter); !ok {
			return list
		}
	}
	return counters{list}
}

// several are observers that are called in turn.
type several []Observer

// Observe calls each observer.
func (s several) Observe(ctx context.Context, r *Request) {
	for _, o := range s {
		o.Observe(ctx, r)
	}
}

// counters are several observers of which each is a Counter.
type counters struct{ several }

// CountRequest calls each counter.
func (c counters) CountRequest(ctx context.Context, r Plain) {
	for _, o := range c.several {
		o.(Counter).CountRequest(ctx, r)
	}
}

// RuleCounter implements Counter.
func (c counters) RuleCounter(rule string) RuleCounter {
	list := make(ruleCounters, len(c.several))
	for i, o := range c.several {
		if list[i] = o.(Counter).RuleCounter(rule); list[i] == nil {
			return nil
		}
	}
	return list
}

// ruleCounters are counters of one rule that are called in turn.
type ruleCounters []RuleCounter

// Count calls each counter.
func (r ruleCounters) Count(ctx context.Context, v Verdict) {
	for _, one := range r {
		one.Count(ctx, v)
	}
}
