// This file has the receivers of alerts: webhooks, and what people do with them.

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/internal/textform"
)

// Bounds of webhooks.
const (
	MaxWebhooks    = 100 // of all users
	MaxWebhookName = 100 // bytes
	MaxWebhookApps = 100

	// MinRepeat and MaxRepeat bound how often an alert is reported again while it stands.
	MinRepeat = 15 * time.Minute
	MaxRepeat = 7 * 24 * time.Hour

	// DefaultRepeat is how often a form proposes to report it again.
	DefaultRepeat = 4 * time.Hour

	// KeptDeliveries is how many messages of a webhook are kept, apart from those that wait.
	KeptDeliveries = 50

	// bothSecrets is for how long messages are signed with the old secret, too, after a new one
	// was made.
	bothSecrets = 24 * time.Hour
)

// WebhookDraft is what people say about a webhook.
type WebhookDraft struct {
	Name string
	URL  string // it may hold a secret of the receiver

	// Apps are the applications whose alerts are sent. All means all of them, those included
	// that are added later; Apps is empty then.
	Apps []string
	All  bool

	Conditions []Condition // at most one of a kind

	// RepeatAfter is when an alert that stands is reported again; 0 means never.
	RepeatAfter time.Duration

	Enabled bool
}

// Webhook is a receiver of alerts, without its secret.
type Webhook struct {
	WebhookDraft
	ID        string
	CreatedAt time.Time
	CreatedBy string
	RenewedAt time.Time // of the secret; zero if it is the first

	Standing   []Alert    // the alerts that stand, by kind and application
	Deliveries []Delivery // the newest messages, the newest first; in a list only one
}

// Alert is a condition that holds.
type Alert struct {
	Kind  AlertKind
	App   string // "" for what concerns all applications
	Since time.Time
	Text  string // in words
	Page  string // the address of the page that shows what it is about
}

// Delivery is a message to a webhook.
type Delivery struct {
	ID        string
	Event     string // EventBegun, EventStands, EventEnded or EventTest
	Kind      AlertKind
	App       string
	CreatedAt time.Time
	State     string // "waiting", "done" or "failed"
	Attempts  int64
	NextAt    time.Time // of a message that waits
	Status    int64     // of the last answer, or 0
	Error     string    // of the last attempt, or ""
	TriedAt   time.Time // zero before the first attempt
	Body      string    // JSON
}

// The events that a message is about.
const (
	EventBegun  = "alert.begun"
	EventStands = "alert.stands" // it was reported before
	EventEnded  = "alert.ended"
	EventTest   = "test"
)

func webhookObject(id string) string { return "webhook:" + sanitize(id, 32) }

func (w *WebhookDraft) check(sender *webhook.Sender) (f faults) {
	if w.Name == "" {
		f.add("name", errors.New("it is empty"))
	} else if strings.ContainsAny(w.Name, "\n\t") {
		f.add("name", errors.New("it is more than one line"))
	}
	f.add("name", textform.Check(w.Name, MaxWebhookName))
	f.add("url", sender.CheckURL(w.URL))

	switch {
	case w.All && len(w.Apps) > 0:
		f.add("apps", errors.New("it is for all applications, and lists some"))
	case !w.All && len(w.Apps) == 0:
		f.add("apps", errors.New("choose an application"))
	case len(w.Apps) > MaxWebhookApps:
		f.add("apps", fmt.Errorf("%d are more than %d", len(w.Apps), MaxWebhookApps))
	}

	if w.RepeatAfter != 0 && (w.RepeatAfter < MinRepeat || w.RepeatAfter > MaxRepeat) {
		f.add("repeat_after", fmt.Errorf("it is not 0, for never, or a time from %s to %d days",
			textform.Duration(MinRepeat), MaxRepeat/(24*time.Hour)))
	}
	if w.RepeatAfter%time.Second != 0 {
		f.add("repeat_after", errors.New("it is not a whole number of seconds"))
	}

	checkConditions(&f, w.Conditions)
	return f
}

// stored returns a draft in the form in which it is stored: applications and conditions in their
// order.
func (w WebhookDraft) stored() WebhookDraft {
	w.Name = strings.TrimSpace(w.Name)
	w.Apps = slices.Compact(slices.Sorted(slices.Values(w.Apps)))
	w.Conditions = slices.Clone(w.Conditions)
	slices.SortStableFunc(w.Conditions, func(a, b Condition) int { return rankOf(a.Kind) - rankOf(b.Kind) })
	return w
}

