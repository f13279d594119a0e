package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/redisstore"
)

// byUser creates a policy that counts by users.
func (d desk) byUser(name string) {
	d.t.Helper()
	_, err := d.Service.CreatePolicy(d.t.Context(), d.actor, policy.Policy{Name: name, Apps: []string{"shop"},
		Limit: core.MustParseLimit("5/1m"), Key: "user"})
	d.must(err)
}

// override sets the override of a key under the policy p, or removes it with the limit "".
func (d desk) override(key, limit string) {
	d.t.Helper()
	_, err := d.Service.SetOverride(d.t.Context(), d.actor, "p", service.OverrideChange{Key: key, Limit: limit})
	d.must(err)
}

// overrides returns those of p in Redis.
func (d desk) overrides() string {
	texts := map[string]string{}
	err := d.Instances.ReadOverrides(d.t.Context(), "p", func(list []policy.OverrideChange) {
		for _, c := range list {
			texts[c.Key] = c.Text
		}
	})
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		list = append(list, key+"="+texts[key])
	}
	return strings.Join(list, " ")
}

// has waits until Redis has the overrides of p, and all of them are noted.
func (d desk) has(want string) {
	d.t.Helper()
	until(d.t, "overrides "+want, func() bool {
		p, err := d.Service.Publishing(d.t.Context(), d.actor)
		return err == nil && !p.Overrides && d.overrides() == want
	})
}

