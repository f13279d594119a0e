// This file has the messages of alerts, and what sends them.

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/internal/textform"
)

const (
	// claimTime is for how long a message belongs to the console that tries to send it, longer
	// than an attempt lasts.
	claimTime = time.Minute

	// maxWaiting is how many messages of a webhook wait at most.
	maxWaiting = 100
)

// pauses are the times between the attempts to send a message. After the last one it fails.
var pauses = []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute}

// MaxAttempts is how often a message is tried.
const MaxAttempts = 6

var _ = [1]struct{}{}[MaxAttempts-1-5] // the pauses

// attemptsOf returns how often a message is tried at most. A test is tried once.
func attemptsOf(d store.Delivery) int64 {
	if d.Event == EventTest {
		return 1
	}
	return MaxAttempts
}

// message is the body of a message. What becomes of it is in its row, see [store.Delivery]:
//
//	waiting -> waiting  claimed: tried by one console, and due again after claimTime
//	waiting -> waiting  an attempt has failed: due again after a pause
//	waiting -> done     the receiver has accepted it
//	waiting -> failed   the last attempt has failed, or the webhook was turned off
//
// One that would wait behind maxWaiting others is failed from the beginning. Nothing changes a
// message that does not wait.
type message struct {
	Version int         `json:"version"`
	Type    string      `json:"type"`
	At      time.Time   `json:"timestamp"`
	Text    string      `json:"text"`
	Data    messageData `json:"data"`
}

type messageData struct {
	Webhook  messageHook `json:"webhook"`
	Kind     AlertKind   `json:"condition,omitempty"`
	App      string      `json:"app,omitempty"`
	Since    time.Time   `json:"since,omitzero"`
	Summary  string      `json:"summary,omitempty"`
	Subjects []Subject   `json:"subjects,omitempty"`
	More     int         `json:"more,omitempty"`
	Limits   *Condition  `json:"limits,omitempty"`
	Link     string      `json:"link,omitempty"` // to the page of what it is about
}

type messageHook struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// messageVersion is the version of the form of messages.
const messageVersion = 1

// to returns the row of a message to a webhook, to be sent at once.
func (m message) to(hook, name string, now int64) store.Delivery {
	m.Version, m.At, m.Data.Webhook = messageVersion, instant(now), messageHook{hook, name}
	return store.Delivery{
		ID: "msg_" + auth.NewID(), Webhook: hook, Event: m.Type, Kind: string(m.Data.Kind), App: m.Data.App,
		Body: text(m), CreatedAt: now, State: store.StateWaiting, NextAt: now,
	}
}

// addMessage adds a message about an alert.
func (f findingWriter) addMessage(event string, c Condition, row store.Alert, found finding, why string) error {
	began := instant(row.Since)
	long := textform.Duration(instant(f.now).Sub(began).Truncate(time.Second))
	m := message{Type: event, Data: messageData{
		Kind: AlertKind(row.Kind), App: row.App, Since: began,
		Summary: found.Text, Subjects: found.Subjects, More: found.More,
	}}

	// The text is for people. Programs read the same in the data.
	switch event {
	case EventBegun:
		m.Text, m.Data.Limits = found.Text+".", &c
	case EventStands:
		m.Text, m.Data.Limits = fmt.Sprintf("For %s: %s.", long, found.Text), &c
	default:
		m.Text = fmt.Sprintf("Over after %s: %s.", long, found.Text)
		if why != "" {
			m.Text += " " + why
		}
	}

	if f.base != "" {
		m.Data.Link = f.base + found.page(m.Data.Kind, row.App)
		m.Text += " " + m.Data.Link
	}
	d := m.to(f.hook.ID, f.hook.Name, f.now)

	// A receiver that is away for long does not fill the database. The message fails, so that its
	// list shows that some are missing.
	waiting, err := f.CountWaiting(f.hook.ID)
	if err != nil {
		return err
	}
	if waiting >= maxWaiting {
		d.State, d.TriedAt = store.StateFailed, f.now
		d.Error = fmt.Sprintf("it was not sent, as %d messages wait", waiting)
	}

	return f.InsertDelivery(d)
}

// Due is a message that is to be sent now.
type Due struct {
	ID      string
	Webhook string
}

