package redisstore

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

const ms = time.Millisecond

// far is a server at a distance, by the clock of a bubble: every reply takes a round trip,
// and a dial takes some. It has loaded no script, and answers script calls as a fake does.
// As a Cluster it is two masters, with half of the slots each.
type far struct {
	rtt   time.Duration
	trips int // of a dial

	mu      sync.Mutex
	ends    []net.Conn
	greeted map[string]int // connections, by address
	loaded  map[string]bool
	texts   int // scripts that were sent whole
	said    int64
}

// The addresses of the masters.
const east, west = "127.0.0.1:1", "127.0.0.1:2"

// dial returns a connection to the server.
func (f *far) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	// Connecting takes its round trips before anything can be sent.
	if err := after(ctx, time.Duration(f.trips)*f.rtt); err != nil {
		return nil, err
	}

	near, there := net.Pipe()
	f.mu.Lock()
	f.ends = append(f.ends, there)
	f.mu.Unlock()

	// Replies are written a round trip after their commands, and commands are read meanwhile: the
	// distance delays and does not block.
	replies := make(chan func(), 1000)
	go func() {
		defer close(replies)
		defer there.Close()
		commands := bufio.NewReader(there)
		for {
			args, err := readCommand(commands)
			if err != nil {
				return
			}

			reply, due := f.reply(addr, args), time.Now().Add(f.rtt)
			replies <- func() {
				time.Sleep(time.Until(due))
				_, _ = io.WriteString(there, reply)
			}
		}
	}()

	go func() {
		for reply := range replies {
			reply()
		}
	}()
	return near, nil
}

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) (args []string, err error) {
	n, err := readLength(r, '*')
	for ; err == nil && n > 0; n-- {
		var size int
		if size, err = readLength(r, '$'); err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		_, err = io.ReadFull(r, text)
		args = append(args, string(text[:size]))
	}
	return args, err
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil || line[0] != kind {
		return 0, errors.Join(err, fmt.Errorf("the line %q", line))
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// reply returns the reply to a command.
func (f *far) reply(addr string, args []string) string {
	f.mu.Lock()
	defer f.mu.Unlock()

	// What go-redis asks for at the start, and the two ways to call a script.
	switch strings.ToLower(args[0]) {
	case "client":
		if args[2] == "LIB-NAME" {
			f.greeted[addr]++
		}
	case "time":
		return "*2\r\n$1\r\n7\r\n$1\r\n0\r\n"
	case "command":
		return "*2\r\n*6\r\n$4\r\neval\r\n:-3\r\n*0\r\n:0\r\n:0\r\n:0\r\n*6\r\n$7\r\nevalsha\r\n:-3\r\n*0\r\n:0\r\n:0\r\n:0\r\n"

	// Two masters, with half of the slots each.
	case "cluster":
		return "*2\r\n" +
			"*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n" +
			"*3\r\n:8192\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:2\r\n"
	case "eval":
		sum := sha1.Sum([]byte(args[1]))
		f.loaded[addr+hex.EncodeToString(sum[:])] = true
		f.texts++
		return f.decide(args)
	case "evalsha":
		if !f.loaded[addr+args[1]] {
			return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
		}
		return f.decide(args)
	}
	return "-ERR unknown command\r\n"
}

// decide returns the decisions of a script call.
func (f *far) decide(args []string) string {
	n, _ := strconv.Atoi(args[2])
	text := fmt.Sprintf("*%d\r\n:7\r\n", 1+2*n)
	for range n {
		f.said++
		text += fmt.Sprintf(":%d\r\n:%d\r\n", f.said, 4*5+saysAllowed)
	}
	return text
}

// forget loses the scripts.
func (f *far) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.loaded)
	f.texts = 0
}

// connections returns how many connections were greeted.
func (f *far) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.greeted[east] + f.greeted[west]
}

