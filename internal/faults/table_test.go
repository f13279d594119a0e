package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// table collects what was measured.
type table struct {
	mu      sync.Mutex
	entries []entry
}

// entry is one fault in one place, the worst of all modes.
type entry struct {
	fault, place string
	modes        []string
	verdict
	failed bool
}

func (e *entry) add(v verdict) {
	e.modes = append(e.modes, v.mode)
	e.requests += v.requests
	e.undecided += v.undecided
	e.excused += v.excused
	e.slowest = max(e.slowest, v.slowest)
	e.net = max(e.net, v.net)
	e.executions = max(e.executions, v.executions)
	e.over = max(e.over, v.over)
	e.allowed = max(e.allowed, v.allowed)
	e.recovery = max(e.recovery, v.recovery)
	e.leases += v.leases
}

// busy tells that too much was excused for recovery to be known.
func (v *verdict) busy() bool { return v.excused*2 > v.undecided }

func (r *table) add(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
}

// markdown is the table, in an order that does not change from run to run.
func (r *table) markdown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.entries, func(a, b entry) int {
		return cmp.Or(-cmp.Compare(a.place, b.place), cmp.Compare(a.fault, b.fault))
	})
	var b strings.Builder
	b.WriteString("| fault | where | modes | requests | undecided (excused) | slowest request | of it with a processor | executions per request | " +
		"admitted over the limit (bound) | decides again after | |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n")
	for _, e := range r.entries {
		result := "holds"
		switch {
		case e.failed:
			result = "**fails**"
		case e.busy():
			result = "not judged: the machine was busy"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d (%d) | %s | %s | %d | %d (%d) | %s | %s |\n", e.fault, e.place, strings.Join(e.modes, ", "),
			e.requests, e.undecided, e.excused, e.slowest.Round(time.Millisecond), e.net.Round(time.Millisecond), e.executions, e.over, e.allowed,
			e.recovery.Round(time.Millisecond), result)
	}
	return b.String()
}
