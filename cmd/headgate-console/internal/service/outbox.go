package service

import (
	"context"
	"errors"
	"time"

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
		// A set that was never published has no label.
		if label, err = t.Setting(publishedName); errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	return version, published, label, err
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
		v = Publishing{Version: c.Value, ChangedAt: instant(c.At), Published: p.Value, At: instant(p.At)}
		return err
	})
	return v, err
}
