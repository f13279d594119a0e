// This file has the changes of policies that are made at a time, and what makes them.

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// Bounds of scheduled changes.
const (
	MaxAhead           = 366 * 24 * time.Hour // from now until a change is due
	MinSpan            = time.Minute          // of a change for a time
	MaxScheduled       = 1000                 // that wait, of all policies
	MaxScheduledPolicy = 20                   // that wait, of a policy

	// MaxScheduledUser is how many wait that one user scheduled, also by tokens: a switch and the
	// way back for 100 policies. It takes five users to leave no room for others. Administrators
	// are bounded too, because a program with a token of theirs may fail like any other.
	MaxScheduledUser = 200
)

const (
	// lateness is from when on a change was made late enough to say so.
	lateness = time.Minute

	// failuresShown is for how long a policy shows changes that were not made, and keptScheduled
	// for how long the database keeps changes that do not wait any more.
	failuresShown = 7 * 24 * time.Hour
	keptScheduled = 30 * 24 * time.Hour

	// mostSince is how many changes of a policy are looked through for those that conflict with a
	// scheduled one.
	mostSince = 1000
)

// Scheduled is a change of a policy that is made at a time. It changes only the fields in Changes,
// so it can be made after other changes of the policy; if one of them touched the same fields,
// it is not made. It is made with the permissions that By has then.
type Scheduled struct {
	ID        string
	Policy    string
	Base      int64 // the version of the policy that it was made from
	At        time.Time
	By        string
	CreatedAt time.Time
	Comment   string
	Changes   []Change

	// Hidden reports that the policy is hidden from the actor in the version Base, or as the
	// change was to leave it. Then Comment and Changes are empty.
	Hidden bool

	// Reason says why the change was not made; "" while it waits.
	Reason  string
	EndedAt time.Time

	// CanCancel reports whether the actor may cancel it.
	CanCancel bool

	appsBefore, appsAfter []string // the applications that the policy listed, and was to list
}

// Schedule has a policy changed to p at a time. p.Version must be the current version, or the
// error is a ConflictError. The time must be in the future and at most MaxAhead away. The actor
// needs the permissions for the change, now and then.
func (s *Service) Schedule(ctx context.Context, a Actor, p policy.Policy, at time.Time) (c Scheduled, err error) {
	err = s.act(ctx, a, store.CounterScheduled, "policy.schedule", policyObject(p.Name), func(d *action) error {
		before, err := d.changeable(p)
		if err != nil {
			return err
		}
		if len(Diff(before, p)) == 0 {
			return invalid("", "the policy is like this already")
		}
		c, err = d.schedule(before, p, at)
		return err
	})
	return c, err
}

// ChangeFor changes a policy at once, as UpdatePolicy does, and schedules a change back after a
// time from MinSpan to MaxAhead.
func (s *Service) ChangeFor(
	ctx context.Context, a Actor, p policy.Policy, span time.Duration,
) (saved policy.Policy, c Scheduled, err error) {
	// One transaction has both changes, so that none is made without the way back.
	locks := []string{store.CounterPolicies, store.CounterScheduled}
	err = s.actWith(ctx, a, locks, "policy."+updated, policyObject(p.Name), func(d *action) error {
		if span < MinSpan || span > MaxAhead {
			return invalid("for", fmt.Sprintf("it is not a time from %s to %d days",
				textform.Duration(MinSpan), MaxAhead/(24*time.Hour)))
		}

		before, err := d.changeable(p)
		if err != nil {
			return err
		}

		at := instant(d.now).Add(span)
		saved, err = d.update(p, updated, "until "+minuteText(at))
		if errors.Is(err, errUnchanged) {
			return invalid("", "the policy is like this already")
		}
		if err != nil {
			return err
		}

		// The way back is based on the version that was saved just now.
		c, err = d.schedule(saved, before, at)
		return err
	})
	return saved, c, err
}

// minuteText returns a time as people read it.
func minuteText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// changeable returns the current version of a policy that the actor may change to p.
func (a *action) changeable(p policy.Policy) (policy.Policy, error) {
	if err := a.valid(p); err != nil {
		return p, err
	}

	theirs, err := a.owned(p.Name, p.Version)
	if err != nil {
		return p, withMine(err, p)
	}
	if err := a.mayList(p.Apps); err != nil {
		return p, err
	}

	if p.Version != theirs.Version {
		return p, &ConflictError{Mine: p, Theirs: theirs}
	}

	return theirs, nil
}

