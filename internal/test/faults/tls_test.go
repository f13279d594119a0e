package faults

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

const (
	// handshake is the DialTimeout that docs/promises.md advises with TLS. A stalled
	// handshake may keep a connection of the pool for that time. No request waits
	// for it.
	handshake = 500 * time.Millisecond

	// rest is the time after which the client dials again once as many dials in a row
	// have failed as its pool has places.
	rest = time.Second
)

// openTLS starts one server that speaks TLS, and a lane for each mode with its own
// proxy, which cannot read the traffic.
func openTLS(t testing.TB, f *fault, c clients) *scene {
	server, addr, config := redistest.TLS(t, f.args...)
	s := &scene{t: t, server: server, secret: newPassword("first"), admin: adminOf(t, server.Addr)}
	s.past = func() redis.UniversalClient { return s.admin }
	s.allow()
	for i := range modes {
		s.enter(f, &modes[i], c, faultproxy.Raw(t, addr), redis.Options{TLSConfig: config, DialTimeout: handshake})
	}
	return s
}

func tlsFaults() []fault {
	const ms = time.Millisecond
	list := []fault{
		// The same faults as without TLS, as far as they differ in a handshake or a record.
		{name: "none", sees: nothing, inflict: func(s *scene) { s.hold(400 * ms) }},
		network("stalls", faultproxy.Fault{Silent: true}, time.Second, something),
		network("delay-300ms", faultproxy.Fault{Delay: 300 * ms}, 700*ms, something),
		network("trickle-1KBs", faultproxy.Fault{Rate: 1000}, time.Second, whatever),
		network("reset", faultproxy.Fault{Reset: true}, 500*ms, something),
		// The handshake adds round trips, so the client needs more time to connect than the request
		// has.
		{name: "cold-start-far-away", sees: something, within: 500 * ms, inflict: startFarAway,
			options: func(o *redis.Options) { o.DialTimeout = patience }},
		network("cut-at-random-bytes", faultproxy.Fault{Life: 6000}, 3*time.Second, something),
		{name: "frozen-2s", sees: something, inflict: func(s *scene) { freeze(s, 2*time.Second) }},
		// All open connections end, so that every request waits for a handshake.
		{name: "stalls-in-the-handshake", sees: something, inflict: func(s *scene) {
			s.set(faultproxy.Fault{Silent: true})
			s.do("CLIENT", "KILL", "USER", "app")
			s.sustain(time.Second)
			s.set(faultproxy.Fault{})
		}},
	}

	// If memory has decided meanwhile, Redis decides after some successful calls in a
	// row. A call that waits for a handshake fails and ends the row.
	for i := range list {
		list[i].recovery = handshake + rest + 2*usual
	}
	return list
}
