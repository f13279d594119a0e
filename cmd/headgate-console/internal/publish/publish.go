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
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/worker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// Publisher stores the published policies, such as a *redissource.Source. Its
// methods are safe for concurrent use and return soon after ctx ends.
type Publisher interface {
	policy.Source
	policy.OverrideSource

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

	// PublishedOverrides returns the same of the overrides. They have no origin if a program
	// without a database has published them, or if there are none.
	PublishedOverrides(ctx context.Context) (redissource.Published, error)

	// PublishOverrides publishes changes, or returns an error that says whose overrides are there,
	// or that they are not those which the batch continues.
	PublishOverrides(ctx context.Context, b redissource.OverrideBatch) error
}

// Source is the database, in which each change of an override has a revision of its own. Its
// methods are safe for concurrent use.
type Source interface {
	// Pending returns the version of the set of policies, 0 if there never was
	// one, the version that was published last, and its label.
	Pending(ctx context.Context) (version, published int64, label string, err error)

	// Owner returns what the database knows of its right to publish.
	Owner(ctx context.Context) (Owner, error)

	// Intend stores the label under which a set is about to be published, for the Labels of Owner,
	// and IntendOverrides that of overrides.
	Intend(ctx context.Context, label string) error
	IntendOverrides(ctx context.Context, label string) error

	// Refused stores that a published version was not replaced, so that Owner says it from then
	// on, unless an administrator has decided meanwhile to replace it.
	Refused(ctx context.Context, version string) error

	// Snapshot returns the set and its version.
	Snapshot(ctx context.Context) (policy.Set, int64, error)

	// Published stores the version and label that were published. A refusal is over then.
	Published(ctx context.Context, version int64, label string) error

	// OverrideTexts returns the texts of the overrides that a policy has of some keys, by key.
	OverrideTexts(ctx context.Context, policy string, keys []string) (map[string]string, error)

	// ChangedOverrides returns at most limit changes after a revision in their order, and the
	// revision of the last one. Unless there are more, that is the revision of the database.
	ChangedOverrides(ctx context.Context, after int64, limit int) (
		changes []policy.OverrideChange, revision int64, more bool, err error)

	// SweepOverrides removes what has ended, which are changes like any others.
	SweepOverrides(ctx context.Context) error

	// OverridesPublished stores that all changes up to a revision are published.
	OverridesPublished(ctx context.Context, revision int64) error
}

const (
	// check is the interval at which the worker compares the database with the published set,
	// because another program may change either without a Wake.
	check = 5 * time.Second

	// minPause and maxPause bound the longest pause after a failure, which doubles.
	minPause = 200 * time.Millisecond
	maxPause = 15 * time.Second

	// timeout bounds each step of an attempt.
	timeout = 20 * time.Second
)

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
	*worker.Worker
	source    Source
	publisher Publisher
	logger    *slog.Logger

	// emptySince is when a worker that was refused found that nothing is published; zero if
	// something is. Only the goroutine of the worker uses it.
	emptySince time.Time

	// swept is when ended overrides were removed last. Only the goroutine of the worker uses it.
	swept time.Time

	mu     sync.Mutex
	status Status // Guarded by mu.
}

// Start starts a worker. A nil logger means slog.Default().
func Start(source Source, publisher Publisher, logger *slog.Logger) *Worker {
	w := &Worker{source: source, publisher: publisher, logger: cmp.Or(logger, slog.Default())}
	w.Worker = worker.Start(worker.Task{Run: w.run, Retry: minPause, MaxRetry: maxPause})
	return w
}

// Status returns the result of the last attempt.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// run publishes what is pending.
func (w *Worker) run(ctx context.Context) (time.Duration, error) {
	published, err := w.attempt(ctx)
	if ctx.Err() != nil {
		return 0, err
	}
	w.setStatus(published, err)

	// A decision of an administrator ends a refusal, which is no failure of a server.
	var foreign *ForeignError
	if errors.As(err, &foreign) {
		err = nil
	}
	return check, err
}

// attempt publishes pending changes: those of overrides after the policies, whose owner alone
// publishes them.
func (w *Worker) attempt(ctx context.Context) (published int64, err error) {
	published, err = w.policies(ctx)
	if err != nil {
		return published, err
	}
	if err := w.sweep(ctx); err != nil {
		return published, err
	}
	return published, w.overrides(ctx)
}

// policies publishes the set of policies if it has changed. It reads the published label before the
// database: if another worker publishes a newer set in between, the label differs
// and this older set does not replace it.
func (w *Worker) policies(ctx context.Context) (published int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	// Only the label that was read first may be replaced.
	is, err := w.look(ctx)
	if err != nil {
		return 0, err
	}

	version, published, known, err := w.source.Pending(ctx)
	if err != nil {
		return 0, err
	}
	owner, err := w.source.Owner(ctx)
	if err != nil {
		return published, err
	}

	// A database that is refused has this known at once, and not only when it has something to
	// publish.
	if err := w.foreign(ctx, is, owner, known); err != nil {
		return published, w.refused(ctx, is, owner, err)
	}

	// The version alone does not show that a set was published again by others, or lost with Redis:
	// then the label differs.
	if version == 0 || published == version && known == is.Version {
		return published, nil
	}

	// The set may be newer by now than the version that was pending. What is written down is the
	// version of the set itself.
	set, version, err := w.source.Snapshot(ctx)
	if err != nil {
		return published, err
	}
	if known, err = w.replace(ctx, set, version, is, owner); err != nil {
		return published, w.refused(ctx, is, owner, err)
	}

	return version, w.source.Published(ctx, version, known)
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
			w.logger.Info("publishing works again", "version", published, "failures", before.Failures)
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
		w.logger.Error("the policies are not published until an administrator takes over", "reason", foreign.Reason())
	case foreign == nil && before.Failures == 0:
		w.logger.Warn("publishing fails; trying again until it works", "error", err)
	}
}
