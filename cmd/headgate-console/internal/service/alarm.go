// This file has what checks the conditions of alerts.

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// Reports is what alerts know beyond a [Fleet]. Its methods are safe for concurrent use.
type Reports interface {
	// Version returns the label of the published version.
	Version(ctx context.Context) (string, error)

	// Memory returns how much memory the fullest server of Redis uses, and how much it may use;
	// 0 means that it has no limit or does not tell.
	Memory(ctx context.Context) (used, limit int64, err error)

	// Near returns the keys of an application that came near their limits in the last hour, the
	// first first.
	Near(ctx context.Context, app string) ([]stats.NearKey, error)
}

const (
	// checkPause is the shortest time between two checks, of all consoles of a database together.
	checkPause = 10 * time.Second

	// lookTime bounds the questions of a check. It is shorter than checkPause, so that a check
	// ends before another console begins the next one.
	lookTime = 8 * time.Second

	// settleFleet is how long more instances than expected have to report until they are
	// expected, so that those which run twice during a deployment are not missed afterwards, and
	// forgetFleet how long fewer have to report until no more are expected.
	settleFleet = 10 * time.Minute
	forgetFleet = time.Hour
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
// An alert of AlertNear stands while a key is listed. Each key is told once, and the end is not.
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
	if s.fleet == nil || s.reports == nil {
		return nil
	}

	// Of several consoles one makes the check. Its number shows at the end whether another check
	// has begun since.
	turn, err := a.claim(ctx)
	if err != nil || turn == 0 {
		return err
	}

	var w alertWatch
	err = s.db.View(ctx, func(t *store.Tx) (err error) {
		w, err = alertWatchOf(t)
		return err
	})
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
	hooks []Webhook // that are on
	rows  map[string]store.Webhook
	apps  []string // all that there are
}

func alertWatchOf(t *store.Tx) (w alertWatch, err error) {
	rows, err := t.Webhooks()
	if err != nil {
		return w, err
	}

	w.rows = map[string]store.Webhook{}
	for _, row := range rows {
		if !row.Enabled {
			continue
		}
		hook, err := webhookOf(row)
		if err != nil {
			return w, err
		}
		w.hooks, w.rows[row.ID] = append(w.hooks, hook), row
	}

	// A webhook for all applications watches those that are added later, too.
	apps, err := t.Apps()
	for _, app := range apps {
		w.apps = append(w.apps, app.Name)
	}
	return w, err
}

// watchedApps returns the applications that a webhook watches.
func (a alertWatch) watchedApps(hook Webhook) []string {
	if hook.All {
		return a.apps
	}
	return slices.DeleteFunc(slices.Clone(hook.Apps), func(app string) bool { return !slices.Contains(a.apps, app) })
}

// places returns the applications for which a condition of a webhook is looked at; "" stands for
// all together.
func (a alertWatch) places(hook Webhook, c Condition) []string {
	if alertKinds[rankOf(c.Kind)].Common {
		return []string{""}
	}
	return a.watchedApps(hook)
}