// row writes a draft into a row.
func (w WebhookDraft) row(to *store.Webhook) {
	to.Name, to.URL, to.Apps, to.Conditions = w.Name, w.URL, text(append([]string{}, w.Apps...)), text(w.Conditions)
	to.RepeatAfter, to.Enabled = w.RepeatAfter.Microseconds(), w.Enabled
}

func webhookOf(r store.Webhook) (w Webhook, err error) {
	w = Webhook{ID: r.ID, CreatedAt: instant(r.CreatedAt), CreatedBy: r.CreatedBy, RenewedAt: instant(r.RenewedAt)}
	w.Name, w.URL, w.Enabled = r.Name, r.URL, r.Enabled
	w.RepeatAfter = time.Duration(r.RepeatAfter) * time.Microsecond
	err = errors.Join(json.Unmarshal([]byte(r.Apps), &w.Apps), json.Unmarshal([]byte(r.Conditions), &w.Conditions))
	if err != nil {
		return w, fmt.Errorf("row of webhook %q: %w", r.ID, err)
	}
	w.All = len(w.Apps) == 0
	return w, nil
}

// text returns the form of a webhook in the audit log. Its URL may hold a secret, so that only
// its host is there, and a digest that shows a change.
func (w WebhookDraft) text() string {
	return text(struct {
		Name       string      `json:"name"`
		To         string      `json:"to"`
		Digest     string      `json:"url_sha256"`
		Apps       []string    `json:"apps"`
		All        bool        `json:"all,omitempty"`
		Conditions []Condition `json:"conditions"`
		Repeat     int64       `json:"repeat_after"`
		Enabled    bool        `json:"enabled"`
	}{
		w.Name, webhook.Place(w.URL), auth.Digest(w.URL), w.Apps, w.All, w.Conditions,
		int64(w.RepeatAfter / time.Second), w.Enabled,
	})
}

func deliveryOf(r store.Delivery) Delivery {
	d := Delivery{
		ID: r.ID, Event: r.Event, Kind: AlertKind(r.Kind), App: r.App, CreatedAt: instant(r.CreatedAt), State: r.State,
		Attempts: r.Attempts, Status: r.Status, Error: r.Error, TriedAt: instant(r.TriedAt), Body: r.Body,
	}
	if r.State == store.StateWaiting {
		d.NextAt = instant(r.NextAt)
	}
	return d
}

// ownsAlerts reports whether the actor owns all applications whose alerts a webhook gets.
func (a Access) ownsAlerts(d WebhookDraft) bool {
	if d.All {
		return a.seesAll()
	}
	return !slices.ContainsFunc(d.Apps, func(app string) bool { return a.Role(app) != Owner })
}

// checkWebhook refuses a draft of an actor who does not own all of its applications, and reports
// all mistakes in it.
func (a *action) checkWebhook(draft WebhookDraft, sender *webhook.Sender) error {
	if a.access.ReadOnly || !a.access.ownsAlerts(draft) {
		return a.deny("it takes the owner of every application that the webhook is for, " +
			"and for all of them an administrator")
	}

	f := draft.check(sender)
	for _, app := range draft.Apps[:min(len(draft.Apps), MaxWebhookApps)] {
		if _, err := a.app(app); errors.Is(err, ErrNotFound) {
			f.add("apps", fmt.Errorf("there is no application %q", textform.Clip(app)))
		} else if err != nil {
			return err
		}
	}

	// The policies are looked up only for a draft without other mistakes, since those may be about
	// the applications.
	for _, c := range draft.Conditions {
		if c.Policy == "" || c.Policy == AnyPolicy || len(f) > 0 {
			continue
		}

		p, err := a.policy(c.Policy)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}

		listed := func(app string) bool { return slices.Contains(draft.Apps, app) }
		if err != nil || !draft.All && !slices.ContainsFunc(p.Apps, listed) {
			f.add("conditions."+string(c.Kind)+".policy",
				fmt.Errorf("no policy %q lists one of the applications", textform.Clip(c.Policy)))
		}
	}

	return f.err()
}

// webhook returns a webhook of which the actor owns all applications.
func (a *action) webhook(id string) (store.Webhook, Webhook, error) {
	// An id of other characters cannot exist, and is not looked up.
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return store.Webhook{}, Webhook{}, ErrNotFound
	}

	row, err := a.Tx.Webhook(id)
	if err != nil {
		return row, Webhook{}, err
	}

	w, err := webhookOf(row)
	if err != nil {
		return row, w, err
	}

	if !a.access.ownsAlerts(w.WebhookDraft) {
		return row, w, a.hide()
	}
	return row, w, nil
}

