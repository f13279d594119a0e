package service

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// pause pauses the current version of a policy.
func (w *world) pause(a Actor, name string, mode policy.Mode, span time.Duration) policy.Policy {
	w.t.Helper()
	p := must(w.PausePolicy(w.t.Context(), a, name, w.current(name).Version, mode, span))
	return p
}

// run ends the pauses that are due.
func (w *world) run() {
	w.t.Helper()
	w.must(w.Calendar().Run(w.t.Context()))
}

func (w *world) current(name string) policy.Policy {
	w.t.Helper()
	p := must(w.Policy(w.t.Context(), w.admin, name))
	return p
}

// edit changes a policy as the administrator.
func (w *world) edit(name string, change func(*policy.Policy)) {
	w.t.Helper()
	p := w.current(name)
	change(&p)
	must(w.UpdatePolicy(w.t.Context(), w.admin, p))
}

// published returns the version of the policies that is to be published.
func (w *world) published() int64 {
	w.t.Helper()
	version, _, _, err := w.Outbox().Pending(w.t.Context())
	w.must(err)
	return version
}

// wantPause fails unless the policy p has a pause with this reason, or none.
func (w *world) wantPause(has bool, reason string) {
	w.t.Helper()
	p, err := w.PauseOf(w.t.Context(), w.admin, "p")
	if err != nil || (p != nil) != has || has && p.Reason != reason {
		w.t.Errorf("the pause is %+v, %v, want one: %v %q", p, err, has, reason)
	}
}

func TestPauseEndsByItself(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		owner := w.person("owner", map[string]Role{"a": Owner})
		w.create(sample("p", "a"))

		// The policy is in shadow at once.
		p := w.pause(owner.Saying("for the fair"), "p", policy.Shadow, time.Hour)
		if p.Version != 2 || p.Mode != policy.Shadow || w.current("p").Mode != policy.Shadow {
			t.Errorf("%+v", p)
		}
		r, err := w.Revision(t.Context(), w.admin, "p", 2)
		if err != nil || r.Note != "until 2026-03-01 13:00 UTC, and then in force" || r.Comment != "for the fair" {
			t.Errorf("%+v %v", r, err)
		}
		want := Pause{Until: w.clock.now().Add(time.Hour), Back: policy.Enforce, By: "owner"}
		if got, err := w.PauseOf(t.Context(), w.admin, "p"); err != nil || *got != want {
			t.Errorf("%+v %v", got, err)
		}

		// An edit of other fields neither ends the pause nor is taken back by its end.
		w.edit("p", func(p *policy.Policy) { p.Limit = core.Limit{Quota: 7, Period: time.Second} })
		version := w.published()
		w.clock.pass(time.Hour - time.Microsecond)
		w.run()
		if got := w.current("p"); got.Mode != policy.Shadow || w.published() != version {
			t.Errorf("a microsecond too early: %+v", got)
		}

		w.clock.pass(time.Microsecond)
		w.run()
		w.run()
		equal(t, "the published version", w.published(), version+1)
		w.wantBack()
	})
}

// wantBack fails unless the policy p of TestPauseEndsByItself is back, once and in the name of who
// paused it.
func (w *world) wantBack() {
	w.t.Helper()
	got := w.current("p")
	if got.Mode != policy.Enforce || got.Version != 4 || got.Limit.Quota != 7 || got.UpdatedBy != "owner" {
		w.t.Errorf("%+v", got)
	}
	w.wantPause(false, "")

	list := w.entries(AuditQuery{Object: "policy:p", Action: "policy.update"})
	if len(list) != 3 || list[0].Via != "pause" || list[0].Actor != "owner" ||
		list[0].Note != "back as of 2026-03-01 13:00 UTC" {
		w.t.Errorf("%+v", list)
	}
}