// schedule adds a change from one content of a policy to another. The transaction must have
// raised store.CounterScheduled before it read anything, so that the bounds hold.
func (a *action) schedule(before, after policy.Policy, at time.Time) (c Scheduled, err error) {
	if err := checkComment(a.actor.comment); err != nil {
		return c, err
	}

	switch now := instant(a.now); {
	case !at.After(now):
		return c, invalid("at", "it is not in the future")
	case at.After(now.Add(MaxAhead)):
		return c, invalid("at", "it is more than a year ahead")
	}

	if err := a.checkScheduleBounds(before.Name); err != nil {
		return c, err
	}

	// What the change changes is the difference of two bodies. The policy may have others when it
	// is due.
	was, err := rowOf(before)
	if err != nil {
		return c, err
	}
	becomes, err := rowOf(after)
	if err != nil {
		return c, err
	}

	row := store.Scheduled{
		ID: auth.NewID(), Policy: before.Name, Base: before.Version,
		Before: was.Body, After: becomes.Body, Due: at.UnixMicro(),
		User: a.actor.user, Via: a.actor.via, CreatedAt: a.now, Comment: a.actor.comment, State: store.StateWaiting,
	}
	if err := a.AddScheduled(row); err != nil {
		return c, err
	}

	if c, err = scheduledOf(row); err != nil {
		return c, err
	}

	c.CanCancel = true
	entry := a.actor.auditRow(a.now, "policy.schedule", policyObject(row.Policy))
	entry.Outcome, entry.After, entry.Note = string(Done), c.text(), a.actor.comment
	return c, a.AddAudit(entry)
}

// checkScheduleBounds refuses a change of a policy by the actor if one of the bounds is reached.
func (a *action) checkScheduleBounds(policy string) error {
	n, err := a.CountScheduled(policy, a.actor.user)
	if err != nil {
		return err
	}

	for _, bound := range []struct {
		n, most int64
		which   string
	}{
		{n.OfPolicy, MaxScheduledPolicy, "of this policy"},
		{n.OfUser, MaxScheduledUser, "that you scheduled"},
		{n.All, MaxScheduled, "of all policies"},
	} {
		if bound.n >= bound.most {
			return invalid("", fmt.Sprintf("%d changes %s wait, and at most %d may: cancel some first",
				bound.n, bound.which, bound.most))
		}
	}

	return nil
}

// text returns the form of a change in the audit log.
func (s Scheduled) text() string {
	type field struct {
		Field  string `json:"field"`
		Before string `json:"before"`
		After  string `json:"after"`
	}

	var changes []field
	for _, change := range s.Changes {
		changes = append(changes, field(change))
	}

	return text(struct {
		ID      string    `json:"id"`
		At      time.Time `json:"at"`
		By      string    `json:"by"`
		Base    int64     `json:"base"`
		Changes []field   `json:"changes"`
	}{s.ID, s.At, s.By, s.Base, changes})
}

// scheduledOf reads a row with all that it holds. Only its author and the audit log may have that;
// see shown.
func scheduledOf(r store.Scheduled) (c Scheduled, err error) {
	before, after, err := contentsOf(r)
	return Scheduled{
		ID: r.ID, Policy: r.Policy, Base: r.Base, At: instant(r.Due), By: r.User, CreatedAt: instant(r.CreatedAt),
		Comment: r.Comment, Changes: Diff(before, after), Reason: r.Reason, EndedAt: instant(r.EndedAt),
		appsBefore: before.Apps, appsAfter: after.Apps,
	}, err
}

// shown returns what an actor who sees the policy as it is may know of a change. The policy may
// have listed other applications when the change was scheduled, or be another one of the name.
func (a *action) shown(c Scheduled) Scheduled {
	if c.Hidden = !a.access.CanSee(c.appsBefore) || !a.access.CanSee(c.appsAfter); c.Hidden {
		c.Comment, c.Changes = "", nil
	}
	return c
}

