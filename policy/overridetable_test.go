package policy

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

func quota(n int64) Override {
	return Override{Limit: core.Limit{Quota: n, Period: time.Minute}}
}

// naive finds the override of a key by trying all.
func naive(entries map[string]Override, key string, now time.Time) (o Override, matched int) {
	for name, other := range entries {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		n := len(prefix)
		switch {
		case other.Ended(now):
			continue
		case isPrefix && prefix != "" && strings.HasPrefix(key, prefix):
		case name == key && (!isPrefix || prefix == ""):
			n = maxOverriddenKey + 1
		default:
			continue
		}

		if n > matched {
			o, matched = other, n
		}
	}

	return o, matched
}

// Random histories of single changes and of many at once find what a search through all finds. Few
// letters make many prefixes of prefixes.
func TestTableFindsTheLongestPrefix(t *testing.T) {
	now := time.Now()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		word := func() string {
			b := make([]byte, 1+r.IntN(6))
			for i := range b {
				b[i] = "ab*\xff"[min(3, r.IntN(9)/3)]
			}

			return string(b)
		}

		table, entries := newLargeTable(), map[string]Override{}
		if seed%4 == 0 {
			table = newTable(map[string]Override{"a": quota(1)})
			entries["a"] = quota(1)
		}

		for range 60 {
			changes := map[string]*Override{}
			for range 1 + r.IntN(4) {
				key := word()
				if r.IntN(3) == 0 {
					changes[key] = nil
					delete(entries, key)
					continue
				}

				o := quota(1 + r.Int64N(50))
				if r.IntN(4) == 0 {
					o.Until = now.Add(time.Duration(r.IntN(2)*2-1) * time.Hour).Truncate(time.Microsecond)
				}

				// A ban may stand alone, or before a limit.
				if r.IntN(4) == 0 {
					o.BannedUntil = now.Add(time.Duration(r.IntN(2)*2-1) * time.Hour).Truncate(time.Microsecond)
					if r.IntN(2) == 0 {
						o.Limit, o.Until = core.Limit{}, time.Time{}
					}
				}

				changes[key], entries[key] = &o, o
			}

			table.apply(changes)

			for range 10 {
				key := word()
				at := instant(0)
				got, matched := table.find(key, &at, false)
				want, n := naive(entries, key, now)
				if matched != n || n > 0 && got.override().String() != want.String() {
					t.Fatalf("seed %d, %q: %v of %d, want %v of %d in %v", seed, key, got, matched, want, n,
						entries)
				}
			}
		}

		wantHeld(t, table, entries)
	}
}

// wantHeld fails unless a table holds what was put there.
func wantHeld(t *testing.T, table *table, entries map[string]Override) {
	t.Helper()
	held := map[string]Override{}
	table.all(func(key string, o Override) bool { held[key] = o; return true })
	if len(held) != len(entries) || table.size() != len(entries) {
		t.Fatalf("%d entries, want %d", table.size(), len(entries))
	}

	for key, o := range entries {
		if got := held[key]; got.String() != o.String() {
			t.Fatalf("%q: %v, want %v", key, got, o)
		}
	}
}

// Readers meet either the entry before a change or the one after it, and never none.
func TestTableIsReadWhileItChanges(t *testing.T) {
	table := newLargeTable()
	one, two := quota(1), quota(2)
	table.apply(map[string]*Override{"acme:1": &one, "acme:*": &one, "other": &one})

	var wg sync.WaitGroup
	end := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}

				for _, key := range []string{"acme:1", "acme:2", "other"} {
					at := instant(0)
					o, n := table.find(key, &at, false)
					if n == 0 || o != one.own() && o != two.own() {
						t.Errorf("%s: %v", key, o)
						return
					}
				}
			}
		})
	}

	for i := range 2000 {
		o := []*Override{&one, &two}[i%2]
		table.apply(map[string]*Override{"acme:1": o})
		table.apply(map[string]*Override{"acme:*": o, fmt.Sprint("acme:", i, "*"): o})
	}

	close(end)
	wg.Wait()
}