// A clock that jumps over the end, or a console that was down, makes a policy go back late, and the
// history says so. A clock that jumps back makes it wait for its time again.
func TestPauseEndsLateAndSaysSo(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("p", "a"))
	w.pause(w.admin, "p", policy.Off, time.Hour)
	w.clock.pass(-5 * time.Hour)
	w.run()
	if got := w.current("p"); got.Mode != policy.Off {
		t.Errorf("%+v", got)
	}

	w.clock.pass(5*time.Hour + 3*time.Hour + 5*time.Minute)
	w.must(w.another().Calendar().Run(t.Context()))
	r, err := w.Revision(t.Context(), w.admin, "p", 3)
	want := "back as of 2026-03-01 13:00 UTC, 2h5m late, as no console was running or the database was away"
	if err != nil || r.Note != want || r.After.Mode != policy.Enforce {
		t.Errorf("%+v %v", r, err)
	}
}

// What a person does with the mode after the pause has begun is not taken back.
func TestPauseEndsWithAChangeOfTheMode(t *testing.T) {
	for name, since := range map[string]func(w *world){
		"another mode": func(w *world) { w.edit("p", func(p *policy.Policy) { p.Mode = policy.Off }) },
		"in force and in shadow again": func(w *world) {
			w.edit("p", func(p *policy.Policy) { p.Mode = policy.Enforce })
			w.edit("p", func(p *policy.Policy) { p.Mode = policy.Shadow })
		},
		"an undo": func(w *world) {
			must(w.Undo(w.t.Context(), w.admin, "p", 2))
			w.edit("p", func(p *policy.Policy) { p.Mode = policy.Off })
		},
		"deleted and restored": func(w *world) {
			w.must(w.DeletePolicy(w.t.Context(), w.admin, "p", 2))
			must(w.Rollback(w.t.Context(), w.admin, "p", 2, 3))
		},
		"another policy of the name": func(w *world) {
			w.must(w.DeletePolicy(w.t.Context(), w.admin, "p", 2))
			p := sample("p", "b")
			p.Mode = policy.Shadow
			w.create(p)
		},
		"an import": func(w *world) {
			p := sample("p", "a")
			p.Mode = policy.Off
			must(w.Import(w.t.Context(), w.admin, importOf(w.t, p)))
		},
		"canceled": func(w *world) { w.must(w.CancelPause(w.t.Context(), w.admin, "p")) },
	} {
		t.Run(name, func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				w.create(sample("p", "a"))
				w.pause(w.admin, "p", policy.Shadow, time.Hour)
				w.wantPause(true, "")
				since(w)
				w.wantPause(false, "")

				before := w.current("p")
				w.clock.pass(time.Hour)
				w.run()
				if now := w.current("p"); now.Version != before.Version || now.Mode == policy.Enforce {
					t.Errorf("%+v, and before %+v", now, before)
				}
			})
		})
	}
}

// To take back a change that ended a pause brings the pause back with its end, as one of the person
// who does so.
func TestUndoBringsAPauseBack(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"another mode": func(w *world) { w.edit("p", func(p *policy.Policy) { p.Mode = policy.Off }) },
		"an undo":      func(w *world) { must(w.Undo(w.t.Context(), w.admin, "p", 2)) },
		"a deletion":   func(w *world) { w.must(w.DeletePolicy(w.t.Context(), w.admin, "p", 2)) },
	} {
		t.Run(name, func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				w.create(sample("p", "a"))
				w.pause(w.admin, "p", policy.Shadow, time.Hour)
				until := w.clock.now().Add(time.Hour)
				w.clock.pass(10 * time.Minute)
				end(w)
				if rows := w.entries(AuditQuery{Action: "policy.unpause"}); len(rows) != 1 ||
					rows[0].Note != "ended by version 3" {
					t.Errorf("the audit log has %+v", rows)
				}

				// It goes on as if nothing had happened.
				w.clock.pass(10 * time.Minute)
				owner := w.person("owner", map[string]Role{"a": Owner})
				must(w.Undo(t.Context(), owner, "p", 3))
				got := must(w.PauseOf(t.Context(), w.admin, "p"))
				if got == nil || !got.Until.Equal(until) || got.Back != policy.Enforce || got.By != "owner" {
					t.Fatalf("%+v, want until %s", got, until)
				}
				if r := must(w.Revision(t.Context(), w.admin, "p", 4)); r.Note !=
					"of version 3, until "+minuteText(until)+", and then in force" {
					t.Errorf("the history says %q", r.Note)
				}

				w.clock.pass(40 * time.Minute)
				w.run()
				if p := w.current("p"); p.Version != 5 || p.Mode != policy.Enforce {
					t.Errorf("%+v", p)
				}
			})
		})
	}
}