// contentsOf returns both contents of a row.
func contentsOf(r store.Scheduled) (before, after policy.Policy, err error) {
	before, err = contentOf(r.Before)
	after, err2 := contentOf(r.After)
	return before, after, errors.Join(err, err2)
}

// Coming returns all changes that wait, of the policies that the actor sees, those that are due
// first first.
func (s *Service) Coming(ctx context.Context, a Actor) (list []Scheduled, err error) {
	err = s.ask(ctx, a, "policy.list", "policies", func(d *action) error {
		list = nil
		rows, err := d.Tx.Coming(MaxScheduled)
		if err != nil {
			return err
		}

		for _, row := range rows {
			// An actor who sees the policy as it is now learns of the change.
			apps, err := d.appsOf(row)
			if err != nil {
				return err
			}
			if !d.access.CanSee(apps) {
				continue
			}

			c, err := scheduledOf(row.Scheduled)
			if err != nil {
				return err
			}

			c = d.shown(c)
			c.CanCancel = d.access.CanEdit(apps)
			list = append(list, c)
		}
		return nil
	})
	return list, err
}

// appsOf returns the applications that a policy lists, or listed when it was deleted.
func (a *action) appsOf(c store.Coming) ([]string, error) {
	body := c.Body
	if body == "" {
		last, err := a.Revisions(c.Policy, 0, 1)
		if err != nil || len(last) == 0 {
			return nil, err
		}
		body = cmp.Or(last[0].After, last[0].Before)
	}
	p, err := contentOf(body)
	return p.Apps, err
}

// ScheduledOf returns the changes of a policy that wait, and those that were not made lately,
// because they could not be, those that are due first first. It leaves out changes that were not
// made and are hidden from the actor.
func (s *Service) ScheduledOf(ctx context.Context, a Actor, name string) (waiting, failed []Scheduled, err error) {
	err = s.ask(ctx, a, "policy.read", policyObject(name), func(d *action) error {
		p, err := d.policy(name)
		if err != nil {
			return err
		}
		if waiting, err = d.scheduledOf(p, store.StateWaiting, 0, MaxScheduledPolicy); err != nil {
			return err
		}
		failed, err = d.scheduledOf(p, store.StateFailed, d.now-failuresShown.Microseconds(), MaxScheduledPolicy)
		return err
	})
	return waiting, failed, err
}

func (a *action) scheduledOf(p policy.Policy, state string, since int64, limit int) ([]Scheduled, error) {
	rows, err := a.Tx.ScheduledOf(p.Name, state, since, limit)
	if err != nil {
		return nil, err
	}

	var list []Scheduled
	for _, row := range rows {
		c, err := scheduledOf(row)
		if err != nil {
			return nil, err
		}

		// A change that waits is shown even if its content is hidden, because the actor will see
		// what it does.
		if c = a.shown(c); c.Hidden && state == store.StateFailed {
			continue
		}

		c.CanCancel = state == store.StateWaiting && a.access.CanEdit(p.Apps)
		list = append(list, c)
	}
	return list, nil
}

// CancelScheduled cancels a change that waits. The actor has to own every application that the
// policy lists, or listed when it was deleted.
func (s *Service) CancelScheduled(ctx context.Context, a Actor, id string) (c Scheduled, err error) {
	err = s.act(ctx, a, store.CounterScheduled, "policy.unschedule", "scheduled:"+id, func(d *action) error {
		// An id of other characters cannot exist, and is not looked up.
		if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			return ErrNotFound
		}

		row, err := d.Tx.Scheduled(id)
		if err != nil {
			return err
		}

		// From here on the action is about the policy, which a refusal names.
		d.object = policyObject(row.Policy)
		apps, err := d.appsOf(store.Coming{Scheduled: row})
		switch {
		case err != nil:
			return err
		case !d.access.CanSee(apps):
			return d.hide()
		case !d.access.CanEdit(apps):
			return d.deny("it takes the owner of every application that the policy lists")
		}

		whole, err := scheduledOf(row)
		if err != nil {
			return err
		}

		// The actor gets what they may see, and the audit log has the whole change.
		c = d.shown(whole)
		err = d.EndScheduled(id, store.StateCanceled, "", d.now)
		if errors.Is(err, store.ErrStale) {
			return invalid("", "the change does not wait any more")
		}
		if err != nil {
			return err
		}

		return d.done(whole.text(), "")
	})
	return c, err
}