// Due returns the messages that are to be sent now, at most one of each webhook. Messages about one
// alert are sent in their order.
func (a Alarm) Due(ctx context.Context) (list []Due, err error) {
	rows, err := view(ctx, a.s, (*store.Tx).WaitingDeliveries)
	now := a.s.now()
	earlier, chosen := map[alertKey]bool{}, map[string]bool{}
	for _, row := range rows {
		// Of the messages about one alert only the oldest is looked at, so that no end comes before
		// its beginning.
		key := alertKey{row.Webhook, AlertKind(row.Kind), row.App}
		if !earlier[key] && row.NextAt <= now && !chosen[row.Webhook] {
			chosen[row.Webhook] = true
			list = append(list, Due{row.ID, row.Webhook})
		}
		earlier[key] = true
	}
	return list, err
}

// Deliver tries to send a message once, unless another console does. The message is claimed
// before, and what became of it is written afterwards. The error is that of the database: what a
// receiver does is written with the message.
func (a Alarm) Deliver(ctx context.Context, id string) error {
	hook, d, err := a.claimDelivery(ctx, id)
	if errors.Is(err, errTaken) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.s.tryOnce(ctx, hook, &d)
}

// tryOnce sends a message that is claimed, and writes what became of it.
func (s *Service) tryOnce(ctx context.Context, hook store.Webhook, d *store.Delivery) error {
	// No transaction is open while the receiver answers, which may take long.
	s.post(ctx, hook, d)

	// The console ends. The message stays claimed until another console tries again, or the next.
	if err := ctx.Err(); err != nil && d.State != store.StateDone {
		return err
	}

	// A message that has arrived is written down even while the console ends, or it would be sent
	// twice.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusalTime)
	defer cancel()
	return s.db.Update(ctx, func(t *store.Tx) error {
		err := t.EndAttempt(*d)
		// This attempt took so long that another one has begun, whose result counts.
		if errors.Is(err, store.ErrStale) {
			return nil
		}
		if err != nil {
			return err
		}
		return forgetDeliveries(t, d.Webhook)
	})
}

// claimDelivery takes a message that is due. The error is errTaken if it is not.
func (a Alarm) claimDelivery(ctx context.Context, id string) (hook store.Webhook, d store.Delivery, err error) {
	err = a.s.db.Update(ctx, func(t *store.Tx) error {
		now := a.s.now()
		if d, err = t.Delivery(id); err == nil {
			hook, err = t.Webhook(d.Webhook)
		}
		if errors.Is(err, store.ErrNotFound) || err == nil && (d.State != store.StateWaiting || d.NextAt > now) {
			return errTaken
		}
		if err != nil {
			return err
		}

		// The last attempt has no result, because the console that made it was killed.
		if d.Attempts >= attemptsOf(d) {
			d.State, d.TriedAt = store.StateFailed, now
			d.Error = cmp.Or(d.Error, "the console ended during the last attempt")
			return t.EndAttempt(d)
		}

		// From the commit on no other console sends the message, for claimTime.
		if err := taken(t.ClaimDelivery(d, now+claimTime.Microseconds())); err != nil {
			return err
		}
		d.Attempts++
		return nil
	})

	// A message that was ended here is committed, and is not to be sent.
	if err == nil && d.State == store.StateFailed {
		err = errTaken
	}
	return hook, d, err
}

// post sends a message, and writes into its row what became of it.
func (s *Service) post(ctx context.Context, hook store.Webhook, d *store.Delivery) {
	m := webhook.Message{ID: d.ID, URL: hook.URL, Secrets: []string{hook.Secret}, Body: []byte(d.Body)}
	// For a day after a renewal a message has both signatures, so that its receiver can follow in
	// its own time.
	if hook.SecretBefore != "" && s.now()-hook.RenewedAt < bothSecrets.Microseconds() {
		m.Secrets = append(m.Secrets, hook.SecretBefore)
	}

	status, err := s.sender.Send(ctx, m)
	d.Status, d.TriedAt, d.Error = int64(status), s.now(), ""

	switch {
	case err == nil:
		d.State, d.NextAt = store.StateDone, 0
		return
	case d.Attempts < attemptsOf(*d):
		d.State, d.NextAt = store.StateWaiting, d.TriedAt+pauses[d.Attempts-1].Microseconds()
	default:
		d.State, d.NextAt = store.StateFailed, 0
	}

	d.Error = err.Error()
}
