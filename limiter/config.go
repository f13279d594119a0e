package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/store/memstore"
)

// Defaults of a Config, for fields that are 0.
const (
	defaultMaxWaiters       = 1000
	defaultMaxWaitersPerKey = 100
)

// Config configures a [Limiter]. Its zero value is a limiter without rules, under
// which every request passes.
type Config struct {
	// Name tells the limiter apart from others: it is the attribute limiter of its log
	// lines, and in its Status, and the name of its only rule if that has none. It has the
	// form of a rule's name. "" means no attribute.
	Name string

	// Store keeps the counts. nil means a [memstore.Store] with its default
	// options and the Logger: the counts are those of this process and end with it. A
	// Store that holds a nil value, such as a nil pointer, is a mistake.
	//
	// A [core.Backed], such as a store in Redis, has its memory behind it: that decides
	// what the store does not decide in time.
	Store core.Store

	Rules []Rule

	// Headers names the headers of every answer; 0 means XRateLimit | Draft8.
	Headers HeaderStyle

	// CustomHeaders, unless nil, returns more headers for an answer. It gets the
	// decisions of the rules that apply, except Shadow rules, the most exhausted first,
	// and must not keep the slice. It must be safe for concurrent use.
	CustomHeaders func([]RuleDecision) []Header

	// Refused and Failed make the answers to requests that are refused, or that
	// failed, for every framework. One of them also answers a request that finds no room
	// to wait; see QueueFullStatus. nil means ProblemJSON. Refused or Failed of an
	// adapter's Config takes precedence.
	Refused, Failed Template

	// Degraded, unless nil, answers requests over the limit of a Degrade rule
	// instead of their handlers. It is a template such as those of [Fixed] and
	// [Redirect]; [PlainText] and [JSON] have no text for a request that passes.
	// Degraded of an adapter's Config takes precedence.
	Degraded Template

	// KeepResult puts the Result of every request that passes into its context,
	// where FromContext finds it. Without it only requests that are degraded or
	// hold leases have one there. A request through nethttp under one rule then
	// costs about 1 µs, 3 allocations and 1.1 kB more (BenchmarkMiddleware).
	KeepResult bool

	// CancelOnLostLease cancels the context of a request that has lost a lease of a
	// rule which refuses requests or lets them wait. The cause of the context wraps
	// ErrLeaseLost. A handler that heeds its context then ends, so that the limit is
	// exceeded for no longer than that takes. The context also ends with the request,
	// or with the connection that the handler has taken over. Without the option a
	// handler goes on, and only OnError and Logger get the error.
	CancelOnLostLease bool

	// SkipPreflights lets CORS preflights pass uncounted: OPTIONS requests with the
	// headers Origin and Access-Control-Request-Method. Any client can send a request
	// in this form. So it is safe only if something between the limiter and the
	// handlers answers all such requests by itself, whatever their origin. A
	// handler of every method, as net/http's HandleFunc, Gin's and Echo's Any and
	// Fiber's All register it, would otherwise do its work uncounted. CORS middleware
	// around the limiter needs no such option, as the limiter never sees a request
	// that the middleware has answered.
	SkipPreflights bool

	// OnStoreError applies to every rule that has no failure mode of its own. With
	// the zero value the fallback of the store decides, which a store in Redis has.
	// Requests pass if there is none.
	OnStoreError FailureMode

	// OnError, unless nil, is called with every error, and for every request that the
	// fallback of the store decided with an error that wraps [core.ErrFallback] and
	// the reason. In an outage that is once for each request: it is for metrics, as
	// Logger gets the errors in few lines. For each lease that ended before its request
	// it is called once with an error that wraps ErrLeaseLost. It must be quick and
	// safe for concurrent use, as it runs in the goroutine of the request, or in one
	// that renews or releases leases or diagnoses the store.
	OnError func(context.Context, error)

	// Observer, unless nil, hears of every request and what became of it under each rule.
	// An Observer that holds a nil value is a mistake.
	Observer events.Observer

	// Hooks, unless nil, hear of everything else: requests that wait, leases, bans, units
	// that are given back, and rules that change. The limiter hands them on to the Store,
	// which tells them its calls and the changes of its breaker, and to a follower of
	// policies. They must not be changed afterwards.
	Hooks *events.Hooks

	// Logger receives likely mistakes in the set-up of the limiter, such as
	// findings.Unheeded, once for each code; see [core.Finding]. It also receives errors:
	// the first of each kind at once, then their number once a minute, and a line
	// after a minute without one. The lines say what became of the requests: how many
	// passed, were refused, or were decided by the fallback. They hold nothing that a client
	// sent. nil means slog.Default() at the time. With slog.New(slog.DiscardHandler) the
	// limiter neither logs nor looks for mistakes.
	Logger *slog.Logger

	// Top, unless 0, is how many of the keys that each rule refuses most often
	// [Limiter.TopKeys] returns, and how many of those that it admits, at most
	// [topkeys.MaxTop]. Each rule then also counts requests by what became of them, for
	// [Limiter.Status]. With a Top of 100 that takes at most 550 kB a rule, whatever the keys
	// are, and about 40 ns more for each rule of a request. A change of the rules keeps
	// what was counted for rules that keep their name.
	Top int

	// MaxWaiters and MaxWaitersPerKey bound how many requests wait at the same
	// time, in all and for one key of one rule. 0 means 1000 and 100. A request
	// that finds no room is not let in, and its outcome is QueueFull.
	MaxWaiters       int
	MaxWaitersPerKey int

	// QueueFullStatus is the status for a request that finds no room to wait: 503, which
	// 0 means too, or 429. The answer is that of Failed for 503 and that of Refused for
	// 429. It has a Retry-After and no rate limit headers of this limiter.
	QueueFullStatus int
}

