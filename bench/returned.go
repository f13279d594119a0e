package main

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// loads are how many other keys are in use while the memory of expired keys is given back.
var loads = []int{1, 1000}

// giveUp is how many periods giving back may take before it counts as failed.
const giveUp = 4

// returned is how the memory of expired keys came back.
type returned struct {
	seconds   float64 // after the last of them had expired
	periods   float64 // the same in lives of a key
	decisions float64 // in that time
}

// returnedUnder returns how the memory of p.keys keys comes back while n others are in use.
// It measures once.
func returnedUnder(p pace, n int) (returned, error) {
	type question struct {
		pace pace
		load int
	}
	type answer struct {
		returned
		error
	}

	q := question{p, n}
	if a, ok := returnedOnce.Load(q); ok {
		return a.(answer).returned, a.(answer).error
	}
	r, err := giveBack(p, n)
	returnedOnce.Store(q, answer{r, err})
	return r, err
}

var returnedOnce sync.Map

// giveBack fills a store, lets all keys expire and asks for others until the heap of the store is a
// twentieth of what it was.
func giveBack(p pace, n int) (returned, error) {
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		return returned{}, err
	}

	empty := heap()
	fill(takeOf(s, quota{units: 1, period: p.life, burst: 1}.limit(), "expiring"), p.keys)
	filled := heap()
	time.Sleep(p.life)

	load, keys, decisions := takeOf(s, wide.limit(), "load"), addresses(n), 0
	defer runtime.KeepAlive(s)
	for start := time.Now(); time.Since(start) < giveUp*p.life; {
		for turn := time.Now(); time.Since(turn) < p.life/40; {
			for range batch {
				load(keys[decisions%n])
				decisions++
			}
		}

		if heap()-empty < (filled-empty)/20 {
			took := time.Since(start)
			return returned{took.Seconds(), float64(took) / float64(p.life), float64(decisions)}, nil
		}
	}
	return returned{}, errors.New("the memory was not given back in time")
}

// fill asks once for each of n keys of 13 bytes.
func fill(t take, n int) {
	for i := range n {
		t(fmt.Sprintf("key%010d", i))
	}
}

// returnedTable measures how memory is given back under each load.
func returnedTable(p pace) *Table {
	t := newTable("returned", fmt.Sprintf("In memory: until %d expired keys are given back", p.keys),
		fmt.Sprintf("headgate's store, whose keys expire after %s, asked without a pause from then on. They are given "+
			"back when a twentieth of their heap is left.", p.life),
		[]string{"seconds", "periods", "decisions"}, nil)

	for _, n := range loads {
		t.enter(0, contest([]contender{{fmt.Sprintf("%s, keys in use: %d", ours, n), func() ([]float64, error) {
			r, err := returnedUnder(p, n)
			return []float64{r.seconds, r.periods, r.decisions}, err
		}}}, 1))
	}
	return t
}

// bytesOfKey returns the heap bytes of a key of which as many units are in use within an hour, with
// its text.
func bytesOfKey(p pace, text string, units int) (float64, error) {
	l, err := core.ParseLimit(text)
	if err != nil {
		return 0, err
	}
	now := time.Now().UnixMicro()
	s, err := memstore.New(memstore.Options{Clock: func() int64 { return now }})
	if err != nil {
		return 0, err
	}

	// The units are apart in time, as those of a caller are, so that none is kept together with
	// another.
	empty := heap()
	t := takeOf(s, l, "api")
	for range units {
		fill(t, p.keys)
		now += time.Hour.Microseconds() / int64(units+1)
	}
	filled := heap()
	runtime.KeepAlive(s)
	return (filled - empty) / float64(p.keys), nil
}