// A pause whose end has passed, or that was canceled, does not come back.
func TestUndoBringsNoEndedPauseBack(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"its end has passed": func(w *world) {
			w.edit("p", func(p *policy.Policy) { p.Mode = policy.Off })
			w.clock.pass(time.Hour)
		},
		"canceled": func(w *world) {
			w.must(w.CancelPause(w.t.Context(), w.admin, "p"))
			w.edit("p", func(p *policy.Policy) { p.Mode = policy.Off })
		},
		"it had gone back": func(w *world) {
			w.clock.pass(time.Hour)
			w.run()
		},
	} {
		t.Run(name, func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				w.create(sample("p", "a"))
				w.pause(w.admin, "p", policy.Shadow, time.Hour)
				end(w)
				must(w.Undo(t.Context(), w.admin, "p", 3))
				w.wantPause(false, "")
				if p := w.current("p"); p.Mode != policy.Shadow {
					t.Errorf("%+v", p)
				}
			})
		})
	}
}

// proxied returns an actor of a user whom a proxy has signed in.
func (w *world) proxied(name string) Actor {
	w.t.Helper()
	a := must(w.AuthenticateByProxy(w.t.Context(), name, Meta{}))
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

// A policy goes back with the permissions that the one who paused it has then, or there is a reason
// why not.
func TestPauseHasThePermissionsOfItsEnd(t *testing.T) {
	const unseen, notTheirs = "x may not see the policy any more",
		"x may not change it any more: it takes the owner of every application that the policy lists"
	type step = func(w *world)

	role := func(role Role) step {
		return func(w *world) { w.must(w.SetRole(w.t.Context(), w.admin, "x", "a", role)) }
	}
	move := func(w *world) { w.edit("p", func(p *policy.Policy) { p.Apps = []string{"a", "c"} }) }
	disable := func(w *world) { w.must(w.DisableUser(w.t.Context(), w.admin, "x")) }
	demote := func(w *world) { w.must(w.Demote(w.t.Context(), w.admin, "x")) }

	owner := func(w *world) Actor { return w.person("x", map[string]Role{"a": Owner, "c": Owner}) }
	admin := func(w *world) Actor {
		x := w.person("x", nil)
		w.must(w.Promote(w.t.Context(), w.admin, "x"))
		return x
	}
	token := func(w *world) Actor { return w.token(owner(w), Write) }

	for name, c := range map[string]struct {
		author func(w *world) Actor
		since  []step
		reason string
	}{
		// The role counts that the user has at the end, whatever it was in between.
		"an owner":                        {owner, nil, ""},
		"an owner who becomes a viewer":   {owner, []step{role(Viewer)}, notTheirs},
		"an owner who leaves":             {owner, []step{role(NoRole)}, unseen},
		"an owner who leaves and returns": {owner, []step{role(NoRole), role(Owner)}, ""},
		"an owner who is disabled":        {owner, []step{disable}, "the user x is disabled"},
		"an owner with a new password": {owner, []step{func(w *world) {
			must(w.ResetPassword(w.t.Context(), w.admin, "x"))
		}}, "x has to change the password first"},
		"an owner of both applications":         {owner, []step{move}, ""},
		"an administrator":                      {admin, nil, ""},
		"an administrator who is demoted":       {admin, []step{demote}, unseen},
		"an administrator who becomes an owner": {admin, []step{demote, role(Owner)}, ""},

		// A token can do no more than its user, and no more than its scope.
		"a token whose user leaves": {token, []step{role(NoRole)}, unseen},
		"a token for one of two applications": {func(w *world) Actor { return w.token(owner(w), Write, "a") },
			[]step{move}, notTheirs},
		"a token that is revoked": {token, []step{func(w *world) {
			w.must(w.EndTokens(w.t.Context(), w.admin, "x"))
		}}, "the token by which it was paused has ended"},
		"a token that has expired": {func(w *world) Actor {
			_, secret, err := w.CreateToken(w.t.Context(), owner(w),
				TokenDraft{Label: "x", Scope: Write, Life: time.Hour})
			w.must(err)
			a := must(w.AuthenticateToken(w.t.Context(), secret, Meta{}))
			return a
		}, nil, "the token by which it was paused has ended"},

		// A second factor is asked for where a log-in would be asked for one: not from tokens,
		// proxies and providers.
		"an owner who needs a second factor": {owner, []step{(*world).requireFactors},
			"x has to set up a second factor first"},
		"a token without a second factor": {token, []step{(*world).requireFactors}, ""},
		"a user of a proxy": {func(w *world) Actor {
			owner(w)
			return w.proxied("x")
		}, []step{(*world).requireFactors}, ""},
		"a user of a provider": {func(w *world) Actor {
			s, err := w.LoginByProvider(w.t.Context(),
				oidc.Identity{Issuer: "https://idp.example", Subject: "1", User: "x"}, owner(w), Meta{})
			w.must(err)
			return w.actor(s)
		}, []step{(*world).requireFactors}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				w.create(sample("p", "a"))
				w.pause(c.author(w), "p", policy.Shadow, time.Hour)
				for _, f := range c.since {
					f(w)
				}

				before := w.current("p").Version
				w.clock.pass(time.Hour)
				w.run()
				w.must(w.another().Calendar().Run(t.Context())) // which does not try it again

				now := w.current("p")
				if c.reason != "" {
					if now.Version != before || now.Mode != policy.Shadow {
						t.Errorf("it went back: %+v", now)
					}
					w.wantUnmade(c.reason)
					return
				}
				if now.Version != before+1 || now.Mode != policy.Enforce || now.UpdatedBy != "x" {
					t.Errorf("it did not go back: %+v", now)
				}
				w.wantPause(false, "")
			})
		})
	}
}

