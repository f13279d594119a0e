// This file has what checks the conditions of alerts.

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

const (
	// checkPause is the shortest time between two checks, of all consoles of a database together.
	checkPause = 10 * time.Second

	// lookTime bounds the questions of a check. It is shorter than checkPause, so that a check
	// ends before another console begins the next one.
	lookTime = 8 * time.Second
)

// Alarm checks the conditions of alerts and sends the messages. It is for the program itself, and
// takes no actor. Several consoles may use one database at the same time, and one may be killed:
// that an alert begins or ends is written, with its message, in one transaction, so that there is
// one message. A message is sent again if a console is killed after it was sent and before that
// was written; it has the same id then.
//
// An alert is a row for a condition of a webhook in an application, see [store.Alert]:
//
//	none     -> pending   the condition holds
//	pending  -> none      it does not hold any more; no message is sent
//	pending  -> standing  it has held for its minutes: a message that it has begun
//	standing -> standing  it holds for RepeatAfter more: a message that it stands
//	standing -> none      it does not hold, or is not watched any more: a message of the end
//	any      -> none      the webhook is turned off, without a message
//
// While a condition is not known, because Redis does not answer, its alert stays as it is.
type Alarm struct{ s *Service }

// Alarm returns the alarm of the service.
func (s *Service) Alarm() Alarm { return Alarm{s} }

// Check looks at the conditions, unless a console has just done so, and writes which alerts begin,
// stand and end, with their messages. Without Redis there is nothing to check. While Redis does
// not answer, the alerts about the instances stay as they are.
func (a Alarm) Check(ctx context.Context) error {
	s := a.s
	if s.fleet == nil {
		return nil
	}

	// Of several consoles one makes the check. Its number shows at the end whether another check
	// has begun since.
	turn, err := a.claim(ctx)
	if err != nil || turn == 0 {
		return err
	}

	w, err := view(ctx, s, alertWatchOf)
	if err != nil {
		return err
	}

	// Redis is asked between two transactions, because its answers may take seconds.
	v := s.askRedis(ctx, w)
	if err := ctx.Err(); err != nil {
		return err
	}

	// The webhooks are read again there, as they may have been changed while Redis was asked.
	return s.db.Update(ctx, func(t *store.Tx) error { return s.writeCheck(t, v, turn) })
}

// claim returns the number of a new check, or 0 if the last one was just made.
func (a Alarm) claim(ctx context.Context) (turn int64, err error) {
	err = a.s.db.Update(ctx, func(t *store.Tx) error {
		turn = 0 // the transaction may run again
		now := a.s.now()
		last, err := t.Counter(store.CounterAlerts)
		if err != nil {
			return err
		}

		// A clock that was set back does not stop the checks.
		if past := now - last.At; past >= 0 && past < checkPause.Microseconds() {
			return nil
		}

		if err := t.RaiseCounter(store.CounterAlerts, now); err != nil {
			return err
		}

		// The value that this transaction has given to the counter is the number of the check.
		last, err = t.Counter(store.CounterAlerts)
		turn = last.Value
		return err
	})
	return turn, err
}

// alertWatch is what the webhooks watch.
type alertWatch struct {
	hooks []Webhook
	apps  []string // all that there are
}

// alertWatchOf reads the webhooks, and the applications that they may watch.
func alertWatchOf(t *store.Tx) (w alertWatch, err error) {
	if w.hooks, err = webhooksOf(t); err != nil {
		return w, err
	}

	// A webhook for all applications watches those that are added later, too.
	w.apps, err = t.AppNames()
	return w, err
}