// Calendar makes the scheduled changes that are due. It is for the program itself, and takes no
// actor. Several consoles may use it at the same time, and one may be killed: each change is made
// in the transaction that takes it from the list.
//
//	waiting -> done      it is due and made, or nothing is left to change
//	waiting -> failed    it is due and cannot be made: Reason says why
//	waiting -> canceled  a person has canceled it
//
// While the database is away it waits. Nothing changes one that does not wait.
type Calendar struct{ s *Service }

// Calendar returns the calendar of the service.
func (s *Service) Calendar() Calendar { return Calendar{s} }

// Run makes all changes that are due, and returns how long it is until the next one is. waiting
// is false if none waits. A change that cannot be made is not tried again, and the audit log says
// why, unless the database is the reason: then Run returns the error.
func (c Calendar) Run(ctx context.Context) (wait time.Duration, waiting bool, err error) {
	for {
		var next store.Scheduled
		err := c.s.db.View(ctx, func(t *store.Tx) (err error) {
			next, err = t.NextScheduled()
			return err
		})
		if errors.Is(err, store.ErrNotFound) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}

		if wait := instant(next.Due).Sub(instant(c.s.now())); wait > 0 {
			return wait, true, nil
		}

		if err := c.carryOut(ctx, next); err != nil {
			return 0, false, err
		}
	}
}

// errTaken means that a change does not wait any more, because another console made it.
var errTaken = errors.New("the change does not wait any more")

// unmade is the reason why a change is not made.
type unmade string

func (u unmade) Error() string { return string(u) }

// carryOut makes a change that is due, or writes why it cannot be made.
func (c Calendar) carryOut(ctx context.Context, row store.Scheduled) error {
	s := c.s
	err := s.db.Update(ctx, func(t *store.Tx) error {
		now := s.now()
		if err := t.RaiseCounter(store.CounterPolicies, now); err != nil {
			return err
		}

		// The transaction that takes the change from the list is the one that makes it.
		if err := taken(t.EndScheduled(row.ID, store.StateDone, "", now)); err != nil {
			return err
		}

		if err := t.ForgetScheduled(now - keptScheduled.Microseconds()); err != nil {
			return err
		}

		// The change is made as its user would make it now.
		actor, err := scheduler(t, row, now)
		if err != nil {
			return err
		}

		a := &action{Tx: t, actor: actor, now: now, verb: "policy." + updated, object: policyObject(row.Policy)}
		return a.run(func(a *action) error { return a.makeDue(row) })
	})

	// A failure has put the change back into the list. What became of it is written in another
	// transaction.
	switch {
	case err == nil:
		s.changed()
		return nil
	case errors.Is(err, errTaken):
		return nil
	case errors.Is(err, errUnchanged):
		return c.end(ctx, row, store.StateDone, Done, "nothing was left to change")
	// The database is away, or the program ends: the change stays in the list.
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}

	return c.end(ctx, row, store.StateFailed, Refused, s.unmadeReason(ctx, row, err))
}

func taken(err error) error {
	if errors.Is(err, store.ErrStale) {
		return errTaken
	}
	return err
}

