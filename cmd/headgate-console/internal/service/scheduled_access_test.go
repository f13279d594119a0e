package service

import (
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// move changes the applications that a policy lists.
func (w *world) move(name string, apps ...string) {
	w.t.Helper()
	p := w.current(name)
	p.Apps = apps
	_, err := w.UpdatePolicy(w.t.Context(), w.admin, p)
	w.must(err)
}

// wantShown fails unless an actor sees the one change that waits, and what it changes or not, in
// all lists and as the history shows such a revision.
func (w *world) wantShown(a Actor, c Scheduled, shown bool) {
	t, ctx := w.t, w.t.Context()
	t.Helper()

	all, err := w.Coming(ctx, a)
	w.must(err)

	waiting, _, err := w.ScheduledOf(ctx, a, c.Policy)
	w.must(err)

	for where, list := range map[string][]Scheduled{"the page of all": all, "the page of the policy": waiting} {
		if len(list) != 1 {
			t.Errorf("%s shows %s %+v, want one change", where, a.User(), list)
			continue
		}

		// Everybody who sees the policy sees that a change waits, when and whose.
		got := list[0]
		if got.ID != c.ID || got.By != c.By || !got.At.Equal(c.At) || got.Base != c.Base {
			t.Errorf("%s shows %s %+v, want %+v", where, a.User(), got, c)
		}

		// What it changes and why is for those who would see such a revision.
		if got.Hidden == shown || (got.Comment == "on the quiet") != shown ||
			(len(got.Changes) == len(c.Changes)) != shown || !shown && len(got.Changes) > 0 {
			t.Errorf("%s shows %s %+v, and is to show the content: %v", where, a.User(), got, shown)
		}
	}
}

// TestScheduledChangeHidesWhatTheHistoryHides has changes that were scheduled while the policy
// listed other applications than now, or that are to leave it with others.
func TestScheduledChangeHidesWhatTheHistoryHides(t *testing.T) {
	for _, c := range []struct {
		name          string
		base, to, now []string
		a, b          bool // the viewers of a and b see what changes
	}{
		{"nothing moves", []string{"a", "b"}, []string{"a", "b"}, []string{"a", "b"}, true, true},
		{"it was of b alone", []string{"b"}, []string{"b"}, []string{"a", "b"}, false, true},
		{"it was of a alone", []string{"a"}, []string{"a"}, []string{"a", "b"}, true, false},
		{"it is to be of b alone", []string{"a", "b"}, []string{"b"}, []string{"a", "b"}, false, true},
		{"it was of b alone, and is to be of a", []string{"b"}, []string{"a"}, []string{"a", "b"}, false, false},
		{"it was of c", []string{"c"}, []string{"c"}, []string{"a", "b"}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				p := w.create(sample("p", c.base...))
				p.Apps, p.Limit = c.to, core.Limit{Quota: 7, Period: time.Second}
				change, err := w.Schedule(t.Context(), w.admin.Saying("on the quiet"), p, w.clock.now().Add(time.Hour))
				w.must(err)
				if len(change.Changes) == 0 || change.Hidden {
					t.Fatalf("%+v", change)
				}

				w.move("p", c.now...)
				ofA, ofB := w.person("of-a", map[string]Role{"a": Owner}),
					w.person("of-b", map[string]Role{"b": Viewer})

				w.wantShown(w.admin, change, true)
				w.wantShown(ofA, change, c.a)
				w.wantShown(w.token(w.admin, Read, "a"), change, c.a)
				w.wantShown(ofB, change, c.b)
				w.wantShown(w.person("of-both", map[string]Role{"a": Viewer, "b": Viewer}), change,
					c.name != "it was of c")

				if len(change.Changes) > 1 {
					return // the history does not have such a version yet
				}

				// The same people see the revision on which it is based, or none of both.
				for _, viewer := range []struct {
					Actor
					sees bool
				}{{ofA, c.a}, {ofB, c.b}} {
					if _, err := w.Revision(t.Context(), viewer.Actor, "p", change.Base); (err == nil) != viewer.sees {
						t.Errorf("the history shows %s version %d: %v, want %v", viewer.User(), change.Base, err,
							viewer.sees)
					}
				}
			})
		})
	}
}

// A change that was not made is left out for those who may not know it, as in the history.
func TestScheduledChangeThatFailedIsHidden(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(sample("p", "b"))

		// It was scheduled while the policy was of b alone, and an edit of the same field makes it
		// fail.
		w.later(w.admin, p, policy.Off, time.Hour)
		p.Mode = policy.Shadow

		_, err := w.UpdatePolicy(ctx, w.admin, p)
		w.must(err)
		w.move("p", "a", "b")

		w.clock.pass(time.Hour)
		w.waits("it is due", 0)

		for user, want := range map[string]int{"a": 0, "b": 1} {
			_, failed, err := w.ScheduledOf(ctx, w.person("of-"+user, map[string]Role{user: Viewer}), "p")
			if err != nil || len(failed) != want {
				t.Errorf("the viewer of %s sees %+v %v, want %d", user, failed, err, want)
			}
		}
	})
}