// webhooksFor returns the quoted names of the webhooks that list an application.
func (a *action) webhooksFor(app string) (names []string, err error) {
	all, err := webhooksOf(a.Tx)
	for _, w := range all {
		if slices.Contains(w.Apps, app) {
			names = append(names, strconv.Quote(w.Name))
		}
	}
	return names, err
}

// webhooksOf returns all webhooks, by name.
func webhooksOf(t *store.Tx) (list []Webhook, err error) {
	rows, err := t.Webhooks()
	for _, row := range rows {
		w, broken := webhookOf(row)
		if broken != nil {
			return nil, broken
		}
		list = append(list, w)
	}
	return list, err
}

// changeWebhook is act for a change of a webhook that the actor may change.
func (s *Service) changeWebhook(
	ctx context.Context, a Actor, verb, id string, f func(d *action, row store.Webhook, was WebhookDraft) error,
) error {
	return s.act(ctx, a, store.CounterWebhooks, "webhook."+verb, webhookObject(id), func(d *action) error {
		row, was, err := d.webhook(id)
		if err == nil && d.access.ReadOnly {
			err = d.deny("the token may only read")
		}
		if err != nil {
			return err
		}
		return f(d, row, was.WebhookDraft)
	})
}

// addState adds to a webhook which of the alerts stand, and its newest messages.
func (a *action) addState(w *Webhook, alerts []store.Alert, limit int) error {
	for _, row := range alerts {
		if row.Webhook != w.ID || row.Since == 0 {
			continue
		}
		found, err := findingOf(row)
		if err != nil {
			return err
		}
		w.Standing = append(w.Standing, Alert{
			Kind: AlertKind(row.Kind), App: row.App, Since: instant(row.Since), Text: found.Text,
			Page: found.page(AlertKind(row.Kind), row.App),
		})
	}

	rows, err := a.DeliveriesOf(w.ID, limit)
	for _, row := range rows {
		w.Deliveries = append(w.Deliveries, deliveryOf(row))
	}
	return err
}

// Webhooks returns the webhooks all of whose applications the actor owns, by name, each with its
// last message.
func (s *Service) Webhooks(ctx context.Context, a Actor) ([]Webhook, error) {
	return answer(ctx, s, a, "webhook.list", "webhooks", func(d *action) (list []Webhook, err error) {
		all, err := webhooksOf(d.Tx)
		if err != nil {
			return nil, err
		}
		alerts, err := d.Alerts()
		for _, w := range all {
			// Webhooks of others do not exist for the actor.
			if !d.access.ownsAlerts(w.WebhookDraft) {
				continue
			}
			if err := d.addState(&w, alerts, 1); err != nil {
				return nil, err
			}
			list = append(list, w)
		}
		return list, err
	})
}

// Webhook returns a webhook with the alerts that stand and its last KeptDeliveries messages. The
// actor has to own all of its applications; for all applications it takes an administrator.
func (s *Service) Webhook(ctx context.Context, a Actor, id string) (Webhook, error) {
	return answer(ctx, s, a, "webhook.read", webhookObject(id), func(d *action) (Webhook, error) {
		_, w, err := d.webhook(id)
		if err != nil {
			return w, err
		}
		alerts, err := d.Alerts()
		if err != nil {
			return w, err
		}
		err = d.addState(&w, alerts, KeptDeliveries)
		return w, err
	})
}

// CreateWebhook adds a webhook, and returns its secret, which no other method returns. The actor
// has to own all of its applications; for all applications it takes an administrator.
func (s *Service) CreateWebhook(
	ctx context.Context, a Actor, draft WebhookDraft,
) (w Webhook, secret string, err error) {
	id, secret, draft := auth.NewID(), webhook.NewSecret(), draft.stored()
	err = s.act(ctx, a, store.CounterWebhooks, "webhook.create", webhookObject(id), func(d *action) error {
		if err := d.checkWebhook(draft, s.sender); err != nil {
			return err
		}

		rows, err := d.Tx.Webhooks()
		if err != nil {
			return err
		}
		if len(rows) >= MaxWebhooks {
			return invalid("", fmt.Sprintf("there are %d webhooks already: delete some", len(rows)))
		}

		row := store.Webhook{ID: id, Secret: secret, CreatedAt: d.now, CreatedBy: a.user}
		draft.row(&row)
		if err := d.InsertWebhook(row); err != nil {
			return err
		}
		if w, err = webhookOf(row); err != nil {
			return err
		}
		return d.done("", draft.text())
	})
	if err != nil {
		return Webhook{}, "", err
	}
	return w, secret, nil
}

