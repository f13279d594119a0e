package redistest

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestAServerAnswersUntilItsTestEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	var pid int
	t.Run("server", func(t *testing.T) {
		s := Start(t)
		pid = s.process.Pid
		if err := dial(t, s.Addr).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	if pid != 0 && syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d outlives its test", pid)
	}
}

func TestARestartedServerIsEmptyAndHasItsOldAddress(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	again := dial(t, s.Addr)
	if n, err := again.Exists(t.Context(), "k").Result(); n != 0 || err != nil {
		t.Errorf("after a restart: %d keys, %v", n, err)
	}
}

func TestAFrozenServerAnswersAfterItThaws(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr)
	s.Freeze()
	answered := make(chan error)
	go func() { answered <- c.Ping(context.Background()).Err() }()
	select {
	case err := <-answered:
		t.Errorf("a frozen server answered: %v", err)
	default:
	}
	s.Thaw()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestAddrPrefersTheServerThatIsNamed(t *testing.T) {
	t.Setenv("REDIS_ADDR", "127.0.0.1:1")
	if got := Addr(t); got != "127.0.0.1:1" {
		t.Errorf("Addr() = %q", got)
	}
}

func TestAMissingRedisSkipsOrFailsAsAsked(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct {
		require       string
		skips, failed bool
	}{{"", true, false}, {"1", false, true}} {
		os.Setenv("HEADGATE_REQUIRE_REDIS", c.require)
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { recover() }()
			binary(r, "redis-server")
		}()
		<-done
		if r.skipped != c.skips || r.failed != c.failed {
			t.Errorf("HEADGATE_REQUIRE_REDIS=%q: skipped %v, failed %v", c.require, r.skipped, r.failed)
		}
	}
	os.Unsetenv("HEADGATE_REQUIRE_REDIS")
}

// recorder notes how a test ended instead of ending it.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(...any) { r.skipped = true; panic(r) }

func (r *recorder) Fatal(...any) { r.failed = true; panic(r) }

func TestPrefixesDiffer(t *testing.T) {
	if a, b := Prefix(t), Prefix(t); a == b {
		t.Errorf("twice %q", a)
	}
}

func TestAClusterServesEverySlot(t *testing.T) {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: Addrs(Cluster(t, 3))})
	defer c.Close()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := c.Set(t.Context(), key, key, 0).Err(); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestSentinelsReplaceAMasterThatDied(t *testing.T) {
	w := Sentinel(t)
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: MasterName, SentinelAddrs: Addrs(w.Sentinels), MaxRetries: -1})
	defer c.Close()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	w.Master.Kill()
	until(t, "failover", func(ctx context.Context) bool { return c.Set(ctx, "k", "v", 0).Err() == nil })
}

func TestAReplicaTakesThePlaceOfItsMaster(t *testing.T) {
	masters, replicas := Replicated(t, 3)
	masters[1].Kill()
	c := dial(t, replicas[1].Addr)
	until(t, "promotion", func(ctx context.Context) bool {
		role, err := c.Do(ctx, "ROLE").Slice()
		return err == nil && role[0] == "master"
	})
}
