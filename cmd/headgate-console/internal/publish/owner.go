package publish

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// emptyFor is how long a worker that was refused waits for the owner to publish again, after the
// published set is gone. The owner looks every few seconds.
const emptyFor = time.Minute

// ForeignError means that the published policies, or the overrides beside them, are not those of
// this database. They stay, and so does the rest.
type ForeignError struct {
	Published redissource.Published // the policies
	Overrides bool                  // it is about the overrides
	Copy      bool                  // a copy of this database has published them
	Before    bool                  // they are of this database, which was refused before
}

// Error says whose policies are published, without the id, which any program may have written.
func (e *ForeignError) Error() string { return "they are not published: " + e.Reason() }

// Reason says whose policies are published, for people.
func (e *ForeignError) Reason() string {
	switch {
	case e.Overrides && e.Copy:
		return "Redis has newer overrides or bans, which a copy of this database has published"
	case e.Overrides:
		return "Redis has the overrides and bans of another database"
	case e.Published.Version == "":
		return "Redis is empty, and held the policies of another database before"
	case e.Before:
		return "Redis has earlier policies of this database, and held others since"
	case e.Copy:
		return "Redis has newer policies, which a copy of this database has published"
	case e.Published.Origin.Database == "":
		return "Redis has policies that are not in this database, and it is not known who has published them"
	}
	return "Redis has the policies of another database"
}

// Foreign returns the ForeignError of a status, or nil.
func (s Status) Foreign() *ForeignError {
	var e *ForeignError
	if errors.As(s.Err, &e) {
		return e
	}
	return nil
}

// Owner is what the database knows of its right to publish.
type Owner struct {
	Database string // its id
	Former   string // the id that it had before an administrator took over, or ""

	// Labels are those under which it has published last, or was about to. A copy of the database
	// has them too, but none that came after it was made.
	Labels []string

	// OverrideLabels are the same of the overrides, and Overrides the revision of them that was
	// noted as published last, 0 for none.
	OverrideLabels []string
	Overrides      int64

	// Replaces is the [Digest] of the published version that an administrator has decided to
	// replace, whosever it is, or "".
	Replaces string

	// Refused says that it was refused, and neither was published since nor did an administrator
	// decide.
	Refused bool
}

// is reports whether an id is one of the database.
func (o Owner) is(database string) bool {
	return database != "" && (database == o.Database || database == o.Former)
}

// Digest returns a text for a published version, which any program may have written: as long for
// each of them, and of lower-case letters and digits.
func Digest(version string) string {
	sum := sha256.Sum256([]byte(version))
	return hex.EncodeToString(sum[:])
}

// there is what is published: the policies, and the overrides beside them.
type there struct {
	redissource.Published
	overrides redissource.Published
}

// look reads what is published.
func (w *Worker) look(ctx context.Context) (is there, err error) {
	if is.Published, err = w.publisher.Published(ctx); err != nil {
		return is, err
	}
	is.overrides, err = w.publisher.PublishedOverrides(ctx)
	return is, err
}

// version returns that of all that is published, over which an administrator decides.
func (t there) version() string { return strings.TrimSpace(t.Version + " " + t.overrides.Version) }

// foreign returns an error if what is published is not that of this database. known is the label
// under which the database has published its policies last. A set of the own id is that of a copy
// unless its label is known: the revisions of both count on from the same one.
func (w *Worker) foreign(ctx context.Context, is there, o Owner, known string) error {
	if is.Version == "" {
		if err := w.missing(is.Published, o); err != nil {
			return err
		}
	} else {
		w.emptySince = time.Time{}
	}

	own := is.Version == known || slices.Contains(o.Labels, is.Version)
	mine, theirs := o.is(is.Origin.Database), is.Origin.Database != ""
	switch {
	case is.version() == "", Digest(is.version()) == o.Replaces:
		return nil
	case theirs && !(mine && own):
		return &ForeignError{Published: is.Published, Copy: mine}
	case o.lacksOverrides(is):
		return o.foreignOverrides(is)
	case mine && o.Refused:
		return &ForeignError{Published: is.Published, Before: true}
	case mine, is.Version == known, is.Version == "": // a console that wrote no origin has published known
		return nil
	}

	// Nothing is lost with a set whose policies are all here.
	t, err := w.lostPolicies(ctx, is)
	if err == nil && t.Keeps() {
		return nil
	}
	return cmp.Or(err, error(&ForeignError{Published: is.Published}))
}

// foreignOverrides returns the error of overrides that are not those of this database.
func (o Owner) foreignOverrides(is there) error {
	return &ForeignError{Published: is.Published, Overrides: true, Copy: o.is(is.overrides.Origin.Database)}
}

// lacksOverrides reports whether the published overrides are those of another database, or of a
// copy.
func (o Owner) lacksOverrides(is there) bool {
	from := is.overrides.Origin
	switch {
	case from.Database == "":
		return false // those of a program, if any
	case is.Origin.Database == o.Database && from.Database != o.Database:
		return false // the database has a new id: it has taken over, and has published its policies
	case !o.is(from.Database):
		return true
	}

	// Redis has lost what came after an earlier revision than the last one that was noted. An
	// older console wrote no label.
	own := is.overrides.Version == "" || slices.Contains(o.OverrideLabels, is.overrides.Version)
	return !own && from.Revision >= o.Overrides
}

// refused stores that the database was refused, if err says so, and returns err. The database may
// know more by now than o, such as that an administrator has taken over.
func (w *Worker) refused(ctx context.Context, is there, o Owner, err error) error {
	var foreign *ForeignError
	if !errors.As(err, &foreign) || o.Refused {
		return err
	}
	is.Published = foreign.Published
	return errors.Join(err, w.source.Refused(ctx, is.version()))
}

// missing returns an error if a database that was refused finds that no policies are published any
// more, until the owner has had time to publish again.
func (w *Worker) missing(there redissource.Published, o Owner) error {
	if !o.Refused {
		return nil
	}
	if w.emptySince.IsZero() {
		w.emptySince = time.Now()
	}
	if time.Since(w.emptySince) < emptyFor {
		return &ForeignError{Published: there}
	}
	return nil
}

// replace publishes the set over what is there, and turns a refusal into a ForeignError. The label
// is stored before, so that the database knows its set though this ends in between.
func (w *Worker) replace(
	ctx context.Context, set policy.Set, version int64, is there, o Owner,
) (label string, err error) {
	next, err := w.publisher.Next(set, is.Version)
	if err == nil && next != "" {
		err = w.source.Intend(ctx, next)
	}
	if err != nil {
		return "", fmt.Errorf("version %d: %w", version, err)
	}

	instead := ""
	if Digest(is.version()) == o.Replaces || is.Origin.Database == o.Former {
		instead = is.Origin.Database
	}

	from := redissource.Origin{Database: o.Database, Revision: version}
	label, err = w.publisher.PublishFrom(ctx, set, is.Version, from, instead)

	if err != nil {
		return "", fmt.Errorf("version %d: %w", version, o.taken(err))
	}
	return label, nil
}

// taken turns the error of a set that is another database's into a ForeignError.
func (o Owner) taken(err error) error {
	var taken *redissource.OwnerError
	if !errors.As(err, &taken) {
		return err
	}
	there := redissource.Published{Version: taken.Version, Origin: taken.Origin}
	return &ForeignError{Published: there, Copy: o.is(taken.Origin.Database)}
}
