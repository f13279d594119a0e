package limiter

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

var (
	// ErrLimited means that the units do not fit within the limits in time.
	ErrLimited = errors.New("headgate: over the limit")

	// ErrDenied means that Rule.Access of a rule denies the key.
	ErrDenied = errors.New("headgate: denied")

	// ErrQueueFull means that as many requests wait as Config.MaxWaiters or
	// Config.MaxWaitersPerKey allows.
	ErrQueueFull = errors.New("headgate: too many requests wait already")

	// ErrUndecided means that the store did not decide under every rule. An error
	// that wraps it also wraps the cause.
	ErrUndecided = errors.New("headgate: not every rule was decided")
)

// undecided returns an error that wraps ErrUndecided and err, or nil if err is nil.
func undecided(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUndecided, err)
}

// WaitError says why units were not taken.
type WaitError struct {
	// Err wraps one of [ErrLimited], [ErrDenied], [ErrQueueFull], [ErrClosed], the cause of the
	// context, or [ErrUndecided].
	Err error

	// RetryAfter is the time until the units would fit if no others were taken. It is
	// [core.Never] if they exceed a limit or the key is denied, and 0 if the time is not known.
	RetryAfter time.Duration

	// Rules are the names of the rules that refused the units.
	Rules []string
}

// Error says in one line why the units were not taken, under which rules, and when
// to try again.
func (e *WaitError) Error() string {
	text := e.Err.Error()
	if len(e.Rules) > 0 {
		text += " (" + strings.Join(e.Rules, ", ") + ")"
	}

	switch e.RetryAfter {
	case 0:
		return text
	case core.Never:
		if errors.Is(e.Err, ErrDenied) {
			return text
		}
		return text + "; the units never fit"
	}
	return text + "; retry after " + textform.Duration(e.RetryAfter)
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// RuleError is a mistake in one rule.
type RuleError struct {
	Rule  string // the rule's name
	Index int    // its place in Config.Rules
	Err   error
}

// Error names the rule and the mistake in one line.
func (e *RuleError) Error() string {
	return fmt.Sprintf("rule %d %q: %s", e.Index, textform.Clip(e.Rule), textform.Line(e.Err))
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// ruleOf returns the name of the rule that err is about, or "".
func ruleOf(err error) string {
	var e *RuleError
	if errors.As(err, &e) {
		return e.Rule
	}
	return ""
}

// errLease is the error of calls that return nothing by which a lease could be
// released.
var errLease = fmt.Errorf("%w: the units of a concurrency limit have to be released: use Take", core.ErrOp)

// errNoKey is why a rule cannot decide about requests.
var errNoKey = errors.New("the Key function is nil, so no request can be counted")

// errNoResult is the error of Settle on a nil Result.
var errNoResult = fmt.Errorf("%w: there is no result to settle: set Config.KeepResult to find it in the context",
	core.ErrOp)

var errNoLimiter = errors.New("headgate: the limiter is nil")

// ErrClosed is the error of a wait that ended, or did not begin, because its limiter was
// closed or is being shut down.
var ErrClosed = errors.New("headgate: the limiter is closed")

// ErrLeaseLost is wrapped by the error about a lease that ended before its request did,
// because it could not be renewed within its ttl. From then on others may hold its units,
// so that more requests than the limit admits may run at once. The error goes to
// Config.OnError and to the log, and is the cause of the handler's context under
// Config.CancelOnLostLease.
var ErrLeaseLost = errors.New("headgate: a lease ended before its request")

var (
	errNotRenewed = errors.New("it was not renewed in its ttl")
	errTaken      = errors.New("others hold its units")
)

// BannedUntil returns the error by which [Rule.Override] bans a key until an instant, whether or
// not the rule has a Ban. Requests under the key are then refused at once, as those under any ban
// are, at no cost under any rule and without a call of the store; see [Result.Banned]. One of 0
// units is refused too, and so is a [Part] with a Rate. That is so under each OnLimit but Shadow,
// which reports the requests. An instant that has passed bans no key. The instant is cut to
// microseconds and to the year 2262. A limit of its own of the key may come with the error, for
// what is not refused.
//
// Access comes first: a caller whom it allows passes in spite of the ban. What the key has used,
// and what it is given back, charged or granted meanwhile, counts as without the ban.
func BannedUntil(t time.Time) error {
	b := banError(maxBanned)
	if t.Before(time.UnixMicro(maxBanned)) { // others may have no number of microseconds
		b = banError(t.UnixMicro())
	}
	return &b
}

// maxBanned is the last instant up to which a [time.Duration] reaches from now on.
const maxBanned = math.MaxInt64 / 1000

// banError is the end of a ban in microseconds.
type banError int64

func (b *banError) Error() string {
	return "headgate: banned until " + time.UnixMicro(int64(*b)).UTC().Format(time.RFC3339)
}

// bannedBy returns the end of the ban that an error of Override is, in microseconds.
func bannedBy(err error) (until int64, ok bool) {
	// errors.As allocates.
	if b, is := err.(*banError); is {
		return int64(*b), true
	}
	var b *banError
	if ok = errors.As(err, &b); ok {
		until = int64(*b)
	}
	return until, ok
}

// PanicError is a panic of a function that the program gave to the limiter, or
// of its store.
type PanicError struct {
	Value any
	Stack []byte
}

// Error is one line, whatever the panic's value is.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %q", textform.Clip(fmt.Sprint(e.Value)))
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func panicked(value any) error { return &PanicError{value, debug.Stack()} }
