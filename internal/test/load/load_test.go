//go:build linux

package load

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

var (
	connsFlag = flag.String("conns", "500,1000,2000,4000", "the numbers of connections")
	span      = flag.Duration("span", time.Second, "how long clients ask")
	stopped   = flag.Duration("stopped", 3*time.Second, "how long a process is stopped")
)

// quota is how many requests of a key are to be served.
const quota = 30

// limits has a limit of quota units for each algorithm. None gives a unit back soon.
var limits = []string{
	"30/1h", "30/1h fixed-window", "30/1h sliding-log", "30/1h sliding-window", "30/1h token-bucket", "30/year",
}

// conns returns the numbers of connections, the largest last.
func conns(t testing.TB) (list []int) {
	t.Helper()
	for _, text := range strings.Split(*connsFlag, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("-conns %q", *connsFlag)
		}
		list = append(list, n)
	}

	// Both ends of each connection are files: those of this process and of the service, which
	// inherits the limit.
	var open syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &open); err != nil {
		t.Fatal(err)
	}

	if n := list[len(list)-1]; open.Cur < uint64(2*n+200) {
		test.Missing(t, fmt.Sprintf("a process may have %d open files, and %d connections need more", open.Cur, n))
	}
	return list
}

// fleet is several services over one Redis.
type fleet struct {
	t        testing.TB
	services []*service
}

// startFleet starts n services.
func startFleet(t testing.TB, n int, o settings) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for range n {
		f.services = append(f.services, start(t, o))
	}
	return f
}

// served returns how many requests of the key were served, and what else the services have
// counted, and fails where a request was not counted, or more were served than the limit
// allows: the limit in one instance, and one limit more in several.
func (f *fleet) served(key string) (served, local int64) {
	f.t.Helper()
	for _, s := range f.services {
		c := s.counts()
		served += c.Served[key]
		local += c.Local

		// A store that is away must not let requests pass: memory counts them.
		if c.Passed > 0 {
			f.t.Errorf("%d requests passed uncounted", c.Passed)
		}
	}

	// Several instances may serve one limit more while Redis is bypassed, however many they are.
	bound := int64(quota * min(2, len(f.services)))
	if served > bound {
		f.t.Errorf("%d requests were served, and %d may be", served, bound)
	}
	return served, local
}

// lines returns how many lines of all logs have the text.
func (f *fleet) lines(text string) (n int) {
	for _, s := range f.services {
		n += s.lines(text)
	}
	return n
}

// One client with many connections, on a Redis that is well, is served its limit.
func TestConnections(t *testing.T) {
	test.Long(t, "it has 4,000 connections ask for half a minute")
	redis := redistest.Start(t).Addr
	numbers := conns(t)
	most := numbers[len(numbers)-1]

	// One instance and two, for each number of connections and then for each algorithm.
	for _, n := range numbers {
		manyConnections(t, redis, n, 1, limits[0])
		manyConnections(t, redis, n, 2, limits[0])
	}
	for _, text := range limits[1:] {
		manyConnections(t, redis, most, 1, text)
		manyConnections(t, redis, most, 2, text)
	}

	// With two rules, of which the second never refuses.
	manyConnections(t, redis, most, 1, limits[1], "1000000/1s")
	manyConnections(t, redis, most, 2, limits[1], "1000000/1s")
}

// manyConnections has n connections ask instances of a service.
func manyConnections(t *testing.T, redis string, n, instances int, limits ...string) {
	t.Run(fmt.Sprintf("%d/%d/%s", n, instances, strings.Join(limits, " and ")), func(t *testing.T) {
		f := startFleet(t, instances, settings{Redis: redis, Prefix: redistest.Prefix(t), Limits: limits})

		var a answers
		var running sync.WaitGroup

		// The connections are shared out evenly, and all ask for the same key.
		for _, s := range f.services {
			all := dialAll(t, s.addr, n/instances)
			running.Go(func() { flood(all, *span, "one", &a) })
		}

		running.Wait()

		served, local := f.served("one")
		t.Logf("served %d, local %d, answers %s, Redis bypassed %d times", served, local, &a, f.lines("is bypassed"))

		for _, s := range f.services {
			for _, line := range strings.Split(s.log.String(), "\n") {
				if strings.Contains(line, "bypassed") {
					t.Log(line)
				}
			}
		}

		// Every answer of 200 was counted once, and none was served without an answer.
		if got := a.ok.Load(); got != served {
			t.Errorf("%d answers of 200, and %d requests were served", got, served)
		}

		if served == 0 || a.broken.Load() > 0 || a.failed.Load() > 0 || a.other.Load() > 0 {
			t.Errorf("served %d, answers %s", served, &a)
		}
	})
}

