//go:build !race

package memstore

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// One goroutine alone, so there is nothing here for the race detector.

func TestSweepKeepsUpWithAStreamOfNewKeys(t *testing.T) {
	s, c := newStore(t, 0)
	l := limit("1/1s fixed-window")
	for i := range 200 {
		// The last ten are in use, and ten more have been fresh for less than a second.
		c.move(100 * time.Millisecond)
		fill(t, s, strconv.Itoa(i)+"-", 1000, l)
	}
	if n := s.Len(); n > 25_000 {
		t.Errorf("%d keys held, 10,000 are in use and 10,000 in their grace", n)
	}
	checkCounts(t, s)
}

func TestFloodOfRandomKeysIsBounded(t *testing.T) {
	if !test.Alone(t) {
		return
	}
	floodWith(t, 100_000, 900_000)
}

func TestFloodOfTenMillionKeysIsBounded(t *testing.T) {
	test.Long(t, "it asks for ten million keys")
	if !test.Alone(t) {
		return
	}
	floodWith(t, 1_000_000, 9_000_000)
}

func floodWith(t *testing.T, early, flood int) {
	const maxKeys = 1 << 12
	s, c := newStore(t, maxKeys)
	l := limit("5/1h fixed-window")

	// One abuser has used its units up before the flood, the other comes after it.
	known, late := takes("known abuser", l), takes("late abuser", l)
	known.Cost, late.Cost = 5, 5
	if !do(t, s, known)[0].Allowed {
		t.Fatal("the first five units are refused")
	}

	known.Cost, late.Cost = 1, 1

	// Each key of its own is admitted once, and each bucket five times.
	admitted := fill(t, s, "early", early, l)
	if want := maxKeys - 1 + 64*5; admitted != want {
		t.Errorf("%d of %d random keys admitted, want %d", admitted, early, want)
	}
	if n := s.Len(); n != maxKeys+64 {
		t.Errorf("%d keys held, want %d and 64 buckets", n, maxKeys)
	}

	slots, before := size(s), heap()

	// While the flood goes on for twenty minutes, the abusers come every minute and must not slip
	// in with new slots.
	for i := range 20 {
		c.move(time.Minute)
		if n := fill(t, s, "late"+strconv.Itoa(i), flood/20, l); n != 0 {
			t.Errorf("%d random keys admitted when all buckets are used up", n)
		}
		if do(t, s, known)[0].Allowed || do(t, s, late)[0].Allowed {
			t.Error("an abuser is admitted")
		}
	}

	// Neither the table nor the heap may have grown with the number of keys that were refused: 64
	// kB are allowed for what the test itself leaves behind.
	if n := s.Len(); n != maxKeys+64 || size(s) != slots {
		t.Errorf("%d keys in %d slots after the flood, want %d in %d", n, size(s), maxKeys+64, slots)
	}
	if after := heap(); after > before+64<<10 {
		t.Errorf("the heap grew from %.0f to %.0f bytes in the flood", before, after)
	}
	checkCounts(t, s)

	// An hour later all is fresh, and honest callers get their units again.
	c.move(time.Hour)
	if !do(t, s, takes("honest", l))[0].Allowed || !do(t, s, known)[0].Allowed {
		t.Error("refused when every key is fresh")
	}
	runtime.KeepAlive(s)
}

// A flood whose keys then fill their windows takes less memory than MaxBytes.
func TestFloodTakesLessMemoryThanMaxBytes(t *testing.T) {
	if !test.Alone(t) {
		return
	}

	const most = 16 << 20
	c := newClock()
	for _, l := range []core.Limit{limit("37/1h sliding-window"), limit("37/1h sliding-log"), limit("37/1h")} {
		before := heap()
		s := MustNew(Options{MaxBytes: most, Clock: c.read, Logger: slog.New(slog.DiscardHandler)})

		// The keys come back over an hour, so the windows and logs of those that are held fill up.
		for range 15 {
			fill(t, s, "key", 50_000, l)
			c.move(4 * time.Minute)
		}

		took := heap() - before
		if took > most {
			t.Errorf("%v: %d keys take %.0f bytes of %d", l, s.Len(), took, most)
		}
		t.Logf("%v: %d keys, %d bytes reckoned, %.0f in the heap", l, s.Len(), s.Bytes(), took)
		checkCounts(t, s)
		runtime.KeepAlive(s)
	}
}

// A ban stays while fresh keys, and keys with strikes, fill the store.
func TestBanSurvivesAFlood(t *testing.T) {
	if !test.Alone(t) {
		return
	}
	banFlood(t, Options{MaxKeys: 1 << 12}, 200_000)
	banFlood(t, Options{MaxBytes: MinBytes}, 200_000)
}

func TestBanSurvivesAFloodOfTwoMillionKeys(t *testing.T) {
	test.Long(t, "it asks for two million keys, three times each")
	if !test.Alone(t) {
		return
	}
	banFlood(t, Options{MaxKeys: 1 << 17}, 2_000_000)
	banFlood(t, Options{MaxBytes: 16 << 20}, 2_000_000)
}

// banFlood has each of the keys refused until it would be banned.
func banFlood(t *testing.T, o Options, keys int) {
	t.Helper()
	c := newClock()
	o.Clock, o.Logger = c.read, slog.New(slog.DiscardHandler)
	before := heap()
	s := MustNew(o)

	l := limit("1/1h fixed-window")

	// One key is banned before the flood; its ban must survive it.
	known := strikes("known", l)
	for range 3 {
		do(t, s, known)
	}

	ops, out, banned := []core.Op{strikes("", l)}, make([]core.Decision, 1), 0

	// Each key takes its one unit and is refused twice, which bans it.
	for i := range keys {
		ops[0].Key = fmt.Sprint("key", i)
		for range 3 {
			if err := s.Apply(t.Context(), ops, out); err != nil {
				t.Fatal(err)
			}
		}

		if out[0].Banned {
			banned++
		}

		// The flood lasts twenty minutes, less than the ban.
		if i%(keys/20) == 0 {
			c.move(time.Minute)
		}
		if i%(keys/4) == 0 && !do(t, s, known)[0].Banned {
			t.Fatalf("the ban is gone after %d keys", i)
		}
	}

	checkCounts(t, s)

	// With bytes bounded, the heap may not hold more than was allowed; without, only the number of
	// keys is.
	most := int64(math.MaxInt64)
	if o.MaxBytes > 0 {
		most = o.MaxBytes
	}
	took := int64(heap() - before)

	if s.Len() > int(s.maxKeys)+len(s.shards) || s.Bytes() > most || took > most || banned == 0 {
		t.Errorf("%d of %d keys, %d bytes reckoned and %d in the heap of %d, %d bans", s.Len(), s.maxKeys, s.Bytes(),
			took, most, banned)
	}
	t.Logf("%d keys, %d bytes reckoned, %d in the heap, %d bans", s.Len(), s.Bytes(), took, banned)
	runtime.KeepAlive(s)
}
