package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/llmusage"
)

// Rule says how many units each key may use, and what happens over the limit.
//
// Its functions are called for every request, from many goroutines. A panic in
// one of them is an error under OnStoreError, never a crash.
type Rule struct {
	// Name identifies the rule in headers, bodies, events and in what the
	// store keeps: counts outlive a change of everything but the name and the
	// algorithm. Under another name every key starts fresh, and its old count ends
	// with its time to live, so for one period a caller may get the limit twice. A Name
	// has at most 64 bytes: a letter a to z, then letters, digits and "_", ".", "-". ""
	// means Config.Name, or "default" without that, for a limiter's only rule.
	Name string

	// Limit is the limit of every key without one of its own. The Period of a
	// concurrency limit is at least 100 ms, and at least three times as long as a call
	// of the store may take (see MaxCall of events.Report), because a lease is renewed three
	// times in it.
	Limit core.Limit

	// Key returns the key under which the request is counted. It may be nil in a
	// limiter whose callers pass keys, as to [Limiter.Take]; see
	// [Limiter.CheckRequests]. To find mistakes in the set-up, a limiter also calls
	// it with the first requests under other addresses.
	Key core.KeyFunc

	// Cost returns the number of units that the request takes; nil means 1. A
	// request that costs 0 passes uncounted.
	Cost func(core.Request) int64

	// Charge, unless nil, takes the place of Cost for requests that say themselves what they cost,
	// or whose answers do. It returns the units that a request is charged before its answer, and
	// used, which unless nil says by the answer how many it has used. A difference is settled at
	// the end of the request, as [Result.Settle] does, in the step that releases leases. What
	// RefundIf gives back, and what a handler settles itself, used is not asked about. The units
	// that it returns are Charged of its argument where the answer says nothing else.
	//
	// An error of Charge or of used is logged once, as findings.CostUnread, and changes no unit:
	// beside an error Charge returns what is charged in spite of it, and after one of used the
	// charge stays. Both must not keep the request, and the text of an error must be one line.
	// Where no answer is seen, as by [Limiter.TakeRequest], the charge stays too.
	Charge func(r core.Request) (units int64, used func(Seen) (units int64, err error), err error)

	// ReadsUsage says that the used of Charge reads Seen.Usage. Adapters of HTTP then read the
	// body of each answer while it passes, and take Accept-Encoding out of the request, as the
	// usage of a compressed answer cannot be read.
	ReadsUsage bool

	// CostAtMost lowers a cost that is above the capacity of the limit to the capacity.
	// Otherwise such a request is refused for ever. It suits a Cost that is an estimate,
	// which [Result.Settle] corrects.
	CostAtMost bool

	// OnLimit says what happens to a request over the limit; the zero value refuses it.
	OnLimit Action

	// Enforce is the share of the keys for which the rule is in force; 0 means all. For the
	// other keys it is a Shadow rule. Which keys those are follows from the names of rule and
	// key alone, see [core.Share.Has], so that all instances agree, and a key for which the rule
	// is in force stays so while the share grows. A client that may choose its key may also
	// choose one for which the rule is not in force.
	Enforce core.Share

	// Warn is the share of a limit's capacity from which on a key is near its limit, below 100 %;
	// 0 means none. The request that takes the used units there is reported to Hooks.Near, once on
	// each way up, and [Result.Near] reports each that is allowed from there on. Nothing of it is
	// kept, so it takes no memory. A charge after the fact that leaves nothing, a booking, and
	// a decision of the store's fallback, which has a part of the limit, are not reported.
	Warn core.Share

	// Ban turns a key away for a while after many refusals, such as
	// core.MustParseBan("20/1m for 10m max 24h"); the zero value bans no key. Only refusals by
	// the rule itself count. A request that costs more than the limit can ever hold, or whose
	// key is banned, is none of them. The store keeps bans with the counts of the rule, so all
	// instances know of a ban, and a restart ends none that Redis holds.
	//
	// It needs an OnLimit that refuses, and a limit without leases; so do the limits that
	// Override returns. A Shadow rule bans no key. Nor does it count callers whom Access lists.
	Ban core.Ban

	// OnStoreError says what happens when the store cannot decide under this rule;
	// the zero value leaves that to Config.OnStoreError. If several rules apply
	// to a request, a FailClosed rule turns it away. Otherwise the outcome is that of
	// the rules that the store or its fallback could decide. Shadow rules turn no
	// request away.
	OnStoreError FailureMode

	// RefundIf reports whether an answer with status gives the units back; nil
	// means never. The status is that which was sent, also if the handler panics
	// afterwards, or [StatusClientLeft].
	RefundIf func(status int) bool

	// Access, unless nil, lists callers whom the rule does not limit, and others whose
	// requests it refuses at once, at no cost under any rule and without a call of the
	// store; see [Result.Denied]. A Shadow rule reports those, and they are not limited by
	// it. An error of its Address function is answered as OnStoreError says. To methods
	// that take a key and no request, only the keys of the lists and DenyOthers apply.
	Access *keyfuncs.Access

	// DenyStatus is the status of the answer to a caller whom Access denies: 403, which
	// is also the meaning of 0, or 429. A program with its own answers to refusals also
	// answers denials by them, and may ask [Result.Denied].
	DenyStatus int

	// Override gives a key a limit of its own, if it returns true, and bans the key with the
	// error that [BannedUntil] returns. ctx is the context of the request, or the one that was
	// given to [Limiter.Take] or another method, so the limit may come with the request: what
	// an authentication before the limiter has put there. Never take it from a header that the
	// client itself can send. Any other error, and a limit that is not valid, are answered as
	// OnStoreError says. Used units stay used when the limit of a key changes, as long as the
	// algorithm stays.
	//
	// Override is called for every request. Let it look up what is in memory.
	Override func(ctx context.Context, key string) (limit core.Limit, ok bool, err error)
}