// distant runs f in a bubble, with a store over a client of the server.
func (f *far) distant(t *testing.T, o Options, client func() redis.UniversalClient, run func(*testing.T, *Store)) {
	t.Helper()

	f.greeted, f.loaded = map[string]int{}, map[string]bool{}
	inBubble(t, func(t *testing.T) {
		c := client()
		run(t, MustNew(c, o))
		c.Close()

		time.Sleep(time.Minute) // until the last reply is written
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, end := range f.ends {
			end.Close()
		}
	})
}

// single is the client of one server.
func (f *far) single(config *tls.Config) redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: east, Dialer: f.dial, ContextTimeoutEnabled: true, Protocol: 2,
		PoolSize: 100, TLSConfig: config})
}

// cluster is the client of both masters.
func (f *far) cluster(config *tls.Config) redis.UniversalClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{east, west}, Dialer: f.dial,
		ContextTimeoutEnabled: true, Protocol: 2, PoolSize: 100, TLSConfig: config})
}

// ring is the client of both as a Ring.
func (f *far) ring(config *tls.Config) redis.UniversalClient {
	return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"east": east, "west": west},
		Dialer: f.dial, ContextTimeoutEnabled: true, Protocol: 2, PoolSize: 100, TLSConfig: config,
		HeartbeatFrequency: time.Hour})
}

// Without the store's help no call would succeed: each has 50 ms, and a dial and a greeting
// take longer. Calls fail until connections are ready, and no later one fails for its
// script, although two round trips take longer than 50 ms.
func TestConnectAtADistance(t *testing.T) {
	for _, row := range []struct {
		name    string
		client  func(*far, *tls.Config) redis.UniversalClient
		rtt     time.Duration
		dial    int         // how many round trips it takes
		config  *tls.Config // of the client; the dialer speaks no TLS
		failed  []int       // of 20 calls
		greeted int         // connections
	}{
		// The first calls begin trials, which connect as many as full calls need: four to each
		// server.
		{"one server", (*far).single, 28 * ms, 1, nil, []int{0, 1, 2, 3}, 4},
		{"one server with TLS", (*far).single, 24 * ms, 2, &tls.Config{}, []int{0, 1, 2, 3}, 4},
		{"Ring", (*far).ring, 28 * ms, 1, nil, []int{0, 1, 2, 3}, 8},
		{"Ring with TLS", (*far).ring, 24 * ms, 2, &tls.Config{}, []int{0, 1, 2, 3}, 8},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := &far{rtt: row.rtt, trips: row.dial}
			client := func() redis.UniversalClient { return row.client(f, row.config) }
			f.distant(t, Options{}, client, func(t *testing.T, s *Store) {
				failed := takeInTurn(t, s, 20)
				if got := f.connections(); !slices.Equal(failed, row.failed) || got != row.greeted {
					t.Errorf("calls %v failed, want %v; %d connections, want %d", failed, row.failed, got, row.greeted)
				}
			})
		})
	}
}

// A client of a Cluster reads its table from servers that it picks at random.
func TestConnectAtADistanceInACluster(t *testing.T) {
	for trips, config := range map[int]*tls.Config{1: nil, 2: {}} {
		t.Run(fmt.Sprintf("%d trips", trips), func(t *testing.T) {
			f := &far{rtt: 28 * ms, trips: trips}
			client := func() redis.UniversalClient { return f.cluster(config) }
			f.distant(t, Options{}, client, func(t *testing.T, s *Store) {
				if first := takeInTurn(t, s, 40); len(first) == 0 {
					t.Error("no call failed, so the servers are not far")
				}

				// Once both are connected, no call is late.
				if then := takeInTurn(t, s, 20); len(then) > 0 {
					t.Errorf("later calls %v failed", then)
				}
			})
		})
	}
}

// takeInTurn makes n calls about two keys, which are at different masters, and returns
// which of them were late.
func takeInTurn(t *testing.T, s *Store, n int) (failed []int) {
	for i := range n {
		if _, err := takeOne(t.Context(), s, string(rune('a'+i%2))); isLate(err) {
			failed = append(failed, i)
		} else if err != nil {
			t.Error(err)
		}
	}
	return failed
}

