package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// run makes what is due by one of the services.
func (w *world) run(s *Service) (wait time.Duration, waiting bool) {
	w.t.Helper()
	wait, waiting, err := s.Calendar().Run(w.t.Context())
	w.must(err)
	return wait, waiting
}

// later schedules a mode of the policy p.
func (w *world) later(a Actor, p policy.Policy, mode policy.Mode, in time.Duration) Scheduled {
	w.t.Helper()
	p.Mode = mode
	c, err := w.Schedule(w.t.Context(), a, p, w.clock.now().Add(in))
	w.must(err)
	return c
}

func (w *world) current(name string) policy.Policy {
	w.t.Helper()
	p, err := w.Policy(w.t.Context(), w.admin, name)
	w.must(err)
	return p
}

// published returns the version of the policies that is to be published.
func (w *world) published() int64 {
	w.t.Helper()
	version, _, _, err := w.Outbox().Pending(w.t.Context())
	w.must(err)
	return version
}

// waits carries out what is due, and fails unless the next change is due in a while; 0 means none.
func (w *world) waits(what string, want time.Duration) {
	w.t.Helper()
	if wait, waiting := w.run(w.Service); wait != want || waiting != (want > 0) {
		w.t.Errorf("%s: the next change is in %s, %v, want %s", what, wait, waiting, want)
	}
}

func TestScheduledChangeIsMadeAtItsTime(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		owner := w.person("owner", map[string]Role{"a": Owner})
		p := sample("p", "a")
		p.Mode = policy.Shadow
		p = w.create(p)

		c := w.later(owner.Saying(" after the fair "), p, policy.Enforce, time.Hour)
		if want := []Change{{"mode", "shadow", "enforce"}}; !slices.Equal(c.Changes, want) || c.By != "owner" ||
			c.Base != 1 || !c.CanCancel {
			t.Errorf("%+v", c)
		}

		// Neither the scheduling nor a look before it is due changes what the instances get.
		version := w.published()
		w.waits("at once", time.Hour)

		w.clock.pass(time.Hour - time.Microsecond)
		w.waits("a microsecond too early", time.Microsecond)
		if got := w.current("p"); got.Mode != policy.Shadow {
			t.Errorf("a microsecond too early: %+v", got)
		}
		if now := w.published(); now != version {
			t.Errorf("to schedule and to look published version %d, want %d", now, version)
		}

		w.clock.pass(time.Microsecond)
		w.waits("when it is due", 0)
		if now := w.published(); now != version+1 {
			t.Errorf("version %d, want %d", now, version+1)
		}
		w.wantMade(c)

		// A second run finds nothing.
		w.run(w.Service)
		if got := w.current("p"); got.Version != 2 {
			t.Errorf("it was made again: %+v", got)
		}
	})
}

// wantMade fails unless the scheduled change of TestScheduledChangeIsMadeAtItsTime was just made.
func (w *world) wantMade(c Scheduled) {
	t := w.t
	t.Helper()
	if got := w.current("p"); got.Mode != policy.Enforce || got.Version != 2 || got.UpdatedBy != "owner" ||
		!got.UpdatedAt.Equal(w.clock.now()) {
		t.Errorf("%+v", got)
	}

	r, err := w.Revision(t.Context(), w.admin, "p", 2)
	if err != nil || r.Note != "scheduled for 2026-03-01 13:00 UTC" || r.Comment != "after the fair" ||
		r.Action != "update" {
		t.Errorf("%+v %v", r, err)
	}

	// The audit log names whose change it was and the schedule that carried it out.
	list := w.entries(AuditQuery{Object: "policy:p", Action: "policy.update"})
	if len(list) != 1 || list[0].Via != "schedule:"+c.ID || list[0].Actor != "owner" ||
		list[0].Note != "scheduled for 2026-03-01 13:00 UTC: after the fair" {
		t.Errorf("%+v", list)
	}
}

func TestScheduledChangeIsMadeLateAndSaysSo(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	p := w.create(sample("p", "a"))
	w.later(w.admin, p, policy.Off, time.Hour)
	w.clock.pass(3*time.Hour + 5*time.Minute)
	w.run(w.another())
	r, err := w.Revision(t.Context(), w.admin, "p", 2)
	if want := "scheduled for 2026-03-01 13:00 UTC, made 2h5m late, as no console was running or the database was away"; err != nil ||
		r.Note != want {
		t.Errorf("%+v %v", r, err)
	}
}