// A look-up takes no memory: of a key, of one that only a prefix has, of one that has ended, and of
// one that nothing has.
func TestTableTakesNoMemoryForALookup(t *testing.T) {
	table := newLargeTable()
	one, ended := quota(1), quota(2)
	ended.Until = time.Now().Add(-time.Hour)
	table.apply(map[string]*Override{"acme:1": &one, "acme:*": &one, "ended": &ended})
	for _, key := range []string{"acme:1", "acme:2", "ended", "another"} {
		at := instant(0)
		if n := testing.AllocsPerRun(100, func() { table.find(key, &at, false) }); n != 0 {
			t.Errorf("%s: %v allocations", key, n)
		}
	}
}

// largeTable has as many entries as a policy may have, a tenth of them prefixes and a tenth with an
// end, with 50 different limits.
func largeTable(n int) *table {
	table := newLargeTable()
	changes := map[string]*Override{}
	for i := range n {
		o, key := quota(int64(1+i%50)), fmt.Sprintf("customer:%07d", i)
		if i%10 == 0 {
			key += "*"
		}

		if i%10 == 1 {
			o.Until = time.Unix(4e9, 0)
		}

		changes[key] = &o
	}

	table.apply(changes)
	return table
}

// An entry takes at most 100 bytes and its key, at any number of them: maps grow in steps.
func TestTableTakesAHundredBytesForAnEntry(t *testing.T) {
	if !test.Alone(t) {
		return
	}

	for _, n := range []int{1000, 10_000, 30_000, 58_000, 70_000, MaxOverridesBeside} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		table := largeTable(n)
		runtime.GC()
		runtime.ReadMemStats(&after)

		const key = len("customer:0000000")
		each := (float64(after.HeapAlloc)-float64(before.HeapAlloc))/float64(n) - float64(key)
		t.Logf("%6d entries: %.1f bytes each and a key of %d", table.size(), each, key)
		if n == 1000 {
			continue // the shards by themselves take more
		}

		if each > 100 {
			t.Errorf("%d entries: %.1f bytes each, want at most 100", n, each)
		}
	}
}

func BenchmarkTable(b *testing.B) {
	table := largeTable(MaxOverridesBeside)
	keys := map[string][]string{}
	for i := range 1 << 12 {
		n := (i * 7919) % MaxOverridesBeside
		keys["own"] = append(keys["own"], fmt.Sprintf("customer:%07d", n/10*10+1+n%9))
		keys["prefix"] = append(keys["prefix"], fmt.Sprintf("customer:%07d:eu", n/10*10))
		keys["none"] = append(keys["none"], fmt.Sprintf("customer:%07d:eu", n/10*10+5))
	}

	for _, name := range []string{"own", "prefix", "none"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := instant(0)
				table.find(keys[name][i&(1<<12-1)], &at, false)
			}
		})
	}

	b.Run("none of 100000 prefixes", func(b *testing.B) {
		changes := map[string]*Override{}
		for i := range MaxOverridesBeside {
			o := quota(int64(1 + i%50))
			changes[fmt.Sprintf("customer:%07d*", i)] = &o
		}

		table := newLargeTable()
		table.apply(changes)
		for i := 0; b.Loop(); i++ {
			at := instant(0)
			table.find(keys["none"][i&(1<<12-1)][:15], &at, false) // between two prefixes
		}
	})
	b.Run("change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			o := quota(int64(1 + i%50))
			table.apply(map[string]*Override{keys["own"][i&(1<<12-1)]: &o})
		}
	})
	b.Run("change of a prefix", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			o := quota(int64(1 + i%50))
			table.apply(map[string]*Override{fmt.Sprintf("customer:%07d*", i%10000*10): &o})
		}
	})
}
