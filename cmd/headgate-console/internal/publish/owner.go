package publish

import (
	"cmp"
	"context"
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
}

// Error says whose policies are published, without the id, which any program may have written.
func (e *ForeignError) Error() string { return "they are not published: " + e.Reason() }

// Reason says whose policies are published, for people.
func (e *ForeignError) Reason() string {
	switch {
	case e.Published.Version == "":
		return "Redis is empty, and held the policies of another database before"
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

	// Replaces is the published version that an administrator has decided to replace, whosever it
	// is, or "".
	Replaces string
}

// foreign returns an error if the published set is not that of this database. version is that of
// the set in the database, and known the label under which the database has published last.
func (w *Worker) foreign(ctx context.Context, there redissource.Published, o Owner, version int64, known string) error {
	if there.Version == "" {
		return w.missing(there)
	}
	w.emptySince = time.Time{}

	switch own := there.Origin.Database == o.Database; {
	case there.Version == o.Replaces, own && there.Origin.Revision <= version:
		return nil
	case own:
		return &ForeignError{there, true}
	case there.Origin.Database != "":
		return &ForeignError{there, false}
	case there.Version == known: // this database has published it, by a console that wrote no origin
		return nil
	}

	// Nothing is lost with a set whose policies are all here.
	t, err := w.takeover(ctx, there)
	if err == nil && t.Keeps() {
		return nil
	}
	return cmp.Or(err, error(&ForeignError{there, false}))
}

// missing returns an error if a set of another database has been there until lately.
func (w *Worker) missing(there redissource.Published) error {
	if w.Status().Foreign() == nil {
		return nil
	}
	if w.emptySince.IsZero() {
		w.emptySince = time.Now()
	}
	if time.Since(w.emptySince) < emptyFor {
		return &ForeignError{there, false}
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
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	there, err := w.o.Publisher.Published(ctx)
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
	snapshot, err := w.o.Publisher.Load(ctx, "")
	var bad *policy.RevisionError
	switch {
	case errors.As(err, &bad):
		t.Version, t.Unknown = bad.Version, true
		return t, nil
	case err != nil:
		return t, err
	}

	mine, _, err := w.o.Source.Snapshot(ctx)
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

// replace publishes the set over what is there, and turns a refusal into a ForeignError.
func (w *Worker) replace(
	ctx context.Context, set policy.Set, version int64, there redissource.Published, o Owner,
) (label string, err error) {
	instead := ""
	if there.Version == o.Replaces {
		instead = there.Origin.Database
	}

	from := redissource.Origin{Database: o.Database, Revision: version}
	label, err = w.o.Publisher.PublishFrom(ctx, set, there.Version, from, instead)

	var taken *redissource.OwnerError
	if errors.As(err, &taken) {
		there := redissource.Published{Version: taken.Version, Origin: taken.Origin}
		return "", &ForeignError{there, taken.Origin.Database == o.Database}
	}
	if err != nil {
		return "", fmt.Errorf("version %d: %w", version, err)
	}
	return label, nil
}
