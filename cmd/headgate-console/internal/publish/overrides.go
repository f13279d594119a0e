package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy/redissource"
)

// ProgramsError means that a program has published overrides, which would be lost. What the
// database has of others waits so long.
type ProgramsError struct {
	Policies []string // beside which they are
}

// Error names the policies, and says what to do.
func (e *ProgramsError) Error() string {
	names := make([]string, min(len(e.Policies), 5))
	for i := range names {
		names[i] = strconv.Quote(textform.Clip(e.Policies[i]))
	}
	if more := len(e.Policies) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "the overrides in Redis beside " + strings.Join(names, ", ") + " are those of a program: those of the " +
		"console are published once the program has removed them, with a change without a key for each policy, or " +
		"their keys in Redis, which end in {policies}:overrides:*, are deleted"
}

// sweepEvery is the time between two removals of what has ended.
const sweepEvery = time.Hour

// sweep removes what has ended.
func (w *Worker) sweep(ctx context.Context) error {
	if !w.swept.IsZero() && time.Since(w.swept) < sweepEvery {
		return nil
	}
	err := w.bounded(ctx, w.source.SweepOverrides)
	if err == nil {
		w.swept = time.Now()
	}
	return err
}

// overrides publishes the changes of overrides that are pending: all of them if what is published
// is not what this database has published. An attempt has no bound in all, as there may be many,
// and so each step has.
func (w *Worker) overrides(ctx context.Context, o Owner) error {
	var after, last int64
	var reset bool
	err := w.bounded(ctx, func(ctx context.Context) (err error) {
		after, last, reset, err = w.continued(ctx, o)
		return err
	})

	for again := true; err == nil; {
		var done bool
		before := after
		err = w.bounded(ctx, func(ctx context.Context) (err error) {
			after, done, err = w.batch(ctx, o, before, last, reset)
			return err
		})
		if done {
			return err
		}

		// Another console may begin anew, or Redis may lose what it had, in between. If it happens
		// twice, a pause of a random length lets the other one go first.
		if reset = errors.Is(err, redissource.ErrOverridesLost) && again; reset {
			after, again, err = 0, false, nil
		}
	}
	return o.taken(err)
}

// bounded runs one step.
func (w *Worker) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
}

// continued returns the revision that is published, and the one that was noted last. reset reports
// that all overrides are to be published instead.
func (w *Worker) continued(ctx context.Context, o Owner) (after, last int64, reset bool, err error) {
	// What is noted is read first: it was published before, so Redis has lost it if it has less.
	if last, err = w.source.LastOverrides(ctx); err != nil {
		return 0, last, false, err
	}
	there, err := w.publisher.PublishedOverrides(ctx)
	if err != nil {
		return 0, last, false, err
	}

	switch {
	case there.Database == "":
		reset, err = w.unpublished(ctx)
		return 0, last, reset, err
	case there.Database != o.Database || there.Revision < last:
		return 0, last, true, nil
	case there.Revision > last:
		// Another console is about to note it, or a backup was restored since.
		known, err := w.source.KnowsOverrides(ctx, there.Revision)
		if err != nil || !known {
			return 0, last, true, err
		}
	}
	return there.Revision, last, false, nil
}

// unpublished reports whether the database has overrides to publish where no database has published
// some. Those of a program stay.
func (w *Worker) unpublished(ctx context.Context) (bool, error) {
	_, revision, more, err := w.source.ChangedOverrides(ctx, 0, 1)
	if err != nil || revision == 0 && !more {
		return false, err
	}
	theirs, err := w.publisher.OverrideChanges(ctx, "")
	if err == nil && len(theirs.Stale) > 0 {
		err = &ProgramsError{slices.Sorted(slices.Values(theirs.Stale))}
	}
	return true, err
}

// batch publishes the changes after a revision, as many as go at once, and returns the revision
// that is published then. done reports that there are no more.
func (w *Worker) batch(
	ctx context.Context, o Owner, after, last int64, reset bool,
) (revision int64, done bool, err error) {
	changes, revision, more, err := w.source.ChangedOverrides(ctx, after, redissource.MaxOverrideChanges)
	if err != nil {
		return after, false, err
	}

	if revision > after || reset {
		err = w.publisher.PublishOverrides(ctx, redissource.OverrideBatch{
			Changes: changes, From: redissource.Origin{Database: o.Database, Revision: revision},
			After: after, Reset: reset, More: more,
		})
	}
	if err != nil || more {
		return revision, false, err
	}
	if revision != last {
		err = w.source.OverridesPublished(ctx, revision)
	}
	return revision, true, err
}
