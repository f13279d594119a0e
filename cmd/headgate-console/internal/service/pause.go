// This file has the pauses of policies: in shadow or off for a time, and then back by themselves.

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// MaxPause is the longest pause of a policy.
const MaxPause = 30 * 24 * time.Hour

// lateness is from when on a policy went back late enough to say so.
const lateness = time.Minute

// Pause is the end of a time for which a policy is in shadow or off. A change of its mode ends the
// pause at once, and so does its deletion. Other changes of the policy leave the pause as it is.
type Pause struct {
	Until  time.Time
	Back   policy.Mode // the mode that the policy goes back to, with the permissions that By has then
	By     string
	Reason string // why it did not go back when it was due, or ""
}

// PausePolicy switches a version of a policy to shadow or off for a time of at most MaxPause, after
// which it goes back to the mode that it has. If the version is not the current one, the error is a
// ConflictError.
func (s *Service) PausePolicy(
	ctx context.Context, a Actor, name string, version int64, mode policy.Mode, span time.Duration,
) (policy.Policy, error) {
	return s.change(ctx, a, updated, name, func(d *action) (policy.Policy, error) {
		p, err := d.owned(name, version)
		if err != nil {
			return p, err
		}
		back := p.Mode
		if err := d.checkPause(p, mode, span); err != nil {
			return p, err
		}

		until := instant(d.now).Add(span)
		p.Mode, p.Version = mode, version
		row := store.Pause{Policy: name, Back: back.String(), Until: until.UnixMicro(), User: a.user, Via: a.via}
		if p, err = d.update(p, updated, pauseNote(row)); err != nil {
			return p, err
		}
		return p, d.AddPause(row)
	})
}

// pauseNote says in the history until when a policy is paused.
func pauseNote(row store.Pause) string {
	p := pauseOf(row)
	return fmt.Sprintf("until %s, and then %s", minuteText(p.Until), ModeWords(p.Back))
}

// checkPause returns the mistakes in a pause of a policy. One that has to go back already would not
// know the mode to go back to.
func (a *action) checkPause(p policy.Policy, mode policy.Mode, span time.Duration) error {
	var f faults
	switch running, err := a.Tx.Pause(p.Name); {
	case err == nil && running.Reason == "":
		f.add("", errors.New("the policy is paused already"))
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	case mode != policy.Shadow && mode != policy.Off:
		f.add("mode", errors.New("it is not shadow or off"))
	case mode == p.Mode:
		f.add("mode", errors.New("the policy is like this already"))
	}
	if span <= 0 || span > MaxPause {
		f.add("for", fmt.Errorf("it is not a time above 0 and of at most %d days", MaxPause/(24*time.Hour)))
	}
	return f.err()
}

// minuteText returns a time as people read it.
func minuteText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// PauseOf returns the pause of a policy that the actor sees, or nil.
func (s *Service) PauseOf(ctx context.Context, a Actor, name string) (*Pause, error) {
	return readPolicy(ctx, s, a, name, func(d *action, _ policy.Policy) (*Pause, error) {
		row, err := d.Tx.Pause(name)
		if errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		p := pauseOf(row)
		return &p, err
	})
}

// endPause removes the pause of a policy, if it has one, because of the change that made a version.
// The audit log has what an undo of the change needs.
func (a *action) endPause(name string, version int64) error {
	row, err := a.Tx.Pause(name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		err = a.DropPause(name)
	}
	if err != nil || row.Reason != "" { // it was over
		return err
	}

	entry := a.actor.auditRow(a.now, unpaused, policyObject(name))
	entry.Before, entry.Note = pauseText(row), endedBy(version)
	return a.AddAudit(entry)
}

// unpaused is the action of the end of a pause before its time in the audit log.
const unpaused = "policy.unpause"

// endedBy is what the audit log says about a pause that the change to a version ended.
func endedBy(version int64) string { return fmt.Sprintf("ended by version %d", version) }

// endedPause returns the pause that a change ended, as one of the actor, or ErrNotFound if there
// was none or its time has passed.
func (a *action) endedPause(r Revision) (store.Pause, error) {
	list, err := a.FindAudit(AuditQuery{Action: unpaused, Object: policyObject(r.Policy), Outcome: Done,
		Since: r.At, Until: r.At.Add(time.Microsecond), Limit: MaxPerPage})
	if err != nil {
		return store.Pause{}, err
	}

	for _, entry := range list {
		var was pauseEntry
		if entry.Note != endedBy(r.Version) || json.Unmarshal([]byte(entry.Before), &was) != nil ||
			!was.Until.After(instant(a.now)) {
			continue
		}
		return store.Pause{Policy: r.Policy, Back: was.Back, Until: was.Until.UnixMicro(),
			User: a.actor.user, Via: a.actor.via}, nil
	}
	return store.Pause{}, ErrNotFound
}

// pauseOf returns a pause as its row has it.
func pauseOf(row store.Pause) Pause {
	p := Pause{Until: instant(row.Until), By: row.User, Reason: row.Reason}
	_ = p.Back.UnmarshalText([]byte(row.Back)) // which String has written
	return p
}

// CancelPause lets a policy stay as it is, for an actor who may edit it. It also forgets why a
// policy did not go back.
func (s *Service) CancelPause(ctx context.Context, a Actor, name string) error {
	return s.act(ctx, a, store.CounterUsers, unpaused, policyObject(name), func(d *action) error {
		if _, err := d.editable(name); err != nil {
			return err
		}
		row, err := d.Tx.Pause(name)
		if err == nil {
			err = d.DropPause(name)
		}
		if errors.Is(err, ErrNotFound) {
			return invalid("", "the policy is not paused any more")
		}
		if err != nil {
			return err
		}
		return d.done(pauseText(row), "")
	})
}