// useStore replaces a nil Store by one in memory. It also replaces a Store that holds
// a nil value, so that other checks can follow, and returns an error for it.
func (c *Config) useStore() error {
	given := c.Store
	if given != nil && !holdsNil(given) {
		return nil
	}
	c.Store = memstore.MustNew(memstore.Options{Logger: c.Logger})
	if given == nil {
		return nil
	}
	return fmt.Errorf("the Store is a nil %T; leave it out for a store in memory", given)
}

// holdsNil reports whether v, which is not nil itself, holds a nil value. Its methods
// would panic at the first request.
func holdsNil(v any) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan:
		return value.IsNil()
	}
	return false
}

// useFallback has the fallback of a Store that brings one decide what the Store does not, and
// returns the sides of the Store. The caller calls release when it uses them no longer.
func (c *Config) useFallback() (sides core.Standby, release func(), err error) {
	given, none := c.Store, func() {}
	b, ok := given.(core.Backed)
	if !ok {
		return core.Standby{Store: given, Strict: given}, none, nil
	}

	// A store that stands before another, or brings a fallback, says which of them decides when.
	sides, release = b.Back()
	if release == nil {
		release = none
	}
	if sides.Store == nil || sides.Strict == nil {
		err = fmt.Errorf("the Store is a %T whose Back returns no Store or no Strict", given)
		sides = core.Standby{Store: given, Strict: given}
	}
	c.Store = sides.Store
	return sides, release, err
}

// faults returns every mistake outside of the rules.
func (c *Config) faults(f *fallbacks) []error {
	var errs []error
	if c.Name != "" && !nameIsValid(c.Name) {
		errs = append(errs, fmt.Errorf(
			"the Name of the limiter is not 1 to %d of a-z, 0-9, _, . and -, a letter first", maxName))
	}
	if err := c.Headers.check(); err != nil {
		errs = append(errs, err)
	}
	if err := f.check(c.OnStoreError); err != nil {
		errs = append(errs, err)
	}

	if c.Observer != nil && holdsNil(c.Observer) {
		errs = append(errs, fmt.Errorf("the Observer is a nil %T; leave it out for none", c.Observer))
	}
	if c.Top < 0 || c.Top > topkeys.MaxTop {
		errs = append(errs, fmt.Errorf("Top: %d is not within 0 to %d", c.Top, topkeys.MaxTop))
	}

	if c.MaxWaiters < 0 {
		errs = append(errs, fmt.Errorf("MaxWaiters: %d is negative", c.MaxWaiters))
	}
	if c.MaxWaitersPerKey < 0 {
		errs = append(errs, fmt.Errorf("MaxWaitersPerKey: %d is negative", c.MaxWaitersPerKey))
	}

	switch c.QueueFullStatus {
	case 0, 429, 503:
	default:
		errs = append(errs, fmt.Errorf("QueueFullStatus: %d is neither 429 nor 503", c.QueueFullStatus))
	}

	return errs
}
