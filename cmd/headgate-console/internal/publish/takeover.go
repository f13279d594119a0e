package publish

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/policy"
)

const (
	// compareTime bounds the comparison of overrides, which a page waits for.
	compareTime = 10 * time.Second

	// maxCompared is how many overrides are compared at most.
	maxCompared = 10 * policy.MaxOverridesBeside
)

// Takeover is what becomes of the published policies and overrides if those of the database
// replace them.
type Takeover struct {
	Version string   // of what is published
	Gone    []string // the policies that the database lacks, by name
	Changed []string // those that it has otherwise
	Unknown bool     // the published policies cannot be read

	// Bans and Overrides are what becomes of the overrides beside the policies: of those that ban
	// their keys now, and of the others that are in force. Uncounted says that there may be more.
	Bans, Overrides Fate
	Uncounted       bool
}

// Fate counts overrides that are published.
type Fate struct {
	Stay    int // that the database has, too
	Changed int // that it has otherwise
	Gone    int // that it lacks
}

// Keeps reports whether nothing that is published is lost.
func (t Takeover) Keeps() bool {
	return len(t.Gone)+len(t.Changed)+t.Bans.Gone+t.Bans.Changed+t.Overrides.Gone+t.Overrides.Changed == 0 &&
		!t.Unknown && !t.Uncounted
}

// Takeover compares what is published with what the database has.
func (w *Worker) Takeover(ctx context.Context) (t Takeover, err error) {
	var is there
	err = w.bounded(ctx, func(ctx context.Context) (err error) {
		if is, err = w.look(ctx); err == nil {
			t, err = w.lostPolicies(ctx, is)
		}
		return err
	})
	if err == nil && is.overrides.Origin.Database != "" { // those of a program stay
		err = w.lostOverrides(ctx, &t)
	}
	return t, err
}

// lostPolicies compares the published policies with those of the database.
func (w *Worker) lostPolicies(ctx context.Context, is there) (t Takeover, err error) {
	t.Version = is.version()
	if is.Version == "" {
		return t, nil
	}

	// What is read has a version of its own, as it may have been replaced meanwhile.
	snapshot, err := w.publisher.Load(ctx, "")
	var bad *policy.RevisionError
	switch {
	case errors.As(err, &bad):
		is.Version, t.Unknown = bad.Version, true
		t.Version = is.version()
		return t, nil
	case err != nil:
		return t, err
	}

	mine, _, err := w.source.Snapshot(ctx)
	if err != nil {
		return t, err
	}
	is.Version = snapshot.Version
	t.Version = is.version()
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

// lostOverrides compares the published overrides with those of the database, piece by piece.
func (w *Worker) lostOverrides(ctx context.Context, t *Takeover) error {
	within, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()

	// No version is that of overrides that are being written anew.
	all, err := w.publisher.OverrideChanges(within, "")
	t.Uncounted = all.Version == ""
	c := comparison{Worker: w, t: t, now: time.Now(), cancel: cancel}
	for _, name := range all.Stale {
		if err == nil {
			err = c.compare(within, name)
		}
	}

	// Too many, and too little time, are no faults of a server.
	if err != nil && ctx.Err() == nil && within.Err() != nil && c.err == nil {
		t.Uncounted, err = true, nil
	}
	return errors.Join(c.err, err)
}

// comparison compares overrides.
type comparison struct {
	*Worker
	t      *Takeover
	now    time.Time
	n      int    // of overrides that were compared
	cancel func() // ends the reading
	err    error  // of the database
}

// compare counts the overrides of a policy.
func (c *comparison) compare(ctx context.Context, name string) error {
	seen := map[string]bool{} // Redis may return a key twice
	return c.publisher.ReadOverrides(ctx, name, func(list []policy.OverrideChange) {
		list = slices.DeleteFunc(list, func(o policy.OverrideChange) bool {
			again := seen[o.Key]
			seen[o.Key] = true
			return again
		})
		if c.n += len(list); c.n > maxCompared || c.err != nil {
			c.cancel()
			return
		}

		keys := make([]string, len(list))
		for i, o := range list {
			keys[i] = o.Key
		}
		mine, err := c.source.OverrideTexts(ctx, name, keys)
		if err != nil && ctx.Err() == nil {
			c.err = err
		}
		if err != nil {
			c.cancel()
			return
		}

		for _, o := range list {
			c.count(o.Text, mine[o.Key])
		}
	})
}

// count counts an override that is published, of which the database has the text mine, "" for
// none. One that has ended is not lost.
func (c *comparison) count(text, mine string) {
	o, err := policy.ParseOverride(text)
	if err == nil && o.Ended(c.now) {
		return
	}

	own, _ := policy.ParseOverride(mine)
	fate, keeps := &c.t.Overrides, mine != ""
	if o.Bans(c.now) {
		fate, keeps = &c.t.Bans, own.Bans(c.now)
	}
	switch {
	case text == mine:
		fate.Stay++
	case keeps:
		fate.Changed++
	default:
		fate.Gone++
	}
}
