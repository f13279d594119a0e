package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-redis/redis_rate/v10"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// counts are the numbers of rules in one decision.
var counts = []int{1, 3, 10}

// ruled decides about one key under n rules.
type ruled struct {
	name    string
	callers int
	remote  bool
	open    func(addr string, n int, q quota) (worker func() ask, stop func(), err error)
}

var ruledPeers = []ruled{
	{"headgate in memory", 1, false, openMemoryRules},
	{"headgate in Redis, 1 caller", 1, true, openRedisRules},
	{"headgate in Redis, 100 callers", 100, true, openRedisRules},
	{"redis_rate once a rule, 1 caller", 1, true, openRateRules},
	{"redis_rate once a rule, 100 callers", 100, true, openRateRules},
}

// rulesSection measures decisions about one key under several rules. A peer
// without this feature asks once for each rule.
func rulesSection(p pace) ([]Table, error) {
	addr, stop, err := startRedis()
	if err == nil {
		defer stop()
	} else if !errors.Is(err, errNoRedis) {
		return nil, err
	}

	t := newTable("rules", "Rules in one decision: µs a decision",
		"The wall's time, divided by all decisions. redis_rate is asked once for each rule: what it charged stays charged when a later rule refuses.",
		[]string{"1", "3", "10"}, nil)

	// Without Redis the peers in memory are measured alone.
	for _, peer := range ruledPeers {
		if peer.remote && err != nil {
			continue
		}

		var list []contender
		for _, n := range counts {
			worker, stop, err := peer.open(addr, n, steady)
			defer stop()
			if err == nil {
				err = passes(func() error { return examineRemote(peer.open(addr, n, exam)) })
			}
			list = append(list, contender{peer.name, func() ([]float64, error) {
				if err != nil {
					return nil, err
				}
				f, err := callAll(worker, addresses(1000), peer.callers, p.round)
				if err != nil {
					return nil, err
				}
				return []float64{1e6 / f[0]}, nil
			}})
		}

		for i, o := range contest(list, p.rounds) {
			t.enter(i, []outcome{o})
		}
	}

	return []Table{*t}, nil
}

// steps returns one ask for each caller, of n operations.
func steps(s core.Store, n int, q quota) func() ask {
	return func() ask {
		// Each caller uses its slices again, so that only the store may allocate.
		ops, out := make([]core.Op, n), make([]core.Decision, n)
		for i := range ops {
			ops[i] = core.Op{Rule: fmt.Sprintf("rule%d", i), Limit: q.limit(), Cost: 1}
		}

		return func(ctx context.Context, key string) error {
			for i := range ops {
				ops[i].Key = key
			}

			err := s.Apply(ctx, ops, out)
			return admitted(!slices.ContainsFunc(out, func(d core.Decision) bool { return !d.Allowed }), err)
		}
	}
}

func openMemoryRules(_ string, n int, q quota) (func() ask, func(), error) {
	s, err := memstore.New(memstore.Options{})
	return steps(s, n, q), func() {}, err
}

func openRedisRules(addr string, n int, q quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)
	s, err := redisstore.New(c, redisOptions)
	return steps(s, n, q), stop, err
}

func openRateRules(addr string, n int, q quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)
	l := redis_rate.NewLimiter(c)
	limit := redis_rate.Limit{Rate: q.units, Period: q.period, Burst: q.burst}

	// The first refusal ends a decision, and what the rules before it charged stays charged.
	return same(func(ctx context.Context, key string) error {
		for i := range n {
			r, err := l.Allow(ctx, fmt.Sprintf("rule%d:%s", i, key), limit)
			if err := admitted(err == nil && r.Allowed > 0, err); err != nil {
				return err
			}
		}
		return nil
	}), stop, nil
}