func TestScheduledChangeKeepsOtherChanges(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := w.create(sample("p", "a"))
		w.later(w.admin, p, policy.Shadow, time.Hour)

		// An edit of other fields in between is not taken back by the body that was scheduled.
		edit := p
		edit.Limit, edit.Description = core.Limit{Quota: 7, Period: time.Second}, "another"
		_, err := w.UpdatePolicy(t.Context(), w.admin, edit)
		w.must(err)

		w.clock.pass(time.Hour)
		w.run(w.Service)
		if got := w.current("p"); got.Version != 3 || got.Mode != policy.Shadow || got.Limit.Quota != 7 ||
			got.Description != "another" {
			t.Errorf("%+v", got)
		}
	})
}

// TestScheduledChangeThatCannotBeMade has for each reason what happens before the change is due.
func TestScheduledChangeThatCannotBeMade(t *testing.T) {
	edit := func(w *world, change func(*policy.Policy)) {
		p := w.current("p")
		change(&p)
		_, err := w.UpdatePolicy(w.t.Context(), w.admin, p)
		w.must(err)
	}

	for name, c := range map[string]struct {
		before func(w *world, owner Actor)
		reason string
	}{
		// What a person did to the same field after the scheduling was not foreseen, so it stays.
		"the same field changed": {func(w *world, _ Actor) { edit(w, func(p *policy.Policy) { p.Mode = policy.Off }) },
			"mode changed since version 1, on which it is based"},
		"it changed and went back": {func(w *world, _ Actor) {
			edit(w, func(p *policy.Policy) { p.Mode = policy.Off })
			edit(w, func(p *policy.Policy) { p.Mode = policy.Enforce })
		}, "mode changed since version 1, on which it is based"},

		// A policy that was deleted and restored may be for something else.
		"the policy was deleted": {func(w *world, _ Actor) { w.must(w.DeletePolicy(w.t.Context(), w.admin, "p", 1)) },
			"the policy was deleted"},
		"it was deleted and restored": {func(w *world, _ Actor) {
			w.must(w.DeletePolicy(w.t.Context(), w.admin, "p", 1))
			_, err := w.Rollback(w.t.Context(), w.admin, "p", 1, 2)
			w.must(err)
		}, "the policy was deleted in the meantime"},

		// The right is judged when the change is made, not when it was scheduled.
		"they lost the role": {func(w *world, _ Actor) {
			w.must(w.SetRole(w.t.Context(), w.admin, "owner", "a", Viewer))
		}, "owner may not make it any more: it takes the owner of every application that the policy lists"},
		"they may not see it": {func(w *world, _ Actor) {
			w.must(w.SetRole(w.t.Context(), w.admin, "owner", "a", NoRole))
		}, "owner may not see the policy any more"},
		"the policy moved": {func(w *world, _ Actor) {
			edit(w, func(p *policy.Policy) { p.Apps = []string{"a", "b"} })
		}, "owner may not make it any more: it takes the owner of every application that the policy lists"},
		"they are disabled": {func(w *world, _ Actor) { w.must(w.DisableUser(w.t.Context(), w.admin, "owner")) },
			"the user owner is disabled"},
		"their password was reset": {func(w *world, _ Actor) {
			_, err := w.ResetPassword(w.t.Context(), w.admin, "owner")
			w.must(err)
		}, "owner has to change the password first"},

		// Nothing is left to change, which is no failure: the page shows none.
		"it is like this already": {func(w *world, _ Actor) {
			edit(w, func(p *policy.Policy) { p.Mode = policy.Shadow })
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				owner := w.person("owner", map[string]Role{"a": Owner})
				p := w.create(sample("p", "a"))
				id := w.later(owner, p, policy.Shadow, time.Hour).ID
				c.before(w, owner)

				version := w.published()
				before, err := w.History(ctx, w.admin, "p", 0, 0)
				w.must(err)

				w.clock.pass(time.Hour)
				if _, waiting := w.run(w.Service); waiting {
					t.Error("it still waits")
				}

				// Another console does not try it again.
				w.run(w.another())

				after, err := w.History(ctx, w.admin, "p", 0, 0)
				w.must(err)
				if len(after) != len(before) {
					t.Errorf("%d changes, want %d: %+v", len(after), len(before), after[0])
				}
				if now := w.published(); now != version {
					t.Errorf("it published version %d, want %d", now, version)
				}
				w.wantUnmade(id, c.reason)
			})
		})
	}
}

