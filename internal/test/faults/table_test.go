package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// table collects the measurements of all runs of the suite.
type table struct {
	mu      sync.Mutex
	entries []entry
}

// entry holds the worst measurements of one fault in one place, over all modes and runs.
type entry struct {
	fault, place string
	modes        []string
	verdict
	runs, failed int
}

// of adds the measurements of one mode.
func (e *entry) of(v verdict) {
	e.modes = append(e.modes, v.mode)
	e.worst(&v)
}

func (e *entry) worst(v *verdict) {
	e.requests += v.requests
	e.undecided += v.undecided
	e.slowest = max(e.slowest, v.slowest)
	e.net = max(e.net, v.net)
	e.executions = max(e.executions, v.executions)
	e.over = max(e.over, v.over)
	e.allowed = max(e.allowed, v.allowed)
	e.recovery = max(e.recovery, v.recovery)
	e.leases += v.leases
	e.unsettled += v.unsettled
}

// add adds one run of a fault.
func (r *table) add(e entry, failed bool) {
	e.runs = 1
	if failed {
		e.failed = 1
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	i := slices.IndexFunc(r.entries, func(o entry) bool { return o.fault == e.fault && o.place == e.place })
	if i < 0 {
		r.entries = append(r.entries, e)
		return
	}

	// A fault that is run again keeps its worst values, and counts its runs.
	all := &r.entries[i]
	all.worst(&e.verdict)
	all.runs, all.failed = all.runs+1, all.failed+e.failed
}

// preface is the text before the table.
const preface = `# What the fault suite has measured

For those who ask what was measured when servers fail.

This page is written by

    go -C internal/test/faults test . -count=5 -timeout 120m -args -table $PWD/docs/faults.md

Each row is one fault, which three limiters meet at once: one that fails open, one that fails closed, and one that falls
back to memory. The figures are the worst of the modes and of all runs, under some 600 requests a second, with servers
and clients on the same two processors.

* *Undecided* requests met the fault and were answered as their mode says.
* A request is meant to take the store's timeout, 50 ms, and 20 ms more at most, the time without a processor taken off.
  This is measured, and no run fails for it. A fault that no request is to notice is met with a timeout of 10 s, so that
  all requests are decided however busy the machine is, and *master-gone*, which is to keep no request from the other
  masters, with one of 1 s. *cold-start-far-away*, where each reply takes 300 ms, has one of 500 ms.
* *Executions* are how often Redis counted one request. *Admitted over the limit* is beside what may be lost when a server
  forgets: one limit for each time, and in memory what the fallback may admit.
* One in seven of the requests with a key of their own is charged an estimate, and settled when it has ended. It is then
  charged what it used if Redis has said so, and otherwise its estimate or what it used: those are *not settled*.
* *Decides again* is the time from the end of the fault to the last request that Redis did not decide.
* *Holds* is in how many runs every promise held that is not about time.

Services that are flooded by thousands of connections or stopped for seconds, clients who leave, never read, or open and
close connections, and a Redis that answers each second call late are rows of

    HEADGATE_LONG=1 go test -v ./internal/test/load

Each fails where a key is served more than its limit by one instance, or more than twice its limit by two.

`

// markdown returns the page, in an order that does not change from run to run.
func (r *table) markdown() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	// By place, and in it by fault.
	slices.SortStableFunc(r.entries, func(a, b entry) int {
		return cmp.Or(-cmp.Compare(a.place, b.place), cmp.Compare(a.fault, b.fault))
	})

	var b strings.Builder
	b.WriteString(preface)
	b.WriteString("| fault | where | modes | requests | undecided | slowest request | of it with a processor | executions per request | " +
		"admitted over the limit (bound) | not settled | decides again after | holds |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n")

	for _, e := range r.entries {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %s | %s | %d | %d (%d) | %d | %s | %s |\n", e.fault,
			e.place, strings.Join(e.modes, ", "),
			e.requests, e.undecided, e.slowest.Round(time.Millisecond), e.net.Round(time.Millisecond),
			e.executions, e.over, e.allowed,
			e.unsettled, e.recovery.Round(time.Millisecond), e.result())
	}
	return b.String()
}

// result returns in how many runs the promises held.
func (e *entry) result() string {
	text := fmt.Sprintf("%d of %d", e.runs-e.failed, e.runs)
	if e.failed > 0 {
		text = "**" + text + "**"
	}
	return text
}
