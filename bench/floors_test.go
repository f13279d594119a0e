package main

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/store/memstore"
)

func TestFloorsPassTheExam(t *testing.T) {
	floors := slices.Clone(memoryFloors)
	for i := range algorithms {
		if a := &algorithms[i]; listFloors[a.name] != nil {
			floors = append(floors, a.floorPeer(1))
		}
	}
	for _, peer := range floors {
		if err := peer.examine(); err != nil {
			t.Errorf("memory, %s: %v", peer.name, err)
		}
	}

	// Each framework has its own.
	for contest, peers := range httpFloors {
		for _, peer := range peers {
			if err := peer.examine(); err != nil {
				t.Errorf("%s, %s: %v", contest, peer.name, err)
			}
		}
	}
}

// whole returns the status, the headers and the body of the answer to the first client.
func whole(t *testing.T, s service) string {
	var lines []string
	note := func(name, value string) { lines = append(lines, name+": "+value) }

	switch s := s.(type) {
	case netService:
		r, w := httptest.NewRequest("GET", "http://localhost/", nil), httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		for name, values := range w.Header() {
			for _, value := range values { // headgate leaves an entry without values, which is not sent
				note(name, value)
			}
		}
		note("", fmt.Sprintf("%d %s", w.Code, w.Body))

	case fastService:
		var c fasthttp.RequestCtx
		c.Init(new(fasthttp.Request), nil, nil)
		c.Request.SetRequestURI("/")
		s.handler(&c)
		c.Response.Header.VisitAll(func(name, value []byte) { note(string(name), string(value)) })
		note("", fmt.Sprintf("%d %s", c.Response.StatusCode(), c.Response.Body()))

	default:
		t.Fatalf("%T", s)
	}

	// A map has no order, and neither has a header.
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A floor answers as its row does: until the units are used up, after that, and when one is there
// again.
func TestFloorsAnswerAsTheirRows(t *testing.T) {
	for id, floors := range httpFloors {
		for _, floor := range floors {
			rows := contestOf(id).peers
			i := slices.IndexFunc(rows, func(peer httpPeer) bool { return floorOf(peer.name) == floor.name })
			if i < 0 {
				t.Errorf("%s has no row of %s", id, floor.name)
				continue
			}

			// The clock of a bubble stands still, so both see the same instants.
			for _, q := range []quota{exam, wide, narrow} {
				synctest.Test(t, func(t *testing.T) {
					row, err := rows[i].open(q)
					if err != nil {
						t.Fatal(err)
					}
					same, err := floor.open(q)
					if err != nil {
						t.Fatal(err)
					}

					// Time goes by when the units are used up.
					for n := range 12 {
						if want, got := whole(t, row), whole(t, same); got != want {
							t.Fatalf("%s, %s, answer %d:\n%s\nwant\n%s", id, floor.name, n, got, want)
						}
						if n >= 5 {
							time.Sleep(q.period/time.Duration(2*q.units) + 300*time.Millisecond)
						}
					}
				})
			}
		}
	}
}

// Each key has its units, whatever its text is, and one more each time that a unit comes back.
func TestFloorIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(exam)
		keys := []string{"", "a", strings.Repeat("k", 20), strings.Repeat("k", 21), strings.Repeat("k", 2000)}
		for _, key := range append(keys, "late") {
			for i := range places {
				if key == "late" { // no place is left for it
					f.take(fmt.Sprint("other", i))
				}
			}
			for i := range exam.burst + 2 {
				if v := f.take(key); v.ok != (i < exam.burst) {
					t.Errorf("%.30q: request %d: %t", key, i, v.ok)
				}
			}
		}

		// A unit takes a third of the period to come back.
		time.Sleep(exam.period/3 - 1)
		for _, key := range keys {
			if f.take(key).ok {
				t.Errorf("%.30q has a unit too early", key)
			}
		}

		time.Sleep(time.Nanosecond)
		for _, key := range keys {
			if !f.take(key).ok || f.take(key).ok {
				t.Errorf("%.30q has not exactly one unit more", key)
			}
		}
	})
}

