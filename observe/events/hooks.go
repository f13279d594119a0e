package events

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Hooks are functions that receive what is not a decision about a request. Each is nil or
// safe for concurrent use, and must be quick: some are called in the goroutine of a request,
// others in one of a store, and none while a lock is held. A hook that is nil costs nothing.
// Hooks are not changed once they are in use. Later versions may have more of them, and more
// fields in what they receive.
type Hooks struct {
	// Open is called by limiter.New, before it returns, with what can be asked of the new
	// limiter at any time, and Closed once, when the limiter is closed.
	Open   func(Inspector)
	Closed func(Inspector)

	// Queue is called when a request begins to wait for its turn and when it ceases to.
	Queue func(Queue)

	// Lease is called when a request gets a lease and when it ends, once each.
	Lease func(Lease)

	// Units is called when units are given back or charged after the decision.
	Units func(Units)

	// Near is called when a request takes a key near its limit, as Rule.Warn says it. The Key
	// and the Limit are valid during the call.
	Near func(Near)

	// Ban is called when this process first meets a ban, and when it lifts one.
	Ban func(Ban)

	// StoreCall is called after each call that a store makes to its server in order to
	// decide, one for all requests that share the call.
	StoreCall func(StoreCall)

	// Breaker is called for each change of a breaker's state, in order.
	Breaker func(Breaker)

	// CachedRefusal is called when a store refuses a request by the answer to an earlier one,
	// without its server. The argument is the name of the rule.
	CachedRefusal func(rule string)

	// Rules is called when a program changes the rules of a limiter, or tries to.
	Rules func(Rules)

	// Policy is called when a follower puts a revision of the policies in force, or refuses
	// it, or finds its source away or back.
	Policy func(Policy)

	// joined are the hooks that were joined to these, if self is their address: a copy may
	// have been changed.
	joined []*Hooks
	self   *Hooks
}

// components returns the hooks that were joined to h, or h.
func (h *Hooks) components() []*Hooks {
	if h.self == h {
		return h.joined
	}
	return []*Hooks{h}
}

// Queue is a request that begins to wait, or ceases to.
type Queue struct {
	Rule   string // for whose turn it waits first
	Change int    // 1 or -1
}

// Lease is a lease that begins or ends.
type Lease struct {
	Rule  string
	Key   string // as Rule.Key of a request
	Units int64

	// Ended is false when the lease begins. Held is then 0, and later how long the request
	// has held it; 0 if Limiter.Restore has restored the result that ends it. Lost reports
	// whether it ended in the store before its request did.
	Ended bool
	Held  time.Duration
	Lost  bool
}

// Flow is a way that units take after the decision. The units that the decision itself
// charges are [Rule.Charged], and the text of that flow is "charged".
type Flow uint8

const (
	Refunded Flow = iota // given back by Rule.RefundIf, Result.Refund or Reservation.Cancel
	Settled              // given back by Result.Settle, because they were not used
	Debited              // charged by Result.Settle, because more were used
)

// String returns "refunded", "settled" or "debited".
func (f Flow) String() string {
	switch f {
	case Refunded:
		return "refunded"
	case Settled:
		return "settled"
	case Debited:
		return "debited"
	}
	return "unknown flow"
}

// Units are units that were given back or charged after the decision. The end of a lease gives
// none back in this sense.
type Units struct {
	Rule  string
	Key   string // as Rule.Key of a request
	Flow  Flow
	Units int64 // of those given back, time may have given back some before
}

// Near is a key that has come near its limit.
type Near struct {
	Rule      string
	Key       string      // as Rule.Key of a request
	Limit     *core.Limit // of the key
	Remaining int64       // units
}

// Ban is a ban that this process meets for the first time, or has lifted.
type Ban struct {
	Rule   string
	Key    string        // as Rule.Key of a request
	For    time.Duration // from now on, for one that is met
	Lifted bool          // by Limiter.Lift or Limiter.Reset
}

// StoreCall is a call of a store to its server.
type StoreCall struct {
	Store string // such as "redis"
	Steps int    // how many requests shared the call
	Ops   int    // how many operations they had in all
	Took  time.Duration

	// Err is nil if the server answered and every request was decided. Type is its type.
	Err  error
	Type ErrorType
}

// ErrorType is a type of errors of a server. Its text is a value of the attribute error.type.
type ErrorType uint8

const (
	NoError  ErrorType = iota
	Timeout            // no answer in time
	Dial               // no connection: refused, unreachable, an unknown name
	Script             // the server failed to run the script, or the state is unreadable
	ReadOnly           // a replica, a server without enough replicas, or one that cannot write to its disk
	OOM                // the memory of the server is full
	Auth               // wrong credentials, or a permission is missing
	Other
)

// ErrorTypes is the number of error types, for arrays of counters.
const ErrorTypes = int(Other) + 1

var errorTypes = [ErrorTypes]string{"", "timeout", "refused", "script", "readonly", "oom", "auth", "other"}

// String returns the type in lower case, "refused" for Dial and "" for NoError.
func (e ErrorType) String() string {
	if int(e) < len(errorTypes) {
		return errorTypes[e]
	}
	return "unknown error type"
}