// wantUnmade fails unless the audit log and the page of the policy p, if it exists, say why a
// scheduled change was not made; "" means that nothing was left to change.
func (w *world) wantUnmade(id, why string) {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	var notes []string
	outcome, reason := Refused, why
	if why == "" {
		outcome, reason = Done, "nothing was left to change"
	}

	// One entry with the reason: a later run must not report it again.
	for _, e := range w.entries(AuditQuery{Object: "policy:p", Outcome: outcome}) {
		if e.Via == "schedule:"+id {
			notes = append(notes, e.Note)
		}
	}
	if want := []string{"scheduled for 2026-03-01 13:00 UTC: " + reason}; !slices.Equal(notes, want) {
		t.Errorf("the audit log has %q, want %q", notes, want)
	}

	if _, err := w.Policy(ctx, w.admin, "p"); err != nil {
		return // deleted
	}

	waiting, failed, err := w.ScheduledOf(ctx, w.admin, "p")
	w.must(err)
	if len(waiting) != 0 || why != "" && (len(failed) != 1 || failed[0].Reason != why) ||
		why == "" && len(failed) != 0 {
		t.Errorf("the page shows %+v and %+v", waiting, failed)
	}

	// The page forgets it after a week, and the audit log keeps it.
	w.clock.pass(7*24*time.Hour + time.Microsecond)
	if _, failed, err = w.ScheduledOf(ctx, w.admin, "p"); err != nil || len(failed) != 0 {
		t.Errorf("after a week: %+v %v", failed, err)
	}
}

func TestScheduledChangeHasTheScopeOfItsToken(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		owner := w.person("owner", map[string]Role{"a": Owner, "b": Owner})
		onlyA := w.token(owner, Write, "a")

		p, q := w.create(sample("p", "a")), w.create(sample("q", "a"))
		w.later(onlyA, p, policy.Off, time.Hour)
		w.later(onlyA, q, policy.Off, 2*time.Hour)

		_, err := w.Schedule(ctx, w.token(owner, Read), p, w.clock.now().Add(time.Hour))
		wantErr(t, "a token to read with", err, ErrDenied)

		// The change of p is made with the token, and that of q is due after it was revoked.
		w.clock.pass(time.Hour)
		w.run(w.Service)
		if got := w.current("p"); got.Mode != policy.Off {
			t.Errorf("%+v", got)
		}

		tokens, err := w.Tokens(ctx, owner)
		w.must(err)
		for _, token := range tokens {
			w.must(w.RevokeToken(ctx, owner, token.ID))
		}

		// A token that has ended takes what it scheduled with it, though its owner still may.
		w.clock.pass(time.Hour)
		w.run(w.Service)
		_, failed, err := w.ScheduledOf(ctx, w.admin, "q")
		if err != nil || len(failed) != 1 || failed[0].Reason != "the token by which it was scheduled has ended" ||
			w.current("q").Mode != policy.Enforce {
			t.Errorf("%+v %v", failed, err)
		}
	})
}

