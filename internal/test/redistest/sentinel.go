package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name by which the sentinels of [Sentinel] know the master.
const MasterName = "headgate"

// Watched is a master with a replica, and the sentinels that watch them.
type Watched struct {
	Master, Replica *Server
	Sentinels       []*Server
}

// Sentinel starts a master, a replica and three sentinels, and waits until the
// replica is in step and each sentinel knows all of them. A master that is
// silent for 500 ms is replaced, unless [Watched.Keep] is called. All end with the
// test, which is skipped as by [Start].
func Sentinel(t testing.TB) *Watched {
	t.Helper()
	w := &Watched{Master: Start(t, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")}
	host, port, _ := net.SplitHostPort(w.Master.Addr)
	w.Replica = Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")

	// The replica says when it has its copy, and the master when it sends it all writes.
	replica := dial(t, w.Replica.Addr)
	until(t, "replica", func(ctx context.Context) bool {
		role, err := replica.Do(ctx, "ROLE").Slice()
		return err == nil && len(role) > 3 && role[3] == "connected"
	})
	master := dial(t, w.Master.Addr)
	until(t, "replica", func(ctx context.Context) bool { return Feeds(master.Info(ctx, "replication").Val()) })

	// Sentinels learn of each other by way of the master.
	for range 3 {
		w.Sentinels = append(w.Sentinels, startSentinel(t, host, port))
	}
	for _, s := range w.Sentinels {
		steady(s)
		until(t, "sentinel", func(ctx context.Context) bool { return informed(ctx, s) })
	}
	return w
}

// steady keeps a sentinel from doing nothing for half a minute after each time that the
// machine has let it wait for two seconds. Before Redis 7 there is no such setting.
func steady(s *Server) {
	c := redis.NewClient(options(s))
	defer c.Close()
	_ = c.Do(context.Background(), "SENTINEL", "DEBUG", "tilt-trigger", 600_000).Err()
}

// options are those of a client of a sentinel, which tries once.
func options(s *Server) *redis.Options {
	return &redis.Options{Addr: s.Addr, MaxRetries: -1, ReadTimeout: patience, DisableIdentity: true}
}

// Keep makes the sentinels replace the master only after ten minutes of silence,
// for tests in which a machine that stands still must not change the master.
func (w *Watched) Keep(t testing.TB) {
	t.Helper()
	for _, s := range w.Sentinels {
		c := redis.NewSentinelClient(options(s))
		err := c.Set(context.Background(), MasterName, "down-after-milliseconds", "600000").Err()
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func startSentinel(t testing.TB, host, port string) *Server {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %s %s 2\nsentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 2000\n", MasterName, host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, func() []string { return []string{conf, "--sentinel"} })
}

// informed reports whether the sentinel knows the replica and both its peers.
func informed(ctx context.Context, s *Server) bool {
	c := redis.NewSentinelClient(options(s))
	defer c.Close()
	master, err := c.Master(ctx, MasterName).Result()
	return err == nil && master["num-slaves"] == "1" && master["num-other-sentinels"] == "2"
}
