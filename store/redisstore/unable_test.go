package redisstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

// inability is a state in which a server answers, but does not decide.
type inability struct {
	name  string
	retry bool // the error proves that nothing ran, so the step is sent again
	bring func(t *testing.T, c *redis.Client, s *redistest.Server)
	mend  func(t *testing.T, c *redis.Client)
	limit string
}

// set changes settings, given as pairs of names and values.
func set(pairs ...string) func(*testing.T, *redis.Client) {
	return func(t *testing.T, c *redis.Client) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			if err := c.ConfigSet(context.Background(), pairs[i], pairs[i+1]).Err(); err != nil {
				t.Fatal(pairs[i], err)
			}
		}
	}
}

// put is [set] in the form of inability.bring.
func put(pairs ...string) func(*testing.T, *redis.Client, *redistest.Server) {
	return func(t *testing.T, c *redis.Client, _ *redistest.Server) { set(pairs...)(t, c) }
}

// inabilities lists the states into which a test can bring one server.
var inabilities = []inability{
	{"NOREPLICAS", true, put("min-replicas-to-write", "1"), set("min-replicas-to-write", "0"), "100/1h fixed-window"},
	{"NOREPLICAS", true, put("min-replicas-to-write", "1"), set("min-replicas-to-write", "0"), "100/1h sliding-log"},
	{"READONLY", true, orphan, emancipate, "100/1h fixed-window"},
	{"MASTERDOWN", true, func(t *testing.T, c *redis.Client, s *redistest.Server) {
		set("replica-serve-stale-data", "no")(t, c)
		orphan(t, c, s)
	}, emancipate, "100/1h sliding-log"},
	{"BUSY", true, occupy, release, "100/1h fixed-window"},
	{"LOADING", true, reload, set("key-load-delay", "0"), "100/1h fixed-window"},
	{"MISCONF", false, spoil, func(t *testing.T, c *redis.Client) {
		set("stop-writes-on-bgsave-error", "no")(t, c)
	}, "100/1h fixed-window"},
	{"MISCONF", false, spoil, func(t *testing.T, c *redis.Client) {
		set("stop-writes-on-bgsave-error", "no")(t, c)
	}, "100/1h sliding-log"},
	{"OOM", false, put("maxmemory", "1"), set("maxmemory", "0"), "100/1h sliding-log"},
}

