package main

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestChangedCountsTheLinesThatWereWritten(t *testing.T) {
	type line [lineSize]byte
	type part struct {
		mu    sync.Mutex
		_     line
		count int64
		_     line
		other int64
	}
	type whole struct {
		parts  []part
		direct atomic.Pointer[[4]line]
		inside any
		pool   sync.Pool
	}

	w := &whole{parts: make([]part, 2), inside: new([2]line), pool: sync.Pool{New: func() any { return new(line) }}}
	w.direct.Store(new([4]line))
	// Each write is compared with a snapshot of its own.
	for _, c := range []struct {
		name  string
		write func()
		want  int
	}{
		{"nothing", func() {}, 0},
		{"a lock, held and free again", func() { w.parts[0].mu.Lock(); defer w.parts[0].mu.Unlock() }, 0},
		{"what a lock guards, and so the lock", func() { w.parts[1].count++ }, 2},
		{"two lines under one lock", func() { w.parts[0].count++; w.parts[0].other++ }, 3},
		{"one line twice", func() { d := w.direct.Load(); d[1][3]++; d[1][9]++ }, 1},
		{"two lines behind an atomic pointer", func() { d := w.direct.Load(); d[0][0]++; d[3][0]++ }, 2},
		{"behind an interface", func() { w.inside.(*[2]line)[1][0]++ }, 1},
		{"a pool", func() { w.pool.Put(w.pool.Get()) }, 0},
	} {
		before := snapshotOf(w)
		c.write()
		if n := before.changed(); n != c.want {
			t.Errorf("%s: %d lines, want %d", c.name, n, c.want)
		}
	}
}

// A decision about one of many keys writes its slot and one line of its shard, and one about a hot
// key the word of the key alone. Once in many decisions the store is tidied.
func TestDecisionsWriteFewLines(t *testing.T) {
	for i := range algorithms {
		a := &algorithms[i]
		for keys, want := range map[int]float64{1: 1, sharedKeys: 2} {
			n, err := a.linesWritten(keys)
			if err != nil || n < want || n >= want+0.1 && !a.listed() {
				t.Errorf("%s, %d keys: %.3f lines, want %v, %v", a.name, keys, n, want, err)
			}
		}
	}
}

// listed reports whether a key has more than two numbers.
func (a *algorithm) listed() bool {
	return a.records > 0 || strings.Contains(a.name, "sliding") || a.name == "calendar"
}

func TestModelOfManyProcessors(t *testing.T) {
	for _, c := range []struct {
		name string
		s    sharing
		n    int
		want float64 // million a second
	}{
		{"one processor moves no line", sharing{100, 3, 50, 1, true}, 1, 10},
		{"of two, half of the lines are elsewhere", sharing{100, 2, 50, 0, true}, 2, 2e3 / 150},
		{"of four, three quarters are", sharing{100, 2, 50, 0, true}, 4, 4e3 / 175},
		{"a hot key moves its line", sharing{100, 1, 40, 1, false}, 64, 1e3 / 39.375},
		{"under a lock, decisions follow each other", sharing{100, 1, 40, 1, true}, 4, 1e3 / 130},
		{"that binds the part which is hot", sharing{100, 1, 40, 0.5, true}, 64, 1e3 / 0.5 / 139.375},
	} {
		if got := c.s.decisions(c.n); got < c.want*0.999 || got > c.want*1.001 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
