package events

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
)

// Observer hears of requests, for metrics and logs. It is called once for each request that
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

	// Limit is the limit of the key.
	Limit core.Limit

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
// nil, and returns nil if all are.
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
	return list
}

type several []Observer

// Observe calls each observer.
func (s several) Observe(ctx context.Context, r *Request) {
	for _, o := range s {
		o.Observe(ctx, r)
	}
}