// A service that was stopped, as in a paused container or a migration, meets all requests
// that came meanwhile at one instant.
func TestStoppedService(t *testing.T) {
	test.Long(t, "it stops a process for seconds")
	redis := redistest.Start(t).Addr
	for _, text := range []string{limits[0], limits[1]} {
		t.Run(text, func(t *testing.T) {
			f := startFleet(t, 1, settings{Redis: redis, Prefix: redistest.Prefix(t), Limits: []string{text}})
			s := f.services[0]

			all := dialAll(t, s.addr, 1000)
			var a answers
			flood(all[:20], 100*time.Millisecond, "warm", &a) // the store has connected

			// The second round stops for half as long, after the first has left its traces in the
			// store.
			for round := range 2 {
				key := fmt.Sprint("one", round)
				s.signal(syscall.SIGSTOP)

				// The requests pile up in the buffers of the sockets.
				for _, c := range all {
					if _, err := c.Write(request(key)); err != nil {
						t.Fatal(err)
					}
				}

				time.Sleep(*stopped / time.Duration(1+round))
				s.signal(syscall.SIGCONT)

				var a answers

				// Every client has its answer, as soon as the service goes on.
				for _, c := range all {
					c.SetDeadline(time.Now().Add(time.Minute))
					status, err := c.answer()
					if err != nil {
						t.Fatal(err)
					}
					a.add(status)
				}

				served, local := f.served(key)
				t.Logf("served %d, local %d, answers %s", served, local, &a)

				// All requests are of one key: the limit is served, and the others are refused.
				if served == 0 || a.ok.Load() != served || a.refused.Load() != 1000-served {
					t.Errorf("served %d, answers %s", served, &a)
				}
			}
		})
	}
}

// signal sends a signal to the service.
func (s *service) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// misbehaviour is what clients do, or what befalls the Redis, beside a client that asks.
type misbehaviour struct {
	name  string
	redis []string                                           // more arguments of the server
	over  func(t *testing.T, redis *redistest.Server) string // the address of the Redis, or nil
	do    func(t *testing.T, addr string, end time.Time)     // until the end, or nil
}

// Whatever clients and the Redis do, a client is served at most its limit.
func TestMisbehaviour(t *testing.T) {
	test.Long(t, "it has clients misbehave for seconds")
	for _, m := range []misbehaviour{
		{name: "connections that open and close", do: openAndClose},
		{name: "clients that never read", do: neverRead},
		{name: "a Redis that answers each second call late", over: eachSecondCallLate},
		{name: "a Redis that has no connection left", redis: []string{"--maxclients", "6"}, over: noConnectionLeft},
	} {
		t.Run(m.name, func(t *testing.T) {
			server := redistest.Start(t, m.redis...)
			addr := server.Addr

			if m.over != nil {
				addr = m.over(t, server)
			}

			f := startFleet(t, 1, settings{Redis: addr, Prefix: redistest.Prefix(t), Limits: limits[:1]})
			s := f.services[0]
			all := dialAll(t, s.addr, 500)

			// The first requests come one by one: a late answer costs the units of all that
			// ask with it, which are those of the limit if all ask at once.
			var a answers
			all[0].inTurn(t, 4, "one", &a)

			// The honest clients go on meanwhile, and none of them may suffer.
			end := time.Now().Add(2 * *span)
			var running sync.WaitGroup
			if m.do != nil {
				running.Go(func() { m.do(t, s.addr, end) })
			}
			flood(all, time.Until(end), "one", &a)
			running.Wait()

			served, local := f.served("one")
			lines := strings.Count(s.log.String(), "\n")
			t.Logf("served %d, local %d, answers %s, %d lines in the log", served, local, &a, lines)
			if served == 0 || a.broken.Load() > 0 || a.failed.Load() > 0 {
				t.Errorf("served %d, answers %s", served, &a)
			}

			// Trouble that repeats must not fill a disk.
			if lines > maxLines {
				t.Errorf("the log has %d lines:\n%s", lines, s.log)
			}
		})
	}
}

