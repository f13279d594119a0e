package faults

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

// password is a password that can be changed while a client is in use.
type password struct{ atomic.Pointer[string] }

func newPassword(text string) *password {
	p := &password{}
	p.Store(&text)
	return p
}

func (p *password) credentials() (user, secret string) { return "app", *p.Load() }

// openStandalone starts one server, and a lane for each mode with a proxy of its
// own. The user of the clients has the permissions that docs/redis.md lists, and no more.
func openStandalone(t testing.TB, f *fault, c clients) *scene {
	server := redistest.Start(t, f.args...)
	s := &scene{t: t, server: server, secret: newPassword("first"), admin: adminOf(t, server.Addr)}
	s.past = func() redis.UniversalClient { return s.admin }
	s.allow()
	for i := range modes {
		s.enter(f, &modes[i], c, faultproxy.New(t, server.Addr), redis.Options{})
	}
	return s
}

// enter opens a lane that goes through the proxy, with a client of its own.
func (s *scene) enter(f *fault, m *mode, c clients, proxy *faultproxy.Proxy, o redis.Options) {
	s.t.Helper()
	o.Addr, o.ContextTimeoutEnabled, o.CredentialsProvider = proxy.Addr, true, s.secret.credentials
	if d := f.timeout(); d > 0 {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = d, d, d, d
	}
	if f.options != nil {
		f.options(&o)
	}
	l := openLane(s.t, f, m, c.standalone(s.t, &o))
	l.proxy = proxy
	s.lanes = append(s.lanes, l)
}

// allow creates the user of the clients.
func (s *scene) allow() {
	s.do("ACL", "SETUSER", "app", "reset", "on", ">"+*s.secret.Load(), "~test-*",
		"+eval", "+evalsha", "+get", "+mget", "+exists", "+set", "+del", "+time", "+pttl", "+pexpire")
}

// adminOf returns a patient client that tries each command once, without a proxy.
func adminOf(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience})
	t.Cleanup(func() { c.Close() })
	return c
}

// sharedKeyOf returns the name of the key that all requests of a lane share.
func sharedKeyOf(l *lane) string { return l.prefix + "{" + sharedKey + "}:shared:f" }

// set puts a fault into every proxy.
func (s *scene) set(f faultproxy.Fault) {
	for _, l := range s.lanes {
		l.proxy.Set(f)
	}
}

// network returns a fault between clients and server that lasts for a while.
func network(name string, f faultproxy.Fault, long time.Duration, sees sight) fault {
	return fault{name: name, sees: sees, inflict: func(s *scene) {
		s.set(f)
		s.sustain(long)
		s.set(faultproxy.Fault{})
	}}
}

// during returns a fault of the server that lasts from one command to another.
func during(name string, long time.Duration, sees sight, begin, end []any) fault {
	return fault{name: name, sees: sees, inflict: func(s *scene) {
		s.do(begin...)
		s.sustain(long)
		s.do(end...)
	}}
}

// again returns a fault that sends a command at intervals.
func again(name string, pause, long time.Duration, sees sight, command ...any) fault {
	return fault{name: name, sees: sees, inflict: func(s *scene) {
		s.every(pause, long, func() { s.do(command...) })
	}}
}

// always returns a fault that every run of the tests inflicts.
func always(f fault) fault {
	f.brief = true
	return f
}

func config(name, value string) []any { return []any{"CONFIG", "SET", name, value} }

func standaloneFaults() []fault {
	const ms = time.Millisecond
	list := []fault{
		{name: "none", sees: nothing, brief: true, inflict: func(s *scene) { s.hold(400 * ms) }},
		// Delays on both sides of the timeout of 50ms.
		network("delay-10ms", faultproxy.Fault{Delay: 10 * ms}, 400*ms, nothing),
		network("delay-49ms", faultproxy.Fault{Delay: 49 * ms}, 400*ms, whatever),
		network("delay-51ms", faultproxy.Fault{Delay: 51 * ms}, 400*ms, something),
		network("delay-500ms", faultproxy.Fault{Delay: 500 * ms}, 700*ms, something),
		network("jitter-100ms", faultproxy.Fault{Jitter: 100 * ms}, 500*ms, something),
		network("trickle-1KBs", faultproxy.Fault{Rate: 1000}, 400*ms, whatever),
		// Networks that swallow what is sent, on open connections or on new ones, for half a second
		// and for three.
		always(network("half-open", faultproxy.Fault{Silent: true}, 500*ms, something)),
		network("blackhole", faultproxy.Fault{Blackhole: true}, 500*ms, something),
		network("half-open-3s", faultproxy.Fault{Silent: true}, 3*time.Second, something),
		network("blackhole-3s", faultproxy.Fault{Blackhole: true}, 3*time.Second, something),
		// Networks that answer with an error, at once.
		network("refused-3s", faultproxy.Fault{Refuse: true}, 3*time.Second, something),
		network("refused", faultproxy.Fault{Refuse: true}, 500*ms, something),
		network("reset", faultproxy.Fault{Reset: true}, 500*ms, something),
		// What a server never says, and what looks like the reply of a script and is none.
		network("garbage", faultproxy.Fault{Garbage: "\x00\xff*3\r\n$-7\r\n"}, 400*ms, something),
		network("garbage-that-is-a-reply",
			faultproxy.Fault{Garbage: "*6\r\n:1\r\n:9\r\n:1\r\n:1\r\n:1\r\n$1\r\nx\r\n"}, 400*ms, something),
		// Connections that are made far away, and networks that come and go.
		{name: "cold-start-far-away", sees: something, brief: true, within: 500 * ms, inflict: startFarAway},
		{name: "flapping", sees: something, brief: true, inflict: flap},
		// Requests and replies that break at each of their bytes: a count may have happened or not.
		{name: "cut-request-at-each-byte", sees: something, inflict: cutRequests},
		{name: "cut-reply-at-each-byte", sees: something, brief: true,
			inflict: func(s *scene) { cutReplies(s, false) }},
		{name: "reset-reply-at-each-byte", sees: something, inflict: func(s *scene) { cutReplies(s, true) }},
		network("cut-at-random-bytes", faultproxy.Fault{Life: 3000}, 3*time.Second, something),
		{name: "drop-nth-reply", sees: something, brief: true, inflict: dropReplies},
		// With a single connection, requests wait for each other and not for the server.
		{name: "one-connection", sees: whatever, options: func(o *redis.Options) { o.PoolSize = 1 },
			inflict: func(s *scene) {
				s.set(faultproxy.Fault{Delay: 30 * ms})
				s.hold(400 * ms)
				s.set(faultproxy.Fault{})
			}},
	}
	return append(list, serverFaults()...)
}