// each calls f with each condition that a webhook watches, unless it is off, and where: the
// application "" stands for all together. It ends at the first error.
func (a alertWatch) each(f func(hook Webhook, c Condition, app string) error) error {
	for _, hook := range a.hooks {
		if !hook.Enabled {
			continue
		}

		// An application that was deleted is in the webhook until it is saved again.
		apps := a.apps
		if !hook.All {
			gone := func(app string) bool { return !slices.Contains(a.apps, app) }
			apps = slices.DeleteFunc(slices.Clone(hook.Apps), gone)
		}

		// Redis is away for all applications at once, which is one alert.
		for _, c := range hook.Conditions {
			places := apps
			if i := rankOf(c.Kind); i >= 0 && alertKinds[i].Common {
				places = []string{""}
			}
			for _, app := range places {
				if err := f(hook, c, app); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// askRedis asks Redis for what the webhooks watch.
func (s *Service) askRedis(ctx context.Context, w alertWatch) *seen {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	v := &seen{instances: map[string][]policy.Instance{}, found: map[conditionOf]finding{}}

	// Without a webhook that is on Redis is not asked, and nothing is known.
	v.blind = !slices.ContainsFunc(w.hooks, func(hook Webhook) bool { return hook.Enabled })
	if v.blind {
		return v
	}

	all, err := s.fleet.Instances(ctx)
	if v.away = err; err != nil {
		s.logger.DebugContext(ctx, "alerts: Redis does not answer", "error", err) // the publisher warns
		return v
	}
	for _, i := range all {
		v.instances[i.App] = append(v.instances[i.App], i)
	}

	// The counts of the applications whose refusals are watched.
	counted := map[string]bool{}
	_ = w.each(func(_ Webhook, c Condition, app string) error {
		if c.Kind == AlertRefused {
			counted[app] = true
		}
		return nil
	})
	v.minutes = s.lastMinutes(ctx, slices.Sorted(maps.Keys(counted)))

	// What holds is found out now, and kept, so that the transaction that writes it is short.
	_ = w.each(func(_ Webhook, c Condition, app string) error {
		v.judge(c, app)
		return nil
	})
	return v
}

// alertKey names an alert.
type alertKey struct {
	webhook string
	kind    AlertKind
	app     string
}

// writeCheck writes what a check has seen, unless another check began since.
func (s *Service) writeCheck(t *store.Tx, v *seen, turn int64) error {
	now := s.now()
	if err := t.RaiseCounter(store.CounterWebhooks, now); err != nil {
		return err
	}

	// A check that began later has seen what is newer, and writes that.
	if last, err := t.Counter(store.CounterAlerts); err != nil || last.Value != turn {
		return err
	}

	w, err := alertWatchOf(t)
	if err != nil {
		return err
	}

	rows, err := t.Alerts()
	if err != nil {
		return err
	}

	known := map[alertKey]store.Alert{}
	for _, row := range rows {
		known[alertKey{row.Webhook, AlertKind(row.Kind), row.App}] = row
	}

	// Each alert that is watched is taken from the known ones.
	err = w.each(func(hook Webhook, c Condition, app string) error {
		key := alertKey{hook.ID, c.Kind, app}
		row, there := known[key]
		delete(known, key)
		return findingWriter{t, hook, now, s.publicURL}.write(c, app, v.judge(c, app), row, there)
	})
	if err != nil {
		return err
	}

	// The ones that remain are not watched any more, and end whatever holds.
	for _, hook := range w.hooks {
		for key, row := range known {
			if key.webhook != hook.ID {
				continue
			}
			if err := (findingWriter{t, hook, now, s.publicURL}).end(row, "It is not watched any more."); err != nil {
				return err
			}
		}
	}
	return nil
}

// findingWriter writes what a check has seen for a webhook.
type findingWriter struct {
	*store.Tx
	hook Webhook
	now  int64
	base string // Options.PublicURL
}

// write writes what was found of a condition.
func (f findingWriter) write(c Condition, app string, found finding, row store.Alert, there bool) error {
	switch {
	case !found.known:
		return nil
	case !found.holds && there:
		return f.end(row, "")
	case !found.holds:
		return nil
	}

	was := row
	if !there {
		row = store.Alert{Webhook: f.hook.ID, Kind: string(c.Kind), App: app, FirstAt: f.now}
	}

	row.Detail = text(found)

	// An alert may hold for a while before it is reported, and is reported again from time to time.
	if event := f.event(c, &row); event != "" {
		if err := f.addMessage(event, c, row, found, ""); err != nil {
			return err
		}
	}

	// Most checks find what the one before has found, and write nothing.
	if row == was {
		return nil
	}
	return f.SetAlert(row)
}

// event returns what is to be reported of an alert that holds, or "", and writes its times.
// FirstAt says since when the condition holds, and Since, unless it is 0, when that was reported.
func (f findingWriter) event(c Condition, row *store.Alert) string {
	held := time.Duration(c.Minutes) * time.Minute
	if c.Kind == AlertRefused {
		held = 0 // the minutes are those that are counted
	}

	switch {
	case row.Since == 0 && f.now-row.FirstAt >= held.Microseconds():
		row.Since, row.ToldAt = f.now, f.now
		return EventBegun
	case row.Since != 0 && f.hook.RepeatAfter > 0 && f.now-row.ToldAt >= f.hook.RepeatAfter.Microseconds():
		row.ToldAt = f.now
		return EventStands
	}
	return ""
}

// end deletes an alert, and writes a message about it if it had begun.
func (f findingWriter) end(row store.Alert, why string) error {
	if row.Since != 0 {
		found, err := findingOf(row)
		if err != nil {
			return err
		}
		if err := f.addMessage(EventEnded, Condition{Kind: AlertKind(row.Kind)}, row, found, why); err != nil {
			return err
		}
	}
	return f.DeleteAlert(row)
}

// findingOf returns what was found last of an alert.
func findingOf(row store.Alert) (f finding, err error) {
	if err = json.Unmarshal([]byte(row.Detail), &f); err != nil {
		err = fmt.Errorf("row of alert %s of %q: %w", row.Kind, row.App, err)
	}
	return f, err
}
