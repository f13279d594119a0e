package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// The bounds of the queue that the zero values of Config stand for.
const (
	DefaultMaxWaiters       = 1000
	DefaultMaxWaitersPerKey = 100
)

// Config is what a [Limiter] is made of. Its zero value is a limiter without
// rules, under which everything passes.
type Config struct {
	// Store keeps the counts. nil means a [memstore.Store] with its default
	// options, so counts of this process alone, which end with it. A nil pointer
	// in here is a mistake.
	Store core.Store

	Rules []Rule

	// Headers names the headers of every answer; 0 means XRateLimit | Draft8.
	Headers HeaderStyle

	// CustomHeaders, unless nil, returns more headers for an answer. It gets
	// the decisions in the order in which the headers speak of them, without
	// those of Shadow rules, and must not keep the slice.
	CustomHeaders func([]RuleDecision) []Header

	// Refused and Failed make the answers to requests that are refused, or that
	// failed, for every framework. nil means ProblemJSON. An adapter's
	// WithRefused or WithFailed goes first.
	Refused, Failed Template

	// Degraded, unless nil, answers instead of the handlers the requests that are
	// over the limit of a Degrade rule. It is a template such as those of [Fixed]
	// and [Redirect]; [PlainText] and [JSON] have nothing to say about a request
	// that passes. An adapter's WithDegraded goes first.
	Degraded Template

	// KeepResult puts the Result of every request that passes into its context,
	// where FromContext finds it. Without it only requests that are degraded or
	// hold leases have one there. A request through nethttp under one rule then
	// costs about 1 µs, 3 allocations and 1.1 kB more (BenchmarkMiddleware).
	KeepResult bool

	// OnStoreError is that of every rule which does not say. The zero value has
	// the fallback of the store decide, or lets requests pass if there is none.
	OnStoreError FailureMode

	// OnError, unless nil, is told of every error, in the goroutine of the
	// request.
	OnError func(context.Context, error)

	// Observer, unless nil, is told of every decision.
	Observer Observer

	// Logger is told, once for each code, of likely mistakes in how the limiter
	// is set up, such as CodeUnheeded; see [core.Finding]. Nothing that a client sent
	// is in there. nil means slog.Default() at the time. To be told nothing, and
	// have nothing looked at, use slog.New(slog.DiscardHandler).
	Logger *slog.Logger

	// MaxWaiters and MaxWaitersPerKey bound how many requests wait at the same
	// time, in all and for one key of one rule. 0 means the default. A request
	// that finds no room is refused.
	MaxWaiters       int
	MaxWaitersPerKey int
}

// useStore replaces a nil Store by one in memory. It returns an error, and a
// Store that can be asked what it is, for a nil pointer.
func (c *Config) useStore() error {
	v := reflect.ValueOf(c.Store)
	if v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		return nil
	}
	c.Store = memstore.MustNew(memstore.Options{})
	if !v.IsValid() {
		return nil
	}
	return fmt.Errorf("the Store is a nil %s; leave it out for a store in memory", v.Type())
}

// faults lists everything that is wrong outside of the rules.
func (c *Config) faults(f *fallbacks) []error {
	var errs []error
	if err := c.Headers.check(); err != nil {
		errs = append(errs, err)
	}
	if err := f.check(c.OnStoreError); err != nil {
		errs = append(errs, err)
	}
	if c.MaxWaiters < 0 {
		errs = append(errs, fmt.Errorf("MaxWaiters: %d is negative", c.MaxWaiters))
	}
	if c.MaxWaitersPerKey < 0 {
		errs = append(errs, fmt.Errorf("MaxWaitersPerKey: %d is negative", c.MaxWaitersPerKey))
	}
	return errs
}
