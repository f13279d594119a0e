package failover

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/core"
)

// What the zero values of [Options] mean.
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

// Options say how a [Store] works. The zero value is a breaker without a
// fallback.
type Options struct {
	// Fallback decides what the primary cannot. It is asked beside every
	// decision of the primary too, so it has to be quick; a memstore is. It
	// must not be used by anyone else. nil means that the store fails with
	// [ErrOpen] while the primary is bypassed.
	Fallback core.Store

	// Instances returns how many instances share the limits, such as
	// [Instances.Live]. It is called for each decision, must be quick and safe
	// for concurrent use. nil, or less than 1, means that this one is alone.
	Instances func() int

	// Failures is how many failures open the breaker; 0 means DefaultFailures.
	Failures int

	// Slow is the time beyond which a call of the primary counts as a failure
	// although its answer is used, and that a probe may take; 0 means
	// DefaultSlow. It does not end calls: that is for the primary to do.
	Slow time.Duration

	// ProbeInterval is the longest pause between two probes; 0 means
	// DefaultProbeInterval.
	ProbeInterval time.Duration

	// Ignore, unless nil, tells which errors of the primary are about one key
	// and say nothing about its health. The fallback decides then all the same.
	Ignore func(error) bool

	// OnChange, unless nil, is told the new state once for each change, in
	// order. It must be quick.
	OnChange func(State)

	// Logger is told of each change. nil means slog.Default() at the time.
	Logger *slog.Logger
}

// faults names everything that is wrong.
func (o *Options) faults(primary core.Store) error {
	var errs []error
	if primary == nil {
		errs = append(errs, errors.New("failover: the primary is nil"))
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