func TestChangeForATimeEndsByItself(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(sample("p", "a"))

		off := p
		off.Mode = policy.Off

		// The change is made at once, and its reverse waits.
		saved, c, err := w.ChangeFor(ctx, w.admin, off, 2*time.Hour)
		w.must(err)
		if want := []Change{{"mode", "off", "enforce"}}; saved.Version != 2 || saved.Mode != policy.Off ||
			!slices.Equal(c.Changes, want) || !c.At.Equal(w.clock.now().Add(2*time.Hour)) {
			t.Errorf("%+v %+v", saved, c)
		}

		if r, err := w.Revision(ctx, w.admin, "p", 2); err != nil || r.Note != "until 2026-03-01 14:00 UTC" {
			t.Errorf("%+v %v", r, err)
		}

		w.clock.pass(2 * time.Hour)
		w.run(w.Service)
		if got := w.current("p"); got.Version != 3 || got.Mode != policy.Enforce {
			t.Errorf("%+v", got)
		}

		// Nothing of a change whose end cannot be scheduled is made.
		_, _, err = w.ChangeFor(ctx, w.admin, w.current("p"), time.Hour)
		wantFault(t, "nothing differs", err, "")
		for _, span := range []time.Duration{-1, 0, time.Minute - 1, MaxAhead + 1} {
			off.Version = 3
			_, _, err = w.ChangeFor(ctx, w.admin, off, span)
			wantFault(t, span.String(), err, "for")
		}

		if got := w.current("p"); got.Version != 3 {
			t.Errorf("a refused change was made: %+v", got)
		}

		// The undoing takes the scheduled end with it, so the mode that is set later stays.
		off.Version = 3
		_, _, err = w.ChangeFor(ctx, w.admin, off, time.Hour)
		w.must(err)

		_, err = w.Undo(ctx, w.admin, "p", 4)
		w.must(err)

		off = w.current("p")
		off.Mode = policy.Off
		_, err = w.UpdatePolicy(ctx, w.admin, off)
		w.must(err)

		w.clock.pass(time.Hour)
		w.run(w.Service)
		if got := w.current("p"); got.Version != 6 || got.Mode != policy.Off {
			t.Errorf("the end of a change that was undone ended a later one: %+v", got)
		}
	})
}

func TestScheduleRefusesWhatItCannotKeep(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	p := w.create(sample("p", "a"))

	off := p
	off.Mode = policy.Off
	now := w.clock.now()

	// The bound itself is possible, and a microsecond more is not.
	for _, at := range []time.Time{{}, now, now.Add(-time.Hour), now.Add(MaxAhead + time.Microsecond)} {
		_, err := w.Schedule(ctx, w.admin, off, at)
		wantFault(t, at.String(), err, "at")
	}
	if _, err := w.Schedule(ctx, w.admin, off, now.Add(MaxAhead)); err != nil {
		t.Error(err)
	}

	_, err := w.Schedule(ctx, w.admin, p, now.Add(time.Hour))
	wantFault(t, "nothing differs", err, "")
	_, err = w.Schedule(ctx, w.admin.Saying(strings.Repeat("x", MaxComment+1)), off, now.Add(time.Hour))
	wantFault(t, "a long comment", err, "comment")

	// A policy is checked when it is scheduled: no user may be there to mend it when it is due.
	wrong := off
	wrong.Key = "?"
	_, err = w.Schedule(ctx, w.admin, wrong, now.Add(time.Hour))
	wantFault(t, "a wrong policy", err, "key")

	stale := off
	stale.Version = 7
	_, err = w.Schedule(ctx, w.admin, stale, now.Add(time.Hour))
	wantConflict(t, "a stale version", err, 7, 1)

	gone := sample("never", "a")
	gone.Version = 1
	_, err = w.Schedule(ctx, w.admin, gone, now.Add(time.Hour))
	wantErr(t, "an unknown policy", err, ErrNotFound)
}

// TestScheduleTellsOfChanges has what is scheduled and canceled wake the calendar.
func TestScheduleTellsOfChanges(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx, told := t.Context(), 0
	s, err := New(Options{DB: w.db, Clock: w.clock.now, Passwords: cheap, Changed: func() { told++ }})
	w.must(err)

	p := w.create(sample("p", "a"))
	p.Mode = policy.Off

	want := func(what string, n int, err error) {
		t.Helper()
		if w.must(err); told != n {
			t.Errorf("after %s it was told %d times, want %d", what, told, n)
		}
	}

	c, err := s.Schedule(ctx, w.admin, p, w.clock.now().Add(time.Hour))
	want("a change at a time", 1, err)
	_, err = s.CancelScheduled(ctx, w.admin, c.ID)
	want("a cancellation", 2, err)

	_, _, err = s.ChangeFor(ctx, w.admin, p, time.Hour)
	want("a change for a time", 3, err)

	// What was refused wakes no worker.
	_, err = s.Schedule(ctx, w.admin, p, w.clock.now().Add(time.Hour))
	wantConflict(t, "a stale version", err, 1, 2)
	want("a refusal", 3, nil)
}

