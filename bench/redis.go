package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// callers are the numbers of concurrent callers. Each asks again as soon as it has an
// answer.
var callers = []int{1, 10, 100, 1000}

const redisTitle = "Redis: decisions a second by number of callers"

func redisSection(p pace) ([]Table, error) {
	addr, stop, err := startRedis()
	if errors.Is(err, errNoRedis) {
		return []Table{{ID: "redis", Title: "Redis: not measured", Note: "redis-server is not in PATH."}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer stop()

	var names, speeds, times []string
	for _, peer := range redisPeers {
		names = append(names, peer.name)
	}
	for _, n := range callers {
		speeds = append(speeds, fmt.Sprint(n))
		times = append(times, fmt.Sprintf("%d, p50", n), fmt.Sprintf("%d, p99", n))
	}

	note := fmt.Sprintf("Medians of %d interleaved rounds; %d CPUs for clients and server together; 10000 keys.", p.rounds, runtime.GOMAXPROCS(0))
	speed := newTable("redis", redisTitle, note, speeds, names)
	latency := newTable("redis-latency", "Redis: µs a decision by number of callers", "", times, names)

	// The clients of each number of callers are closed before the next are opened, so that Redis
	// serves no more connections than there are callers.
	for i, n := range callers {
		list, closeAll := contenders(redisPeers, addr, n, p.round/4, 3*p.round)
		out := contest(list, p.rounds)
		closeAll()

		// The first figure is the speed, and the two after it are latencies.
		for _, o := range out {
			latency.enter(2*i, []outcome{o.from(1)})
			speed.enter(i, []outcome{o.upto(1)})
		}
	}

	return []Table{*speed, *latency}, nil
}

// from and upto cut the figures in two.
func (o outcome) from(i int) outcome {
	if o.failed == nil {
		o.median = o.median[i:]
	}
	return o
}

func (o outcome) upto(i int) outcome {
	if o.failed == nil {
		o.median = o.median[:i]
	}
	return o
}

// contenders are the peers, each asked by n callers for a round after a warm-up. closeAll ends
// them.
func contenders(
	peers []redisPeer, addr string, n int, warmup, round time.Duration,
) (list []contender, closeAll func()) {
	keys := addresses(10_000)
	var stops []func()
	// A peer that cannot open fails in its turn.
	for _, peer := range peers {
		worker, stop, err := peer.open(addr, steady)
		stops = append(stops, stop)
		if err == nil {
			err = passes(func() error { return peer.examine(addr) })
		}
		list = append(list, contender{peer.name, func() ([]float64, error) {
			if err != nil {
				return nil, err
			}
			if _, err := callAll(worker, keys, n, warmup); err != nil {
				return nil, err
			}
			return callAll(worker, keys, n, round)
		}})
	}

	return list, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// callAll returns decisions a second and the two latencies.
func callAll(worker func() ask, keys []string, n int, d time.Duration) ([]float64, error) {
	times, errs := make([][]time.Duration, n), make([]error, n)
	var group sync.WaitGroup

	// The callers begin a prime number of keys apart, so that no two begin with the same one.
	start := time.Now()
	for i := range n {
		a := worker()
		group.Go(func() { times[i], errs[i] = call(a, keys, i*7919, start, d) })
	}
	group.Wait()

	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%d callers: %w", n, firstOf(errs))
	}

	all := slices.Concat(times...)
	slices.Sort(all)
	at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e3 }
	return []float64{float64(len(all)) / took.Seconds(), at(0.5), at(0.99)}, nil
}

func call(a ask, keys []string, at int, start time.Time, d time.Duration) ([]time.Duration, error) {
	var times []time.Duration
	before := time.Since(start)

	// A caller that gets no processor in time asks once.
	for len(times) == 0 || before < d {
		if err := a(context.Background(), keys[at%len(keys)]); err != nil {
			return nil, err
		}
		after := time.Since(start)
		times = append(times, after-before)
		before = after
		at++
	}
	return times, nil
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
