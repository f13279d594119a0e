package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// byRounds is the row that the others of the table of algorithms are compared with.
const byRounds = "GCRA, 3600000/1h"

// algorithm is a row of the table of algorithms: headgate's store under a limit.
type algorithm struct {
	name string

	// The limit in an exam is that of the algorithm that has its quota.
	limit, exam string

	// records is how many units the algorithm keeps one by one, or 0. The clock of such a row moves
	// on at each decision, so that as many come back as are taken.
	records int

	hot, uniform aim // as ratios to the first row
}

// algorithms are those rows. Where a unit takes no whole microseconds to come back the arithmetic
// is another.
var algorithms = []algorithm{
	{byRounds, "3600000/1h burst=200000000", "3/1h", 0, at(1), at(1)},
	{"GCRA, 3/1s", "3/1s burst=100000000", "3/1h", 0, at(1.3), missed(1.15, 1.55)},
	{"GCRA, 30/1s", "30/1s burst=200000000", "3/1h", 0, at(1.3), missed(1.15, 1.65)},
	{"GCRA, 7/1m", "7/1m burst=4000000", "3/1h", 0, at(1.3), missed(1.15, 1.5)},
	{"fixed window", "200000000/24h fixed-window", "3/1h fixed-window", 0, at(1.3), at(1.15)},
	{"token bucket", "576000/24h token-bucket burst=200000000", "3/1h token-bucket", 0, at(1.3), missed(1.15, 1.6)},
	{"sliding window of 10", "100000000/1m sliding-window", "3/1h sliding-window", 0, at(1.3), missed(1.15, 1.6)},
	{"sliding log of 3", "3/%s sliding-log", "3/1h sliding-log", 3, at(2), missed(1.15, 1.75)},
	{"sliding log of 100", "100/%s sliding-log", "3/1h sliding-log", 100, at(2), floored(1.15, 2.55)},
	{"calendar", "200000000/day", "3/day", 0, missed(1.3, 1.75), missed(1.15, 1.55)},
	{"concurrency of 3", "3 concurrent ttl=%s", "3 concurrent ttl=1h", 3, floored(1.3, 3.65), floored(1.15, 2.55)},
}

// limitFor returns the limit for a work with that many keys, and the step of the clock.
func (a *algorithm) limitFor(keys int) (l core.Limit, step time.Duration, err error) {
	text := a.limit
	if a.records > 0 {
		var span time.Duration
		span, step = a.pace(keys)
		text = fmt.Sprintf(text, span)
	}
	l, err = core.ParseLimit(text)
	return l, step, err
}

// peer returns the row as a contender for a work with that many keys.
func (a *algorithm) peer(keys int) memoryPeer {
	return memoryPeer{name: a.name, open: func(q quota) (func() take, error) {
		l, step, err := a.limitOf(q, keys)
		if err != nil {
			return nil, err
		}

		s, err := memstore.New(memstore.Options{Clock: movingClock(step)})
		switch {
		case err != nil:
			return nil, err
		case q == exam:
			return shared(takeOf(s, l, "api"))
		case a.records > 0 && keys > 1:
			return shared(decided(takeOf(s, l, "api")))
		}
		return shared(takeAgain(s, l))
	}}
}

// floorPeer returns the floor of the row as a contender.
func (a *algorithm) floorPeer(keys int) memoryPeer {
	return memoryPeer{name: floorOf(a.name), open: func(q quota) (func() take, error) {
		l, step, err := a.limitOf(q, keys)
		if err != nil {
			return nil, err
		}

		t := listFloors[a.name](l, movingClock(step))
		if q != exam && keys > 1 {
			t = decided(t)
		}
		return shared(t)
	}}
}

// limitOf is limitFor, or the limit of an exam, which counts to three by the time as it is.
func (a *algorithm) limitOf(q quota, keys int) (l core.Limit, step time.Duration, err error) {
	if q == exam {
		l, err = core.ParseLimit(a.exam)
		return l, 0, err
	}
	return a.limitFor(keys)
}

// pace returns the period, and the step of the clock. One key is then always full, and each of
// many about half full, as the walk comes to them at random.
func (a *algorithm) pace(keys int) (span, step time.Duration) {
	if keys == 1 {
		return time.Millisecond, time.Millisecond/time.Duration(a.records) + time.Microsecond
	}
	return time.Duration(a.records*keys) * time.Microsecond / 2, time.Microsecond
}

// movingClock returns a clock that reads the time and moves on by a step each time.
func movingClock(step time.Duration) func() int64 {
	begun, moved := time.Now(), time.Duration(0)
	first := begun.UnixMicro()
	return func() int64 {
		if step > 0 {
			moved += step
		}
		return first + (time.Since(begun) + moved).Microseconds()
	}
}

// decided returns a take that counts a refusal as an answer: a few are in the nature of a walk at
// random over keys that are half full.
func decided(t take) take {
	return func(key string) bool { t(key); return true }
}

// takeAgain returns a take of the store that asks under another rule from then on, and so for new
// keys, when a key has used up the limit.
func takeAgain(s core.Store, l core.Limit) take {
	rules := 1
	t := takeOf(s, l, "api")
	return func(key string) bool {
		if t(key) {
			return true
		}
		t = takeOf(s, l, fmt.Sprint("api", rules))
		rules++
		return t(key)
	}
}

// leases are ids as package limiter makes them, more than any key has units under the limits, so
// that none is renewed.
var leases = leaseIDs(1024)

// leaseIDs returns n random ids of 128 bits in hexadecimal, the same ones each time.
func leaseIDs(n int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
	}
	return ids
}

// takeOf returns a take of the store under a limit. It uses its slices again, so that only the
// store may allocate.
func takeOf(s core.Store, l core.Limit, rule string) take {
	ops, out := []core.Op{{Rule: rule, Limit: l, Cost: 1}}, make([]core.Decision, 1)
	if l.NeedsWindows() {
		ops[0].Windows = l.Windows(time.Now().UnixMicro())
	}

	leased, n := l.Leased(), 0
	return func(key string) bool {
		ops[0].Key = key
		if leased {
			n++
			ops[0].Lease = leases[n%len(leases)]
		}
		return s.Apply(context.Background(), ops, out) == nil && out[0].Allowed
	}
}

// algorithmPeers returns the rows for a work.
func algorithmPeers(w work) []memoryPeer {
	var peers []memoryPeer
	for i := range algorithms {
		peers = append(peers, algorithms[i].peer(len(w.keys)))
	}
	return peers
}

// algorithmTable measures headgate's store under each algorithm, on one processor.
func algorithmTable(p pace) *Table {
	columns := []string{hotKey, uniform}
	t := newTable("algorithms", "In memory, by algorithm: ns a decision",
		fmt.Sprintf("headgate's store on one processor, medians of %d interleaved rounds. The keys of logs and leases "+
			"are full, or of many about half full: units come back as they are taken.", p.rounds), columns, nil)
	for i, name := range columns {
		w := workOf(name)
		t.enter(i, contest(compete(w, p, algorithmPeers(w)), p.rounds))
	}
	return t
}
