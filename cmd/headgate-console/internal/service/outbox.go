package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// Outbox gives the publisher access to the set of policies. The database holds the
// version of the set, which every change raises in its own transaction, and the
// version that was published last, so that a crash at any time loses no change.
// Outbox is for the program itself, and takes no actor.
type Outbox struct{ s *Service }

// Outbox returns the outbox of the service.
func (s *Service) Outbox() Outbox { return Outbox{s} }

// The settings of the outbox. Each is missing until it is first written.
const (
	publishedName = "published"             // the label of the set that was published last
	labelsName    = "publications"          // the Labels of publish.Owner, as a JSON list, the oldest first
	overridesName = "override_publications" // the OverrideLabels, in the same way
	takeoverName  = "takeover"              // the digest of the published version that may be replaced
	refusedName   = "refused"               // the digest of the one that was not replaced, or ""
)

// maxLabels is how many labels the database knows. Consoles that publish at the same time, and a
// Redis that loses its last changes, take few of them.
const maxLabels = 32

// Owner returns what the database knows of its right to publish.
func (o Outbox) Owner(ctx context.Context) (owner publish.Owner, err error) {
	err = o.s.db.View(ctx, func(t *store.Tx) error {
		var refused string
		for _, read := range []struct {
			to   *string
			from func() (string, error)
		}{
			{&owner.Database, t.ID},
			{&owner.Former, t.FormerID},
			{&owner.Replaces, func() (string, error) { return settingOf(t, takeoverName) }},
			{&refused, func() (string, error) { return settingOf(t, refusedName) }},
		} {
			text, err := read.from()
			if err != nil {
				return err
			}
			*read.to = text
		}

		owner.Refused = refused != ""
		if owner.Labels, err = labelsOf(t, labelsName); err != nil {
			return err
		}
		if owner.OverrideLabels, err = labelsOf(t, overridesName); err != nil {
			return err
		}
		c, err := t.Counter(store.CounterOverridesPublished)
		owner.Overrides = c.Value
		return err
	})
	return owner, err
}

// Intend stores the label under which a set is about to be published.
func (o Outbox) Intend(ctx context.Context, label string) error {
	// Two consoles write one after the other, so that neither loses the label of the other.
	return o.locked(ctx, store.CounterPublished, func(t *store.Tx) error { return addLabel(t, labelsName, label) })
}

// IntendOverrides stores the label under which overrides are about to be published.
func (o Outbox) IntendOverrides(ctx context.Context, label string) error {
	return o.locked(ctx, store.CounterOverridesPublished, func(t *store.Tx) error {
		return addLabel(t, overridesName, label)
	})
}

// locked runs f in a transaction, alone among those with the same counter.
func (o Outbox) locked(ctx context.Context, counter string, f func(*store.Tx) error) error {
	return o.s.db.Update(ctx, func(t *store.Tx) error {
		if err := t.LockCounter(counter); err != nil {
			return err
		}
		return f(t)
	})
}

// Refused stores that a published version was not replaced, unless an administrator has decided
// meanwhile to replace it.
func (o Outbox) Refused(ctx context.Context, version string) error {
	// A take-over raises this counter, and is finished or begins later.
	return o.locked(ctx, store.CounterPolicies, func(t *store.Tx) error {
		replaces, err := settingOf(t, takeoverName)
		if err != nil || replaces == publish.Digest(version) {
			return err
		}
		return t.SetSetting(refusedName, publish.Digest(version))
	})
}

// settingOf returns a setting, or "" for one that is missing.
func settingOf(t *store.Tx, name string) (string, error) {
	value, err := t.Setting(name)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return value, err
}

// labelsOf returns the labels of a setting that the database knows.
func labelsOf(t *store.Tx, name string) (labels []string, err error) {
	text, err := settingOf(t, name)
	if err != nil || text == "" {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		return nil, fmt.Errorf("the setting %s: %w", name, err)
	}
	return labels, nil
}

// addLabel makes a label the newest one of a setting.
func addLabel(t *store.Tx, name, label string) error {
	labels, err := labelsOf(t, name)
	if err != nil {
		return err
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == label })
	labels = append(labels, label)

	text, err := json.Marshal(labels[max(0, len(labels)-maxLabels):])
	if err != nil {
		return err
	}
	return t.SetSetting(name, string(text))
}

// Pending returns the version of the set, the version that was published last,
// and the label that it was published under.
func (o Outbox) Pending(ctx context.Context) (version, published int64, label string, err error) {
	v, err := view(ctx, o.s, publishingOf)
	return v.Version, v.Published, v.Label, err
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
// is stored. A refusal is over then.
func (o Outbox) Published(ctx context.Context, version int64, label string) error {
	return o.locked(ctx, store.CounterPublished, func(t *store.Tx) error {
		if err := t.SetSetting(refusedName, ""); err != nil {
			return err
		}
		if err := addLabel(t, labelsName, label); err != nil {
			return err
		}

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

	// Overrides reports whether changes of overrides are not published yet.
	Overrides bool
}

// Publishing returns the progress of publishing. It requires a log-in and no role. The
// publisher's status has the reason of a delay.
func (s *Service) Publishing(ctx context.Context, a Actor) (Publishing, error) {
	return answer(ctx, s, a, "publishing.read", "publishing", func(d *action) (Publishing, error) {
		v, err := publishingOf(d.Tx)
		if err == nil {
			v.Overrides, err = overridesPending(d.Tx)
		}
		return v, err
	})
}

// publishingOf reads the progress of publishing policies.
func publishingOf(t *store.Tx) (v Publishing, err error) {
	c, err := t.Counter(store.CounterPolicies)
	if err != nil {
		return v, err
	}
	p, err := t.Counter(store.CounterPublished)
	if err != nil {
		return v, err
	}
	v = Publishing{Version: c.Value, ChangedAt: instant(c.At), Published: p.Value, At: instant(p.At)}
	v.Label, err = settingOf(t, publishedName)
	return v, err
}

// TakeOver has the policies and overrides of this database published over those of a published
// version, whosever they are, and over no others. what says what is lost, for the audit log. The
// database gets a new id, so that a copy of it is told from it from then on. It requires an
// administrator.
func (s *Service) TakeOver(ctx context.Context, a Actor, version, what string) error {
	return s.act(ctx, a, store.CounterPolicies, "publishing.takeover", "publishing", func(d *action) error {
		if err := d.manage(); err != nil {
			return err
		}
		if version == "" {
			return invalid("version", "nothing is published")
		}

		if err := d.SetSetting(takeoverName, publish.Digest(version)); err != nil {
			return err
		}
		if err := d.SetSetting(refusedName, ""); err != nil {
			return err
		}
		if _, err := d.RenewID(); err != nil {
			return err
		}
		return d.done(legible(version), what)
	})
}

// legible returns a published version for people. Any program may have written it.
func legible(version string) string {
	if textform.Check(version, len(version)) != nil {
		return textform.Clip(strconv.QuoteToASCII(version))
	}
	return textform.Clip(version)
}
