package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestServerEndsWithTest(t *testing.T) {
	defer goleak.VerifyNone(t)
	var s *Server

	// The server belongs to the inner test, and must be gone when that has ended.
	t.Run("server", func(t *testing.T) {
		s = Start(t)
		if err := dial(t, s.Addr).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	if s == nil {
		return // without a redis-server
	}

	select {
	case <-s.done:
	default:
		t.Errorf("process %d outlives its test", s.Pid())
	}
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
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

func TestServerFreeze(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := dial(t, s.Addr)

	s.Freeze()

	// The command reaches the socket of the frozen process, and is answered after the thaw.
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

func TestPrefixesDiffer(t *testing.T) {
	if a, b := Prefix(t), Prefix(t); a == b {
		t.Errorf("twice %q", a)
	}
}

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: Addrs(Cluster(t, 3))})
	defer c.Close()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := c.Set(t.Context(), key, key, 0).Err(); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestSentinelsReplaceDeadMaster(t *testing.T) {
	t.Parallel()
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

func TestSentinelsKeepMaster(t *testing.T) {
	t.Parallel()
	w := Sentinel(t)
	w.Keep(t)
	for _, s := range w.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr, MaxRetries: -1,
			ReadTimeout: patience, DisableIdentity: true})
		defer c.Close()
		master, err := c.Master(t.Context(), MasterName).Result()
		if err != nil || master["down-after-milliseconds"] != "600000" {
			t.Errorf("replaced after %s ms, %v", master["down-after-milliseconds"], err)
		}
	}
}

func TestReplicaPromoted(t *testing.T) {
	t.Parallel()
	masters, replicas := Replicated(t, 3)
	masters[1].Kill()
	c := dial(t, replicas[1].Addr)
	until(t, "promotion", func(ctx context.Context) bool {
		role, err := c.Do(ctx, "ROLE").Slice()
		return err == nil && role[0] == "master"
	})
}