// What the second floor refuses costs the first nothing.
func TestFloorOfTwoTakesBothOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := newFloor(exam), newFloor(narrow)
		for i, want := range []bool{true, false, false, false} {
			if got := f.takeWith("a", g, "b"); got != want {
				t.Errorf("request %d: %t", i, got)
			}
		}

		// The first has two units left.
		for i, want := range []bool{true, true, false} {
			if got := f.take("a").ok; got != want {
				t.Errorf("request %d of the first alone: %t", i, got)
			}
		}

		// And the other way round.
		if f.takeWith("a", g, "c") || !g.take("c").ok {
			t.Error("what the first refuses has cost the second")
		}
	})
}

// Many who ask for one key at once get as many units as there are.
func TestFloorsShareKeys(t *testing.T) {
	q := quota{units: 1, period: time.Hour, burst: 2_000_000}
	for _, peer := range memoryFloors {
		worker, err := peer.open(q)
		if err != nil {
			t.Fatal(err)
		}

		var admitted atomic.Int64
		var group sync.WaitGroup
		for range 8 {
			take := worker()
			group.Go(func() {
				for range 500_000 {
					if take("a") {
						admitted.Add(1)
					}
				}
			})
		}
		group.Wait()

		if n := admitted.Load(); n != int64(q.burst) {
			t.Errorf("%s: %d units, want %d", peer.name, n, q.burst)
		}
	}
}

// The floor of a row is compared with the same rival, without what they have in common.
func TestGoalsHaveAColumnOfFloors(t *testing.T) {
	defer func(b []bound) { bounds = b }(bounds)
	open := func(costs ...float64) func(pace) ([]contender, func(), error) {
		return func(p pace) (list []contender, stop func(), err error) {
			for _, c := range costs {
				list = append(list, contender{"", counting(slices.Repeat([]float64{c}, attempts*p.rounds)...)})
			}
			return list, func() {}, nil
		}
	}
	bounds = []bound{
		{name: "in memory", aim: floored(1, 2), open: open(15, 10, 5)},
		{name: "over HTTP", aim: floored(1, 2), open: open(25, 20, 10, 13)},
		{name: "without", aim: missed(1, 2), open: open(15, 10)},
	}

	// The first two rows have floors of 5 to 10, and of 3 to 10 above what is common.
	tables, err := goalsSection(quick)
	if err != nil {
		t.Fatal(err)
	}

	var page strings.Builder
	if err := writeMarkdown(&page, tables); err != nil {
		t.Fatal(err)
	}
	want := "| | measured | floor | goal | guard |\n|---|---:|---:|---:|---:|\n" +
		"| in memory | 1.50 | 0.50 | 1 | 2 |\n| over HTTP | 1.50 | 0.30 | 1 | 2 |\n| without | 1.50 | – | 1 | 2 |\n\n" +
		floorsNote + "\n\n"
	if !strings.HasSuffix(page.String(), want) {
		t.Errorf("%s", &page)
	}

	// So does the guard print them.
	var out strings.Builder
	if err := guard(&out); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "ok    in memory: 1.50, at most 2.00, goal 1.00, floor 0.50\n") ||
		!strings.Contains(out.String(), "ok    without: 1.50, at most 2.00, goal 1.00\n") {
		t.Errorf("%s", &out)
	}
}

// The floors of lists admit what headgate's store admits, at every instant.
func TestListFloorsDecideAsTheirRows(t *testing.T) {
	for i := range algorithms {
		a := &algorithms[i]
		open := listFloors[a.name]
		if open == nil {
			continue
		}
		l, _, err := a.limitFor(1000)
		if err != nil {
			t.Fatal(err)
		}

		now := time.Now().UnixMicro()
		clock := func() int64 { return now }
		s, err := memstore.New(memstore.Options{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}

		// Ten keys are asked for about a third more than they have, and lie idle for longer than a
		// period at times.
		r, takes, admitted := rand.New(rand.NewPCG(1, 2)), 200_000, 0
		row, floor := takeOf(s, l, "api"), open(l, clock)
		for n := range takes {
			key := fmt.Sprint(r.IntN(10))
			want := row(key)
			if got := floor(key); got != want {
				t.Fatalf("%s, take %d: %t, want %t", a.name, n, got, want)
			}
			if want {
				admitted++
			}

			now += r.Int64N(77)
			if r.IntN(10_000) == 0 {
				now += 2 * l.Period.Microseconds()
			}
		}
		if admitted < takes/4 || admitted > takes*3/4 {
			t.Errorf("%s: %d of %d takes were admitted", a.name, admitted, takes)
		}
	}
}
