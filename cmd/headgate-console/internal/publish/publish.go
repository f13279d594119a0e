// Package publish copies the policies from the database to the place where the running instances
// read them. The database is authoritative. A worker always publishes the whole set of policies,
// and of the overrides beside them what has changed. After a crash or an outage it publishes the
// changes that are still missing. [Start] starts the [Worker].
package publish

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// Publisher stores the published policies, such as a *redissource.Source. Its
// methods are safe for concurrent use and return soon after ctx ends.
type Publisher interface {
	policy.Source
	OverridePublisher

	// Published returns the label of the published set and the database that it is from.
	Published(ctx context.Context) (redissource.Published, error)

	// PublishFrom replaces the set that was published under the label expected, and returns a new
	// label. If another label is published by now, it changes nothing and returns an error, and so
	// if the set is that of another database than from and instead.
	PublishFrom(
		ctx context.Context, set policy.Set, expected string, from redissource.Origin, instead string,
	) (label string, err error)

	// Next returns the label that PublishFrom will give the set, or "" if that is not known.
	Next(set policy.Set, expected string) (label string, err error)
}

// Source is the database. Its methods are safe for concurrent use.
type Source interface {
	OverrideSource

	// Pending returns the version of the set of policies, 0 if there never was
	// one, the version that was published last, and its label.
	Pending(ctx context.Context) (version, published int64, label string, err error)

	// Owner returns what the database knows of its right to publish.
	Owner(ctx context.Context) (Owner, error)

	// Intend stores the label under which a set is about to be published, for the Labels of Owner.
	Intend(ctx context.Context, label string) error

	// Refused stores that what is published under a label was not replaced, so that Owner says it
	// from then on, unless an administrator has decided meanwhile to replace it.
	Refused(ctx context.Context, label string) error

	// Snapshot returns the set and its version.
	Snapshot(ctx context.Context) (policy.Set, int64, error)

	// Published stores the version and label that were published. A refusal is over then.
	Published(ctx context.Context, version int64, label string) error
}

// Defaults of the zero Options.
const (
	DefaultCheck    = 5 * time.Second
	DefaultMinPause = 200 * time.Millisecond
	DefaultMaxPause = 15 * time.Second
	DefaultTimeout  = 20 * time.Second
)

// Options configure a [Worker]. Source and Publisher must be set.
type Options struct {
	Source    Source
	Publisher Publisher

	// Check is the interval at which the worker compares the database with the
	// published set, because another program may change either without a Wake.
	Check time.Duration

	// MinPause and MaxPause bound the pause after a failure. It doubles with each
	// failure, and half of it is random.
	MinPause, MaxPause time.Duration

	// Timeout bounds one attempt.
	Timeout time.Duration

	// Logger receives a record when publishing begins to fail and when it works
	// again; nil means slog.Default().
	Logger *slog.Logger
}

// Status is the result of the last attempt of a [Worker].
type Status struct {
	At        time.Time // of the last attempt; zero before the first has ended
	Published int64     // the version that is published after it
	Err       error     // why it failed, or nil
	Failures  int       // in a row, the last attempt included
	Since     time.Time // of the first of these failures
}

// Worker publishes in a goroutine of its own, until Close. It is safe for
// concurrent use.
type Worker struct {
	o    Options
	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}

	// emptySince is when a worker that was refused found that nothing is published; zero if
	// something is. Only the goroutine of the worker uses it.
	emptySince time.Time

	// swept is when ended overrides were removed last. Only the goroutine of the worker uses it.
	swept time.Time

	mu     sync.Mutex
	status Status // Guarded by mu.
}

