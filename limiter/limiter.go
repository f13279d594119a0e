package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is why a wait ended when its limiter was closed.
var ErrClosed = errors.New("headgate: the limiter is closed")

// Limiter decides by rules, with the counts in a store. It is safe for
// concurrent use.
type Limiter struct {
	store         core.Store
	set           atomic.Pointer[ruleSet]
	headers       HeaderStyle
	customHeaders func([]RuleDecision) []Header
	fallbacks     fallbacks
	onError       func(context.Context, error)
	observer      Observer
	queue         waitQueue
	leases        *leaseSource
	releases      releaseQueue
	admissions    sync.Pool
	warner        warner
	mark          string          // in the headers of an answer; nobody else has it
	life          context.Context // ends with Close
	end           context.CancelFunc
}

// New returns a limiter, or an error that joins everything that is wrong with
// c; each mistake in a rule is a [*RuleError].
func New(c Config) (*Limiter, error) {
	failing := newFallbacks(&c)
	set, err := newRuleSet(c.Rules, &failing)
	if err := errors.Join(append(c.faults(&failing), err)...); err != nil {
		return nil, err
	}
	l := &Limiter{
		store:         c.Store,
		headers:       cmp.Or(c.Headers, XRateLimit|Draft8),
		customHeaders: c.CustomHeaders,
		fallbacks:     failing,
		onError:       c.OnError,
		observer:      c.Observer,
		leases:        newLeaseSource(),
	}
	l.mark = newMark(l.leases)
	l.life, l.end = context.WithCancel(context.Background())
	l.warner.start(c.Logger)
	l.queue.max = cmp.Or(c.MaxWaiters, DefaultMaxWaiters)
	l.queue.maxPerKey = cmp.Or(c.MaxWaitersPerKey, DefaultMaxWaitersPerKey)
	l.enforce(set)
	return l, nil
}

// MustNew is [New] for a configuration that is known to be right. It panics if
// it is not.
func MustNew(c Config) *Limiter {
	l, err := New(c)
	if err != nil {
		panic(err)
	}
	return l
}

// SetRules puts other rules in force for every request that comes after. Rules
// that keep their name and algorithm keep their counts. If anything is wrong
// with the rules, nothing changes; the error is as of [New].
func (l *Limiter) SetRules(rules []Rule) error {
	set, err := newRuleSet(rules, &l.fallbacks)
	if err != nil {
		return err
	}
	l.enforce(set)
	return nil
}

// enforce puts a set of rules in force.
func (l *Limiter) enforce(set *ruleSet) {
	if !l.warner.hasSeen(CodeUnheeded) || !l.warner.hasSeen(CodeOneKey) {
		set.setup.begin(len(set.rules))
	}
	l.set.Store(set)
}

// Close ends all waits at once: who waits is refused. After it nobody waits,
// and everything else goes on as before. It may be called again and never
// returns an error.
func (l *Limiter) Close() error {
	l.end()
	return nil
}

// Take counts cost units of key under every rule, whatever its Key function
// says, and does not wait. A refusal is a result that is not Allowed. An error
// means that nobody could decide, or not under every rule; whether the result,
// which is never nil, is then allowed is as OnStoreError of the rules says.
// Results that hold leases are to be released.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Result, error) {
	return l.take(ctx, key, cost, 0)
}

// Wait is [Limiter.Take], but waits at most max, which is above 0 and at most
// [core.MaxBooking], until every rule that is not Degrade or Shadow admits. If that
// would take longer, or longer than until the deadline of ctx, it refuses at
// once. If ctx ends while it waits, or the limiter is closed, the result is a
// refusal, what was booked is given back, and the error says why: the cause of
// ctx, or [ErrClosed].
func (l *Limiter) Wait(ctx context.Context, key string, cost int64, max time.Duration) (*Result, error) {
	if max <= 0 || max > core.MaxBooking {
		return &Result{}, fmt.Errorf("%w: the wait %s is not above 0 and at most %s", core.ErrOp, max, textform.Duration(core.MaxBooking))
	}
	return l.take(ctx, key, cost, max)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, patience time.Duration) (*Result, error) {
	if err := checkCost(cost); err != nil {
		return &Result{}, err
	}
	l.diagnoseOnce()
	res := &Result{}
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, cost)
	for i := range res.calls {
		res.calls[i].patience = patience
	}
	if err == nil {
		err = res.decide(ctx, patience > 0)
	}
	res.conclude(ctx, err)
	return res, cmp.Or(err, res.stopped, res.skipped)
}

func checkCost(cost int64) error {
	if cost < 0 {
		return fmt.Errorf("%w: the cost %d is negative", core.ErrOp, cost)
	}
	return nil
}

// Peek tells what [Limiter.Take] of one unit would decide, rule by rule, and
// changes nothing.
func (l *Limiter) Peek(ctx context.Context, key string) ([]RuleDecision, error) {
	res, err := l.applyKey(ctx, core.Peek, key)
	if err != nil {
		return nil, err
	}
	return res.Decisions(), nil
}

// Reset makes key as good as new under every rule.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.applyKey(ctx, core.Reset, key)
	return err
}

func (l *Limiter) applyKey(ctx context.Context, verb core.Verb, key string) (*Result, error) {
	res := &Result{}
	res.begin(l)
	if err := res.addKey(ctx, verb, key, 1); err != nil {
		return nil, err
	}
	if verb == core.Peek {
		return res, l.applyTo(ctx, res.set.store, res.ops, res.out)
	}
	return res, l.apply(ctx, res.ops, res.out)
}

// apply is the store's Apply, whose panic is an error.
func (l *Limiter) apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return l.applyTo(ctx, l.store, ops, out)
}

// applyTo is the same for the store, its strict side or its fallback.
func (l *Limiter) applyTo(ctx context.Context, s core.Store, ops []core.Op, out []core.Decision) (err error) {
	if len(ops) == 0 {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("store: %w", panicked(v))
		}
	}()
	return s.Apply(ctx, ops, out)
}
