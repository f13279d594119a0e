package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// httpPeer is a middleware in front of a handler. Each has one rule, by the address
// of the peer.
type httpPeer struct {
	name string
	open func(q quota) (service, error)
}

// httpContest compares middlewares that do the same for a client: all of them send
// headers, or none does. One without the bare framework compares refusals alone.
type httpContest struct {
	id, title string
	peers     []httpPeer
}

// bare is a framework without a limiter.
const bare = "no limiter"

// The columns of a contest.
const (
	allowed       = "allowed"
	added         = "added"
	refused       = "refused"
	allowedAllocs = "allocations, allowed"
	refusedAllocs = "allocations, refused"
)

var httpColumns = []string{allowed, added, refused, allowedAllocs, refusedAllocs}

func httpSection(p pace) ([]Table, error) {
	var tables []Table
	for _, c := range httpContests {
		tables = append(tables, *c.measure(p))
	}
	return tables, nil
}

// measure measures requests that are allowed, unless refusals alone are compared, and then requests
// that are refused.
func (h *httpContest) measure(p pace) *Table {
	var names []string
	for _, peer := range h.peers {
		names = append(names, peer.name)
	}

	// A contender has two figures, the time and the allocations, whose columns are not side by
	// side.
	t := newTable(h.id, h.title, "", httpColumns, names)
	if slices.Contains(names, bare) {
		for _, o := range contest(h.contenders(wide, http.StatusOK, p), p.rounds) {
			t.enter(0, []outcome{o.upto(1)})
			t.enter(3, []outcome{o.from(1)})
		}
	}

	for _, o := range contest(h.contenders(narrow, http.StatusTooManyRequests, p), p.rounds) {
		t.enter(2, []outcome{o.upto(1)})
		t.enter(4, []outcome{o.from(1)})
	}

	// What the limiter adds is the difference to the same handler without one.
	none := t.figure(bare, allowed)
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Name != bare {
			r.Cells[1] = Figure(float64(r.Cells[0]) - none)
		}
	}

	return t
}

// contestOf returns the contest with that id.
func contestOf(id string) *httpContest {
	for i := range httpContests {
		if httpContests[i].id == id {
			return &httpContests[i]
		}
	}
	panic("there is no contest " + id)
}

// open prepares the peers of those names, in that order.
func (h *httpContest) open(p pace, q quota, names ...string) ([]contender, func(), error) {
	some := httpContest{}
	all := slices.Concat(h.peers, httpFloors[h.id])
	for _, name := range names {
		i := slices.IndexFunc(all, func(peer httpPeer) bool { return peer.name == name })
		some.peers = append(some.peers, all[i])
	}

	status := http.StatusOK
	if q == narrow {
		status = http.StatusTooManyRequests
	}
	return some.contenders(q, status, p), func() {}, nil
}

// contenders answer requests with the status. Without a limiter no request is
// refused.
func (h *httpContest) contenders(q quota, status int, p pace) []contender {
	var list []contender
	for _, peer := range h.peers {
		if peer.name == bare && status != http.StatusOK {
			continue
		}

		// A peer that cannot open fails in its turn, and is reported with the others.
		s, err := peer.open(q)
		if err == nil {
			err = passes(peer.examine)
		}
		var one serve
		if err == nil {
			one = s.requests()
		}
		list = append(list, contender{peer.name, func() ([]float64, error) {
			if err != nil {
				return nil, err
			}
			return answerFor(one, status, p.round)
		}})
	}

	return list
}

// answerFor measures the ns and allocations of a request. An answer with another
// status is an error.
func answerFor(s serve, status int, d time.Duration) ([]float64, error) {
	n, i, wrong := 0, 0, 0

	// The requests come from many addresses, one after the other.
	one := func() {
		if i++; i == clients {
			i = 0
		}
		if code := s(i); code != status {
			wrong = code
		}
	}

	for range 3 * clients { // uses narrow quotas up
		one()
	}
	wrong = 0

	// The clock is read once for 64 requests, or it would be measured too.
	used := cpuTime()
	for start := time.Now(); time.Since(start) < d; n += 64 {
		for range 64 {
			one()
		}
	}

	// Allocations are counted in requests of their own, as reading the counters takes time.
	ns := float64(cpuTime()-used) / float64(n)
	allocations := mallocs(2000, one)

	if wrong != 0 {
		return nil, fmt.Errorf("status %d, not %d", wrong, status)
	}
	return []float64{ns, allocations}, nil
}