// Two round trips take longer than a call has if its timeout is fixed. So no script may take
// two, and one may when the server has lost all of them.
func TestScriptsAtADistance(t *testing.T) {
	f := &far{rtt: 28 * ms, trips: 1}
	f.distant(t, Options{Timeout: 50 * ms}, func() redis.UniversalClient { return f.single(nil) },
		func(t *testing.T, s *Store) {
			if got, want := callScripts(t, s), []int{0}; !slices.Equal(got, want) {
				t.Errorf("calls %v failed until connections were ready, want %v", got, want)
			}
			f.forget()
			if got, want := callScripts(t, s), []int{0}; !slices.Equal(got, want) {
				t.Errorf("calls %v failed after the scripts were lost, want %v", got, want)
			}
		})
}

// callScripts makes 20 calls of two scripts in turn, and returns which of them were late.
// After a late one it waits, because a round of connecting then keeps connections from calls.
func callScripts(t *testing.T, s *Store) (failed []int) {
	for i := range 20 {
		ops := append(unit(), unit()...)
		ops[1].Rule = "q"
		n := 1 + i%2
		if err := s.Apply(t.Context(), ops[:n], make([]core.Decision, n)); isLate(err) {
			failed = append(failed, i)
			time.Sleep(time.Second)
		} else if err != nil {
			t.Error(err)
		}
	}
	return failed
}

func TestScriptsAreSentWholeOnce(t *testing.T) {
	f := &far{rtt: ms, trips: 1}
	f.distant(t, Options{}, func() redis.UniversalClient { return f.single(nil) }, func(t *testing.T, s *Store) {
		for range 2 {
			if failed := callScripts(t, s); len(failed) > 0 || f.texts != 2 {
				t.Errorf("%d texts for two scripts; calls %v failed", f.texts, failed)
			}
			f.forget()
		}
	})
}

// A round must not keep its connections from the calls of a lone caller, such as a probe,
// whatever pause that makes: a call that is late for it would begin the next round.
func TestConnectLeavesConnectionsToALoneCaller(t *testing.T) {
	for pause := time.Duration(0); pause <= 100*ms; pause += 10 * ms {
		t.Run(pause.String(), func(t *testing.T) {
			f := &far{rtt: 300 * ms, trips: 1}
			f.distant(t, Options{Timeout: 500 * ms}, func() redis.UniversalClient { return f.single(nil) },
				func(t *testing.T, s *Store) {
					failed := 0

					for i := range 100 {
						if _, err := takeOne(t.Context(), s, "k"); err != nil {
							failed = i + 1
						}
						time.Sleep(pause)
					}

					// The first round makes ten calls late at most, and no round comes after it.
					if failed > 10 {
						t.Errorf("call %d failed", failed)
					}
				})
		})
	}
}

// hanging is a hook that never answers, and counts the commands that have the client
// connect.
type hanging struct {
	mu     sync.Mutex
	n      int
	panics bool
}