// haveWaiting has changes of a user wait that are not due in these tests, as many of each policy as
// may.
func (w *world) haveWaiting(user string, n int) {
	w.t.Helper()
	body, err := rowOf(sample("filler", "a"))
	w.must(err)

	w.must(w.db.Update(w.t.Context(), func(t *store.Tx) error {
		for i := range n {
			row := store.Scheduled{ID: fmt.Sprint(user, i), Policy: fmt.Sprint("filler-", user, i/MaxScheduledPolicy),
				Base: 1, Before: body.Body, After: body.Body,
				Due: w.clock.now().Add(MaxAhead).UnixMicro(), User: user, Via: viaSession,
				CreatedAt: w.clock.now().UnixMicro()}
			if err := t.AddScheduled(row); err != nil {
				return err
			}
		}
		return nil
	}))
}

// wantFull fails unless an actor may not schedule a change of a policy, in both ways, and the error
// is this one.
func (w *world) wantFull(a Actor, p policy.Policy, want string) {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	p.Priority++

	_, err := w.Schedule(ctx, a, p, w.clock.now().Add(time.Hour))
	_, _, err2 := w.ChangeFor(ctx, a, p, time.Hour)

	for _, err := range []error{err, err2} {
		if wantFault(t, "one too many", err, ""); err != nil && err.Error() != want {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}

	// A change for a time needs the place for its end before it is made.
	if now := w.current(p.Name); now.Version != p.Version {
		t.Errorf("the change for a time was made: %+v", now)
	}
}

func TestScheduleBounds(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const ofUser = "200 changes that you scheduled wait, and at most 200 may: cancel some first"
		x, y := w.person("x", map[string]Role{"a": Owner}), w.person("y", map[string]Role{"a": Owner})
		p, q := w.create(sample("p", "a")), w.create(sample("q", "a"))

		// The bound of a user counts what they and their tokens have scheduled, whatever the
		// policy.
		w.haveWaiting("x", MaxScheduledUser-2)
		first := w.later(x, p, policy.Off, time.Hour)
		w.later(w.token(x, Write), p, policy.Shadow, 2*time.Hour)
		for _, a := range []Actor{x, w.token(x, Write)} {
			w.wantFull(a, p, ofUser)
			w.wantFull(a, q, ofUser)
		}

		// It leaves others their places, and a change that was canceled, also by another, or made
		// frees one.
		w.later(y, q, policy.Off, time.Hour)
		_, err := w.CancelScheduled(t.Context(), y, first.ID)
		w.must(err)

		w.later(x, q, policy.Shadow, 3*time.Hour)
		w.wantFull(x, q, ofUser)

		w.clock.pass(2 * time.Hour)
		w.run(w.Service) // the changes of p and y
		q = w.current("q")
		w.later(x, q, policy.Enforce, time.Hour)
		w.wantFull(x, q, ofUser)

		// The administrator has the same bound, and a policy has one of its own for all users: two
		// of q wait already.
		w.haveWaiting(FirstUser, MaxScheduledUser)
		w.wantFull(w.admin, q, ofUser)

		for i := range MaxScheduledPolicy - 2 {
			w.later(y, q, policy.Enforce, time.Duration(i+1)*time.Hour)
		}
		w.wantFull(y, q, "20 changes of this policy wait, and at most 20 may: cancel some first")

		// Five users at their bounds reach that of the whole console. z, who has none that
		// wait, is refused.
		w.haveWaiting("y", MaxScheduledUser-(MaxScheduledPolicy-2))
		for _, name := range []string{"u", "v"} {
			w.person(name, nil)
			w.haveWaiting(name, MaxScheduledUser)
		}
		w.wantFull(w.person("z", map[string]Role{"a": Owner}), w.current("p"),
			"1000 changes of all policies wait, and at most 1000 may: cancel some first")
	})
}