// scheduler returns the actor of the user who scheduled a change, authenticated as the user was
// then, and with the scope of the token that was used.
func scheduler(t *store.Tx, row store.Scheduled, now int64) (Actor, error) {
	a := Actor{user: row.User, via: row.Via, scheduled: row.ID, comment: row.Comment}
	id, byToken := strings.CutPrefix(row.Via, viaToken)
	if !byToken {
		return a, nil
	}
	token, err := t.Token(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && (token.RevokedAt != 0 || now >= token.ExpiresAt) {
		return a, unmade("the token by which it was scheduled has ended")
	}
	a.token = scopeOf(token)
	return a, err
}

// makeDue makes a change that is due, on top of what was changed since.
func (a *action) makeDue(row store.Scheduled) error {
	before, after, err := contentsOf(row)
	if err != nil {
		return err
	}
	current, err := a.editable(row.Policy)
	if err != nil {
		return err
	}

	// A field that was changed since is not written over.
	since, err := a.RevisionsSince(row.Policy, row.Base, mostSince+1)
	if err != nil {
		return err
	}
	if len(since) > mostSince {
		return unmade(fmt.Sprintf("the policy was changed more than %d times since version %d", mostSince, row.Base))
	}
	touched, err := touchedBy(since)
	if err != nil {
		return err
	}

	merged, clashes := merge(before, after, current, touched)
	if len(clashes) > 0 {
		return unmade(fmt.Sprintf("%s changed since version %d, on which it is based",
			strings.Join(clashes, ", "), row.Base))
	}

	// The content is new, and may be invalid although both that it is made of are valid.
	if err := a.valid(merged); err != nil {
		return err
	}

	_, err = a.update(merged, updated, scheduledNote(row, a.now))
	return err
}

// touchedBy returns the fields that some of the revisions changed.
func touchedBy(list []store.Revision) (map[string]bool, error) {
	touched := map[string]bool{}
	for _, r := range list {
		if r.After == "" {
			return nil, unmade("the policy was deleted in the meantime")
		}

		after, err := contentOf(r.After)
		if err != nil {
			return nil, err
		}

		// A policy that was restored was deleted before, in a revision that is in the list too.
		if r.Before == "" {
			continue
		}

		before, err := contentOf(r.Before)
		if err != nil {
			return nil, err
		}

		for _, change := range Diff(before, after) {
			touched[change.Field] = true
		}
	}
	return touched, nil
}

// scheduledNote says when a change was due, and how much later it is made.
func scheduledNote(row store.Scheduled, now int64) string {
	due := instant(row.Due)
	note := "scheduled for " + minuteText(due)
	if late := instant(now).Sub(due); late >= lateness {
		note += fmt.Sprintf(", made %s late, as no console was running or the database was away",
			textform.Duration(late.Truncate(time.Second)))
	}
	return note
}

// unmadeReason returns the reason for people why a change was not made.
func (s *Service) unmadeReason(ctx context.Context, row store.Scheduled, err error) string {
	var reason unmade
	var denied *DeniedError
	var invalid *InvalidError

	switch {
	case errors.As(err, &reason):
		return string(reason)
	case errors.As(err, &denied) && denied.hidden:
		return fmt.Sprintf("%s may not see the policy any more", row.User)
	case errors.As(err, &denied):
		return fmt.Sprintf("%s may not make it any more: %s", row.User, denied.Reason)
	case errors.Is(err, ErrNotFound):
		return "the policy was deleted"
	case errors.Is(err, ErrNotLoggedIn):
		return fmt.Sprintf("the user %s is disabled", row.User)
	case errors.Is(err, ErrPasswordChange):
		return fmt.Sprintf("%s has to change the password first", row.User)
	case errors.Is(err, ErrSecondFactor):
		return fmt.Sprintf("%s has to set up a second factor first", row.User)
	case errors.As(err, &invalid):
		return textform.Line(invalid)
	}

	// Any other error is a fault of the program, whose text is not for people.
	s.logger.ErrorContext(ctx, "a scheduled change failed", "policy", row.Policy, "id", row.ID, "error", err)
	return "it failed: see the log of the console"
}

// end writes what became of a change that changed nothing, unless another console did.
func (c Calendar) end(ctx context.Context, row store.Scheduled, state string, outcome Outcome, reason string) error {
	err := c.s.db.Update(ctx, func(t *store.Tx) error {
		now := c.s.now()
		if err := t.RaiseCounter(store.CounterScheduled, now); err != nil {
			return err
		}
		if err := taken(t.EndScheduled(row.ID, state, reason, now)); err != nil {
			return err
		}

		a := Actor{user: row.User, via: row.Via, scheduled: row.ID}
		entry := a.auditRow(now, "policy."+updated, policyObject(row.Policy))
		entry.Outcome, entry.Note = string(outcome), scheduledNote(row, now)+": "+reason
		if change, err := scheduledOf(row); err == nil {
			entry.After = change.text()
		}
		return t.AddAudit(entry)
	})
	if errors.Is(err, errTaken) {
		return nil
	}
	return err
}