// The owners of a policy see that a change of an earlier policy of the same name waits, and can
// cancel it to make room. They learn nothing else, and it is never made.
func TestScheduledChangeOfAnEarlierPolicy(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		ofA, ofB := w.person("of-a", map[string]Role{"a": Owner}), w.person("of-b", map[string]Role{"b": Owner})

		// Two changes of the policy of b wait when it is deleted and the name goes to a policy of
		// a.
		p := w.create(sample("p", "b"))

		first := w.later(ofB.Saying("on the quiet"), p, policy.Off, time.Hour)
		second := w.later(ofB, p, policy.Shadow, time.Hour)

		w.must(w.DeletePolicy(ctx, ofB, "p", 1))
		p, err := w.CreatePolicy(ctx, ofA, sample("p", "a"))
		w.must(err)

		for _, a := range []Actor{ofA, w.admin} {
			w.wantComing(a, 2, true)
		}
		w.wantComing(ofB, 0, false)

		_, err = w.CancelScheduled(ctx, ofB, first.ID)
		wantErr(t, "the author, who does not see the policy any more", err, ErrNotFound)

		got, err := w.CancelScheduled(ctx, ofA, first.ID)
		if err != nil || !got.Hidden || got.Comment != "" || len(got.Changes) > 0 {
			t.Errorf("the new owner learns %+v %v", got, err)
		}

		// The audit log, which the administrator reads, has the content all the same.
		if rows := w.entries(AuditQuery{Action: "policy.unschedule", Outcome: Done}); len(rows) != 1 ||
			rows[0].Before != first.text() {
			t.Errorf("the audit log has %+v, want %s", rows, first.text())
		}

		// The other change fails when it is due, as its author does not see the new policy.
		w.clock.pass(time.Hour)
		w.waits("it is due", 0)
		if now := w.current("p"); now.Version != p.Version || now.Mode != policy.Enforce {
			t.Errorf("it was made: %+v", now)
		}

		rows := w.entries(AuditQuery{Object: "policy:p", Outcome: Refused, Action: "policy.update"})
		if len(rows) != 1 || rows[0].Via != "schedule:"+second.ID ||
			rows[0].Note != "scheduled for 2026-03-01 13:00 UTC: of-b may not see the policy any more" {
			t.Errorf("the audit log has %+v", rows)
		}

		// What failed of another policy's past is not on the new one's page.
		if _, failed, err := w.ScheduledOf(ctx, ofA, "p"); err != nil || len(failed) > 0 {
			t.Errorf("the new owner sees %+v %v", failed, err)
		}
	})
}

// proxied returns an actor of a user whom a proxy has signed in.
func (w *world) proxied(name string) Actor {
	w.t.Helper()
	a, err := w.AuthenticateByProxy(w.t.Context(), name, Meta{})
	w.must(err)
	return a
}

// requireFactors has the settings require a second factor. The administrator, who has none, goes on
// behind a proxy.
func (w *world) requireFactors() {
	w.t.Helper()
	w.admin = w.proxied(FirstUser)
	w.must(w.SaveSettings(w.t.Context(), w.admin,
		Settings{SessionIdle: time.Hour, SessionLife: 11 * time.Hour, SecondFactor: ForEveryone}))
}

