package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// full is a policy with a value in every field.
func full(name string) policy.Policy {
	return policy.Policy{
		Name: name, Description: "two\nlines\tand 'quotes' \"\\ <b>😀", Apps: []string{"b", "a"},
		Limit: core.Limit{Algorithm: core.TokenBucket, Quota: 7, Period: time.Second, Burst: 9}, Key: "ip+route",
		Match:   policy.Match{Methods: []string{"GET", "POST"}, Host: "*.example.com", Path: "/v1/{id}"},
		OnLimit: "wait 500ms", OnStoreError: "closed", Mode: policy.Shadow, Priority: -3,
	}
}

func TestPolicyRoundTrip(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		want := full("p")

		// What is returned and what is read is the policy and who made it when.
		saved := w.create(want)
		want.Version, want.CreatedBy, want.UpdatedBy = 1, FirstUser, FirstUser
		want.CreatedAt, want.UpdatedAt = w.clock.now(), w.clock.now()
		if !reflect.DeepEqual(saved, want) {
			t.Errorf("stored\n%+v, want\n%+v", saved, want)
		}

		got, err := w.Policy(t.Context(), w.admin, "p")
		w.must(err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read\n%+v, want\n%+v", got, want)
		}

		// An update keeps who made it and when.
		w.clock.pass(time.Hour)
		want.Description, want.Apps = "another", []string{"c"}
		must(w.UpdatePolicy(t.Context(), w.admin, want))

		want.Version, want.UpdatedAt = 2, w.clock.now()
		if got, err = w.Policy(t.Context(), w.admin, "p"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read\n%+v, want\n%+v (%v)", got, want, err)
		}
	})
}

// A row from before bans had a text form has an object.
func TestContentHasTheBanInEitherForm(t *testing.T) {
	want := sample("p", "a")
	want.Ban = core.MustParseBan("20/1m for 10m max 24h")
	text := must(json.Marshal(want))

	const ban = `"ban":"20/1m for 10m max 24h"`
	if !strings.Contains(string(text), ban) {
		t.Fatalf("the content is %s", text)
	}

	for _, form := range []string{ban, `"ban":{"after":"20/1m","for":"10m","max":"24h"}`} {
		got, err := contentOf(strings.Replace(string(text), ban, form, 1))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", form, got, err)
		}
	}

	// Half a ban is neither form, and must not become a policy that bans for no time.
	if got, err := contentOf(strings.Replace(string(text), ban, `"ban":"20/1m"`, 1)); err == nil {
		t.Errorf("half a ban: %+v", got)
	}
}

func TestUpdatePolicyUnchangedChangesNothing(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		saved := w.create(full("p"))

		// To save what is there makes no version, publishes nothing and is not in the audit log.
		before, _, _, err := w.Outbox().Pending(t.Context())
		w.must(err)
		again := must(w.UpdatePolicy(t.Context(), w.admin, saved))
		if !reflect.DeepEqual(again, saved) {
			t.Errorf("%+v, want %+v", again, saved)
		}

		after, _, _, err := w.Outbox().Pending(t.Context())
		w.must(err)
		equal(t, "the version of the set", after, before)

		equal(t, "rows in the audit log", len(w.entries(AuditQuery{Object: "policy:p"})), 1)
	})
}

func TestPolicyErrorsNameEveryMistake(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	_, err := w.CreatePolicy(t.Context(), w.admin,
		policy.Policy{Name: "Ä", Mode: 9, Key: "?", OnLimit: "?", OnStoreError: "?"})
	for _, field := range []string{"name", "apps", "limit", "key", "mode", "on_limit", "on_store_error"} {
		wantFault(t, "nonsense", err, field)
	}
	_, err = w.CreatePolicy(t.Context(), w.admin, sample("p", "a", "nowhere"))
	wantFault(t, "an application that does not exist", err, "apps")
}

