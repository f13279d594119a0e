package migration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/labstack/echo/v4/middleware"
	"github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// migration is a row of docs/peers.md: a peer's setting, the limit that stands
// for it, and what both admit.
type migration struct{ peer, setting, limit, atOnce, hammered, same string }

// TestMigration runs each row of docs/peers.md on the peer and on headgate.
func TestMigration(t *testing.T) {
	// Each row is tried, and none is missing for a setting that the peers have.
	rows, tried := readMigrations(t), map[string]bool{}
	for _, row := range rows {
		t.Run(row.peer+" "+row.setting+" is "+row.limit, func(t *testing.T) {
			tried[row.peer+row.setting] = true

			peer := peers[row.peer][row.setting]
			if peer == nil {
				t.Fatal("the peer is not in the table of peers")
			}

			// The failure prints the row that the page should have.
			if got := measure(t, peer, row); got != row {
				const line = "| `%s` | `%s` | %s | %s | %s |"
				t.Errorf("the row in docs/peers.md should be\n"+line+"\nand is\n"+line,
					got.setting, got.limit, got.atOnce, got.hammered, got.same,
					row.setting, row.limit, row.atOnce, row.hammered, row.same)
			}
		})
	}

	for library, settings := range peers {
		for setting := range settings {
			if !tried[library+setting] {
				t.Errorf("docs/peers.md has no row for %s: %s", library, setting)
			}
		}
	}
}

// The settings of docs/migrating.md are among the rows, with the same limits.
func TestSettingsAreAmongTheRows(t *testing.T) {
	limits := map[string][]string{}
	for _, row := range readMigrations(t) {
		limits[row.setting] = append(limits[row.setting], row.limit)
	}

	text, err := os.ReadFile("../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Settings\n")
	table, _, _ = strings.Cut(table, "\n## ")

	// Behind the code of a setting the name of its library may follow.
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)`[^|]*\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	if len(rows) < 10 {
		t.Errorf("docs/migrating.md has %d settings", len(rows))
	}
	for _, row := range rows {
		if setting, limit := row[1], row[2]; !slices.Contains(limits[setting], limit) {
			t.Errorf("%s: the limit is %s, and docs/peers.md has %q", setting, limit, limits[setting])
		}
	}
}

// readMigrations returns the rows with five cells, of which the first two are code.
func readMigrations(t *testing.T) (rows []migration) {
	t.Helper()
	text, err := os.ReadFile("../../docs/peers.md")
	if err != nil {
		t.Fatal(err)
	}

	library := ""
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			library = strings.TrimSpace(heading)
		}

		// Other tables of the page have other numbers of cells.
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 5 || !strings.HasPrefix(line, "| `") {
			continue
		}

		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows = append(rows, migration{library, cells[0], cells[1], cells[2], cells[3], cells[4]})
	}
	return rows
}

// measure runs the row and returns it with the measured cells.
func measure(t *testing.T, p peer, row migration) migration {
	t.Helper()
	// A limit that the page writes otherwise than it is printed fails too.
	limit, err := core.ParseLimit(row.limit)
	if err != nil {
		t.Fatal(err)
	}
	row.limit = limit.String()

	whole := time.Microsecond
	if row.peer == "Fiber's limiter" {
		whole = time.Second // Fiber sees no shorter time
	}

	var same []string
	for _, s := range schedules(limit) {
		for i := range s.instants {
			s.instants[i] = s.instants[i].Truncate(whole)
		}

		// Both sides get the same instants, however coarse they had to become.
		theirs, ours := p(t, s.instants), headgate(t, limit, s.instants)
		if slices.Equal(theirs, ours) {
			same = append(same, s.name)
		}

		switch s.name {
		case "bursts":
			row.atOnce = both(count(s.instants, theirs, 1), count(s.instants, ours, 1))
		case "hammering":
			row.hammered = both(
				count(s.instants, theirs, limit.Period)+", "+count(s.instants, theirs, 2*limit.Period),
				count(s.instants, ours, limit.Period)+", "+count(s.instants, ours, 2*limit.Period))
		}
	}

	row.same = strings.Join(same, ", ")
	if len(same) == 3 {
		row.same = "always"
	}
	return row
}

// count returns how many of the requests before the end were admitted.
func count(instants []time.Duration, admitted []bool, end time.Duration) string {
	n := 0
	for i, at := range instants {
		if at < end && admitted[i] {
			n++
		}
	}
	return fmt.Sprint(n)
}

func both(theirs, ours string) string {
	if theirs == ours {
		return ours
	}
	return theirs + "; headgate " + ours
}

type schedule struct {
	name     string
	instants []time.Duration
}

