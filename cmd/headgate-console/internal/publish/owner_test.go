package publish

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// named returns policies with one limit.
func named(limit string, names ...string) (set policy.Set) {
	for _, name := range names {
		set = append(set, policy.Policy{
			Name: name, Apps: []string{"shop"}, Limit: core.MustParseLimit(limit), Key: "ip", Version: 7,
		})
	}
	return set
}

// theirs is a place with two policies of another database.
func theirs() *place {
	p := newPlace()
	p.label, p.origin = "9.x", redissource.Origin{Database: "theirs", Revision: 3}
	p.published = named("5/1m", "login", "api")
	return p
}

func TestWorkerKeepsTheSetOfAnotherDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{set: named("9/1m", "api", "mine")}, theirs()
		var log strings.Builder
		w, err := Start(Options{Source: d, Publisher: p, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()

		// It says so before there is anything to publish, and an hour later it has said it once.
		synctest.Wait()
		if e := w.Status().Foreign(); e == nil || e.Copy || e.Published.Origin.Database != "theirs" {
			t.Errorf("an empty database: %+v", w.Status())
		}
		for range 3 {
			d.change()
			w.Wake()
			time.Sleep(20 * time.Minute)
			synctest.Wait()
		}
		wantSizes(t, p)
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "another database") {
			t.Errorf("%d lines:\n%s", n, log.String())
		}

		// What would be lost is one policy that is not here and one that is otherwise.
		lost, err := w.Takeover(t.Context())
		if err != nil || lost.Version != "9.x" || !slices.Equal(lost.Gone, []string{"login"}) ||
			!slices.Equal(lost.Changed, []string{"api"}) || lost.Keeps() {
			t.Errorf("to take over: %+v, %v", lost, err)
		}

		// The decision is about one version. They publish another one before the worker looks.
		d.mu.Lock()
		d.replaces = "9.x"
		d.mu.Unlock()
		p.set(func(p *place) { p.label = "10.y" })
		w.Wake()
		synctest.Wait()
		wantSizes(t, p)

		// Now it is about the version that is there.
		d.mu.Lock()
		d.replaces = "10.y"
		d.mu.Unlock()
		w.Wake()
		synctest.Wait()
		wantSizes(t, p, 2)
		if s := w.Status(); s.Err != nil || p.origin != (redissource.Origin{Database: "mine", Revision: 3}) {
			t.Errorf("%+v of %+v", s, p.origin)
		}
	})
}

// A set without an origin is replaced if nothing is lost with it, or if this database has
// published it itself.
func TestWorkerReplacesASetWithoutOriginThatItHas(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*database, *place)
		want   bool
	}{
		"a subset, at other versions": {func(d *database, p *place) {
			d.set = named("5/1m", "login", "api", "more")
			d.set[0].Version, d.set[0].UpdatedBy = 1, "ada"
		}, true},
		"one is otherwise": {func(d *database, p *place) {
			d.set = append(named("5/1m", "login", "more"), named("6/1m", "api")...)
		}, false},
		"one is not here":            {func(d *database, p *place) { d.set = named("5/1m", "login") }, false},
		"published by this database": {func(d *database, p *place) { d.label = p.label }, true},
		"not to be read":             {func(d *database, p *place) { p.broken = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, p := &database{}, theirs()
				p.origin = redissource.Origin{}
				d.change()
				c.change(d, p)

				w := start(t, d, p)
				defer w.Close()
				synctest.Wait()
				if e := w.Status().Foreign(); len(p.got()) == 1 != c.want || (e == nil) != c.want {
					t.Errorf("published %v, %+v", p.got(), w.Status())
				}
			})
		})
	}
}

// A copy of the database that could not be told from it is one by its revision.
func TestWorkerKeepsTheSetOfANewerCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{version: 4, published: 4, label: "4.z"}, theirs()
		p.origin = redissource.Origin{Database: "mine", Revision: 5}
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()
		if e := w.Status().Foreign(); e == nil || !e.Copy {
			t.Errorf("%+v", w.Status())
		}
		wantSizes(t, p)
	})
}

// A database that was refused does not win because Redis was emptied: the owner looks every few
// seconds, and has a minute.
func TestWorkerThatWasRefusedLeavesAnEmptyRedisToTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{}, theirs()
		d.change()
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()

		p.set(func(p *place) { p.label, p.origin = "", redissource.Origin{} })
		time.Sleep(emptyFor - DefaultCheck)
		synctest.Wait()
		wantSizes(t, p)
		if w.Status().Foreign() == nil {
			t.Errorf("%+v", w.Status())
		}

		time.Sleep(3 * DefaultCheck)
		synctest.Wait()
		wantSizes(t, p, 1)
	})
}
