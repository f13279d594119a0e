package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// bench is what is to be measured.
type bench struct {
	redis, rival string
	rivalPID     int
	callers      int // 0 means all of bounds
	rounds       int
	round        time.Duration
	profile      string
	decisions    int
}

// bound is what has to be kept beside the rival.
type bound struct {
	callers   int
	perSecond float64 // the least ratio of decisions a second
	cpu       float64 // the highest ratio of CPU times
}

var bounds = []bound{{1, 1.15, 0.5}, {10, 1.15, 0.5}, {100, 1.6, 0.5}, {1000, 2.2, 0.5}}

// run measures and prints, and reports whether the bounds are kept.
func (b *bench) run(ctx context.Context) (kept bool, err error) {
	addr := b.redis
	if addr == "" {
		if b.rival != "" {
			return false, errors.New("with -rival, name the Redis of both by -redis")
		}
		server, err := startRedis(ctx)
		if err != nil {
			return false, err
		}
		defer server.end()
		addr = server.addr
	}

	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()

	// The services are closed before the Redis that they use.
	gateway, err := startGateway(addr, b.profile, b.decisions)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, gateway.end()) }()

	ours, err := dial("gateway", gateway.addr, gateway.cmd.Process.Pid)
	if err != nil {
		return false, err
	}
	defer ours.close()

	services := []*service{ours}
	if b.rival != "" {
		rival, err := dial("rival", b.rival, b.rivalPID)
		if err != nil {
			return false, err
		}
		defer rival.close()
		services = append(services, rival)
	}

	return b.measure(ctx, services, &meter{client})
}

// measure lets the services take turns at each number of callers.
func (b *bench) measure(ctx context.Context, services []*service, m *meter) (kept bool, err error) {
	fmt.Println("| service | callers | decisions/s | p50 | p99 | CPU | past 50 ms | decided late | not by Redis |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	kept = true

	var ratios []string
	for _, limit := range bounds {
		if b.callers != 0 && b.callers != limit.callers {
			continue
		}

		// The services take turns within a round, so that other work of the machine hits all alike.
		samples := make([][]sample, len(services))
		for n := range b.rounds + 1 { // the first warms up
			for i := range services {
				i = (i + n) % len(services)
				s, err := services[i].round(ctx, limit.callers, b.round, m)
				if err != nil {
					return false, err
				}
				if n > 0 {
					samples[i] = append(samples[i], s)
				}
				fmt.Fprint(os.Stderr, ".")
			}
		}

		fmt.Fprintln(os.Stderr)
		for i, s := range services {
			printRow(s.name, limit.callers, samples[i])
		}

		// The ratios come after the figures, in a table of their own.
		if len(services) == 2 {
			line, ok := compare(limit, samples[0], samples[1])
			ratios, kept = append(ratios, line), kept && ok
		}
	}

	if ratios != nil {
		fmt.Println("\n| callers | decisions/s | p50 | p99 | CPU | bounds |")
		fmt.Println("|--:|--:|--:|--:|--:|---|")
	}

	for _, line := range ratios {
		fmt.Println(line)
	}
	return kept, nil
}

// median returns the median of what f says about the samples.
func median[T cmp.Ordered](samples []sample, f func(sample) T) T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = f(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func sum(samples []sample, f func(sample) int) (n int) {
	for _, s := range samples {
		n += f(s)
	}
	return n
}

func perSecond(s sample) float64   { return s.perSecond }
func p50(s sample) time.Duration   { return s.p50 }
func p99(s sample) time.Duration   { return s.p99 }
func cpuOf(s sample) time.Duration { return s.cpu }

func printRow(name string, callers int, samples []sample) {
	const unit = 10 * time.Microsecond
	fmt.Printf("| %s | %d | %.0f | %s | %s | %s | %d | %d | %d |\n", name, callers, median(samples, perSecond),
		median(samples, p50).Round(unit), median(samples, p99).Round(unit),
		median(samples, cpuOf).Round(time.Microsecond/10),
		sum(samples, func(s sample) int { return s.late }), sum(samples, func(s sample) int { return s.said }),
		sum(samples, func(s sample) int { return s.away }))
}

// compare returns the medians of the ratios of rounds that took turns, and whether they keep the
// bound.
func compare(limit bound, ours, rival []sample) (line string, kept bool) {
	// A ratio of two rounds that follow each other is less disturbed than one of two medians.
	ratio := func(f func(sample) float64) float64 {
		pairs := make([]float64, len(ours))
		for i := range ours {
			if r := f(rival[i]); r > 0 {
				pairs[i] = f(ours[i]) / r
			}
		}
		slices.Sort(pairs)
		return pairs[len(pairs)/2]
	}

	speed := ratio(perSecond)
	middle := ratio(func(s sample) float64 { return float64(s.p50) })
	tail := ratio(func(s sample) float64 { return float64(s.p99) })
	cpu := ratio(func(s sample) float64 { return float64(s.cpu) })

	kept = speed >= limit.perSecond && tail < 1 && cpu <= limit.cpu
	verdict := "kept"
	if !kept {
		verdict = fmt.Sprintf("NOT KEPT: at least %.2f, p99 below 1, CPU at most %.2f", limit.perSecond, limit.cpu)
	}
	row := fmt.Sprintf("| %d | %.2f | %.2f | %.2f | %.2f | %s |", limit.callers, speed, middle, tail, cpu, verdict)
	return row, kept
}
