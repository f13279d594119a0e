package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/policy/redissource"
)

// takeOverNow decides over what is published, as an administrator does on the page, and lets the
// database publish.
func takeOverNow(t *testing.T, d *database, w *Worker) {
	t.Helper()
	lost, err := w.Takeover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.takeOver(lost.Version)

	// The id is renewed, and the version is raised as by every change.
	d.mu.Lock()
	d.id, d.former = "new", "mine"
	d.version++
	d.mu.Unlock()
	settle(w)
}

// twoCopies are a database and a copy of it with their workers, and each has published or tried to
// publish an override of its own, the first one before. log is that of the second worker.
type twoCopies struct {
	a, b          *database
	first, second *Worker
	log           strings.Builder
}

func newCopies(t *testing.T, p *place) *twoCopies {
	t.Helper()
	c := &twoCopies{a: &database{version: 1}}
	c.a.put("old", "1/1s")
	c.first = start(t, c.a, p)
	settle(c.first)

	// The copy has nothing to publish yet.
	c.b = c.a.copied()
	c.second = Start(c.b, p, slog.New(slog.NewTextHandler(&c.log, nil)))
	settle(c.second)
	if c.second.Status().Err != nil {
		t.Error(c.second.Status().Err)
	}

	c.a.put("a", "2/1s")
	settle(c.first)
	c.b.put("b", "3/1s")
	settle(c.second)
	return c
}

func (c *twoCopies) close() {
	c.first.Close()
	c.second.Close()
}

// Two copies of a database do not publish over each other, though their policies are the same. One
// of them is refused, and says so once.
func TestWorkerKeepsTheOverridesOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		c := newCopies(t, p)
		defer c.close()

		// Each looks again and again.
		const want = "map[a:2/1s old:1/1s]"
		for range 3 {
			settle(c.first)
			settle(c.second)
			if got := p.all(); got != want {
				t.Fatalf("published are %s, want %s", got, want)
			}
		}

		e := c.second.Status().Foreign()
		if c.first.Status().Err != nil || e == nil || !e.Overrides || !e.Copy || !c.b.isRefused() || p.resets != 1 {
			t.Errorf("%+v and %+v, %d resets", c.first.Status(), c.second.Status(), p.resets)
		}
		if n := strings.Count(c.log.String(), "\n"); n != 1 || !strings.Contains(c.log.String(), e.Reason()) {
			t.Errorf("%d lines:\n%s", n, c.log.String())
		}
	})
}

// The decision to take over from a copy is about the overrides that were seen, and about no others.
func TestTakeoverOfACopyIsAboutWhatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		c := newCopies(t, p)
		defer c.close()
		lost, err := c.second.Takeover(t.Context())
		if err != nil || lost.Overrides != (Fate{Stay: 1, Gone: 1}) || lost.Keeps() {
			t.Fatalf("%+v, %v", lost, err)
		}

		// The other one publishes again before the worker looks.
		c.a.put("c", "4/1s")
		settle(c.first)
		c.b.takeOver(lost.Version)
		settle(c.second)
		if c.second.Status().Foreign() == nil || p.all() != "map[a:2/1s c:4/1s old:1/1s]" {
			t.Errorf("a decision about another version: %+v, %s", c.second.Status(), p.all())
		}

		takeOverNow(t, c.b, c.second)
		settle(c.first)
		if c.second.Status().Err != nil || c.first.Status().Foreign() == nil || p.all() != "map[b:3/1s old:1/1s]" {
			t.Errorf("it has taken over: %v, %v, %s", c.second.Status().Err, c.first.Status().Err, p.all())
		}
	})
}

// Two copies that publish at the same time: the set of one of them stays.
func TestWorkersOfTwoCopiesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := &database{version: 1}, newPlace()
		a.put("old", "1/1s")
		first := start(t, a, p)
		settle(first)
		first.Close()
		b := a.copied()

		// Both have a change when they start.
		a.put("a", "2/1s")
		b.put("b", "3/1s")
		first, second := start(t, a, p), start(t, b, p)
		defer first.Close()
		defer second.Close()
		time.Sleep(time.Hour)
		synctest.Wait()

		one, two := first.Status().Foreign(), second.Status().Foreign()
		if (one == nil) == (two == nil) || p.resets != 1 || len(p.batches) != 2 {
			t.Errorf("%v and %v, %s, %d resets, batches of %v", one, two, p.all(), p.resets, p.batches)
		}
	})
}

