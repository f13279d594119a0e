package policy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// Defaults of the zero Options.
const (
	DefaultPoll    = 500 * time.Millisecond
	DefaultTimeout = time.Second
)

const (
	minPoll = 10 * time.Millisecond
	maxPoll = time.Hour

	maxProcess = 64 // bytes
)

// OnMissing determines what [Follow] does if it has no policies to start with.
type OnMissing uint8

const (
	// OnMissingFail makes Follow return the error.
	OnMissingFail OnMissing = iota

	// OnMissingWait makes Follow succeed. Until policies arrive, the limiter
	// keeps the rules that it was created with, which may be none.
	OnMissingWait
)

// Options configure a follower. The zero value is ready for use.
type Options struct {
	// Poll is the longest time between two polls of the source, 10 ms to an
	// hour; 0 means DefaultPoll. Each pause is shortened by a random part of up
	// to a fifth, so that the instances of a fleet do not all poll at once.
	Poll time.Duration

	// Timeout bounds each call of the source, up to an hour; 0 means
	// DefaultTimeout.
	Timeout time.Duration

	// LastGood, unless "", is the path of a file to which the follower writes the
	// policies in force, and from which it starts if the source is away. If it starts
	// with the source, the file has the earlier versions of policies that are left
	// out, as [Follow] describes. The file is replaced as a whole, with the mode 0600.
	// Every process needs its own file.
	LastGood string

	// OnMissing determines what Follow does if neither the source nor LastGood
	// has policies that can be put in force.
	OnMissing OnMissing

	// Adapt, unless nil, gets the policies of every new version that are for the
	// application and not Off, in the order of [Set.For], and returns those that the
	// limiter gets. It is for a program that cannot carry out every policy, and leaves
	// some out. It is called after all of them were found valid, and not for a version
	// that is refused because they are not. It must not keep or change its argument,
	// but may return a part of it. A version for which it panics is refused.
	Adapt func(Set) Set

	// Instance names this process to the source; "" means the host's name and
	// some random digits. It has at most 128 printable bytes.
	Instance string

	// Process tells this process from others of the same Instance; "" means random
	// letters and digits. Followers of one application with the same Process are listed
	// as one. It has at most 64 printable bytes.
	Process string

	// Logger receives a record for every new version in force, for every version
	// that is refused, and each time the source goes away or comes back. nil
	// means slog.Default() at the time.
	Logger *slog.Logger
}

// Validate returns an error that names every mistake in the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Poll != 0 && (o.Poll < minPoll || o.Poll > maxPoll) {
		errs = append(errs, fmt.Errorf("policy: Options.Poll: %s is not within %s to %s", o.Poll, minPoll, maxPoll))
	}
	if o.Timeout < 0 || o.Timeout > maxPoll {
		errs = append(errs, fmt.Errorf("policy: Options.Timeout: %s is not within 0 to %s", o.Timeout, maxPoll))
	}

	if o.OnMissing > OnMissingWait {
		errs = append(errs, fmt.Errorf("policy: Options.OnMissing: %d is not known", o.OnMissing))
	}
	if len(o.Instance) > maxInstance || !isPrintable(o.Instance) {
		errs = append(errs, fmt.Errorf("policy: Options.Instance: %q is not at most %d printable bytes",
			textform.Clip(o.Instance), maxInstance))
	}
	if len(o.Process) > maxProcess || !isPrintable(o.Process) {
		errs = append(errs, fmt.Errorf("policy: Options.Process: %q is not at most %d printable bytes",
			textform.Clip(o.Process), maxProcess))
	}

	return errors.Join(errs...)
}

func (o *Options) poll() time.Duration    { return cmp.Or(o.Poll, DefaultPoll) }
func (o *Options) timeout() time.Duration { return cmp.Or(o.Timeout, DefaultTimeout) }