// What is published follows each change, also after Redis has lost it, after a console has ended
// before it had published, and after the policy was deleted and restored.
func TestOverridesArePublished(t *testing.T) {
	everyEngine(t, func(t *testing.T, db, _ string) {
		server := redistest.Start(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer client.Close()
		d := atDesk(t, server.Addr, db)
		d.byUser("p")
		d.override("a", "1/1m")
		d.override("acme:*", "2/1m")
		d.override("b", "3/1m")
		d.override("b", "")
		d.has("a=1/1m acme:*=2/1m")

		// Redis loses all of them.
		d.must(client.FlushAll(t.Context()).Err())
		d.wake()
		d.has("a=1/1m acme:*=2/1m")

		// A console without Redis commits, as one that ends before it has published.
		d.must(d.Close())
		away := atDesk(t, "", db)
		away.override("a", "")
		away.override("c", "4/1m")
		away.must(away.Close())
		d = atDesk(t, server.Addr, db)
		d.has("acme:*=2/1m c=4/1m")

		// No key is left of a policy that is deleted, and one that is restored has what it had.
		d.must(d.Service.DeletePolicy(t.Context(), d.actor, "p", 1))
		d.has("")
		key := redissource.DefaultPrefix + "{policies}:overrides:of:p"
		if n, err := client.Exists(t.Context(), key).Result(); n != 0 || err != nil {
			t.Errorf("%d keys of the deleted policy, %v", n, err)
		}
		_, err := d.Service.Rollback(t.Context(), d.actor, "p", 1, 2)
		d.must(err)
		d.has("acme:*=2/1m c=4/1m")
	})
}

// The database that has taken over has its overrides published in place of those of the other, and
// the other one does not change them.
func TestOverridesOfTwoDatabases(t *testing.T) {
	everyEngine(t, func(t *testing.T, one, two string) {
		server := redistest.Start(t)
		first, second := atDesk(t, server.Addr, one), atDesk(t, server.Addr, two)
		first.byUser("p")
		first.override("a", "1/1m")
		first.has("a=1/1m")
		second.byUser("p")
		second.override("b", "2/1m")
		second.refused()
		if got := first.overrides(); got != "a=1/1m" {
			t.Errorf("before the take-over: %s", got)
		}

		lost, err := second.Publisher.Takeover(t.Context())
		second.must(err)
		second.must(second.Service.TakeOver(t.Context(), second.actor, lost.Version, ""))
		second.has("b=2/1m")
		first.refused()
		first.override("a", "3/1m")
		first.refused()
		second.has("b=2/1m")
	})
}

// A restored backup lifts no override that came after it: it asks, also if no policy was changed
// since, and says how many go.
func TestOverridesOfABackup(t *testing.T) {
	everyEngine(t, func(t *testing.T, db, _ string) {
		server := redistest.Start(t)
		file := filepath.Join(t.TempDir(), "backup")
		d := atDesk(t, server.Addr, db)
		d.byUser("p")
		d.override("a", "1/1m")
		d.has("a=1/1m")
		d.must(store.Backup(t.Context(), db, file))
		d.override("b", "2/1m")
		d.has("a=1/1m b=2/1m")
		d.must(d.Close())
		d.must(store.Restore(t.Context(), db, file, true))

		d = atDesk(t, server.Addr, db)
		if e := d.refused(); !e.Overrides || !e.Copy || !strings.Contains(d.Unpublished(), e.Reason()) {
			t.Errorf("%+v, %q", e, d.Unpublished())
		}
		d.override("c", "3/1m")
		begun := time.Now()
		d.wake()
		until(t, "a look", func() bool { return d.Publisher.Status().At.After(begun) })
		p, err := d.Service.Publishing(t.Context(), d.actor)
		d.must(err)
		if got := d.overrides(); got != "a=1/1m b=2/1m" || !p.Overrides {
			t.Errorf("%s is published, %+v", got, p)
		}

		d.takesOverFrom(publish.Fate{Stay: 1, Gone: 1})
		d.has("a=1/1m c=3/1m")
	})
}

// takesOverFrom has the console take over from what is published, of which overrides have a fate.
func (d desk) takesOverFrom(want publish.Fate) {
	d.t.Helper()
	lost, err := d.Publisher.Takeover(d.t.Context())
	if err != nil || lost.Overrides != want || len(lost.Gone)+len(lost.Changed) != 0 {
		d.t.Errorf("%+v, %v, want %+v", lost, err, want)
	}
	d.must(d.Service.TakeOver(d.t.Context(), d.actor, lost.Version, ""))
}

// Two copies of a database at the same path of two hosts have one id. The overrides in Redis are
// those of the first that publishes, and the other one says so.
func TestOverridesOfTwoCopies(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	here, there := filepath.Join(dir, "here.db"), filepath.Join(dir, "there.db")
	first := atDesk(t, server.Addr, "sqlite://"+here)
	first.byUser("p")
	first.override("old", "1/1m")
	first.has("old=1/1m")
	first.must(first.Close())

	// A file that was moved is known by itself, and the copy by its path.
	data, err := os.ReadFile(here)
	first.must(err)
	first.must(os.Rename(here, there))
	first.must(os.WriteFile(here, data, 0o600))
	first, second := atDesk(t, server.Addr, "sqlite://"+there), atDesk(t, server.Addr, "sqlite://"+here)

	first.override("a", "2/1m")
	first.has("a=2/1m old=1/1m")
	second.override("b", "3/1m")
	if e := second.refused(); !e.Overrides || !e.Copy {
		t.Errorf("%+v", e)
	}
	for range 2 {
		begun := time.Now()
		first.wake()
		second.wake()
		until(t, "a look of both", func() bool {
			return first.Publisher.Status().At.After(begun) && second.Publisher.Status().At.After(begun)
		})
		if got := first.overrides(); got != "a=2/1m old=1/1m" || first.Unpublished() != "" {
			t.Errorf("%s is published, and the first console says %q", got, first.Unpublished())
		}
	}

	second.takesOverFrom(publish.Fate{Stay: 1, Gone: 1})
	second.has("b=3/1m old=1/1m")
	first.refused()
}

// changes is how many single changes two consoles make.
const changes = 10_000

// Two consoles on one database change overrides one at a time, and Redis is emptied in between.
// Nothing is lost.
func TestManyOverridesOfTwoConsoles(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	db := "sqlite://" + filepath.Join(test.MemoryDir(t), "console.db")
	first := atDesk(t, server.Addr, db)
	first.byUser("p")
	second := atDesk(t, server.Addr, db)

	// Each has keys of its own, so that the last change of each is known. A third are removals.
	want := make([]map[string]string, 2)
	var both sync.WaitGroup
	for c, d := range []desk{first, second} {
		texts := map[string]string{}
		want[c] = texts
		both.Go(func() {
			for i := range changes / 2 {
				change := service.OverrideChange{Key: fmt.Sprintf("%d-%d", c, i%2000)}
				change.Limit = fmt.Sprintf("%d/1m", 1+i%7)
				if i%3 == 2 {
					change.Limit = ""
				}
				if texts[change.Key] = change.Limit; change.Limit == "" {
					delete(texts, change.Key)
				}
				if _, err := d.Service.SetOverride(t.Context(), d.actor, "p", change); err != nil {
					t.Error(err)
					return
				}
				if c == 0 && i == changes/4 {
					if err := client.FlushAll(t.Context()).Err(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	both.Wait()

	var list []string
	for _, texts := range want {
		for key, text := range texts {
			list = append(list, key+"="+text)
		}
	}
	slices.SortFunc(list, func(a, b string) int {
		keyA, _, _ := strings.Cut(a, "=")
		keyB, _, _ := strings.Cut(b, "=")
		return strings.Compare(keyA, keyB)
	})
	first.has(strings.Join(list, " "))
}

// More overrides than go at once are published in batches, and instances never see a part of them.
func TestOverridesAreWholeForInstances(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	d := atDesk(t, server.Addr, "sqlite://"+filepath.Join(test.MemoryDir(t), "console.db"))

	// The keys are in the order in which Redis is asked for them.
	d.byUser("p")
	var want []string
	for part := range 3 {
		var list []service.OverrideChange
		for i := range 900 {
			key := fmt.Sprintf("%04d", part*900+i)
			list = append(list, service.OverrideChange{Key: key, Limit: "7/1m"})
			want = append(want, key+"=7/1m")
		}
		_, err := d.Service.ChangeOverrides(t.Context(), d.actor, "p", list)
		d.must(err)
	}
	d.has(strings.Join(want, " "))

	// A version that instances read names all of them.
	source, err := redissource.New(client, redissource.Options{})
	d.must(err)
	d.must(client.FlushAll(t.Context()).Err())
	d.wake()
	until(t, "a version", func() bool {
		c, err := source.OverrideChanges(context.Background(), "")
		return err == nil && c.Version != ""
	})
	if got := len(strings.Fields(d.overrides())); got != len(want) {
		t.Errorf("%d overrides are of the first version, want %d", got, len(want))
	}
}

// follow follows the published policies of shop as an instance does, whose callers have the plan
// "pro" if their key begins with "pro".
func (d desk) follow() *limiter.Limiter {
	d.t.Helper()
	store, err := redisstore.New(d.Redis, redisstore.Options{Timeout: 10 * time.Second})
	d.must(err)
	l, err := limiter.New(limiter.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	d.must(err)
	d.t.Cleanup(func() { l.Close() })

	// Which plan a key has only the instance knows.
	f, err := policy.Follow(d.t.Context(), l, "shop", policy.Bindings{
		User: keyfuncs.UserID(func(context.Context) (string, bool) { return "", false }),
		Plans: map[string]policy.PlanFunc{"claim": func(_ context.Context, key string) (string, error) {
			if strings.HasPrefix(key, "pro") {
				return "pro", nil
			}
			return "", nil
		}},
	}, d.Instances, policy.Options{Poll: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	d.must(err)
	d.t.Cleanup(func() { f.Close() })
	return l
}

// The console looks a key up, debits it and grants it units with the limit that instances have for
// it, whatever gives it that limit.
func TestConsoleHasTheLimitsOfInstances(t *testing.T) {
	server := redistest.Start(t)
	d := atDesk(t, server.Addr, "sqlite://"+filepath.Join(test.MemoryDir(t), "console.db"))
	_, err := d.Service.CreatePolicy(t.Context(), d.actor, policy.Policy{Name: "p", Apps: []string{"shop"}, Key: "user",
		Limit: core.MustParseLimit("10/1h debt=1"), PlanBy: "claim",
		Plans: map[string]core.Limit{"pro": core.MustParseLimit("500/1h")},
		Overrides: map[string]policy.Override{"own": {Limit: core.MustParseLimit("20/1h debt=2")},
			"acme:own": {Limit: core.MustParseLimit("30/1h debt=3")}}})
	d.must(err)

	// Some come before what is in the policy, and others do not.
	ends := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []service.OverrideChange{
		{Key: "acme:*", Limit: "40/1h debt=4"}, {Key: "own", Limit: "70/1h debt=7"},
		{Key: "acme:b*", Limit: "50/1h debt=5", Until: ends}, {Key: "pro:x", Limit: "60/1h debt=6"}} {
		_, err := d.Service.SetOverride(t.Context(), d.actor, "p", c)
		d.must(err)
	}
	until(t, "all is published", func() bool { return !d.pending() && len(strings.Fields(d.overrides())) >= 4 })

	l := d.follow()
	for key, want := range map[string]string{"other": "10/1h debt=1", "own": "70/1h debt=7", "acme:own": "30/1h debt=3",
		"acme:c": "40/1h debt=4", "acme:bob": "50/1h debt=5", "pro:x": "60/1h debt=6", "pro:y": "500/1h"} {
		// What an instance does is what the console has to say.
		in, err := l.Peek(t.Context(), key)
		d.must(err)
		if in[0].Limit.String() != want {
			t.Fatalf("an instance has %s for %s, want %s", in[0].Limit, key, want)
		}
		if key == "pro:y" {
			continue // which plan a key has only the instance knows
		}

		// A look-up.
		peeked, err := d.Service.LookUp(t.Context(), d.actor, "p", key)
		d.must(err)
		seen := peeked.Policy.LimitOf(key, time.Now()).String()
		if seen != want || peeked.Remaining != in[0].Decision.Remaining {
			t.Errorf("%s: %s of which %d remain, want %s and %d", key, seen, peeked.Remaining, want,
				in[0].Decision.Remaining)
		}
		if key == "other" {
			continue // nor how many units fit into it
		}

		// A debit of all units and the debt is taken whole, and a unit more is not.
		most := in[0].Limit.Capacity() + in[0].Limit.MaxDebt()
		debit := func(units int64) (int64, error) {
			return d.Service.DebitKey(t.Context(), d.actor, "p", key, units)
		}
		if _, err := debit(most + 1); err == nil {
			t.Errorf("%s: %d units were charged", key, most+1)
		}
		if n, err := debit(most); err != nil || n != most {
			t.Errorf("%s: %d of %d units were charged, %v", key, n, most, err)
		}

		d.must(d.Service.GrantKey(t.Context(), d.actor, "p", key, 5, time.Now().Add(time.Minute)))
		if in, err = l.Peek(t.Context(), key); err != nil || in[0].Decision.Remaining != 5 {
			t.Errorf("%s: after a debit and a grant %d remain, %v, want 5", key, in[0].Decision.Remaining, err)
		}
	}
}
