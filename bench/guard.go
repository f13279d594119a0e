package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// errSlow means that an aim was missed by more than its margin.
var errSlow = errors.New("headgate is slower against its peers than it has to be")

// aim is a ratio of two figures of one run. Margin is how much worse it may be
// before the guard fails: machines that others use too are noisy, and a change
// that costs a half shows nevertheless.
type aim struct {
	table        string
	row, rival   string
	column, base string
	most         float64 // of row and column to rival and base; negative: least
	margin       float64
}

var aims = []aim{
	{"memory", ours, goLimits, "hot key", "hot key", 0.7, 1.6},
	{"memory", ours, goLimits, "hot key, parallel", "hot key, parallel", 0.7, 1.6},
	{"memory", ours, goLimits, "refused", "refused", 0.4, 1.6},
	{"memory", ours, goLimits, "refused, parallel", "refused, parallel", 0.4, 1.6},
	{"memory", ours, goLimits, "100k uniform", "100k uniform", 0.5, 1.6},
	{"memory", ours, goLimits, "100k uniform, parallel", "100k uniform, parallel", 0.5, 1.6},
	{"redis", ours, redisRate, "1", "1", -1, 1.3},
	{"redis", ours, redisRate, "100", "100", -3.5, 1.4},
	{"redis", ours, redisRate, "1000", "1000", -5, 1.4},
	{"redis", ours, rueidisGCRA, "100", "100", -1.8, 1.4},
	{"redis-latency", ours, redisRate, "100, p99", "100, p99", 1, 1.3},
	{"redis-latency", ours, redisRate, "1000, p99", "1000, p99", 1, 1.3},
	{"rules", "headgate in memory", "headgate in memory", "3", "1", 3, 1.5},
	{"rules", "headgate in Redis, 1 caller", "headgate in Redis, 1 caller", "3", "1", 1.6, 1.4},
	{"rules", "headgate in Redis, 100 callers", "headgate in Redis, 100 callers", "3", "1", 1.6, 1.4},
}

// ceiling is a figure that no margin softens.
type ceiling struct {
	table, row, column string
	most               float64
}

var ceilings = []ceiling{
	{"memory", ours, "allocations", 0},
	{"bytes", ours, "in use", 100},
	{"bytes", ours, "after expiry", 50},
}

// check writes how every aim came out and returns errSlow if one was missed. An
// aim of a section that was not run is left out.
func check(w io.Writer, tables []Table) error {
	missed := 0
	report := func(ok bool, format string, args ...any) {
		mark := "ok  "
		if !ok {
			mark = "FAIL"
			missed++
		}
		fmt.Fprintf(w, mark+" "+format+"\n", args...)
	}
	for _, t := range tables {
		for _, a := range aims {
			if a.table == t.ID && len(t.Rows) > 0 {
				a.check(&t, report)
			}
		}
		for _, c := range ceilings {
			if got := t.figure(c.row, c.column); c.table == t.ID {
				report(got <= c.most, "%s, %s, %s: %.0f, at most %.0f", t.ID, c.row, c.column, got, c.most)
			}
		}
		if strings.HasPrefix(t.ID, "http ") {
			checkAdapter(&t, report)
		}
	}
	if missed > 0 {
		return fmt.Errorf("%w: %d", errSlow, missed)
	}
	return nil
}

func (a aim) check(t *Table, report func(bool, string, ...any)) {
	ratio := t.figure(a.row, a.column) / t.figure(a.rival, a.base)
	name := fmt.Sprintf("%s, %s: %s to %s, %s", t.ID, a.column, a.row, a.rival, a.base)
	if a.most < 0 {
		report(ratio >= -a.most/a.margin, "%s: %.2f, aim at least %.2f, fails below %.2f", name, ratio, -a.most, -a.most/a.margin)
		return
	}
	report(ratio <= a.most*a.margin, "%s: %.2f, aim at most %.2f, fails above %.2f", name, ratio, a.most, a.most*a.margin)
}

// An adapter may add three allocations, and be at most so much slower than the
// fastest of its peers.
const (
	adapterAllocs = 3
	adapterMargin = 1.5
)

func checkAdapter(t *Table, report func(bool, string, ...any)) {
	floor, least := t.figure(bare, "ns"), math.Inf(1)
	for _, r := range t.Rows {
		if ns := t.figure(r.Name, "ns"); r.Name != bare && r.Name != ours && ns < least {
			least = ns
		}
	}
	ratio := (t.figure(ours, "ns") - floor) / (least - floor)
	report(ratio <= adapterMargin, "%s: time added to that of the fastest peer: %.2f, aim below 1, fails above %.2f", t.ID, ratio, adapterMargin)
	added := t.figure(ours, "allocations") - t.figure(bare, "allocations")
	report(added <= adapterAllocs, "%s: %.0f allocations added, at most %d", t.ID, added, adapterAllocs)
}
