package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// bounds are the rows of the table of goals: a row's name, its goal and its guard stand here, and
// for algorithms in their own list, alone. A row that misses its goal is guarded a third above
// what was measured on two processors, so that a slowdown by half breaks the bound and another
// kind of machine does not. A row near its goal counts as one that misses it.
var bounds = slices.Concat([]bound{
	inMemory(hotKey, ours, goLimits, floored(0.7, 0.87)),
	inMemory(refused, ours, goLimits, floored(0.4, 0.85)),
	inMemory(uniform, ours, goLimits, floored(0.5, 0.7)),
	inMemory(hotKey, oursAllow, goLimits, floored(1.0, 2.0)),
	inMemory(hotKey, oursTwice, goTwice, floored(1.0, 1.85)),
	parallelToSerial(uniform, oursTake, at(1.0)),
	parallelToSerial(zipf, oursTake, at(1.0)),
	inRules(at(3)),

	inHTTP("net/http, headers", ours, httpLimits, missed(0.7, 0.93)),
	inHTTP("net/http, headers", oursX, httpLimits, missed(0.7, 0.8)),
	inHTTP("net/http, no headers", ours, httpRate, missed(0.8, 0.85)),
	inHTTP("Gin, headers", ours, ginRate, floored(0.7, 0.95)),
	inHTTP("Gin, headers", oursX, ginRate, missed(0.7, 0.8)),
	inHTTP("Gin, no headers", ours, ginRate, missed(1.0, 1.17)),
	inHTTP("Echo, no headers", ours, echoOwn, floored(1.0, 2.25)),
	inHTTP("Fiber, headers", ours, fiberOwn, floored(1.0, 2.3)),
	inHTTP("Fiber, headers", oursX, fiberOwn, floored(1.0, 1.95)),
	inHTTPRefused("net/http, headers", ours, httpLimits, at(1.0)),
	inHTTPRefused("Gin, headers", ours, ginRate, at(1.0)),
	inHTTPRefused("Gin, no headers", ours, ginRate, missed(0.8, 1.05)),
	inHTTPRefused("Echo, no headers", ours, echoOwn, at(0.8)),
	inHTTPRefused("Fiber, headers", ours, fiberOwn, floored(1.0, 3.3)),
	inHTTPRefused("Fiber, headers", oursX, fiberOwn, floored(1.0, 3.0)),
	inHTTPRefused("Fiber, short refusals", oursShort, fiberOwn, floored(1.0, 2.0)),

	inRedis(1, ours, redisRate, missed(1.0, 1.4)),
	inRedis(1, oursRueidis, rueidisRate, missed(1.0, 1.4)),
	inRedis(100, ours, redisRate, at(0.29)),
	inRedis(1000, ours, redisRate, at(0.2)),
	fromRedis(5*time.Millisecond, 1, ours, redisRate, at(1.1)),
	fromRedis(20*time.Millisecond, 100, ours, redisRate, at(1.0)),
}, algorithmBounds(), bytesBounds(), returnedBounds())

// A bound is a row of the table of goals: a cost of headgate, mostly as a ratio to that of a rival
// that does the same work in turns with it.
type bound struct {
	name string
	aim

	// open returns headgate, the rival, and, if there is one, a contender for
	// the work that both have in common, which is subtracted. The floor, if the row
	// has one, is the last. The first figure of each is a cost.
	open func(p pace) (list []contender, stop func(), err error)

	// figure returns the cost of a row that is compared with nothing and has no open.
	figure func(p pace) (float64, error)
}

// aim is the cost that a row is to have at most, and the one above which the guard fails: the goal,
// or more where the goal is missed. A floor says how far any limiter could come.
type aim struct {
	goal, max float64
	floor     bool
}

// at is the aim of a row that is at its goal.
func at(goal float64) aim { return aim{goal, goal, false} }

// missed is the aim of a row that misses its goal.
func missed(goal, max float64) aim { return aim{goal, max, false} }

// floored is the aim of a row that misses its goal and has a floor.
func floored(goal, max float64) aim { return aim{goal, max, true} }

// contenders are the names of a row, of what it is compared with, and of its floor.
func (a aim) contenders(names ...string) []string {
	if a.floor {
		names = append(names, floorOf(names[0]))
	}
	return names
}

// inMemory compares two peers in one of the works.
func inMemory(work, row, rival string, a aim) bound {
	return bound{name: fmt.Sprintf("memory, %s: %s to %s", work, row, rival), aim: a,
		open: func(p pace) ([]contender, func(), error) {
			var peers []memoryPeer
			for _, name := range a.contenders(row, rival) {
				peers = append(peers, peerOf(slices.Concat(memoryPeers, memoryFloors), name))
			}
			return compete(workOf(work), p, peers), func() {}, nil
		}}
}

// parallelToSerial compares the wall's time of a decision on all processors with that on one.
func parallelToSerial(work, row string, a aim) bound {
	return bound{name: fmt.Sprintf("memory, %s: %s, all processors to one", work, row), aim: a,
		open: func(p pace) ([]contender, func(), error) {
			return pair(memoryPeers, row, workOf(inParallel(work)), row, workOf(work), p), func() {}, nil
		}}
}

