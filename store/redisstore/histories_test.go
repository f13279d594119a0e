//go:build !race

package redisstore

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/alicebob/miniredis/v2"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/storetest"
)

func TestMiniredisDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	factory := stores(t, connect(t, miniredis.RunT(t).Addr()), Options{})
	storetest.Timelines(t, factory)
	storetest.Contention(t, factory)
	storetest.Diff(t, 500, storetest.Seed, storetest.NewModel, factory)
}

// The reference, the memory store and a real Redis give the same answers, field
// by field, over this many histories.
func TestTwentyThousandHistoriesAreTheSameInMemoryAndInRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("20,000 histories take a minute")
	}
	t.Parallel()
	memory := func(t testing.TB, clock *storetest.Clock) core.Store {
		return memstore.MustNew(memstore.Options{Clock: clock.Now})
	}
	redis := stores(t, connect(t, redistest.Addr(t)), Options{})
	tally.Add(t, "random histories in the model, in memory and in Redis", 20_000)
	storetest.Diff(t, 20_000, storetest.Seed+1, storetest.NewModel, memory, redis)
}

// The short cut that most takes go must not lead elsewhere, nor leave another
// state behind.
func TestQuickTakesAreDecidedAsByTheWholeAlgorithm(t *testing.T) {
	t.Parallel()
	const head = "local function gcra_quick(text, cost, period, burst, limit)\n"
	files := scripts(t)
	before, after, found := strings.Cut(string(files["gcra_quick.lua"].Data), head)
	if !found {
		t.Fatal("there is no short cut")
	}
	files["gcra_quick.lua"] = &fstest.MapFile{Data: []byte(before + head + "do return nil end\n" + after)}
	if found := difference(t, connect(t, redistest.Addr(t)), 100, func(s *Store) { s.scripts.Files = files }); found != "" {
		t.Error(found)
	}
}