// TestScheduledChangeHasThePermissionsOfItsTime has who schedules a change, and what happens before
// it is due. It is made, or there is a reason why not.
func TestScheduledChangeHasThePermissionsOfItsTime(t *testing.T) {
	const unseen, notTheirs = "x may not see the policy any more",
		"x may not make it any more: it takes the owner of every application that the policy lists"

	role := func(role Role) func(w *world) {
		return func(w *world) { w.must(w.SetRole(w.t.Context(), w.admin, "x", "a", role)) }
	}

	owner := func(w *world) Actor { return w.person("x", map[string]Role{"a": Owner, "c": Owner}) }
	admin := func(w *world) Actor {
		x := w.person("x", nil)
		w.must(w.Promote(w.t.Context(), w.admin, "x"))
		return x
	}

	token := func(w *world) Actor { return w.token(owner(w), Write) }
	disable := func(w *world) { w.must(w.DisableUser(w.t.Context(), w.admin, "x")) }
	type steps []func(w *world)

	for name, c := range map[string]struct {
		author func(w *world) Actor
		since  steps
		reason string
	}{
		// The role counts that the author has when the change is due, whatever it was in between.
		"an owner":                        {owner, nil, ""},
		"an owner who becomes a viewer":   {owner, steps{role(Viewer)}, notTheirs},
		"an owner who leaves and returns": {owner, steps{role(NoRole), role(Owner)}, ""},
		"an owner who is disabled":        {owner, steps{disable}, "the user x is disabled"},
		"an owner who is disabled for a time": {owner, steps{disable, func(w *world) {
			w.must(w.EnableUser(w.t.Context(), w.admin, "x"))
		}}, ""},

		// A token can do no more than its user.
		"a token whose user leaves":      {token, steps{role(NoRole)}, unseen},
		"a token whose user is disabled": {token, steps{disable}, "the user x is disabled"},
		"a token that has expired": {func(w *world) Actor {
			_, secret, err := w.CreateToken(w.t.Context(), owner(w),
				TokenDraft{Label: "x", Scope: Write, Life: time.Hour})
			w.must(err)
			a, err := w.AuthenticateToken(w.t.Context(), secret, Meta{})
			w.must(err)
			return a
		}, nil, "the token by which it was scheduled has ended"},

		// A change is made with the rights of the token by which it was scheduled, not of its
		// user.
		"a token for one of two applications": {func(w *world) Actor {
			return w.token(owner(w), Write, "a")
		}, steps{func(w *world) { w.move("p", "a", "c") }}, notTheirs},
		"an owner of both applications": {owner, steps{func(w *world) { w.move("p", "a", "c") }}, ""},

		"an administrator": {admin, nil, ""},
		"an administrator who is demoted": {admin, steps{func(w *world) {
			w.must(w.Demote(w.t.Context(), w.admin, "x"))
		}}, unseen},
		"an administrator who becomes an owner": {admin, steps{func(w *world) {
			w.must(w.Demote(w.t.Context(), w.admin, "x"))
		}, role(Owner)}, ""},

		// A second factor is asked for where a log-in would be asked for one: not from tokens,
		// proxies and providers.
		"an owner who needs a second factor": {owner, steps{(*world).requireFactors},
			"x has to set up a second factor first"},
		"a token without a second factor": {token, steps{(*world).requireFactors}, ""},
		"a user of a proxy": {func(w *world) Actor {
			owner(w)
			return w.proxied("x")
		}, steps{(*world).requireFactors}, ""},

		// Who is signed in by a proxy never uses the password, so it need not be changed.
		"a user of a proxy with a one-time password": {func(w *world) Actor {
			_, err := w.CreateUser(w.t.Context(), w.admin, "x")
			w.must(err)
			role(Owner)(w)
			return w.proxied("x")
		}, nil, ""},
		"a user of a provider": {func(w *world) Actor {
			s, err := w.LoginByProvider(w.t.Context(),
				oidc.Identity{Issuer: "https://idp.example", Subject: "1", User: "x"}, owner(w), Meta{})
			w.must(err)
			return w.actor(s)
		}, steps{(*world).requireFactors}, ""},

		// A name alone does not make it the same policy.
		"the policy is another one of the same name": {owner, steps{
			func(w *world) { w.must(w.DeletePolicy(w.t.Context(), w.admin, "p", 1)) },
			func(w *world) { w.create(sample("p", "a")) },
		}, "the policy was deleted in the meantime"},
		"the policy was imported again": {owner, steps{
			func(w *world) { w.must(w.DeletePolicy(w.t.Context(), w.admin, "p", 1)) },
			func(w *world) {
				_, err := w.Import(w.t.Context(), w.admin, importOf(w.t, sample("p", "a")))
				w.must(err)
			},
		}, "the policy was deleted in the meantime"},
	} {
		t.Run(name, func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				p := w.create(sample("p", "a"))
				id := w.later(c.author(w), p, policy.Shadow, time.Hour).ID
				for _, f := range c.since {
					f(w)
				}

				version := w.current("p").Version
				w.clock.pass(time.Hour)
				w.waits("it is due", 0)

				now := w.current("p")
				if c.reason != "" {
					if now.Version != version {
						t.Errorf("it was made: %+v", now)
					}
					w.wantUnmade(id, c.reason)
					return
				}

				if now.Version != version+1 || now.Mode != policy.Shadow || now.UpdatedBy != "x" {
					_, failed, err := w.ScheduledOf(t.Context(), w.admin, "p")
					t.Errorf("it was not made: %+v %+v %v", now, failed, err)
				}

				if rows := w.entries(AuditQuery{Action: "policy.update", Actor: "x"}); len(rows) != 1 ||
					rows[0].Via != "schedule:"+id {
					t.Errorf("the audit log has %+v", rows)
				}
			})
		})
	}
}

// An application that is deleted takes the roles in it along, so that another one of the same name
// is not entered by a change that was scheduled before.
func TestScheduledChangeDoesNotEnterAnotherApplicationOfTheName(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", map[string]Role{"a": Owner, "c": Owner})

		// The change adds c, which is deleted and made anew before it is due.
		p := w.create(sample("p", "a"))
		p.Apps = []string{"a", "c"}
		c, err := w.Schedule(ctx, x, p, w.clock.now().Add(time.Hour))
		w.must(err)

		w.must(w.DeleteApp(ctx, w.admin, "c"))
		w.must(w.CreateApp(ctx, w.admin, "c", ""))

		w.clock.pass(time.Hour)
		w.waits("it is due", 0)

		if now := w.current("p"); now.Version != 1 {
			t.Errorf("it was made: %+v", now)
		}

		w.wantUnmade(c.ID,
			"x may not make it any more: it takes the owner of every application that the policy is to list")
	})
}