// wantUnmade fails unless the page of p and the audit log say why it did not go back, until the
// mode is changed, the policy is paused again, or the reason is dismissed.
func (w *world) wantUnmade(why string) {
	t := w.t
	t.Helper()
	w.wantPause(true, why)

	var notes []string
	for _, e := range w.entries(AuditQuery{Object: "policy:p", Outcome: Refused}) {
		if e.Via == "pause" {
			notes = append(notes, e.Note)
		}
	}
	if want := []string{"back as of 2026-03-01 13:00 UTC: " + why}; !slices.Equal(notes, want) {
		t.Errorf("the audit log has %q, want %q", notes, want)
	}

	w.pause(w.admin, "p", policy.Off, time.Hour)
	w.wantPause(true, "")
}

func TestPauseRefusesWhatItCannotKeep(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("p", "a"))
		for _, c := range []struct {
			mode  policy.Mode
			span  time.Duration
			field string
		}{
			{policy.Enforce, time.Hour, "mode"},
			{policy.Mode(9), time.Hour, "mode"},
			{policy.Off, 0, "for"},
			{policy.Off, -time.Hour, "for"},
			{policy.Off, MaxPause + 1, "for"},
		} {
			wantFault(t, fmt.Sprint(c), errOf(w.PausePolicy(ctx, w.admin, "p", 1, c.mode, c.span)), c.field)
		}
		_, err := w.PausePolicy(ctx, w.admin, "p", 7, policy.Off, time.Hour)
		wantConflict(t, "a stale version", err, 7, 1)
		wantErr(t, "no policy", errOf(w.PausePolicy(ctx, w.admin, "none", 1, policy.Off, time.Hour)), ErrNotFound)
		if p := w.current("p"); p.Version != 1 {
			t.Errorf("%+v", p)
		}
		w.wantPause(false, "")

		// A second pause would go back to the mode of the first.
		w.pause(w.admin, "p", policy.Shadow, MaxPause)
		wantFault(t, "paused already", errOf(w.PausePolicy(ctx, w.admin, "p", 2, policy.Off, time.Hour)), "")

		w.must(w.CancelPause(ctx, w.admin, "p"))
		_, err = w.PausePolicy(ctx, w.admin, "p", 2, policy.Shadow, time.Hour)
		wantFault(t, "in shadow already", err, "mode")
	})
}