// startFarAway leaves the limiters without connections and scripts, far from the server: a
// connection takes at least two timeouts to become ready. Redis decides nevertheless. The
// distance is to the timeout as 30 ms to 50 ms, but leaves a busy machine its time.
func startFarAway(s *scene) {
	const far, enough = 300 * time.Millisecond, 10

	// Connections and scripts are gone before the distance begins.
	s.set(faultproxy.Fault{Reset: true})
	s.do("SCRIPT", "FLUSH")
	s.set(faultproxy.Fault{Delay: far})

	s.until("a request that meets the distance", s.noticed)

	// Only requests that took the whole way count, which the fallback's do not.
	begun := time.Now()
	for _, l := range s.lanes {
		s.until("Redis decides for "+l.mode.name+" from afar", func() bool {
			n := 0
			for _, h := range l.seen() {
				if h.decided && h.from.After(begun) && h.to.Sub(h.from) >= far {
					n++
				}
			}
			return n >= enough
		})
	}

	s.set(faultproxy.Fault{})
}

// flap interrupts the network again and again.
func flap(s *scene) {
	var stops []func()
	for _, l := range s.lanes {
		stops = append(stops, l.proxy.Flap(100*time.Millisecond, faultproxy.Fault{Refuse: true}, faultproxy.Fault{},
			faultproxy.Fault{Silent: true}, faultproxy.Fault{}))
	}
	s.sustain(1200 * time.Millisecond)
	for _, stop := range stops {
		stop()
	}
}

// strike sets faults one after the other for all lanes at the same time, each until it
// has met one script call. If Redis may be bypassed, few scripts come, and only some of
// the faults are set.
func strike(s *scene, every int, count func(faultproxy.Counts) int, nth func(n int) faultproxy.Fault) {
	done := make(chan string, len(s.lanes))

	// Each lane advances alone, because its scripts come at its own pace.
	for _, l := range s.lanes {
		go func() {
			defer l.proxy.Set(faultproxy.Fault{})
			step := 1

			if l.mode.over != nil {
				step = every
			}

			// The lane's count of scripts says how many cuts there can be.
			for n := 0; n <= count(l.proxy.Counts()); n += step {
				l.proxy.Set(nth(n))
				if !s.poll(patience, func() bool { return l.proxy.Counts().Struck > 0 }) {
					done <- l.mode.name + ": no script came at cut " + strconv.Itoa(n)
					return
				}
			}
			done <- ""
		}()
	}

	// Errors are reported by this goroutine, which is the test's.
	for range s.lanes {
		if failed := <-done; failed != "" {
			s.t.Error(failed)
		}
	}
}

func cutRequests(s *scene) {
	strike(s, 25, func(c faultproxy.Counts) int { return min(c.Request, 300) }, func(n int) faultproxy.Fault {
		return faultproxy.Fault{Nth: 1, CutRequest: faultproxy.After(n)}
	})
}

func cutReplies(s *scene, abort bool) {
	strike(s, 8, func(c faultproxy.Counts) int { return c.Reply }, func(n int) faultproxy.Fault {
		return faultproxy.Fault{Nth: 1, CutReply: faultproxy.After(n), Abort: abort}
	})
}

func dropReplies(s *scene) {
	strike(s, 4, func(faultproxy.Counts) int { return 12 }, func(n int) faultproxy.Fault {
		return faultproxy.Fault{Nth: n + 1, Drop: true}
	})
}

// hoard opens n connections to the server and keeps them until the test ends
// or close is called.
func hoard(t testing.TB, addr string, n int) (close func()) {
	o := &redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, PoolSize: 1}

	var list []*redis.Client
	close = func() {
		for _, c := range list {
			c.Close()
		}
	}

	t.Cleanup(close)

	// The first connection that is refused shows that the server is full.
	for range n {
		c := redis.NewClient(o)
		list = append(list, c)
		if c.Ping(context.Background()).Err() != nil {
			break
		}
	}
	return close
}