// maxLines is how many lines the log of a service may have after seconds of trouble.
const maxLines = 20

// openAndClose opens and closes connections with 32 clients, at most 20,000: a third asks and
// reads, a third asks and leaves, a third leaves at once.
func openAndClose(_ *testing.T, addr string, end time.Time) {
	text := request("one")

	var running sync.WaitGroup
	for range 32 {
		running.Go(func() {
			// 600 of each of the 32 clients, or as many as there is time for.
			knock(addr, 600, end, func(c *conn, i int) {
				switch i % 3 {
				case 0:
					c.SetDeadline(time.Now().Add(time.Minute))
					c.ask(text)
				case 1:
					c.Write(text)
				}
			})
		})
	}

	running.Wait()
}

// neverRead has 200 connections send requests and read no answer.
func neverRead(t *testing.T, addr string, end time.Time) {
	text := request("one")
	var running sync.WaitGroup
	for range 200 {
		c, err := dial(addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		running.Go(func() { pour(c, text, end) })
	}
	running.Wait()
}

// eachSecondCallLate returns the address of a Redis that answers each second call late.
func eachSecondCallLate(t *testing.T, server *redistest.Server) string {
	proxy := faultproxy.New(t, server.Addr)
	proxy.Set(faultproxy.Fault{Every: 2, Late: 80 * time.Millisecond})
	return proxy.Addr
}

// noConnectionLeft takes all connections of the Redis but one.
func noConnectionLeft(t *testing.T, server *redistest.Server) string {
	for range 5 {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1, MinIdleConns: 1})
		t.Cleanup(func() { c.Close() })
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return server.Addr
}

// A Redis that freezes costs a client that waits for each answer one timeout, and the service
// bypasses it from then on.
func TestFrozenRedis(t *testing.T) {
	test.Long(t, "it freezes a server for a second")
	server := redistest.Start(t)
	f := startFleet(t, 1, settings{Redis: server.Addr, Prefix: redistest.Prefix(t), Limits: limits[:1]})
	c := dialAll(t, f.services[0].addr, 1)
	var a answers

	// The first requests connect the store, so that the freeze meets a service in use.
	flood(c, 200*time.Millisecond, "warm", &a)

	server.Freeze()

	var worst [2]time.Duration // the longest two, the longest first

	// A client that waits for each answer meets the timeout at most once before the breaker opens.
	for end := time.Now().Add(*span); time.Now().Before(end); {
		begun := time.Now()
		if _, err := c[0].ask(request("one")); err != nil {
			t.Fatal(err)
		}

		switch took := time.Since(begun); {
		case took > worst[0]:
			worst = [2]time.Duration{took, worst[0]}
		case took > worst[1]:
			worst[1] = took
		}
	}

	server.Thaw()
	served, local := f.served("one")
	t.Logf("served %d, local %d", served, local)

	// The timeout is 50ms. The second longest answer has no timeout in it.
	test.AtMost(t, "the longest answer while Redis is frozen", worst[0], 70*time.Millisecond)
	test.AtMost(t, "the second longest", worst[1], 20*time.Millisecond)
}