// Calendar ends the pauses that are due. It is for the program itself, and takes no actor. Several
// consoles may use it at the same time, and one may be killed: a policy goes back in the
// transaction that removes its pause.
type Calendar struct{ s *Service }

// Calendar returns the calendar of the service.
func (s *Service) Calendar() Calendar { return Calendar{s} }

// Run ends all pauses that are due. A policy that cannot go back stays as it is: its page and the
// audit log say why. If the database is the reason, Run returns the error, and a later run tries
// again.
func (c Calendar) Run(ctx context.Context) error {
	for {
		due, err := view(ctx, c.s, func(t *store.Tx) (store.Pause, error) { return t.DuePause(c.s.now()) })
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.s.end(ctx, due); err != nil {
			return err
		}
	}
}

// errTaken means that nothing is left to do, because another console did it.
var errTaken = errors.New("another console did it")

// taken turns the error of a row that another console was first to take into one of its own.
func taken(err error) error {
	if errors.Is(err, store.ErrStale) {
		return errTaken
	}
	return err
}

// unmade is the reason why a policy does not go back.
type unmade string

func (u unmade) Error() string { return string(u) }

// end has a policy go back, or writes why it cannot.
func (s *Service) end(ctx context.Context, due store.Pause) error {
	err := s.db.Update(ctx, func(t *store.Tx) error {
		now := s.now()
		if err := t.RaiseCounter(store.CounterPolicies, now); err != nil {
			return err
		}

		// The row may be gone, or be of a later pause.
		row, err := t.Pause(due.Policy)
		if err == nil {
			err = t.DropPause(due.Policy)
		}
		if errors.Is(err, ErrNotFound) || err == nil && row != due {
			return errTaken
		}
		if err != nil {
			return err
		}

		actor, err := pauser(t, due, now)
		if err != nil {
			return err
		}
		a := &action{Tx: t, actor: actor, now: now, verb: "policy." + updated, object: policyObject(due.Policy)}
		return a.run(func(a *action) error { return a.goBack(due) })
	})

	switch {
	case err == nil:
		s.changed()
		return nil
	// The database is away, or the program ends: the pause stays.
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errTaken):
		return nil
	}
	return s.stay(ctx, due, s.unmadeReason(ctx, due, err))
}

// pauser returns the actor of the user who paused a policy, authenticated as the user was then, and
// with the scope of the token that was used.
func pauser(t *store.Tx, row store.Pause, now int64) (Actor, error) {
	a := Actor{user: row.User, via: row.Via, pause: true}
	id, byToken := strings.CutPrefix(row.Via, viaToken)
	if !byToken {
		return a, nil
	}
	token, err := t.Token(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && (token.RevokedAt != 0 || now >= token.ExpiresAt) {
		return a, unmade("the token by which it was paused has ended")
	}
	a.token = scopeOf(token)
	return a, err
}

// goBack switches a policy to the mode that it has after a pause. Whatever else was changed since
// stays.
func (a *action) goBack(row store.Pause) error {
	p, err := a.editable(row.Policy)
	if err != nil {
		return err
	}
	if p.Mode = pauseOf(row).Back; row.Back != p.Mode.String() {
		return unmade(fmt.Sprintf("%q is no mode", row.Back))
	}
	if err := a.valid(p); err != nil {
		return err
	}
	_, err = a.update(p, updated, backNote(row, a.now))
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// backNote says when a policy was to go back, and how much later it does.
func backNote(row store.Pause, now int64) string {
	due := instant(row.Until)
	note := "back as of " + minuteText(due)
	if late := instant(now).Sub(due); late >= lateness {
		note += fmt.Sprintf(", %s late, as no console was running or the database was away",
			textform.Duration(late.Truncate(time.Second)))
	}
	return note
}

// pauseEntry is the form of a pause in the audit log.
type pauseEntry struct {
	Until time.Time `json:"until"`
	Back  string    `json:"back"`
	By    string    `json:"by"`
}

func pauseText(row store.Pause) string {
	return text(pauseEntry{instant(row.Until), row.Back, row.User})
}

// unmadeReason returns the reason for people why a policy does not go back.
func (s *Service) unmadeReason(ctx context.Context, row store.Pause, err error) string {
	var reason unmade
	var denied *DeniedError
	var invalid *InvalidError

	switch {
	case errors.As(err, &reason):
		return string(reason)
	case errors.As(err, &denied) && denied.hidden:
		return fmt.Sprintf("%s may not see the policy any more", row.User)
	case errors.As(err, &denied):
		return fmt.Sprintf("%s may not change it any more: %s", row.User, denied.Reason)
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
	s.logger.ErrorContext(ctx, "a policy did not go back after its pause", "policy", row.Policy, "error", err)
	return "it failed: see the log of the console"
}

// stay writes why a policy does not go back, unless another console did.
func (s *Service) stay(ctx context.Context, row store.Pause, reason string) error {
	err := s.db.Update(ctx, func(t *store.Tx) error {
		now := s.now()
		if err := t.RaiseCounter(store.CounterUsers, now); err != nil {
			return err
		}
		if err := taken(t.FailPause(row, reason)); err != nil {
			return err
		}

		a := Actor{user: row.User, via: row.Via, pause: true}
		entry := a.auditRow(now, "policy."+updated, policyObject(row.Policy))
		entry.Outcome, entry.Note = Refused, backNote(row, now)+": "+reason
		entry.After = pauseText(row)
		return t.AddAudit(entry)
	})
	if errors.Is(err, errTaken) {
		return nil
	}
	return err
}