// watched returns the applications for which some webhook has a condition of the kinds.
func (a alertWatch) watched(kinds ...AlertKind) []string {
	set := map[string]bool{}
	for _, hook := range a.hooks {
		if slices.ContainsFunc(hook.Conditions, func(c Condition) bool { return slices.Contains(kinds, c.Kind) }) {
			for _, app := range a.watchedApps(hook) {
				set[app] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// askRedis asks Redis for what the webhooks watch.
func (s *Service) askRedis(ctx context.Context, w alertWatch) *seen {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	v := &seen{
		instances: map[string][]policy.Instance{}, minutes: map[string][]stats.Minute{},
		sums: map[sumKey]sumOfMinutes{}, expected: map[string]int64{}, found: map[conditionOf]finding{},
	}

	// Without a webhook Redis is not asked, and nothing is known.
	if v.blind = len(w.hooks) == 0; v.blind {
		return v
	}

	var all []policy.Instance
	if v.label, v.away = s.reports.Version(ctx); v.away == nil {
		all, v.away = s.fleet.Instances(ctx)
	}
	if v.away != nil {
		s.logger.DebugContext(ctx, "alerts: Redis does not answer", "error", v.away) // the publisher warns
		return v
	}

	for _, i := range all {
		v.instances[i.App] = append(v.instances[i.App], i)
	}

	// A server may refuse to say how full it is. Then that condition alone is not known.
	var err error
	if v.used, v.limit, err = s.reports.Memory(ctx); err != nil {
		v.limit = 0
		s.logger.DebugContext(ctx, "alerts: Redis does not tell of its memory", "error", err)
	}

	counted := w.watched(AlertRefused, AlertFailedOpen, AlertBanned)
	v.minutes = readAll(ctx, s, counted, "the last counts", s.fleet.Minutes)
	v.near = readAll(ctx, s, w.watched(AlertNear), "the keys near their limits", s.reports.Near)
	// What holds is found out now, and kept, so that the transaction that writes it is short.
	for _, hook := range w.hooks {
		for _, c := range hook.Conditions {
			for _, app := range w.places(hook, c) {
				v.judge(c, app)
			}
		}
	}

	return v
}

// readAll reads something of applications from Redis. It leaves out those of which it cannot be
// read.
func readAll[T any](
	ctx context.Context, s *Service, apps []string, what string, read func(context.Context, string) (T, error),
) map[string]T {
	var mu sync.Mutex
	var reading sync.WaitGroup
	found, free := map[string]T{}, make(chan struct{}, liveAtOnce)

	// At most liveAtOnce applications are read at a time: free has a token for each.
	for _, app := range apps {
		free <- struct{}{}
		reading.Go(func() {
			defer func() { <-free }()
			one, err := read(ctx, app)
			if err != nil {
				s.logger.WarnContext(ctx, "alerts: "+what+" cannot be read", "app", app, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found[app] = one
		})
	}

	reading.Wait()
	return found
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

	if err := writeFleets(t, v, w, now); err != nil {
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
	for _, hook := range w.hooks {
		f := findingWriter{Tx: t, hook: hook, row: w.rows[hook.ID], now: now}
		for _, c := range hook.Conditions {
			for _, app := range w.places(hook, c) {
				key := alertKey{hook.ID, c.Kind, app}
				row, there := known[key]
				delete(known, key)
				err := error(nil)
				if c.Kind == AlertNear {
					err = f.writeNear(app, v.near[app], v.judge(c, app), row, there)
				} else {
					err = f.write(c, app, v.judge(c, app), row, there)
				}
				if err != nil {
					return err
				}
			}
		}
	}

	// The ones that remain are not watched any more, and end whatever holds.
	for _, row := range known {
		f := findingWriter{Tx: t, row: w.rows[row.Webhook], now: now}
		if err := f.end(row, "It is not watched any more."); err != nil {
			return err
		}
	}
	return nil
}

// writeFleets keeps how many instances are expected of the applications for which some webhook
// watches that.
func writeFleets(t *store.Tx, v *seen, w alertWatch, now int64) error {
	rows, err := t.AlertFleets()
	if err != nil {
		return err
	}

	watched := w.watched(AlertLost)
	known := map[string]store.AlertFleet{}
	for _, row := range rows {
		known[row.App] = row
		// An application that is watched again later begins anew.
		if !slices.Contains(watched, row.App) {
			if err := t.DeleteAlertFleet(row.App); err != nil {
				return err
			}
		}
	}

	// Without an answer from Redis the console cannot know how many run, and what was expected
	// stays.
	if v.away != nil || v.blind {
		return nil
	}

	for _, app := range watched {
		was, there := known[app]
		n := int64(len(v.instances[app]))
		if !there {
			was = store.AlertFleet{App: app, Expected: n}
		}

		is := fleetNow(was, n, now)
		v.expected[app] = is.Expected
		if !there || is != was {
			if err := t.SetAlertFleet(is); err != nil {
				return err
			}
		}
	}
	return nil
}

// fleetNow returns what is expected of a fleet of which n instances report.
func fleetNow(f store.AlertFleet, n, now int64) store.AlertFleet {
	switch {
	// A higher number is expected only once it has lasted: during a deployment old and new
	// instances run side by side.
	case n > f.Expected && f.HigherAt == 0:
		f.Higher, f.HigherAt, f.LowerAt = n, now, 0
	case n > f.Expected:
		// The smallest number of this time is what has lasted.
		f.Higher = min(f.Higher, n)
		if now-f.HigherAt >= settleFleet.Microseconds() {
			f.Expected, f.Higher, f.HigherAt = f.Higher, 0, 0
		}
	case n == f.Expected:
		f.Higher, f.HigherAt, f.LowerAt = 0, 0, 0
	// Instances are missed from now on.
	case f.LowerAt == 0:
		f.Higher, f.HigherAt, f.LowerAt = 0, 0, now
	// They have been missed for so long that they were taken away on purpose.
	case now-f.LowerAt >= forgetFleet.Microseconds():
		f.Expected, f.LowerAt = n, 0
	}
	return f
}

// findingWriter writes what a check has seen for a webhook.
type findingWriter struct {
	*store.Tx
	hook Webhook
	row  store.Webhook
	now  int64
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
	switch {
	case !there:
		return f.InsertAlert(row)
	case row != was:
		return f.UpdateAlert(row)
	}
	return nil
}

// writeNear tells the keys that have come near their limits since those that were told last. ToldAt
// is when the last of them did, by the clock of Redis.
func (f findingWriter) writeNear(
	app string, list []stats.NearKey, found finding, row store.Alert, there bool,
) error {
	switch {
	case !found.known:
		return nil
	case !found.holds && there:
		return f.DeleteAlert(row)
	case !found.holds:
		return nil
	}

	// Those of the last hour are told when the alert begins.
	if !there {
		row = store.Alert{Webhook: f.hook.ID, Kind: string(AlertNear), App: app, FirstAt: f.now, Since: f.now}
	}
	untold := slices.IndexFunc(list, func(k stats.NearKey) bool { return k.At.UnixMicro() > row.ToldAt })
	if untold < 0 {
		return nil
	}

	row.ToldAt, row.Detail = list[len(list)-1].At.UnixMicro(), text(found)
	for _, told := range tellNear(app, list[untold:]) {
		if err := f.addMessage(EventBegun, Condition{Kind: AlertNear}, row, told, ""); err != nil {
			return err
		}
	}
	if !there {
		return f.InsertAlert(row)
	}
	return f.UpdateAlert(row)
}

// event returns what is to be reported of an alert that holds, or "", and writes its times.
// FirstAt says since when the condition holds, and Since, unless it is 0, when that was reported.
func (f findingWriter) event(c Condition, row *store.Alert) string {
	held := time.Duration(c.Minutes) * time.Minute
	if alertKinds[rankOf(c.Kind)].Counts {
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
	if row.Since != 0 && f.row.ID != "" && AlertKind(row.Kind) != AlertNear {
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