// At most connections a service over Redis refuses at least at half the rate of one in memory.
func TestRateOfRefusals(t *testing.T) {
	test.Long(t, "it measures for seconds")
	numbers := conns(t)
	most := numbers[len(numbers)-1]

	// The same load over memory and over Redis, on the same machine.
	var each [2]time.Duration
	for i, addr := range []string{"", redistest.Start(t).Addr} {
		f := startFleet(t, 1, settings{Redis: addr, Prefix: redistest.Prefix(t), Limits: limits[:1]})
		all := dialAll(t, f.services[0].addr, most)

		var a answers
		begun := time.Now()
		flood(all, 2**span, "one", &a)

		each[i] = time.Since(begun) / time.Duration(max(1, a.refused.Load()))
		f.served("one")

		hangUp(all)
	}
	test.AtMost(t, "a refusal over Redis, where the bound is two in memory", each[1], 2*each[0])
}

// Forty clients a second wait for ten turns, and most leave before theirs: the rate of the limit
// is served nevertheless, and no more. Tests of package limiter count exactly, in fake time.
func TestImpatientClients(t *testing.T) {
	test.Long(t, "it has clients wait for seconds")
	const rate, seconds = 10, 4
	redis := redistest.Start(t).Addr
	for _, patience := range []time.Duration{200 * time.Millisecond, time.Second} {
		t.Run(patience.String(), func(t *testing.T) {
			t.Parallel()

			f := startFleet(t, 1, settings{
				Redis: redis, Prefix: redistest.Prefix(t), Limits: []string{"10/1s burst=1"}, Wait: 2 * time.Second,
			})

			begun := time.Now()
			waitImpatiently(f.services[0].addr, patience, begun.Add(seconds*time.Second))

			// One turn a tenth of a second and one at once. Half of the rate is enough to see that
			// turns of those who left are not lost.
			served := f.services[0].counts().Served["one"]
			most := int64(time.Since(begun)/(time.Second/rate)) + 1

			t.Logf("served %d, and the limit admits %d", served, most)
			if served < rate*seconds/2 || served > most {
				t.Errorf("served %d of %d", served, most)
			}
		})
	}
}

// waitImpatiently has forty clients a second ask until the end. Each leaves after its patience.
func waitImpatiently(addr string, patience time.Duration, end time.Time) {
	text := request("one")
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()

	var running sync.WaitGroup
	for time.Now().Before(end) {
		<-tick.C
		running.Go(func() {
			knock(addr, 1, end, func(c *conn, _ int) {
				c.SetDeadline(time.Now().Add(patience))
				c.ask(text)
			})
		})
	}
	running.Wait()
}

// A flood of keys fills the memory while Redis is away. A key that has used its limit gets
// nothing more, no new key gets more than its limit, and the log says it once.
func TestFullMemoryWhileRedisIsAway(t *testing.T) {
	test.Long(t, "it floods a service with keys for seconds")

	// Memory for 256 keys, which 5,000 keys exceed by far.
	server := redistest.Start(t)
	f := startFleet(t, 1, settings{Redis: server.Addr, Prefix: redistest.Prefix(t), Limits: limits[:1],
		MemoryKeys: 256})

	s := f.services[0]
	all := dialAll(t, s.addr, 50)
	var a answers
	flood(all, 500*time.Millisecond, "one", &a)

	// The key of all clients has used its limit before Redis goes away.
	before, _ := f.served("one")
	if before == 0 {
		t.Fatalf("answers %s", &a)
	}

	server.Kill()
	flood(all, 100*time.Millisecond, "one", &a) // the breaker opens

	var running sync.WaitGroup

	// Every connection brings a hundred new keys, each asked for once.
	for i, c := range all {
		running.Go(func() {
			c.SetDeadline(time.Now().Add(time.Minute))
			for n := range 100 {
				if _, err := c.ask(request(fmt.Sprint("k", i, ".", n))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()

	// The old key again, after the flood.
	flood(all, 500*time.Millisecond, "one", &a)

	after, local := f.served("one")
	t.Logf("served %d, then %d, local %d", before, after-before, local)

	// No key got more than its limit, however often its state was dropped.
	total := int64(0)
	for key, n := range s.counts().Served {
		if total += n; n > quota {
			t.Errorf("%d requests of %q were served", n, key)
		}
	}

	if total > quota+5000 {
		t.Errorf("%d requests were served of 5,001 keys", total)
	}

	if n := s.lines("full"); n != 1 {
		t.Errorf("%d lines say that the memory is full", n)
	}
}