// TestScheduleBoundOfAUserHoldsInARace has one user schedule more in many tabs, at a time and for a
// time, than there is room for.
func TestScheduleBoundOfAUserHoldsInARace(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const tabs, room = 16, 5
		w.haveWaiting(FirstUser, MaxScheduledUser-room)

		services := []*Service{w.Service, w.another()}
		var policies []policy.Policy
		for i := range tabs {
			policies = append(policies, w.create(sample(fmt.Sprint("p", i), "a")))
		}

		// Each tab has a policy of its own, so that the user's bound alone is met, by both ways
		// and on both consoles.
		var group sync.WaitGroup
		errs := make([]error, tabs)
		for i, p := range policies {
			p.Mode = policy.Off
			group.Go(func() {
				s := services[i/2%2]
				if i%2 == 0 {
					_, errs[i] = s.Schedule(t.Context(), w.admin, p, w.clock.now().Add(time.Hour))
				} else {
					_, _, errs[i] = s.ChangeFor(t.Context(), w.admin, p, time.Hour)
				}
			})
		}

		group.Wait()
		done := 0
		for i, err := range errs {
			if err == nil {
				done++
			} else {
				wantFault(t, fmt.Sprint("tab ", i), err, "")
			}
		}

		// As many as there was room for, not fewer: a race that is lost is no reason to refuse.
		list, err := w.Coming(t.Context(), w.admin)
		if err != nil || done != room || len(list) != MaxScheduledUser {
			t.Errorf("%d were accepted and %d wait, want %d and %d (%v)", done, len(list), room, MaxScheduledUser, err)
		}
	})
}

// TestScheduleBoundHoldsInARace has more people schedule than there is room for.
func TestScheduleBoundHoldsInARace(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := w.create(sample("p", "a"))
		p.Mode = policy.Off

		services := []*Service{w.Service, w.another()}
		var group sync.WaitGroup
		var mu sync.Mutex
		done := 0

		// Eight more than may wait.
		for i := range MaxScheduledPolicy + 8 {
			group.Go(func() {
				_, err := services[i%2].Schedule(t.Context(), w.admin, p,
					w.clock.now().Add(time.Duration(i+1)*time.Hour))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done++
					return
				}
				wantFault(t, "one too many", err, "")
			})
		}

		group.Wait()
		list, err := w.Coming(t.Context(), w.admin)
		if err != nil || done != MaxScheduledPolicy || len(list) != MaxScheduledPolicy {
			t.Errorf("%d were accepted and %d wait, want %d (%v)", done, len(list), MaxScheduledPolicy, err)
		}
	})
}

// TestScheduledChangesAreMadeOnceByManyConsoles has several consoles make the same changes.
func TestScheduledChangesAreMadeOnceByManyConsoles(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const policies = 12

		// Two changes of each policy, of different fields, so that both are possible.
		for i := range policies {
			p := w.create(sample(fmt.Sprintf("p%d", i), "a"))
			w.later(w.admin, p, policy.Shadow, time.Hour)
			p.Priority = 5
			_, err := w.Schedule(t.Context(), w.admin, p, w.clock.now().Add(time.Hour))
			w.must(err)
		}

		// Also the console that makes nothing ends without an error.
		w.clock.pass(time.Hour)
		var group sync.WaitGroup
		for range 4 {
			s := w.another()
			group.Go(func() {
				if _, waiting, err := s.Calendar().Run(t.Context()); waiting || err != nil {
					t.Error(waiting, err)
				}
			})
		}
		group.Wait()

		// Version 3 is both changes, each once.
		for i := range policies {
			if p := w.current(fmt.Sprintf("p%d", i)); p.Version != 3 || p.Mode != policy.Shadow || p.Priority != 5 {
				t.Errorf("%+v", p)
			}
		}

		if n := len(w.entries(AuditQuery{Action: "policy.update"})); n != 2*policies {
			t.Errorf("%d changes in the audit log, want %d", n, 2*policies)
		}
	})
}

// TestScheduledChangeOrCancelNotBoth races the cancellation of changes with their making.
func TestScheduledChangeOrCancelNotBoth(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const rounds = 10
		made, canceled := 0, 0

		for i := range rounds {
			name := fmt.Sprintf("p%d", i)
			c := w.later(w.admin, w.create(sample(name, "a")), policy.Shadow, time.Hour)
			w.clock.pass(time.Hour)

			var group sync.WaitGroup
			group.Go(func() { w.run(w.Service) })
			var err error
			group.Go(func() { _, err = w.CancelScheduled(t.Context(), w.admin, c.ID) })
			group.Wait()

			// Exactly one of the two has won, and the one who cancels learns which.
			is := w.current(name).Mode == policy.Shadow
			if is == (err == nil) {
				t.Errorf("made: %v, canceled: %v", is, err)
			}

			if is {
				made++
				wantFault(t, "too late", err, "")
			} else {
				canceled++
			}
		}

		if made+canceled != rounds {
			t.Errorf("%d made and %d canceled", made, canceled)
		}
	})
}

