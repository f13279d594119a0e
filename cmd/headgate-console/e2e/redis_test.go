package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisurl"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/store/redisstore"
)

// TestRedisOfSeveralServers has a console and an instance use a Redis Cluster, and a Redis whose
// master Sentinel replaces, by their URLs.
func TestRedisOfSeveralServers(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	console, _ := build(t)

	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		l := serveBy(t, console, "redis+cluster://"+strings.Join(redistest.Addrs(redistest.Cluster(t, 3)), ","))
		l.useKeys(l.follower())
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		w := redistest.Sentinel(t)
		l := serveBy(t, console,
			"redis+sentinel://"+strings.Join(redistest.Addrs(w.Sentinels), ",")+"/"+redistest.MasterName)
		instance := l.follower()
		l.useKeys(instance)

		// The instance has the address of the sentinels only, so it must learn of the new master
		// from them.
		w.Master.Kill()
		l.policy("later", "1/1h sliding-log")
		l.published()
		l.settles(func() error {
			if l.asks(instance + "/later") {
				return fmt.Errorf("the instance does not follow the console to the new master")
			}
			return nil
		})
	})
}

// serveBy starts a console with the Redis of a URL, and gives it an application.
func serveBy(t *testing.T, console, url string) *load {
	t.Helper()
	l := &load{t: t, redis: url}
	l.console = start(t, "console", console, nil, "-data", t.TempDir(), "-redis", url, "-listen", "127.0.0.1:0")
	l.signIn()
	l.call("PUT", "/api/apps/shop", map[string]any{}, nil)
	return l
}

// policy creates a policy for the requests to the path of its name.
func (l *load) policy(name, limit string) {
	l.t.Helper()
	l.call("PUT", "/api/policies/"+name, map[string]any{"apps": []string{"shop"}, "limit": limit, "key": "ip",
		"match": map[string]any{"path": "/" + name}, "ban": map[string]any{"after": "100/1m", "for": "1h", "max": "1h"}}, nil)
}

// follower starts an instance in this process, and returns its URL.
func (l *load) follower() string {
	l.t.Helper()

	o, err := redisurl.Parse(l.redis)
	if err != nil {
		l.t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewUniversalClient(o)

	// The policy is there before the instance begins, which therefore has it from the start.
	l.policy("first", "3/1h sliding-log")
	l.published()
	limits, err := managed.Open(context.Background(), client, managed.Options{
		App:     "shop",
		Store:   redisstore.Options{Timeout: time.Minute},
		Follow:  policy.Options{Timeout: time.Minute},
		Limiter: limiter.Config{Top: 20},
	})
	if err != nil {
		l.t.Fatal(err)
	}

	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(nethttp.New(limits.Limiter)(answer))
	l.t.Cleanup(func() {
		server.Close()
		if err := limits.Close(); err != nil {
			l.t.Error(err)
		}
		client.Close()
	})
	return server.URL
}

// asks sends a request, and reports whether it passes.
func (l *load) asks(url string) bool {
	l.t.Helper()
	r, err := http.Get(url)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// useKeys has the console show and change what an instance counts.
func (l *load) useKeys(instance string) {
	t := l.t
	t.Helper()

	pass := func(n int) (passed int) {
		for range n {
			if l.asks(instance + "/first") {
				passed++
			}
		}
		return passed
	}

	key := map[string]any{"key": "127.0.0.1", "for": "10m"}

	// What is left is read without use.
	peek := func() (left int64) {
		var d struct{ Remaining int64 }
		l.call("POST", "/api/policies/first/key", map[string]any{"key": "127.0.0.1"}, &d)
		return d.Remaining
	}

	// The limit of three passes three of five.
	if n, left := pass(5), peek(); n != 3 || left != 0 {
		t.Errorf("of 5 requests %d pass and %d are left", n, left)
	}

	// The counts come to Redis a little later than the decisions.
	l.settles(func() error {
		var top struct {
			Policies []struct{ Refused struct{ Total int64 } }
		}
		l.call("GET", "/api/apps/shop/top", nil, &top)
		if requests, _ := l.shown(); requests["allowed"] != 3 || requests["refused"] != 2 || len(top.Policies) != 1 ||
			top.Policies[0].Refused.Total != 2 {
			return fmt.Errorf("the console says %v and %+v", requests, top)
		}
		return nil
	})

	l.call("POST", "/api/policies/first/key/reset", map[string]any{"key": "127.0.0.1"}, nil)
	if left := peek(); left != 3 {
		t.Errorf("after a reset %d are left", left)
	}

	l.call("POST", "/api/policies/first/bans", key, nil)
	if pass(2) != 0 {
		t.Error("a banned key is admitted")
	}

	l.settles(func() error {
		var list struct{ Bans []struct{ Key string } }
		if l.call("GET", "/api/policies/first/bans", nil, &list); len(list.Bans) != 1 ||
			list.Bans[0].Key != "127.0.0.1" {
			return fmt.Errorf("the bans are %+v", list)
		}
		return nil
	})

	l.call("POST", "/api/policies/first/bans/lift", map[string]any{"key": "127.0.0.1"}, nil)
	if n := pass(1); n != 1 {
		t.Error("a key is refused whose ban was lifted")
	}
}
