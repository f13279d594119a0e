package publish

import (
	"context"
	crand "crypto/rand"
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
func (w *Worker) overrides(ctx context.Context) error {
	// Another console of the database may publish in between, and Redis lose what it had.
	label := ""
	for conflicts := 0; ; {
		var done bool
		err := w.bounded(ctx, func(ctx context.Context) (err error) {
			label, done, err = w.batch(ctx, label)
			return err
		})

		lost := errors.Is(err, redissource.ErrOverridesLost)
		if lost {
			conflicts++
		}
		if done || err != nil && (!lost || conflicts == maxConflicts) {
			return err
		}
	}
}

// maxConflicts is how often an attempt finds other overrides than those that it has just seen.
const maxConflicts = 10

// bounded runs one step.
func (w *Worker) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
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

// batch publishes the changes after what is published, as many as go at once, and returns their
// label. done reports that there are no more. before is the label of the last batch, or "".
func (w *Worker) batch(ctx context.Context, before string) (label string, done bool, err error) {
	// The database has each label before Redis, so it is read after that.
	is, err := w.look(ctx)
	if err != nil {
		return "", false, err
	}
	o, err := w.source.Owner(ctx)
	if err != nil {
		return "", false, err
	}
	if o.lacksOverrides(is) {
		return "", false, o.foreignOverrides(is)
	}

	after, reset := is.overrides.Origin.Revision, false
	switch from := is.overrides.Origin; {
	case from.Database == "":
		reset, err = w.unpublished(ctx)
	case from.Database != o.Database, from.Revision < o.Overrides && is.overrides.Version != before:
		after, reset = 0, true
	}
	if err != nil {
		return "", false, err
	}

	changes, revision, more, err := w.source.ChangedOverrides(ctx, after, redissource.MaxOverrideChanges)
	if err != nil {
		return "", false, err
	}
	if revision > after || reset {
		label = strconv.FormatInt(revision, 10) + "." + crand.Text()
		if err := w.source.IntendOverrides(ctx, label); err != nil {
			return "", false, err
		}
		err = w.publisher.PublishOverrides(ctx, redissource.OverrideBatch{
			Changes: changes, From: redissource.Origin{Database: o.Database, Revision: revision},
			Expected: is.overrides.Version, Label: label, Reset: reset, More: more,
		})
	}
	if err != nil || more {
		return label, false, o.taken(err)
	}
	if revision != o.Overrides {
		err = w.source.OverridesPublished(ctx, revision)
	}
	return label, true, err
}