// wantComing fails unless an actor sees n changes that wait, and may cancel the first or not.
func (w *world) wantComing(a Actor, n int, can bool) {
	w.t.Helper()
	list, err := w.Coming(w.t.Context(), a)
	if err != nil || len(list) != n || n > 0 && list[0].CanCancel != can {
		w.t.Errorf("%s sees %+v %v, want %d", a.User(), list, err, n)
	}
}

func TestCancelScheduled(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		owner := w.person("owner", map[string]Role{"a": Owner})
		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		other := w.person("other", map[string]Role{"b": Owner})
		c := w.later(w.admin, w.create(sample("p", "a")), policy.Shadow, time.Hour)

		// Those who see the policy know that the change exists, and others not even that.
		_, err := w.CancelScheduled(ctx, viewer, c.ID)
		wantErr(t, "a viewer", err, ErrDenied)
		_, err = w.CancelScheduled(ctx, other, c.ID)
		wantErr(t, "a stranger", err, ErrNotFound)

		for _, id := range []string{"", "x'y", strings.Repeat("a", 26)} {
			_, err = w.CancelScheduled(ctx, owner, id)
			wantErr(t, id, err, ErrNotFound)
		}

		w.wantComing(viewer, 1, false)
		w.wantComing(other, 0, false)
		w.wantComing(owner, 1, true)

		w.must(w.DeletePolicy(ctx, w.admin, "p", 1)) // it waits on, and its owner may cancel it
		w.wantComing(owner, 1, true)

		got, err := w.CancelScheduled(ctx, owner, c.ID)
		if err != nil || got.Policy != "p" {
			t.Errorf("%+v %v", got, err)
		}

		_, err = w.CancelScheduled(ctx, owner, c.ID)
		wantFault(t, "again", err, "")

		if list := w.entries(AuditQuery{Action: "policy.unschedule", Outcome: Done}); len(list) != 1 ||
			list[0].Object != "policy:p" || list[0].Actor != "owner" || !strings.Contains(list[0].Before, c.ID) {
			t.Errorf("%+v", list)
		}

		// What was canceled is not made when it would be due.
		w.clock.pass(time.Hour)
		w.run(w.Service)
		if n := len(w.entries(AuditQuery{Action: "policy.update"})); n != 0 {
			t.Errorf("%d changes were made", n)
		}
	})
}

func TestCalendarKeepsWhatIsDueWhileTheDatabaseIsAway(t *testing.T) {
	server := fragile.Server(t)
	w := newWorld(t, server.Database(t))
	w.later(w.admin, w.create(sample("p", "a")), policy.Off, time.Hour)
	w.clock.pass(time.Hour)

	// A run that fails leaves the change to the next one.
	server.Kill()
	_, _, err := w.Calendar().Run(t.Context())
	wantErr(t, "a run", err, ErrUnavailable)

	server.Restart(t)
	w.run(w.Service)
	if got := w.current("p"); got.Version != 2 || got.Mode != policy.Off {
		t.Errorf("%+v", got)
	}

	// So does a run that has no time left.
	ended, end := context.WithCancel(t.Context())
	end()
	w.later(w.admin, w.current("p"), policy.Shadow, time.Hour)
	w.clock.pass(time.Hour)
	if _, _, err := w.Calendar().Run(ended); err == nil {
		t.Error("a run without time made something")
	}

	w.run(w.Service)
	if got := w.current("p"); got.Version != 3 || got.Mode != policy.Shadow {
		t.Errorf("%+v", got)
	}
}

func TestScheduledRowsAreForgotten(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		first := w.later(w.admin, w.create(sample("p", "a")), policy.Off, time.Hour)
		w.clock.pass(time.Hour)
		w.run(w.Service)
		w.clock.pass(keptScheduled)

		// A later run deletes what was done long ago, and keeps what was done just now.
		second := w.later(w.admin, w.current("p"), policy.Shadow, time.Microsecond)
		w.clock.pass(time.Microsecond)
		w.run(w.Service)

		_, err := w.CancelScheduled(t.Context(), w.admin, first.ID)
		wantErr(t, "the first", err, ErrNotFound)
		_, err = w.CancelScheduled(t.Context(), w.admin, second.ID)
		wantFault(t, "the second", err, "")
	})
}