func TestConflictHasBothVersions(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		first := w.create(sample("p", "a"))

		second := first
		second.Description = "second"
		second = must(w.UpdatePolicy(ctx, w.admin, second))

		mine := first
		mine.Description = "mine"
		_, err := w.UpdatePolicy(ctx, w.admin, mine)
		c := wantConflict(t, "a stale update", err, 1, 2)
		if c.Mine.Description != "mine" || c.Theirs.Description != "second" || c.Deleted {
			t.Errorf("the conflict is %+v", c)
		}

		// Whatever else is done with the old version is the same conflict.
		wantConflict(t, "a stale deletion", w.DeletePolicy(ctx, w.admin, "p", 1), 1, 2)
		_, err = w.Rollback(ctx, w.admin, "p", 1, 1)
		wantConflict(t, "a stale rollback", err, 1, 2)

		_, err = w.CreatePolicy(ctx, w.admin, sample("p", "b"))
		wantConflict(t, "a second creation", err, 0, 2)

		// A deletion is a version, too.
		w.must(w.DeletePolicy(ctx, w.admin, "p", 2))
		_, err = w.UpdatePolicy(ctx, w.admin, second)
		if c := wantConflict(t, "an update after the deletion", err, 2, 3); !c.Deleted ||
			c.Mine.Description != "second" {
			t.Errorf("the conflict is %+v", c)
		}

		second.Version = 3
		wantErr(t, "an update of nothing", errOf(w.UpdatePolicy(ctx, w.admin, second)), ErrNotFound)

		// Versions go on where the policy of the name ended, so that no old page fits the new one.
		if again := w.create(sample("p", "a")); again.Version != 4 {
			t.Errorf("a policy created anew has version %d, want 4", again.Version)
		}
	})
}

func TestUpdatePolicyOneEditorWinsEachVersion(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const editors, rounds = 50, 3
		p := w.create(sample("p", "a"))
		services := []*Service{w.Service, w.another()}

		// Fifty editors on two consoles have read the same version.
		for round := range rounds {
			var mu sync.Mutex
			var winners []policy.Policy

			var group sync.WaitGroup
			for i := range editors {
				group.Go(func() {
					mine := p
					mine.Description = fmt.Sprintf("editor %d of round %d", i, round)

					// Who loses is shown their own text beside the winner's.
					saved, err := services[i%2].UpdatePolicy(t.Context(), w.admin, mine)
					var c *ConflictError
					switch {
					case err == nil:
						mu.Lock()
						winners = append(winners, saved)
						mu.Unlock()
					case !errors.As(err, &c):
						t.Error(err)
					case c.Mine.Description != mine.Description || c.Theirs.Version != p.Version+1:
						t.Errorf("the conflict is %+v", c)
					}
				})
			}

			group.Wait()
			if len(winners) != 1 {
				t.Fatalf("%d editors won version %d, want 1", len(winners), p.Version)
			}

			now := must(w.Policy(t.Context(), w.admin, "p"))
			if now.Description != winners[0].Description || now.Version != p.Version+1 {
				t.Fatalf("%+v is there, and %+v won", now, winners[0])
			}

			p = now
		}

		// What lost has left nothing in the audit log and in the history.
		if n := len(w.entries(AuditQuery{Action: "policy.update", Outcome: Done})); n != rounds {
			t.Errorf("%d updates in the audit log, want %d", n, rounds)
		}

		list := must(w.History(t.Context(), w.admin, "p", 0, 0))
		equal(t, "revisions", len(list), rounds+1)
	})
}

func TestUpdatePolicyWritersOfDifferentPoliciesSucceed(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const writers = 30
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				if _, err := w.CreatePolicy(t.Context(), w.admin, sample(fmt.Sprintf("p%d", i), "a")); err != nil {
					t.Error(err)
				}
			})
		}

		// Each creation makes a version of the set, and none is lost beside another.
		group.Wait()
		set, version, err := w.Outbox().Snapshot(t.Context())
		w.must(err)
		if len(set) != writers || version != writers {
			t.Errorf("%d policies in version %d, want %d in %d", len(set), version, writers, writers)
		}
	})
}

func TestChangeFailsWithoutItsAuditRow(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		saved := w.create(sample("p", "a"))

		// Without either table the change cannot be accounted for.
		for _, table := range []string{"audit", "revisions"} {
			w.sql("ALTER TABLE " + table + " RENAME TO elsewhere")
			saved.Description = "without " + table
			if _, err := w.UpdatePolicy(t.Context(), w.admin, saved); err == nil {
				t.Errorf("a policy was changed without %s", table)
			}

			if err := w.DeletePolicy(t.Context(), w.admin, "p", 1); err == nil {
				t.Errorf("a policy was deleted without %s", table)
			}

			w.sql("ALTER TABLE elsewhere RENAME TO " + table)
		}

		p, err := w.Policy(t.Context(), w.admin, "p")
		if err != nil || p.Version != 1 || p.Description != "" {
			t.Errorf("%+v %v", p, err)
		}
	})
}
