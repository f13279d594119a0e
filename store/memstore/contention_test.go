package memstore

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/core"
)

// concurrently runs f in n goroutines at once and waits for them.
func concurrently(n int, f func(i int)) {
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-gate
			f(i)
		})
	}
	close(gate)
	all.Wait()
}

func TestContentionGrantsExactlyTheQuota(t *testing.T) {
	for _, l := range each {
		s, _ := newStore(t, 0)
		var admitted atomic.Int64

		// All hundred begin together, each with a lease of its own, and the quota of every limit is
		// 37.
		concurrently(100, func(i int) {
			op := takes("key", l)
			op.Lease = strconv.Itoa(i)
			if do(t, s, op)[0].Allowed {
				admitted.Add(1)
			}
		})

		if n := admitted.Load(); n != 37 {
			t.Errorf("%v: %d admitted, want 37", l, n)
		}
	}
}

func TestContentionInAnyOrderOfKeys(t *testing.T) {
	s, _ := newStore(t, 0)
	var admitted atomic.Int64

	// A hundred steps take the same eight keys, each in its own order: locks taken in the order of
	// the ops would block one another.
	concurrently(100, func(i int) {
		r := rand.New(rand.NewPCG(uint64(i), 0))
		ops := make([]core.Op, len(each))
		for k, l := range each {
			ops[k] = takes("key"+strconv.Itoa(k), l)
			ops[k].Lease = strconv.Itoa(i)
		}

		// The last limit has more room than the others, so a step that they refuse must not have
		// charged it.
		ops = append(ops, takes("ample", limit("50/1h")))
		r.Shuffle(len(ops), func(a, b int) { ops[a], ops[b] = ops[b], ops[a] })

		granted := true
		for _, d := range do(t, s, ops...) {
			granted = granted && d.Allowed
		}
		if granted {
			admitted.Add(1)
		}
	})

	if n := admitted.Load(); n != 37 {
		t.Errorf("%d admitted, want 37", n)
	}

	if d := do(t, s, peeks("ample", limit("50/1h")))[0]; d.Remaining != 13 {
		t.Errorf("%d units of the ample limit are left, want 13", d.Remaining)
	}
}

// The clock runs through the same two seconds again and again.
func TestContentionWithAClockThatStepsBack(t *testing.T) {
	for _, l := range each {
		var reads atomic.Int64

		// 7919 is a prime, so the readings jump about in the two seconds without a pattern that
		// steps could fall into.
		s := MustNew(Options{Clock: func() int64 {
			n := reads.Add(1)
			return start + (n*7919)%2_000_000
		}})

		var admitted atomic.Int64
		concurrently(8, func(i int) {
			for k := range 200 {
				op := takes("key", l)
				op.Lease = strconv.Itoa(i*200 + k)
				do(t, s, peeks("other", l), peeks("key", l))
				if do(t, s, op)[0].Allowed {
					admitted.Add(1)
				}
			}
		})

		if n := admitted.Load(); n != 37 {
			t.Errorf("%v: %d admitted, want 37", l, n)
		}
	}
}

func TestContentionWithKeysThatComeAndGo(t *testing.T) {
	s, c := newStore(t, 300)
	l := limit("2/1s fixed-window")

	// Six hundred keys compete for the room of half as many, alone and by twos, while the sweep
	// frees what is fresh.
	concurrently(8, func(i int) {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		for range 5000 {
			c.now.Add(r.Int64N(2000))
			key := strconv.Itoa(r.IntN(600))
			if r.IntN(4) == 0 {
				do(t, s, takes(key, l), takes(strconv.Itoa(r.IntN(600)), limit("3/1s")))
			} else {
				do(t, s, takes(key, l))
			}

			// The room is reserved before a key is inserted: not even for a moment are there more.
			if n := s.keys.Load(); n > 300 {
				t.Errorf("%d keys held of at most 300", n)
			}
		}
	})

	checkCounts(t, s)
}

// checkCounts compares what the store has counted with what is in its tables.
func checkCounts(t *testing.T, s *Store) {
	t.Helper()
	var keys, buckets int64
	bytes := int64(len(s.shards)) * shardBytes
	for i := range s.shards {
		// What is counted is compared with what can be counted again, slot by slot.
		h := &s.shards[i]
		n, mine := 0, 0
		for k := range h.slots {
			switch c := &h.slots[k]; {
			case h.tags[k] == free:
				continue
			case c.class&shared != 0:
				mine++
			default:
				keys++
			}
			n++
			bytes += h.bytes(k)
		}

		if n != h.count || mine != h.buckets {
			t.Errorf("shard %d counts %d slots and %d buckets, and holds %d and %d", i, h.count, h.buckets, n, mine)
		}
		buckets += int64(mine)
	}

	if got := s.Bytes(); got != bytes {
		t.Errorf("the store counts %d bytes, and its slots %d", got, bytes)
	}
	if keys != s.keys.Load() || buckets != s.overflowKeys.Load() {
		t.Errorf("the store counts %d keys and %d buckets, and holds %d and %d", s.keys.Load(), s.overflowKeys.Load(),
			keys, buckets)
	}
}