// Start starts a worker, which publishes pending changes at once. Close stops it. The error joins
// all mistakes of the options.
func Start(o Options) (*Worker, error) {
	var errs []error
	if o.Source == nil {
		errs = append(errs, errors.New("publish: Source is nil"))
	}
	if o.Publisher == nil {
		errs = append(errs, errors.New("publish: Publisher is nil"))
	}
	if min(o.Check, o.MinPause, o.MaxPause, o.Timeout) < 0 {
		errs = append(errs, errors.New("publish: a duration is negative"))
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	o.Check = cmp.Or(o.Check, DefaultCheck)
	o.MinPause = cmp.Or(o.MinPause, DefaultMinPause)
	// A first pause above the longest one would make the pauses shorter with each failure.
	o.MaxPause = max(o.MinPause, cmp.Or(o.MaxPause, DefaultMaxPause))
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())

	ctx, stop := context.WithCancel(context.Background())
	w := &Worker{o: o, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

// Wake makes the worker look for pending changes. It returns at once.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Status returns the result of the last attempt.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Close stops the worker and waits for its end. The next worker publishes pending
// changes. Close may be called again.
func (w *Worker) Close() error {
	w.stop()
	<-w.done
	return nil
}

// run publishes what is pending until ctx ends.
func (w *Worker) run(ctx context.Context) {
	defer close(w.done)

	pause := w.o.MinPause
	for ctx.Err() == nil {
		published, err := w.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		w.setStatus(published, err)

		// Success is followed by a look at regular times, which Wake brings forward.
		if err == nil {
			pause = w.o.MinPause
			sleep(ctx, w.o.Check, w.wake)
			continue
		}

		// A decision of an administrator ends a refusal, which is no failure of a server.
		var foreign *ForeignError
		if errors.As(err, &foreign) {
			sleep(ctx, w.o.Check, w.wake)
			continue
		}

		// Waking does not shorten a pause after a failure. Half of it is random, so that several
		// consoles do not try again together.
		sleep(ctx, pause/2+rand.N(pause/2+1), nil)
		pause = min(2*pause, w.o.MaxPause)
	}
}

// sleep waits until d has passed, wake receives or ctx ends.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}

// attempt publishes pending changes: those of overrides after the policies, whose owner alone
// publishes them.
func (w *Worker) attempt(ctx context.Context) (published int64, err error) {
	published, owner, err := w.policies(ctx)
	if err != nil {
		return published, err
	}
	if err := w.sweep(ctx); err != nil {
		return published, err
	}
	return published, w.overrides(ctx, owner)
}

// policies publishes the set of policies if it has changed. It reads the published label before the
// database: if another worker publishes a newer set in between, the label differs
// and this older set does not replace it.
func (w *Worker) policies(ctx context.Context) (published int64, owner Owner, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()

	// Only the label that was read first may be replaced.
	there, err := w.o.Publisher.Published(ctx)
	if err != nil {
		return 0, owner, err
	}

	version, published, known, err := w.o.Source.Pending(ctx)
	if err != nil {
		return 0, owner, err
	}
	if owner, err = w.o.Source.Owner(ctx); err != nil {
		return published, owner, err
	}

	// A database that is refused has this known at once, and not only when it has something to
	// publish.
	if err := w.foreign(ctx, there, owner, known); err != nil {
		return published, owner, w.refused(ctx, owner, err)
	}

	// The version alone does not show that a set was published again by others, or lost with Redis:
	// then the label differs.
	if version == 0 || published == version && known == there.Version {
		return published, owner, nil
	}

	// The set may be newer by now than the version that was pending. What is written down is the
	// version of the set itself.
	set, version, err := w.o.Source.Snapshot(ctx)
	if err != nil {
		return published, owner, err
	}
	if known, err = w.replace(ctx, set, version, there, owner); err != nil {
		return published, owner, w.refused(ctx, owner, err)
	}

	return version, owner, w.o.Source.Published(ctx, version, known)
}

// setStatus stores the result of an attempt, and logs a change between success and
// failure.
func (w *Worker) setStatus(published int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	now := time.Now()
	before := w.status
	w.status = Status{At: now, Published: published}
	if err == nil {
		if before.Failures > 0 {
			w.o.Logger.Info("publishing works again", "version", published, "failures", before.Failures)
		}
		return
	}

	// An attempt that failed early has not read what is published; the version that was published
	// before it still is.
	w.status.Published = max(published, before.Published)
	w.status.Err, w.status.Failures, w.status.Since = err, before.Failures+1, before.Since

	// One line is written when it begins to fail, and one when it fails otherwise: a fault of a
	// server passes, and the set of another database stays until an administrator decides.
	if before.Failures == 0 {
		w.status.Since = now
	}
	switch foreign := w.status.Foreign(); {
	case foreign != nil && before.Foreign() == nil:
		w.o.Logger.Error("the policies are not published until an administrator takes over", "reason", foreign.Reason())
	case foreign == nil && before.Failures == 0:
		w.o.Logger.Warn("publishing fails; trying again until it works", "error", err)
	}
}