// Seen is what an adapter has seen of the answer to a request, for Rule.Charge. It must not be
// kept.
type Seen struct {
	Status  int   // as RefundIf gets it
	Charged int64 // the units that the rule has charged

	// Header returns the lines of a header of the answer by its name in canonical form. It is
	// nil if the adapter sees no headers.
	Header func(name string) []string

	// Usage has read the body of the answer. It is nil without Rule.ReadsUsage, and where the
	// adapter has not seen the body.
	Usage *llmusage.Meter

	// Ended says that the answer came to its end: the handler has neither panicked nor has its
	// client left.
	Ended bool
}

// defaultName is the name of a limiter's only rule if Rule.Name and Config.Name are "".
const defaultName = "default"

// maxName is the length of the longest name of a rule, in bytes.
const maxName = 64

// faults returns every mistake of the rule by itself.
func (r *Rule) faults(f *fallbacks) []error {
	var errs []error
	if !nameIsValid(r.Name) {
		errs = append(errs, fmt.Errorf("the name is not 1 to %d of a-z, 0-9, _, . and -, a letter first", maxName))
	}

	if err := r.Limit.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := checkTTL(&r.Limit, f.minTTL); err != nil {
		errs = append(errs, err)
	}
	if err := r.OnLimit.check(); err != nil {
		errs = append(errs, err)
	}

	if r.Enforce > core.Whole {
		errs = append(errs, fmt.Errorf("the share %s of Enforce is more than %s", r.Enforce, core.Whole))
	}
	if r.Warn >= core.Whole {
		errs = append(errs, fmt.Errorf("the share %s of Warn is not below %s", r.Warn, core.Whole))
	}

	errs = append(errs, r.checkCharge()...)
	errs = append(errs, r.checkBan()...)
	if err := checkDenyStatus(r.DenyStatus); err != nil {
		errs = append(errs, err)
	}
	if err := f.check(r.OnStoreError); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// checkCharge returns every mistake in Charge.
func (r *Rule) checkCharge() (errs []error) {
	switch {
	case r.Charge == nil && r.ReadsUsage:
		errs = append(errs, errors.New("ReadsUsage: there is no Charge that could read it"))
	case r.Charge == nil:
		return nil
	}
	if r.Charge != nil && r.Cost != nil {
		errs = append(errs, errors.New("a Charge and a Cost cannot both say what a request costs"))
	}
	if r.Charge != nil && r.Limit.Leased() {
		errs = append(errs, errors.New("a Charge has nothing to settle under a limit whose leases are released"))
	}
	return errs
}

// isPriced reports whether the rule says what a request costs.
func (r *Rule) isPriced() bool { return r.Cost != nil || r.Charge != nil }

// corrects reports whether the rule may give units back, or settle by the answer.
func (r *Rule) corrects() bool { return r.RefundIf != nil || r.Charge != nil }

func nameIsValid(s string) bool {
	if s == "" || len(s) > maxName || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

func checkDenyStatus(status int) error {
	if status != 0 && denialTitles[status] == "" {
		return fmt.Errorf("DenyStatus: %d is not %d or %d", status, forbidden, tooManyRequests)
	}
	return nil
}

// Action says what happens to a request over the limit of a rule. Its zero
// value is [Reject]. Actions can be compared.
type Action struct {
	kind    actionKind
	maxWait time.Duration // of waits
}

type actionKind uint8

const (
	rejects actionKind = iota
	degrades
	shadows
	waits
)

var (
	// Reject refuses the request.
	Reject = Action{kind: rejects}
	// Degrade lets the request pass, marked; see [Degraded].
	Degrade = Action{kind: degrades}
	// Shadow counts and reports the request and lets it pass; no client sees it.
	Shadow = Action{kind: shadows}
)

// Wait makes the request wait for its turn, for at most max, which is above 0
// and at most [core.MaxBooking]. Requests of one key are served in the order of their
// arrival at the limiter, and one that leaves takes no units. A request is refused at once
// if its turn would come later than max, or after its context's deadline, as far as the
// limiter can know. A lease may be released at any time, so under a concurrency limit it
// waits for as long as it may.
func Wait(max time.Duration) Action { return Action{kind: waits, maxWait: max} }

// MaxWait returns the longest time that a request may wait: 0 unless a is made by [Wait].
func (a Action) MaxWait() time.Duration { return a.maxWait }

// String returns "reject", "degrade", "shadow", or "wait" and the longest wait.
func (a Action) String() string {
	switch a.kind {
	case degrades:
		return "degrade"
	case shadows:
		return "shadow"
	case waits:
		return "wait " + textform.Duration(a.maxWait)
	}
	return "reject"
}

// soft reports whether a request over the limit passes.
func (a Action) soft() bool { return a.kind == degrades || a.kind == shadows }

func (a Action) check() error {
	if a.kind == waits && (a.maxWait <= 0 || a.maxWait > core.MaxBooking) {
		return fmt.Errorf("OnLimit: the longest wait must be above 0 and at most %s",
			textform.Duration(core.MaxBooking))
	}
	return nil
}

// FailureMode says what happens to a request when the store cannot decide under a rule:
// the store failed, or a function of the rule panicked or returned an invalid
// value.
type FailureMode uint8

const (
	// FailDefault in a [Rule] means Config.OnStoreError. In a Config it means FailLocal if
	// the store has a fallback, as one in Redis has, and FailOpen if it has none.
	FailDefault FailureMode = iota

	// FailOpen lets the request pass, as far as this rule is concerned. The
	// fallback of the store, if any, is not asked. A client that floods the service until
	// the store cannot decide in time is then not limited; see findings.FailsOpen.
	FailOpen

	// FailClosed answers with a 503, whatever other rules say. The fallback of
	// the store, if any, is not asked.
	FailClosed

	// FailLocal lets the fallback of the store decide; the store must be a [core.Backed] that
	// has one. If the fallback cannot decide either, Config.OnStoreError applies, and if that
	// is FailLocal too, the request passes.
	FailLocal
)

// String returns "default", "open", "closed" or "local".
func (f FailureMode) String() string {
	switch f {
	case FailDefault:
		return "default"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	case FailLocal:
		return "local"
	}
	return "unknown failure mode"
}

// denialTitles are the reason phrases of the statuses for a caller who is denied.
var denialTitles = map[int]string{forbidden: "Forbidden", tooManyRequests: "Too Many Requests"}

// The statuses of answers.
const (
	forbidden         = 403
	tooManyRequests   = 429
	unavailableStatus = 503
)
