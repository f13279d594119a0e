//go:build !race

package redisstore

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/tally"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/storetest"
)

func TestMiniredisDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	factory := stores(t, connect(t, mini(t).Addr()), Options{})
	storetest.Timelines(t, factory)
	storetest.Contention(t, factory)
	t.Run("Diff", func(t *testing.T) { storetest.Diff(t, 50, storetest.Seed, storetest.NewModel, factory) })
}

// The reference, the memory store and a real Redis give the same answers, field by field,
// over 2,000 histories, or as many as HEADGATE_HISTORIES says. Each limit of half of them
// is of one algorithm, because some differences need many steps of that.
func TestHistoriesAreTheSameInMemoryAndInRedis(t *testing.T) {
	test.Long(t, "it plays 2,000 random histories")
	t.Parallel()
	histories := 2000

	// A larger number is for nights.
	if text := os.Getenv("HEADGATE_HISTORIES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			t.Fatalf("HEADGATE_HISTORIES is %q, not a number from 2 on", text)
		}
		histories = n
	}

	tally.Add(t, "random histories in the model, in memory and in Redis", int64(histories))
	memory := func(t testing.TB, clock *storetest.Clock) core.Store {
		return memstore.MustNew(memstore.Options{Clock: clock.Now})
	}

	factories := []storetest.Factory{storetest.NewModel, memory, stores(t, connect(t, redistest.Addr(t)), Options{})}

	// All limits together, and then each by itself.
	storetest.Diff(t, histories/2, storetest.Seed+1, factories...)
	storetest.DiffEach(t, histories/2, storetest.Seed+1, factories...)
}

// Used units are kept while the limit changes. The model keeps them over five times as many
// histories.
func TestUsedUnitsAreKeptInRedis(t *testing.T) {
	test.Long(t, "it plays 2,000 random histories")
	t.Parallel()
	tally.Add(t, "random histories of a limit that changes, in Redis", 2000)
	storetest.Kept(t, 2000, storetest.Seed+1, stores(t, connect(t, redistest.Addr(t)), Options{}))
}

// The quick function decides as the whole algorithm does, and leaves the same state.
func TestQuickTakesAreDecidedAsByTheWholeAlgorithm(t *testing.T) {
	t.Parallel()
	const head = "local function gcra_quick(text, cost, period, burst, limit)\n"
	files := scripts(t)
	before, after, found := strings.Cut(string(files["gcra.lua"].Data), head)
	if !found {
		t.Fatal("there is no quick function")
	}
	files["gcra.lua"] = &fstest.MapFile{Data: []byte(before + head + "do return nil end\n" + after)}
	whole := &lua.Scripts{Files: files}
	batches(t, connect(t, redistest.Addr(t)), 100, func(s *Store) { s.wire.scripts = whole })
}
