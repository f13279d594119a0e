package publish

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// emptyFor is how long a worker that was refused waits for the owner to publish again, after the
// published set is gone. The owner looks every few seconds.
const emptyFor = time.Minute

// ForeignError means that the published policies are not those of this database. They stay.
type ForeignError struct {
	Published redissource.Published
	Copy      bool // a copy of this database has published them
	Before    bool // they are of this database, which was refused before
}

// Error says whose policies are published, without the id, which any program may have written.
func (e *ForeignError) Error() string { return "they are not published: " + e.Reason() }

// Reason says whose policies are published, for people.
func (e *ForeignError) Reason() string {
	switch {
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

// foreign returns an error if the published set is not that of this database. known is the label
// under which the database has published last. A set of the own id is that of a copy unless its
// label is known: the revisions of both count on from the same one.
func (w *Worker) foreign(ctx context.Context, there redissource.Published, o Owner, known string) error {
	if there.Version == "" {
		return w.missing(there, o)
	}
	w.emptySince = time.Time{}

	own := there.Version == known || slices.Contains(o.Labels, there.Version)
	switch {
	case Digest(there.Version) == o.Replaces, o.is(there.Origin.Database) && own && !o.Refused:
		return nil
	case o.is(there.Origin.Database):
		return &ForeignError{Published: there, Copy: !own, Before: own}
	case there.Origin.Database != "":
		return &ForeignError{Published: there}
	case there.Version == known: // this database has published it, by a console that wrote no origin
		return nil
	}

	// Nothing is lost with a set whose policies are all here.
	t, err := w.takeover(ctx, there)
	if err == nil && t.Keeps() {
		return nil
	}
	return cmp.Or(err, error(&ForeignError{Published: there}))
}

// refused stores that the database was refused, if err says so, and returns err. The database may
// know more by now than o, such as that an administrator has taken over.
func (w *Worker) refused(ctx context.Context, o Owner, err error) error {
	var foreign *ForeignError
	if !errors.As(err, &foreign) || o.Refused {
		return err
	}
	return errors.Join(err, w.source.Refused(ctx, foreign.Published.Version))
}

// missing returns an error if a database that was refused finds that nothing is published any
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

// Takeover is what becomes of the published policies if those of the database replace them.
type Takeover struct {
	Version string   // that is published
	Gone    []string // the policies that the database lacks, by name
	Changed []string // those that it has otherwise
	Unknown bool     // the published policies cannot be read
}

// Keeps reports whether nothing that is published is lost.
func (t Takeover) Keeps() bool { return len(t.Gone)+len(t.Changed) == 0 && !t.Unknown }

// Takeover compares the published set with that of the database.
func (w *Worker) Takeover(ctx context.Context) (Takeover, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	there, err := w.publisher.Published(ctx)
	if err != nil {
		return Takeover{}, err
	}
	return w.takeover(ctx, there)
}

func (w *Worker) takeover(ctx context.Context, there redissource.Published) (Takeover, error) {
	t := Takeover{Version: there.Version}
	if there.Version == "" {
		return t, nil
	}

	// What is read has a version of its own, as it may have been replaced meanwhile.
	snapshot, err := w.publisher.Load(ctx, "")
	var bad *policy.RevisionError
	switch {
	case errors.As(err, &bad):
		t.Version, t.Unknown = bad.Version, true
		return t, nil
	case err != nil:
		return t, err
	}

	mine, _, err := w.source.Snapshot(ctx)
	if err != nil {
		return t, err
	}
	t.Version = snapshot.Version
	t.Gone, t.Changed = lost(snapshot.Policies, mine)
	return t, nil
}

// lost returns the names of policies that are not in mine, and of those that are otherwise there.
func lost(published, mine policy.Set) (gone, changed []string) {
	own := make(map[string]policy.Written, len(mine))
	for i := range mine {
		own[mine[i].Name] = content(&mine[i])
	}

	for i := range published {
		p := content(&published[i])
		switch is, ok := own[p.Name]; {
		case !ok:
			gone = append(gone, p.Name)
		case !reflect.DeepEqual(is, p):
			changed = append(changed, p.Name)
		}
	}
	slices.Sort(gone)
	slices.Sort(changed)
	return gone, changed
}

// content returns a policy without what only its database can say of it.
func content(p *policy.Policy) policy.Written {
	is := policy.WrittenOf(p)
	is.Version, is.CreatedBy, is.CreatedAt, is.UpdatedBy, is.UpdatedAt = 0, "", "", "", ""
	is.Apps = slices.Sorted(slices.Values(is.Apps))
	return is
}

// replace publishes the set over what is there, and turns a refusal into a ForeignError. The label
// is stored before, so that the database knows its set though this ends in between.
func (w *Worker) replace(
	ctx context.Context, set policy.Set, version int64, there redissource.Published, o Owner,
) (label string, err error) {
	next, err := w.publisher.Next(set, there.Version)
	if err == nil && next != "" {
		err = w.source.Intend(ctx, next)
	}
	if err != nil {
		return "", fmt.Errorf("version %d: %w", version, err)
	}

	instead := ""
	if Digest(there.Version) == o.Replaces || there.Origin.Database == o.Former {
		instead = there.Origin.Database
	}

	from := redissource.Origin{Database: o.Database, Revision: version}
	label, err = w.publisher.PublishFrom(ctx, set, there.Version, from, instead)

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
