package main

import (
	"encoding/hex"
	"hash/maphash"
	"runtime"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// listFloors are the floors of rows that keep units one by one, by the name of the row.
var listFloors = map[string]func(l core.Limit, clock func() int64) take{
	"sliding log of 100": logFloor,
	"concurrency of 3":   leaseFloor,
}

// ring has the units of a key, in the order in which they were taken. With the text of the key it
// fills a cache line.
type ring[R any] struct {
	busy     atomic.Uint32 // 1 while a goroutine decides
	first, n uint16
	units    []R // as many as the limit has
	_        [8]byte
}

// lock makes the ring the caller's until unlock.
func (r *ring[R]) lock(quota int64) {
	for !r.busy.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
	if r.units == nil {
		r.units = make([]R, quota)
	}
}

func (r *ring[R]) unlock() { r.busy.Store(0) }

// oldest returns the unit that was taken first.
func (r *ring[R]) oldest() *R { return &r.units[r.first] }

// drop forgets the oldest unit.
func (r *ring[R]) drop() {
	r.n--
	if r.first++; int(r.first) == len(r.units) {
		r.first = 0
	}
}

// at returns the i-th unit from the oldest on. There is room for it.
func (r *ring[R]) at(i int) *R {
	if i += int(r.first); i >= len(r.units) {
		i -= len(r.units)
	}
	return &r.units[i]
}

// logFloor returns a take of a sliding log. A unit is the low half of its instant, in microseconds,
// so that no key may be left alone for an hour.
func logFloor(l core.Limit, clock func() int64) take {
	keys := &index[ring[uint32]]{seed: maphash.MakeSeed()}
	period := uint32(l.Period.Microseconds())
	return func(key string) bool {
		now := uint32(clock())
		// All are held for one period, so the oldest ends first.
		r := keys.of(key)
		r.lock(l.Quota)
		for r.n > 0 && now-*r.oldest() >= period {
			r.drop()
		}

		ok := int(r.n) < len(r.units)
		if ok {
			*r.at(int(r.n)) = now
			r.n++
		}

		r.unlock()
		return ok
	}
}

// lease is a unit that is held under an id.
type lease struct {
	taken int64
	id    [16]byte
}

// leaseFloor returns a take of a concurrency limit. It keeps the id of each lease, by which a
// release would name it, and refuses one that is held already.
func leaseFloor(l core.Limit, clock func() int64) take {
	keys, n := &index[ring[lease]]{seed: maphash.MakeSeed()}, 0
	period := l.Period.Microseconds()
	return func(key string) bool {
		n++
		var id [16]byte
		_, err := hex.Decode(id[:], []byte(leases[n%len(leases)]))
		now := clock()

		r := keys.of(key)
		r.lock(l.Quota)
		for r.n > 0 && now-r.oldest().taken >= period {
			r.drop()
		}

		ok := err == nil && int(r.n) < len(r.units)
		// A Take of a lease that is held would renew it, which no row does.
		for i := range int(r.n) {
			ok = ok && r.at(i).id != id
		}
		if ok {
			*r.at(int(r.n)) = lease{now, id}
			r.n++
		}

		r.unlock()
		return ok
	}
}