func (*hanging) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *hanging) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		// Only the commands of trials are counted, not those of calls.
		if cmd.Name() == "time" {
			h.mu.Lock()
			h.n++
			h.mu.Unlock()
			if h.panics {
				panic("a hook")
			}
		}

		// Neither ends before its context does.
		err := after(ctx, time.Hour)
		cmd.SetErr(err)
		return err
	}
}
func (*hanging) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The first call is late after 50 ms and begins a trial, which has 500 ms for four commands. From
// then on a call begins a trial with one command 200 ms after the last has ended, and waits for it
// until it is late; the others fail at once. The callers ask each 5 ms, so trials begin every 700
// ms, or 200 ms if they panic at once.
func TestTrialsMeetAServerThatHangsInTurn(t *testing.T) {
	for name, row := range map[string]struct {
		ignores, panics bool
		commands        int
		text            string
	}{
		"hanging":                   {commands: maxFull + 14},
		"panicking":                 {panics: true, commands: maxFull + 49, text: "the Redis client panicked: a hook"},
		"a client without deadline": {ignores: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := &hanging{panics: row.panics}
				c := redis.NewClient(&redis.Options{Addr: east, ContextTimeoutEnabled: !row.ignores,
					Dialer: new(fake).dial})
				defer c.Close()
				c.AddHook(h)

				s := MustNew(c, Options{Batch: 1, Timeout: 50 * ms}) // a trial has ten timeouts
				var callers sync.WaitGroup

				// Twenty callers for ten seconds, each of which asks again 5ms after its answer.
				begun := time.Now()
				for range 20 {
					callers.Go(func() {
						for time.Since(begun) < 10*time.Second {
							if _, err := takeOne(t.Context(), s, "k"); !isLate(err) &&
								!(row.panics && strings.HasSuffix(err.Error(), row.text)) {
								t.Errorf("%v", err)
							}
							time.Sleep(5 * ms)
						}
					})
				}

				callers.Wait()
				time.Sleep(time.Minute) // until the last trial has ended

				h.mu.Lock()
				defer h.mu.Unlock()
				if h.n != row.commands {
					t.Errorf("%d commands, want %d", h.n, row.commands)
				}
			})
		})
	}
}

// A client that is closed while it connects ends the trial, and makes no connection in another.
func TestConnectEndsWithItsClient(t *testing.T) {
	f := &far{rtt: 28 * ms, trips: 1}
	f.distant(t, Options{}, func() redis.UniversalClient { return f.single(nil) }, func(t *testing.T, s *Store) {
		if _, err := takeOne(t.Context(), s, "k"); !isLate(err) || !isTrying(s) {
			t.Error(err)
		}
		s.client.Close()
		time.Sleep(reconnect + connectTimeouts*DefaultTimeout)
		if _, err := takeOne(t.Context(), s, "k"); !errors.Is(err, redis.ErrClosed) || isTrying(s) ||
			f.connections() != 0 {
			t.Errorf("%v, %d connections", err, f.connections())
		}
	})
}

// isTrying reports whether a trial of a server is in progress.
func isTrying(s *Store) bool {
	s.connector.doors.mu.Lock()
	defer s.connector.doors.mu.Unlock()
	for _, d := range s.connector.doors.to {
		if d.trial != nil {
			return true
		}
	}
	return false
}

func TestCallThatSucceedsNotesNothingOnTheHeap(t *testing.T) {
	s := faked(t, &fake{}, Options{})
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		s.topology.reloadIfMoved(ctx, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A server may be so far that a connection to it takes longer than ten of the least timeouts.
// Calls fail until one is ready, and while the distance is found out with it.
func TestConnectFartherThanTenTimeouts(t *testing.T) {
	for _, row := range []struct {
		client func(*far, *tls.Config) redis.UniversalClient
		rtt    time.Duration
		most   time.Duration
	}{
		// At 125ms the least maximum of 250ms is enough; farther away the program has to allow
		// more.
		{(*far).single, 125 * ms, 0},
		{(*far).single, 200 * ms, time.Second},
		{(*far).single, 300 * ms, time.Second},
		{(*far).ring, 300 * ms, time.Second},
	} {
		t.Run(row.rtt.String(), func(t *testing.T) {
			f := &far{rtt: row.rtt, trips: 1}
			client := func() redis.UniversalClient { return row.client(f, nil) }
			f.distant(t, Options{MaxTimeout: row.most}, client, func(t *testing.T, s *Store) {
				_ = takeUntil(t, s, 2*time.Second)

				if n := takeUntil(t, s, 20*time.Second); n > 0 {
					t.Errorf("%d calls failed after the first two seconds", n)
				}
			})
		})
	}
}

// takeUntil makes calls for some time, and returns how many failed.
func takeUntil(t *testing.T, s *Store, d time.Duration) (failed int) {
	for begun := time.Now(); time.Since(begun) < d; time.Sleep(10 * ms) {
		if _, err := takeOne(t.Context(), s, "k"); err != nil {
			failed++
		}
	}
	return failed
}