// algorithmBounds compare each algorithm with GCRA in both works.
func algorithmBounds() (list []bound) {
	for _, a := range algorithms[1:] {
		for _, in := range []struct {
			work string
			aim  aim
		}{{hotKey, a.hot}, {uniform, a.uniform}} {
			list = append(list, bound{name: fmt.Sprintf("memory, %s: %s to %s", in.work, a.name, byRounds), aim: in.aim,
				open: func(p pace) ([]contender, func(), error) {
					w := workOf(in.work)
					list := pair(algorithmPeers(w), a.name, w, byRounds, w, p)
					if in.aim.floor {
						list = append(list, compete(w, p, []memoryPeer{a.floorPeer(len(w.keys))})...)
					}
					return list, func() {}, nil
				}})
		}
	}
	return list
}

// pair prepares two peers, each for a work.
func pair(peers []memoryPeer, row string, w work, rival string, x work, p pace) []contender {
	list := compete(w, p, []memoryPeer{peerOf(peers, row)})
	return append(list, compete(x, p, []memoryPeer{peerOf(peers, rival)})...)
}

// peerOf returns the peer of that name.
func peerOf(peers []memoryPeer, name string) memoryPeer {
	i := slices.IndexFunc(peers, func(m memoryPeer) bool { return m.name == name })
	return peers[i]
}

// bytesBounds bound the heap of a key.
func bytesBounds() (list []bound) {
	for _, b := range []struct {
		name, limit string
		units       int
		aim         aim
	}{
		{"GCRA", "100/1h", 1, at(100)},
		{"fixed window", "100/1h fixed-window", 1, at(100)},
		{"token bucket", "100/1h token-bucket", 1, at(100)},
		{"sliding window of 10", "100/1h sliding-window", 10, at(130)},
		{"sliding log of 3", "3/1h sliding-log", 3, missed(40+3*8, 113)},
		{"calendar", "10000/month tz=Europe/Berlin", 1, at(100)},
		{"3 leases", "3 concurrent ttl=1h", 3, missed(60+3*24, 180)},
	} {
		list = append(list, bound{name: "memory, bytes a key: " + b.name, aim: b.aim,
			figure: func(p pace) (float64, error) { return bytesOfKey(p, b.limit, b.units) }})
	}
	return list
}

// returnedBounds bound how many periods the memory of expired keys takes to come back.
func returnedBounds() (list []bound) {
	for _, n := range loads {
		name := fmt.Sprintf("memory, periods until expired keys are given back, keys in use: %d", n)
		list = append(list, bound{name: name, aim: at(2), figure: func(p pace) (float64, error) {
			r, err := returnedUnder(p, n)
			return r.periods, err
		}})
	}
	return list
}

// inRules compares a decision under three rules with one under one rule.
func inRules(a aim) bound {
	return bound{name: "memory: three rules to one", aim: a, open: func(p pace) ([]contender, func(), error) {
		var list []contender

		for _, n := range []int{3, 1} {
			worker, _, err := openMemoryRules("", n, steady)
			if err != nil {
				return nil, nil, err
			}

			list = append(list, contender{fmt.Sprintf("%d rules", n), func() ([]float64, error) {
				return callAll(worker, addresses(clients), 1, p.round)
			}})
		}

		return costs(list), func() {}, nil
	}}
}

// inHTTP compares the time that a row of headgate adds to allowed requests.
func inHTTP(id, row, rival string, a aim) bound {
	return bound{name: fmt.Sprintf("%s, added: %s to %s", id, row, rival), aim: a,
		open: func(p pace) ([]contender, func(), error) {
			return contestOf(id).open(p, wide, a.contenders(row, rival, bare)...)
		}}
}

// inHTTPRefused compares the whole time of refused requests.
func inHTTPRefused(id, row, rival string, a aim) bound {
	return bound{name: fmt.Sprintf("%s, refused: %s to %s", id, row, rival), aim: a,
		open: func(p pace) ([]contender, func(), error) {
			return contestOf(id).open(p, narrow, a.contenders(row, rival)...)
		}}
}

// inRedis compares the time of a decision, over all callers.
func inRedis(n int, row, rival string, a aim) bound {
	return bound{name: fmt.Sprintf("Redis, callers: %d: %s to %s", n, row, rival), aim: a,
		open: func(p pace) ([]contender, func(), error) { return openFar(0, n, p, row, rival) }}
}

// fromRedis is inRedis at a distance.
func fromRedis(d time.Duration, n int, row, rival string, a aim) bound {
	return bound{name: fmt.Sprintf("Redis %s away, callers: %d: %s to %s", d, n, row, rival), aim: a,
		open: func(p pace) ([]contender, func(), error) { return openFar(d, n, p, row, rival) }}
}

// openFar opens two peers on a server of their own. No proxy stands before a server that is near.
func openFar(d time.Duration, n int, p pace, row, rival string) ([]contender, func(), error) {
	addr, stop, err := startRedis()
	if errors.Is(err, errNoRedis) {
		return nil, nil, fmt.Errorf("%w: %w", errSkipped, err)
	}
	if err != nil {
		return nil, nil, err
	}

	closeProxy := func() {}
	if d > 0 {
		proxy, err := startDelay(addr, d/2)
		if err != nil {
			stop()
			return nil, nil, err
		}
		addr, closeProxy = proxy.addr, proxy.stop
	}

	list, closeAll := contenders(redisPeersOf(row, rival), addr, n, max(p.round/4, 10*d), max(3*p.round, 25*d))
	return costs(list), func() { closeAll(); closeProxy(); stop() }, nil
}