// schedules are the requests of one client. Instants after the first are chosen so
// that none is the very one at which a unit comes back or a window ends.
func schedules(l core.Limit) []schedule {
	// Full is the time after which nothing of a burst is remembered.
	capacity := int(l.Capacity())
	full := max(l.Period, l.Period*time.Duration(capacity)/time.Duration(l.Quota))
	bursts, hammering, pauses := schedule{name: "bursts"}, schedule{name: "hammering"}, schedule{name: "pauses"}

	for i := range 4 {
		at := time.Duration(i) * (2*full + time.Microsecond)
		bursts.instants = append(bursts.instants, slices.Repeat([]time.Duration{at}, 2*capacity+3)...)
	}

	// A prime number of microseconds keeps the instants off those of units and windows.
	step := time.Duration(nextPrime(l.Period.Microseconds()/4/l.Quota)) * time.Microsecond
	for at := time.Duration(0); at < 2*l.Period; at += step {
		hammering.instants = append(hammering.instants, at)
	}

	// The seed is fixed: the page shows what this schedule gives.
	r, at := rand.New(rand.NewPCG(1, 2)), time.Duration(0)
	for range 50 {
		pauses.instants = append(pauses.instants, slices.Repeat([]time.Duration{at}, 1+r.IntN(capacity+1))...)
		at += time.Duration(r.Int64N(l.Period.Microseconds())) * time.Microsecond
	}

	return []schedule{bursts, hammering, pauses}
}

// nextPrime returns the smallest prime that is at least n.
func nextPrime(n int64) int64 {
	for ; ; n++ {
		d := int64(2)
		for d*d <= n && n%d != 0 {
			d++
		}
		if d*d > n {
			return n
		}
	}
}

// headgate reports which requests the limit admits. The first is made at an instant
// that begins a day, as a bubble of synctest does.
func headgate(t *testing.T, l core.Limit, instants []time.Duration) (admitted []bool) {
	t.Helper()
	// The clock of the store is set before each request.
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	now := start
	s, err := memstore.New(memstore.Options{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}

	ops, out := []core.Op{{Rule: "r", Key: "k", Limit: l, Cost: 1}}, make([]core.Decision, 1)
	for _, at := range instants {
		now = start + at.Microseconds()
		if err := s.Apply(context.Background(), ops, out); err != nil {
			t.Fatal(err)
		}
		admitted = append(admitted, out[0].Allowed)
	}
	return admitted
}

// TestMigrationDifferences tests statements about peers that docs/peers.md makes
// outside of its tables.
func TestMigrationDifferences(t *testing.T) {
	t.Run("Echo forgets a client after ExpiresIn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
				Rate: rate.Every(time.Hour), Burst: 1,
			})

			for i, step := range []struct {
				client   string
				pause    time.Duration
				admitted bool
			}{
				{"a", 0, true}, {"a", time.Minute, false}, {"b", 4 * time.Minute, true}, {"a", 0, true},
			} {
				// The request of b clears what is older than ExpiresIn, three minutes, so a has its
				// burst again.
				time.Sleep(step.pause)
				if ok, err := s.Allow(step.client); ok != step.admitted || err != nil {
					t.Errorf("request %d: %v, %v", i, ok, err)
				}
			}
		})
	})

	t.Run("gin-rate-limit refuses 3 requests a minute under 5", func(t *testing.T) {
		var instants []time.Duration
		for i := range 8 {
			instants = append(instants, time.Duration(i)*20*time.Second)
		}

		theirs := ginRateLimit(ginlimit.InMemoryOptions{Limit: 5, Rate: time.Minute})(t, instants)
		if want := []bool{true, true, true, true, true, false, false, true}; !slices.Equal(theirs, want) {
			t.Errorf("gin-rate-limit admits %v", theirs)
		}

		// A fixed window of this limit admits all eight, since each minute has three of them.
		limit := core.Limit{Algorithm: core.FixedWindow, Quota: 5, Period: time.Minute}
		if ours := headgate(t, limit, instants); slices.Contains(ours, false) {
			t.Errorf("headgate admits %v", ours)
		}
	})

	t.Run("ulule charges a cost that it refuses", func(t *testing.T) {
		l := limiter.New(ululemem.NewStoreWithOptions(limiter.StoreOptions{}),
			limiter.Rate{Limit: 5, Period: time.Hour})
		for i, step := range []struct {
			cost     int64
			admitted bool
		}{{4, true}, {3, false}, {1, false}} {
			// 4 and 1 would fit into 5, but the refused 3 is charged as well.
			c, err := l.Increment(t.Context(), "k", step.cost)
			if err != nil || c.Reached == step.admitted {
				t.Errorf("request %d: %+v, %v", i, c, err)
			}
		}
	})
}