// A restored backup does not lift what was imposed since, also if it has changes of its own.
func TestWorkerOfABackupKeepsLaterOverrides(t *testing.T) {
	for name, own := range map[string]string{"no change": "", "a change of its own": "3/1s"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, p := &database{version: 1}, newPlace()
				d.put("old", "1/1s")
				w := start(t, d, p)
				settle(w)
				backup := d.copied()
				d.put("since", "2/1s")
				settle(w)
				w.Close()

				// A restart changes nothing.
				if own != "" {
					backup.put("own", own)
				}
				for range 2 {
					w = start(t, backup, p)
					settle(w)
					e := w.Status().Foreign()
					if p.all() != "map[old:1/1s since:2/1s]" || e == nil || !e.Overrides || !e.Copy {
						t.Errorf("%s is published, %+v", p.all(), w.Status())
					}
					w.Close()
				}
			})
		})
	}
}

// Overrides of another database stay also where no policies are published any more.
func TestWorkerKeepsTheOverridesOfAnotherDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{version: 1}, newPlace()
		p.is = redissource.Published{Version: "9.o", Origin: redissource.Origin{Database: "theirs", Revision: 9}}
		p.texts = map[string]string{"x": "9/1s"}
		d.put("a", "1/1s")
		w := start(t, d, p)
		defer w.Close()
		settle(w)

		e := w.Status().Foreign()
		if e == nil || !e.Overrides || e.Copy || p.all() != "map[x:9/1s]" || len(p.got()) != 0 {
			t.Errorf("%+v, %s", w.Status(), p.all())
		}

		takeOverNow(t, d, w)
		if w.Status().Err != nil || p.all() != "map[a:1/1s]" {
			t.Errorf("%+v, %s", w.Status(), p.all())
		}
	})
}

// The numbers of a take-over are those of what is in force, and each key counts once.
func TestTakeoverCountsOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year, ended = "banned until 2126-12-04T17:00:00Z", "banned until 1999-12-04T17:00:00Z"
		d, p := &database{}, theirs()
		d.set = named("5/1m", "api", "login")
		p.is = redissource.Published{Version: "9.o", Origin: redissource.Origin{Database: "theirs", Revision: 9}}
		p.texts = map[string]string{
			"same": "1/1s", "otherwise": "2/1s", "gone": "3/1s", "not to be read": "?",
			"ban": year, "ban gone": year, "longer": year, "ban lifted": year,
			"ended": ended, "ended too": "1/1s until 1999-12-04T17:00:00Z",
		}
		for key, text := range map[string]string{"same": "1/1s", "otherwise": "3/1s", "ban": year,
			"longer": "banned until 2127-12-04T17:00:00Z", "ban lifted": "7/1s", "mine": "1/1s"} {
			d.put(key, text)
		}

		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()

		wants := func(what string, want Takeover) {
			t.Helper()
			want.Version = "9.x 9.o"
			got, err := w.Takeover(t.Context())
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
			}
		}

		counted := Takeover{Bans: Fate{1, 1, 2}, Overrides: Fate{1, 1, 2}}
		wants("all", counted)
		if counted.Keeps() || !(Takeover{Bans: Fate{Stay: 1}}).Keeps() || (Takeover{Uncounted: true}).Keeps() {
			t.Error("what is lost, or kept")
		}

		// Half of a set is published, and those of a program stay.
		p.filling = true
		wants("filling", Takeover{Uncounted: true})
		p.filling, d.texts = false, errAway
		if _, err := w.Takeover(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("the database is away: %v", err)
		}
		p.is.Origin = redissource.Origin{}
		wants("a program's", Takeover{})

		// A page that is left ends it.
		p.is.Origin.Database, d.texts = "theirs", nil
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Takeover(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a page that is left: %v", err)
		}
	})
}
