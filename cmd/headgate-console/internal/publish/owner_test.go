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
		w := Start(d, p, slog.New(slog.NewTextHandler(&log, nil)))
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
		d.takeOver("9.x")
		p.set(func(p *place) { p.label = "10.y" })
		w.Wake()
		synctest.Wait()
		wantSizes(t, p)

		// Now it is about the version that is there.
		d.takeOver("10.y")
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

// own is a place with the fifth set of the database, or of a copy with its id.
func own(label string) *place {
	p := newPlace()
	p.label, p.origin = label, redissource.Origin{Database: "mine", Revision: 5}
	p.published = make(policy.Set, 5)
	return p
}

// A copy of the database that could not be told from it is one by the label that it has published.
// Neither more changes nor another console lift the refusal, and a take-over does.
func TestWorkerKeepsTheSetOfANewerCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{version: 4, published: 4, label: "4.4", labels: []string{"3.3", "4.4"}}, own("5.5")
		for range 3 {
			w := start(t, d, p)
			for range 3 {
				d.change()
				w.Wake()
				time.Sleep(time.Minute)
				synctest.Wait()
				if e := w.Status().Foreign(); e == nil || !e.Copy {
					t.Errorf("at the version %d: %+v", d.version, w.Status())
				}
			}
			w.Close()
		}
		wantSizes(t, p)

		// Though Redis is set back to a set of this database, it is not that of this one alone.
		p.set(func(p *place) { p.label, p.origin.Revision = "4.4", 4 })
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()
		if e := w.Status().Foreign(); e == nil || e.Copy || !e.Before {
			t.Errorf("Redis is set back: %+v", w.Status())
		}
		wantSizes(t, p)

		d.takeOver("4.4")
		w.Wake()
		synctest.Wait()
		wantSizes(t, p, 13)
		d.change()
		w.Wake()
		synctest.Wait()
		wantSizes(t, p, 13, 14)
	})
}

// The first look of a copy with more changes than the database replaces nothing.
func TestWorkerOfACopyThatIsAheadReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{version: 90, published: 4, label: "4.4", labels: []string{"4.4"}}, own("5.5")
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()
		wantSizes(t, p)
		if e := w.Status().Foreign(); e == nil || !e.Copy || !d.isRefused() {
			t.Errorf("%+v, stored: %v", w.Status(), d.isRefused())
		}
	})
}

// A set that was published before a crash is that of the database, though it was not noted, and so
// is an earlier one that Redis has again.
func TestWorkerKnowsItsOwnSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{version: 4, published: 4, label: "4.4", labels: []string{"3.3", "4.4"}, forgets: true}
		p := own("4.4")

		// It ends between publishing and noting it.
		d.change()
		w := start(t, d, p)
		synctest.Wait()
		wantSizes(t, p, 5)
		w.Close()

		// The next console goes on.
		d.forgets = false
		d.change()
		w = start(t, d, p)
		defer w.Close()
		synctest.Wait()
		wantSizes(t, p, 5, 6)

		// Redis has lost its last changes.
		p.set(func(p *place) { p.label, p.origin.Revision = "3.3", 3 })
		w.Wake()
		synctest.Wait()
		wantSizes(t, p, 5, 6, 6)
		if w.Status().Err != nil || d.isRefused() {
			t.Errorf("%+v, refused %v", w.Status(), d.isRefused())
		}
	})
}

// A console that had read the id before it was renewed may still publish under it.
func TestWorkerKnowsItsSetsOfTheFormerID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{version: 5, published: 4, label: "4.4", labels: []string{"5.5"}, id: "new", former: "mine"}
		p := own("5.5")
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()
		wantSizes(t, p, 5)
		if w.Status().Err != nil || p.origin.Database != "new" {
			t.Errorf("%+v of %+v", w.Status(), p.origin)
		}
	})
}

// A console that was refused because it had not seen the decision of an administrator yet leaves
// no trace.
func TestWorkerThatWasRefusedReadsAgainWhatWasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{set: named("9/1m", "mine")}, theirs()
		d.change()
		d.afterOwner = func() { d.takeOver("9.x") }
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()
		if d.isRefused() {
			t.Error("the refusal is stored after the decision")
		}
		time.Sleep(check)
		synctest.Wait()
		wantSizes(t, p, 1)
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

		// Another console of the database starts after that, and knows it too.
		p.set(func(p *place) { p.label, p.origin = "", redissource.Origin{} })
		w.Close()
		w = start(t, d, p)
		defer w.Close()
		time.Sleep(emptyFor - check)
		synctest.Wait()
		wantSizes(t, p)
		if w.Status().Foreign() == nil {
			t.Errorf("%+v", w.Status())
		}

		time.Sleep(3 * check)
		synctest.Wait()
		wantSizes(t, p, 1)
	})
}