// Breaker is a change of the state of a breaker.
type Breaker struct {
	Shard string // of the store, or "" for all of it
	Open  bool   // the store is bypassed from now on

	// Fallback reports whether a fallback decides while the breaker is open. Otherwise
	// OnStoreError does; see StoreStatus.Mode.
	Fallback bool

	Cause error // for which the breaker opened; nil when it closes
}

// Rules is a change of a limiter's rules.
type Rules struct {
	Count int   // of the rules in force from now on
	Err   error // why the old ones stay in force, or nil
}

// PolicyChange says what a follower of policies has done.
type PolicyChange uint8

const (
	PolicyApplied    PolicyChange = iota // the revision is in force
	PolicyRefused                        // it is not, or not all of it: see Policy.Policies
	PolicySourceAway                     // the source cannot be asked
	PolicySourceBack
)

// String returns "applied", "refused", "source_away" or "source_back".
func (p PolicyChange) String() string {
	switch p {
	case PolicyApplied:
		return "applied"
	case PolicyRefused:
		return "refused"
	case PolicySourceAway:
		return "source_away"
	case PolicySourceBack:
		return "source_back"
	}
	return "unknown change"
}

// Policy is what a follower of policies has done.
type Policy struct {
	App      string
	Change   PolicyChange
	Version  string // of the revision that was applied or refused
	Policies int    // how many of it are in force; not 0 if only some of it was refused
	Err      error  // why it was refused, or the source is away
}

// JoinHooks returns hooks that call those of each of the others in turn. It ignores those
// that are nil, and a function is nil in the result if it is nil in all of them.
func JoinHooks(hooks ...*Hooks) *Hooks {
	all := &Hooks{}
	all.self = all
	for _, h := range hooks {
		if h == nil {
			continue
		}

		// Those of a joined h are kept one by one, so that Listeners finds each of them again.
		all.joined = append(all.joined, h.components()...)
		all.Open, all.Closed = joinFuncs(all.Open, h.Open), joinFuncs(all.Closed, h.Closed)
		all.Queue, all.Lease = joinFuncs(all.Queue, h.Queue), joinFuncs(all.Lease, h.Lease)
		all.Units, all.Ban = joinFuncs(all.Units, h.Units), joinFuncs(all.Ban, h.Ban)
		all.Near = joinFuncs(all.Near, h.Near)
		all.StoreCall, all.Breaker = joinFuncs(all.StoreCall, h.StoreCall), joinFuncs(all.Breaker, h.Breaker)
		all.CachedRefusal = joinFuncs(all.CachedRefusal, h.CachedRefusal)
		all.Rules, all.Policy = joinFuncs(all.Rules, h.Rules), joinFuncs(all.Policy, h.Policy)
	}

	return all
}

// joinFuncs returns a function that calls a and then b, either of which may be nil.
func joinFuncs[T any](a, b func(T)) func(T) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(e T) { a(e); b(e) }
}

// Listeners are the hooks that listen to a store or a limiter. Several limiters may share a
// store, and each adds its hooks. The zero value is ready for use.
type Listeners struct {
	mu    sync.Mutex
	added []*Hooks // guarded by mu
	all   atomic.Pointer[Hooks]
}

// none are hooks that are all nil.
var none Hooks

// Add adds hooks, unless they are nil or were added before. Hooks that were joined are added
// one by one, so that each hears of an event once. A panic of one of their functions
// is logged once by slog.Default, and has no other effect.
func (l *Listeners) Add(h *Hooks) {
	if h == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range h.components() {
		if !slices.Contains(l.added, one) {
			l.added = append(l.added, one)
			l.all.Store(JoinHooks(l.all.Load(), guarded(one)))
		}
	}
}

// Hooks returns all hooks as one, which is never nil. It is fast.
func (l *Listeners) Hooks() *Hooks {
	if h := l.all.Load(); h != nil {
		return h
	}
	return &none
}

// guarded returns hooks that do not panic.
func guarded(h *Hooks) *Hooks {
	once := &sync.Once{}
	return &Hooks{
		Open: guard(once, h.Open), Closed: guard(once, h.Closed),
		Queue: guard(once, h.Queue), Lease: guard(once, h.Lease),
		Units: guard(once, h.Units), Ban: guard(once, h.Ban), Near: guard(once, h.Near),
		StoreCall: guard(once, h.StoreCall), Breaker: guard(once, h.Breaker),
		CachedRefusal: guard(once, h.CachedRefusal),
		Rules:         guard(once, h.Rules), Policy: guard(once, h.Policy),
	}
}

// guard returns f without its panics. once is for the log of the first.
func guard[T any](once *sync.Once, f func(T)) func(T) {
	if f == nil {
		return nil
	}
	return func(e T) {
		defer func() {
			if v := recover(); v != nil {
				once.Do(func() { logPanic(v) })
			}
		}()
		f(e)
	}
}

// logPanic logs the value of a panic.
func logPanic(value any) {
	defer func() { _ = recover() }() // of the logger
	slog.LogAttrs(context.Background(), slog.LevelError, "headgate: a hook panicked",
		slog.String("panic", fmt.Sprintf("%q", textform.Clip(fmt.Sprint(value)))))
}