// UpdateWebhook changes a webhook. An alert that stands and is not watched any more ends. The
// actor has to own all of its applications, before and after.
func (s *Service) UpdateWebhook(ctx context.Context, a Actor, id string, draft WebhookDraft) error {
	draft = draft.stored()
	return s.changeWebhook(ctx, a, updated, id, func(d *action, row store.Webhook, was WebhookDraft) error {
		if err := d.checkWebhook(draft, s.sender); err != nil {
			return err
		}
		return d.overwriteWebhook(row, was, draft)
	})
}

// EnableWebhook turns a webhook on or off. One that is off sends nothing: its alerts are
// forgotten, and messages that wait are not sent. The actor has to own all of its applications.
func (s *Service) EnableWebhook(ctx context.Context, a Actor, id string, on bool) error {
	return s.changeWebhook(ctx, a, updated, id, func(d *action, row store.Webhook, was WebhookDraft) error {
		becomes := was
		becomes.Enabled = on
		return d.overwriteWebhook(row, was, becomes)
	})
}

// overwriteWebhook writes what a webhook becomes.
func (a *action) overwriteWebhook(row store.Webhook, was, becomes WebhookDraft) error {
	if was.text() == becomes.text() {
		return errUnchanged
	}

	becomes.row(&row)
	if err := a.UpdateWebhook(row); err != nil {
		return err
	}
	if was.Enabled && !becomes.Enabled {
		if err := a.quiet(row.ID); err != nil {
			return err
		}
	}
	return a.done(was.text(), becomes.text())
}

// quiet forgets the alerts of a webhook that is turned off, and cancels the messages that wait.
func (a *action) quiet(id string) error {
	alerts, err := a.Alerts()
	if err != nil {
		return err
	}
	for _, row := range alerts {
		if row.Webhook == id {
			if err := a.DeleteAlert(row); err != nil {
				return err
			}
		}
	}

	return a.CancelDeliveries(id, "the webhook was turned off before", a.now)
}

// RenewWebhookSecret makes a new secret for a webhook, and returns it. For a day messages are
// signed with the old one, too. The actor has to own all of its applications.
func (s *Service) RenewWebhookSecret(ctx context.Context, a Actor, id string) (secret string, err error) {
	secret = webhook.NewSecret()
	err = s.changeWebhook(ctx, a, "renew-secret", id, func(d *action, row store.Webhook, was WebhookDraft) error {
		// The secret before is kept, because messages are signed with both for a while.
		row.SecretBefore, row.Secret, row.RenewedAt = row.Secret, secret, d.now
		if err := d.UpdateWebhook(row); err != nil {
			return err
		}

		return d.done("", was.text())
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// DeleteWebhook deletes a webhook with its messages. The actor has to own all of its applications.
func (s *Service) DeleteWebhook(ctx context.Context, a Actor, id string) error {
	return s.changeWebhook(ctx, a, deleted, id, func(d *action, _ store.Webhook, was WebhookDraft) error {
		if err := d.Tx.DeleteWebhook(id); err != nil {
			return err
		}
		return d.done(was.text(), "")
	})
}

// TestWebhook sends a message at once, also if the webhook is off, and returns what became of it.
// It is not tried again. The audit log has it before it is sent. While one is sent, another is
// refused. The actor has to own all of its applications.
func (s *Service) TestWebhook(ctx context.Context, a Actor, id string) (Delivery, error) {
	var hook store.Webhook
	var sent store.Delivery
	err := s.changeWebhook(ctx, a, "test", id, func(d *action, row store.Webhook, was WebhookDraft) error {
		waiting, err := d.WaitingDeliveries()
		if err != nil {
			return err
		}
		isTest := func(w store.Delivery) bool { return w.Webhook == id && w.Event == EventTest }
		if slices.ContainsFunc(waiting, isTest) {
			return invalid("", "a test message is being sent already")
		}

		// It is claimed from the beginning, so that no other console sends it.
		sent = message{
			Type: EventTest, Text: fmt.Sprintf("This is a test of the webhook %q of headgate.", inertName(row.Name)),
		}.to(row.ID, row.Name, d.now)
		hook = row
		sent.Attempts, sent.NextAt = 1, d.now+claimTime.Microseconds()
		if err := d.InsertDelivery(sent); err != nil {
			return err
		}
		return d.done("", was.text())
	})
	if err != nil {
		return Delivery{}, err
	}
	err = s.tryOnce(ctx, hook, &sent)
	return deliveryOf(sent), err
}

// forgetDeliveries deletes the messages of a webhook beyond the newest.
func forgetDeliveries(t *store.Tx, id string) error {
	rows, err := t.DeliveriesOf(id, KeptDeliveries)
	if err != nil || len(rows) < KeptDeliveries {
		return err
	}
	return t.ForgetDeliveries(id, rows[len(rows)-1].CreatedAt)
}
