package main

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// byRounds is the row that the others of the table of algorithms are compared with: the limit of
// the other tables.
const byRounds = "GCRA"

// algorithmPeers are the rows of the table of algorithms, each headgate's store under a limit that
// refuses nothing. A log is missing: one that refuses nothing has no end.
var algorithmPeers = []memoryPeer{
	{name: byRounds, open: openLimit("576000/24h burst=200000000")},
	{name: "GCRA, 30 units a second", open: openLimit("30/1s burst=200000000")},
	{name: "token bucket", open: openLimit("576000/24h token-bucket burst=200000000")},
	{name: "fixed window", open: openLimit("200000000/24h fixed-window")},
	{name: "sliding window of 10", open: openLimit("200000000/24h sliding-window")},
}

// openLimit opens the store for a limit of its own, whatever the quota of the contest is.
func openLimit(text string) func(quota) (func() take, error) {
	return func(quota) (func() take, error) {
		l, err := core.ParseLimit(text)
		if err != nil {
			return nil, err
		}
		s, err := memstore.New(memstore.Options{})
		if err != nil {
			return nil, err
		}
		return func() take { return takeOf(s, l) }, nil
	}
}

// takeOf returns a take of the store under a limit. It uses its slices again, so that only the
// store may allocate.
func takeOf(s core.Store, l core.Limit) take {
	ops, out := []core.Op{{Rule: "api", Limit: l, Cost: 1}}, make([]core.Decision, 1)
	return func(key string) bool {
		ops[0].Key = key
		return s.Apply(context.Background(), ops, out) == nil && out[0].Allowed
	}
}

// algorithmTable measures headgate's store under each algorithm.
func algorithmTable(p pace) *Table {
	var list []work
	for _, w := range works() {
		if w.quota == wide {
			list = append(list, w)
		}
	}

	columns, names := []string{}, []string{}
	for _, w := range list {
		columns = append(columns, w.name)
	}
	for _, peer := range algorithmPeers {
		names = append(names, peer.name)
	}

	t := newTable("algorithms", "In memory, by algorithm: ns a decision",
		fmt.Sprintf("headgate's store, medians of %d interleaved rounds.", p.rounds), columns, names)
	for i, w := range list {
		t.enter(i, contest(compete(w, p, algorithmPeers), p.rounds))
	}
	return t
}

// inAlgorithm compares a row of the table of algorithms with GCRA in one of the works.
func inAlgorithm(name, row string, max float64) bound {
	return bound{"memory, " + name + ", " + row + " to " + byRounds, max, func(p pace) ([]contender, func(), error) {
		return competeIn(name, p, algorithmPeers, row, byRounds)
	}}
}
