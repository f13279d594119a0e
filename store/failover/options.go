package failover

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/core"
)

// Defaults of [Options], which stand for its zero values.
const (
	DefaultFailures      = 5
	DefaultSlow          = 100 * time.Millisecond
	DefaultProbeInterval = 100 * time.Millisecond
)

const (
	maxFailures = 1000
	shortest    = time.Millisecond
	longest     = time.Minute
)

// Options configures a [Store]. The zero value is a breaker without a fallback.
type Options struct {
	// Fallback decides when the primary cannot. It is also called for every
	// decision of the primary, so it has to be fast, as a memstore is. The
	// Store must be its only user. nil means that the store fails with
	// [ErrOpen] while the primary is bypassed.
	Fallback core.Store

	// Instances returns how many instances share the limits, such as
	// [Instances.Live]. It is called for each decision, and must be fast and
	// safe for concurrent use. nil, or a result below 1, means that this
	// instance is alone.
	Instances func() int

	// Failures is the score at which the breaker opens, at most 1000; 0 means
	// DefaultFailures.
	Failures int

	// Slow is the time beyond which a call of the primary counts as a failure
	// although its answer is used, from a millisecond to a minute. 0 means DefaultSlow, or
	// that none counts if the events.Report of the primary has a MaxCall, as such a store
	// bounds its calls itself. A call is not counted while this process is late itself. Slow
	// also bounds a probe, which gets at least MaxCall. It does not end calls; that is up to
	// the primary.
	Slow time.Duration

	// ProbeInterval is the longest pause between two probes, from a millisecond
	// to a minute; 0 means DefaultProbeInterval.
	ProbeInterval time.Duration

	// Ignore, unless nil, reports whether an error of the primary is about one
	// key and says nothing about the primary's health. The fallback then
	// decides without a failure being counted, as it does after [core.ErrOverload].
	Ignore func(error) bool

	// OnChange, unless nil, is called with the new state of a shard once for each
	// change, in order. The shard is "" if the primary is not a [core.Sharded], or did
	// not know the shard of a key. OnChange must return quickly.
	OnChange func(shard string, state State)

	// Logger receives a record for each change, at once, but of each shard at most two
	// in a minute. If there are more changes, the record at the end of the minute reports
	// their number and the state that holds. nil means slog.Default() at the time.
	Logger *slog.Logger
}

// bounds returns the time beyond which a call of the primary counts as a failure, or 0 if none
// does, and how long a probe may take. The primary ends a call after maxCall, unless that is 0.
func (o *Options) bounds(maxCall time.Duration) (slow, patience time.Duration) {
	if o.Slow == 0 && maxCall > 0 {
		return 0, max(DefaultSlow, 2*maxCall)
	}
	slow = cmp.Or(o.Slow, DefaultSlow)
	return slow, max(slow, maxCall)
}

// faults returns an error that names every mistake in the options.
func (o *Options) faults(primary core.Store) error {
	var errs []error
	if primary == nil {
		errs = append(errs, errors.New("failover: the primary is nil"))
	}
	if d := 1 + max(depth(primary), depth(o.Fallback)); d > maxDepth {
		errs = append(errs, fmt.Errorf("failover: %d stores of this package are one over another, more than %d",
			d, maxDepth))
	}
	if o.Failures < 0 || o.Failures > maxFailures {
		errs = append(errs, fmt.Errorf("failover: Failures %d is not within 0 to %d", o.Failures, maxFailures))
	}
	errs = append(errs, spanFault("Slow", o.Slow), spanFault("ProbeInterval", o.ProbeInterval))
	return errors.Join(errs...)
}

func spanFault(name string, d time.Duration) error {
	if d != 0 && (d < shortest || d > longest) {
		return fmt.Errorf("failover: %s %v is neither 0 nor within %v to %v", name, d, shortest, longest)
	}
	return nil
}
