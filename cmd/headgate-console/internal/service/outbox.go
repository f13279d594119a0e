package service

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// Outbox gives the publisher access to the set of policies. The database holds the
// version of the set, which every change raises in its own transaction, and the
// version that was published last, so that a crash at any time loses no change.
// Outbox is for the program itself, and takes no actor.
type Outbox struct{ s *Service }

// Outbox returns the outbox of the service.
func (s *Service) Outbox() Outbox { return Outbox{s} }

// publishedName is the setting that holds the arguments of Published.
const publishedName = "published"

// takeoverName is the setting that holds the published version which may be replaced.
const takeoverName = "takeover"

// Owner returns the id of the database, and the published version that an administrator has
// decided to replace.
func (o Outbox) Owner(ctx context.Context) (owner publish.Owner, err error) {
	err = o.s.db.View(ctx, func(t *store.Tx) error {
		if owner.Database, err = t.ID(); err != nil {
			return err
		}
		owner.Replaces, err = t.Setting(takeoverName)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	return owner, err
}

// Pending returns the version of the set, the version that was published last,
// and the label that it was published under.
func (o Outbox) Pending(ctx context.Context) (version, published int64, label string, err error) {
	err = o.s.db.View(ctx, func(t *store.Tx) error {
		c, err := t.Counter(store.CounterPolicies)
		if err != nil {
			return err
		}
		p, err := t.Counter(store.CounterPublished)
		if err != nil {
			return err
		}

		version, published = c.Value, p.Value
		label, err = labelOf(t)
		return err
	})
	return version, published, label, err
}

// labelOf returns the label of the set that was published last. One that never was has none.
func labelOf(t *store.Tx) (string, error) {
	label, err := t.Setting(publishedName)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return label, err
}

// Snapshot returns all policies without names of people, and the version of the
// set.
func (o Outbox) Snapshot(ctx context.Context) (set policy.Set, version int64, err error) {
	err = o.s.db.View(ctx, func(t *store.Tx) error {
		c, err := t.Counter(store.CounterPolicies)
		if err != nil {
			return err
		}

		rows, err := t.Policies()
		if err != nil {
			return err
		}

		list, err := policiesOf(rows)
		for i := range list {
			list[i] = publishable(list[i])
		}

		set, version = list, c.Value
		return err
	})
	return set, version, err
}

// Published stores that a version was published under a label, unless a newer one
// is stored.
func (o Outbox) Published(ctx context.Context, version int64, label string) error {
	return o.s.db.Update(ctx, func(t *store.Tx) error {
		err := t.AdvanceCounter(store.CounterPublished, version, o.s.now())
		if errors.Is(err, store.ErrStale) {
			return nil
		}
		if err != nil {
			return err
		}
		return t.SetSetting(publishedName, label)
	})
}

// Publishing is the progress of publishing.
type Publishing struct {
	Version   int64     // of the set of policies in the database
	ChangedAt time.Time // zero means never
	Published int64     // the version that was published last
	At        time.Time // of that publication; zero means never
	Label     string    // under which it was published, or ""
}

// Publishing returns the progress of publishing. It requires a log-in and no role. The
// publisher's status has the reason of a delay.
func (s *Service) Publishing(ctx context.Context, a Actor) (v Publishing, err error) {
	err = s.ask(ctx, a, "publishing.read", "publishing", func(d *action) error {
		c, err := d.Counter(store.CounterPolicies)
		if err != nil {
			return err
		}
		p, err := d.Counter(store.CounterPublished)
		if err != nil {
			return err
		}
		v = Publishing{Version: c.Value, ChangedAt: instant(c.At), Published: p.Value, At: instant(p.At)}
		v.Label, err = labelOf(d.Tx)
		return err
	})
	return v, err
}

// TakeOver has the policies of this database published over those that are published under a
// version, whosever they are, and over no others. what says what is lost, for the audit log. The
// database gets a new id, so that a copy of it is told from it from then on. It requires an
// administrator.
func (s *Service) TakeOver(ctx context.Context, a Actor, version, what string) error {
	return s.act(ctx, a, store.CounterPolicies, "publishing.takeover", "publishing", func(d *action) error {
		if err := d.manage(); err != nil {
			return err
		}
		if version == "" || len(version) > maxPublishedVersion || !utf8.ValidString(version) {
			return invalid("version", "it is not the version of what is published")
		}

		if err := d.SetSetting(takeoverName, version); err != nil {
			return err
		}
		if _, err := d.RenewID(); err != nil {
			return err
		}
		return d.done(version, what)
	})
}

// maxPublishedVersion is more bytes than the version of a published set has.
const maxPublishedVersion = 128