func TestCancelPause(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("p", "a"))
		w.pause(w.admin, "p", policy.Off, time.Hour)

		err := w.CancelPause(ctx, w.person("viewer", map[string]Role{"a": Viewer}), "p")
		wantErr(t, "a viewer", err, ErrDenied)
		err = w.CancelPause(ctx, w.person("other", map[string]Role{"b": Owner}), "p")
		wantErr(t, "a stranger", err, ErrNotFound)
		w.wantPause(true, "")

		version := w.published()
		owner := w.person("owner", map[string]Role{"a": Owner})
		w.must(w.CancelPause(ctx, owner, "p"))
		wantFault(t, "again", w.CancelPause(ctx, owner, "p"), "")
		w.wantPause(false, "")

		list := w.entries(AuditQuery{Action: "policy.unpause", Outcome: Done})
		want := `{"until":"2026-03-01T13:00:00.123456Z","back":"enforce","by":"admin"}`
		if len(list) != 1 || list[0].Actor != "owner" || list[0].Before != want || w.published() != version {
			t.Errorf("%+v", list)
		}
	})
}

// A pause is ended or canceled, and not both.
func TestPauseEndsOrIsCanceled(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for i := range 10 {
			name := fmt.Sprint("p", i)
			w.create(sample(name, "a"))
			w.pause(w.admin, name, policy.Shadow, time.Hour)
			w.clock.pass(time.Hour)

			var group sync.WaitGroup
			var err error
			group.Go(w.run)
			group.Go(func() { err = w.CancelPause(t.Context(), w.admin, name) })
			group.Wait()

			if back := w.current(name).Mode == policy.Enforce; back == (err == nil) {
				t.Errorf("went back: %v, canceled: %v", back, err)
			} else if back {
				wantFault(t, "too late", err, "")
			}
		}
	})
}

func TestPausesEndOnceByManyConsoles(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const policies = 12
		for i := range policies {
			w.create(sample(fmt.Sprint("p", i), "a"))
			w.pause(w.admin, fmt.Sprint("p", i), policy.Shadow, time.Hour)
		}

		// Also the console that ends nothing returns without an error.
		w.clock.pass(time.Hour)
		var group sync.WaitGroup
		for range 4 {
			s := w.another()
			group.Go(func() {
				if err := s.Calendar().Run(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()

		for i := range policies {
			if p := w.current(fmt.Sprint("p", i)); p.Version != 3 || p.Mode != policy.Enforce {
				t.Errorf("%+v", p)
			}
		}
		equal(t, "changes in the audit log", len(w.entries(AuditQuery{Action: "policy.update"})), 2*policies)
	})
}

func TestCalendarKeepsWhatIsDueWhileTheDatabaseIsAway(t *testing.T) {
	server := fragile.Server(t)
	w := newWorld(t, server.Database(t))
	w.create(sample("p", "a"))
	w.pause(w.admin, "p", policy.Off, time.Hour)
	w.clock.pass(time.Hour)

	// A run that fails leaves the pause to the next one, and so does one that has no time left.
	server.Kill()
	wantErr(t, "a run", w.Calendar().Run(t.Context()), ErrUnavailable)
	server.Restart(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := w.Calendar().Run(ended); err == nil {
		t.Error("a run without time has no error")
	}

	w.run()
	if got := w.current("p"); got.Version != 3 || got.Mode != policy.Enforce {
		t.Errorf("%+v", got)
	}
}