// orphan makes the server a replica of one that does not exist.
func orphan(t *testing.T, c *redis.Client, _ *redistest.Server) {
	if err := c.Do(context.Background(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
}

func emancipate(t *testing.T, c *redis.Client) {
	if err := c.Do(context.Background(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
}

// occupy has a script run until it is killed.
func occupy(t *testing.T, c *redis.Client, s *redistest.Server) {
	set("lua-time-limit", "1")(t, c)
	busy := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, ReadTimeout: -1, DisableIdentity: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		busy.Eval(context.Background(), "while true do end", nil)
	}()
	t.Cleanup(func() { <-done; busy.Close() })
	meet(t, c, "BUSY")
}

func release(t *testing.T, c *redis.Client) {
	if err := c.ScriptKill(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

// reload has the server read its data again, for ten seconds unless it is mended.
func reload(t *testing.T, c *redis.Client, s *redistest.Server) {
	// 20 MB that are read a kilobyte at a time, with a pause for each key: the loading lasts for
	// ten seconds.
	ctx := context.Background()
	if err := c.Do(ctx, "DEBUG", "POPULATE", "10000", "filler", "2000").Err(); err != nil {
		t.Fatal(err)
	}

	set("rdbcompression", "no", "loading-process-events-interval-bytes", "1024", "key-load-delay", "1000")(t, c)

	// The command answers after the reload, so it has a client and a goroutine of its own.
	again := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, ReadTimeout: -1, DisableIdentity: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		again.Do(ctx, "DEBUG", "RELOAD")
	}()

	t.Cleanup(func() { <-done; again.Close() })
	meet(t, c, "LOADING")
}

// spoil has the server fail to save, by a directory where its file should be.
func spoil(t *testing.T, c *redis.Client, s *redistest.Server) {
	ctx := context.Background()
	dir := c.ConfigGet(ctx, "dir").Val()["dir"]
	if err := os.MkdirAll(filepath.Join(dir, "taken.rdb", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	set("save", "3600 1000000", "stop-writes-on-bgsave-error", "yes")(t, c)
	if err := c.BgSave(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	meet(t, c, "MISCONF")
}

// meet writes until the server answers with the error.
func meet(t *testing.T, c *redis.Client, prefix string) {
	t.Helper()
	tick, end := time.NewTicker(time.Millisecond), time.After(patient)
	defer tick.Stop()
	for !redis.HasErrorPrefix(c.Set(context.Background(), "written", "", 0).Err(), prefix) {
		select {
		case <-end:
			t.Fatalf("no %s", prefix)
		case <-tick.C:
		}
	}
}

// Whatever keeps a server from deciding, a call ends with its error in time. It
// is sent again only where that cannot count it twice, and counts exactly once
// when the server is able again.
func TestUnableServerCountsAStepAtMostOnce(t *testing.T) {
	t.Parallel()
	for _, row := range inabilities {
		t.Run(row.name+" "+row.limit, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--enable-debug-command", "yes", "--dbfilename", "taken.rdb")
			proxy := faultproxy.New(t, server.Addr)

			// Past the proxy, so that only the store's calls are counted.
			admin := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, ReadTimeout: patient,
				DisableIdentity: true})
			defer admin.Close()
			c := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, DisableIdentity: true})
			defer c.Close()

			calm := MustNew(c, Options{Timeout: patient})
			op := core.Op{Rule: "r", Key: "k", Limit: limit(t, row.limit), Cost: 1}

			// One step is counted before, while the server is able.
			apply(t, calm, op)

			row.bring(t, admin, server)
			cut := askUnable(t, row, proxy, MustNew(c, Options{Timeout: 50 * time.Millisecond}), op)
			mendAndCount(t, row, proxy, admin, calm, op, cut)
		})
	}
}

// askUnable asks a server that is unable to decide a few steps, and then more until
// one has ended as it should: a slow machine may cut some off. It returns how many
// ended without the server's error.
func askUnable(t *testing.T, row inability, proxy *faultproxy.Proxy, s *Store, op core.Op) (cut int) {
	t.Helper()
	end := time.Now().Add(patient)
	for asked, ended := 0, false; asked < 5 || !ended; asked++ {
		if time.Now().After(end) {
			t.Fatalf("of %d steps none ended with %s", asked, row.name)
		}

		// The proxy counts the server's errors, each of which is a script that was sent and not
		// carried out.
		before, start := proxy.Counts().Errors, time.Now()
		err := s.Apply(context.Background(), []core.Op{op}, make([]core.Decision, 1))
		took, sent := time.Since(start), proxy.Counts().Errors-before
		t.Logf("sent %d times, %v: %v", sent, took, err)
		test.AtMost(t, "an error", took, s.servers.budget()+20*time.Millisecond)

		if err == nil {
			t.Fatal("a step was decided")
		}

		// An error that leaves open whether the script ran may not be followed by another try.
		if !row.retry && sent > 1 {
			t.Errorf("sent %d times: %v", sent, err)
		}
		if row.wasCutOff(t, sent, err) {
			cut++
			continue
		}

		ended = ended || !row.retry || sent > 1
	}
	return cut
}

// wasCutOff reports whether a step ended without the server's error, which was sent that often.
func (row *inability) wasCutOff(t *testing.T, sent int, err error) bool {
	t.Helper()
	named := strings.Contains(err.Error(), row.name)
	if sent > 1 && !named {
		t.Errorf("sent %d times, and the cause is not in: %v", sent, err)
	}
	if !named || row.retry && isLate(err) {
		return true
	}
	if row.retry && !redis.HasErrorPrefix(err, row.name) {
		t.Errorf("the error is %v", err)
	}
	return false
}

// mendAndCount mends the server, while a step waits for that if row.retry is set. It
// then checks the count, which may hold each of the cut steps.
func mendAndCount(t *testing.T, row inability, proxy *faultproxy.Proxy, admin *redis.Client, s *Store,
	op core.Op, cut int) {
	t.Helper()
	if !row.retry {
		row.mend(t, admin)
		apply(t, s, op)
	} else {
		before := proxy.Counts().Errors
		done := make(chan error, 1)
		go func() { done <- s.Apply(context.Background(), []core.Op{op}, make([]core.Decision, 1)) }()
		eventuallyTrue(t, "the step was not sent again", func() bool { return proxy.Counts().Errors >= before+2 })
		row.mend(t, admin)
		if err := <-done; err != nil {
			t.Errorf("a step that waits for the server: %v", err)
		}
	}
	op.Verb = core.Peek
	if n := int(apply(t, s, op)[0].Remaining); n > 98 || n < 98-cut {
		t.Errorf("%d of 100 remain after two steps and %d that were cut off", n, cut)
	}
}
