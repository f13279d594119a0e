package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// loads are how many other keys are in use while the memory of expired keys is given back.
var loads = []int{1, 1000}

// giveUp is how many periods giving back may take before it counts as failed.
const giveUp = 10

// returned is how the memory of expired keys came back.
type returned struct {
	seconds   float64 // after the last of them had expired
	periods   float64 // the same in lives of a key
	decisions float64 // in that time
}

// returnedUnder returns how the memory of p.keys keys comes back while n others are in use. It
// measures once, so that the table and the goals say the same.
func returnedUnder(p pace, n int) (r returned, err error) {
	key := fmt.Sprint(p.keys, p.life, n)
	r, known := returnedOnce[key]
	if !known {
		r, err = giveBack(p, n)
		returnedOnce[key] = r
	}
	if r.decisions == 0 {
		err = errors.Join(err, errors.New("the memory was not given back"))
	}
	return r, err
}

var returnedOnce = map[string]returned{}

// giveBack fills a store, lets all keys expire and asks for others until the store holds those
// alone. The heap, which takes long to measure, must then agree.
func giveBack(p pace, n int) (returned, error) {
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		return returned{}, err
	}

	empty := heap()
	fill(takeOf(s, quota{units: 1, period: p.life, burst: 1}.limit(), "expiring"), p.keys)
	time.Sleep(p.life)
	filled := heap()

	load, keys, decisions := takeOf(s, wide.limit(), "load"), addresses(n), 0
	start := time.Now()
	for decisions == 0 || s.Len() > n {
		if time.Since(start) > giveUp*p.life {
			return returned{}, fmt.Errorf("%d keys are left after %v", s.Len(), time.Since(start))
		}

		// The clock is read once for a batch, or it would be measured too.
		for range batch {
			load(keys[decisions%n])
			decisions++
		}
	}

	took := time.Since(start)
	if left := heap() - empty; left > (filled-empty)/20 {
		return returned{}, fmt.Errorf("%.0f bytes are left of the heap", left)
	}
	runtime.KeepAlive(s)
	return returned{took.Seconds(), float64(took) / float64(p.life), float64(decisions)}, nil
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
		fmt.Sprintf("headgate's store, whose keys expire after %s, asked without a pause from then on. "+
			"Less than a twentieth of their heap is left then.", p.life),
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
