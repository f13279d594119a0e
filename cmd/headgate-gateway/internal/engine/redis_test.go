package engine

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/failover"
)

func at(addr string) *redis.UniversalOptions { return &redis.UniversalOptions{Addrs: []string{addr}} }

// publish publishes policies as the management page does.
func publish(t *testing.T, addr, prefix string, set ...policy.Policy) *redissource.Source {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	source, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}

	if set != nil {
		version, err := source.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := source.Publish(t.Context(), set, version); err != nil {
			t.Fatal(err)
		}
	}
	return source
}

func TestGatewaysOnOneRedisAdmitTheQuotaOnce(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	publish(t, addr, prefix, shop("all", "500/1h fixed-window"), shop("blogs", "7/1h", "blog"))
	var n atomic.Int64
	var done sync.WaitGroup

	// Two gateways with two faces each, and four callers at a time: 1600 requests of a limit of
	// 500.
	for range 2 {
		e := open(t,
			Options{Apps: []string{"shop", "blog"}, Redis: at(addr), RedisPrefix: prefix, Timeout: 10 * time.Second})
		for _, face := range []string{"proxy", "auth"} {
			l := limiterOf(t, e, "shop", Face{Name: face})
			for range 4 {
				done.Go(func() { n.Add(int64(admitted(t, l, 100))) })
			}
		}
		if err := e.Ready(); err != nil {
			t.Error(err)
		}
	}

	done.Wait()
	if n.Load() != 500 {
		t.Errorf("%d of 1600 requests were admitted, want 500", n.Load())
	}
}

// What is published beside the policies is in force in every face, from the start and once it has
// changed.
func TestOverridesBesideThePoliciesAreInForce(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	byUser := shop("all", "5/1h fixed-window")
	byUser.Key = "user"
	source := publish(t, addr, prefix, byUser)
	override := func(key, limit string) {
		t.Helper()
		err := source.PublishOverrides(t.Context(), redissource.OverrideBatch{
			Changes: []policy.OverrideChange{{Policy: "all", Key: key, Text: limit + " fixed-window"}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	override("acme:*", "6/1h")

	e := open(t, Options{Apps: []string{"shop"}, Redis: at(addr), RedisPrefix: prefix, Timeout: 10 * time.Second,
		LoadTimeout: 10 * time.Second})
	for _, name := range []string{"proxy", "auth"} {
		l := limiterOf(t, e, "shop", Face{Name: name, Bind: withUser})
		quota := func(key string) int64 {
			list, err := l.Peek(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return list[0].Limit.Quota
		}
		if a, b := quota("acme:bob"), quota("other"+name); a != 6 || b != 5 {
			t.Errorf("%s: %d and %d, want 6 and 5", name, a, b)
		}
		override("other"+name, "7/1h")
		until(t, "a change is in force", func() bool { return quota("other"+name) == 7 })
	}
}

func TestPublishedPoliciesChangeWhileInUse(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	source := publish(t, addr, prefix, shop("all", "1/1h fixed-window"), shop("blogs", "7/1h fixed-window", "blog"))

	e := open(t,
		Options{Apps: []string{"shop", "blog"}, Redis: at(addr), RedisPrefix: prefix, Timeout: 10 * time.Second,
			Instance: "gateway-1"})
	one := limiterOf(t, e, "shop", Face{Name: "proxy"})
	limiterOf(t, e, "shop", Face{Name: "auth"})
	two := limiterOf(t, e, "blog", Face{Name: "proxy"})
	if a, b := admitted(t, one, 3), admitted(t, two, 9); a != 1 || b != 7 {
		t.Errorf("admitted %d and %d, want 1 and 7", a, b)
	}

	publish(t, addr, prefix, shop("all", "4/1h fixed-window"))

	// The first of four was taken before, and the wait takes the second.
	until(t, "the new policies are in force", func() bool { return admitted(t, one, 1) == 1 })
	if n := admitted(t, one, 5); n != 2 {
		t.Errorf("%d more admitted, want 2", n)
	}

	// The two faces of the shop report as one: they are one gateway.
	until(t, "each application has reported once", func() bool {
		list, err := source.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, i := range list {
			names += i.App + "=" + i.ID + " "
		}
		return names == "blog=gateway-1 shop=gateway-1 "
	})

	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()

	// One of the first limit and three more of the second were allowed.
	until(t, "the outcomes are counted for the page", func() bool {
		minutes, err := test.Patiently(func() ([]stats.Minute, error) {
			return stats.Read(t.Context(), client, prefix, "shop")
		})
		if err != nil {
			t.Fatal(err)
		}
		return stats.Total(minutes)["all"][events.Allowed] == 4
	})
}

func TestAGatewayStartsWhileRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	link := faultproxy.New(t, server.Addr)
	link.Set(faultproxy.Fault{Refuse: true})
	var log logged

	e := open(t, Options{Redis: at(link.Addr), RedisPrefix: "x:", Poll: 20 * time.Millisecond, Logger: log.logger()})
	l := limiterOf(t, e, "", Face{Name: "proxy"})

	if err := e.Ready(); err == nil || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("ready without policies: %v", err)
	}

	// A gateway that has never had policies limits nothing, and says so.
	if n := admitted(t, l, 3); n != 3 {
		t.Errorf("%d of 3 pass without policies", n)
	}
	if !strings.Contains(log.String(), "the source of policies cannot be used") {
		t.Errorf("the log does not say that Redis is away:\n%s", log.String())
	}

	publish(t, server.Addr, "x:", shop("all", "2/1h fixed-window"))
	link.Set(faultproxy.Fault{})

	until(t, "the gateway is ready", func() bool { return e.Ready() == nil })
	until(t, "Redis decides", func() bool {
		d, err := l.Allow(t.Context(), "x", 1)
		return err == nil && !d.Fallback
	})

	link.Set(faultproxy.Fault{Refuse: true})

	// A balancer must not take all gateways away because of Redis: they can decide without it.
	if err := e.Ready(); err != nil {
		t.Errorf("unready while Redis is away again: %v", err)
	}
}

// A frozen Redis must not hold requests for longer than the time-out of the store, and the
// policies say what happens: by default each gateway admits its part.
func TestAFrozenRedisDelaysNoRequestByMoreThanItsTimeout(t *testing.T) {
	server := redistest.Start(t)
	all := shop("all", "10/1h fixed-window")
	all.Match.Path = "/part"
	closed := shop("closed", "1000/1h fixed-window")
	closed.Match.Path, closed.OnStoreError = "/closed", "closed"
	opened := shop("open", "1/1h fixed-window")
	opened.Match.Path, opened.OnStoreError = "/open", "open"

	publish(t, server.Addr, "x:", all, closed, opened)
	e := open(t, Options{Redis: at(server.Addr), RedisPrefix: "x:", Expected: 2})
	l := limiterOf(t, e, "", Face{Name: "proxy"})

	ask := func(path string) (int, time.Duration) {
		begun := time.Now()
		a := l.Admit(&test.Request{Ctx: t.Context(), Verb: "GET", URLPath: path, Peer: "192.0.2.1:1"})
		took, status := time.Since(begun), a.Status()
		a.Done(max(status, 200))
		return status, took
	}

	until(t, "Redis decides", func() bool {
		d, err := l.Allow(t.Context(), "warm", 1)
		return err == nil && !d.Fallback
	})

	server.Freeze()
	var longest time.Duration

	// Without Redis the gateway expects one other and admits half of the ten.
	passed := 0
	for range 40 {
		status, took := ask("/part")
		longest = max(longest, took)
		if status == 0 {
			passed++
		}
	}

	for range 10 {
		if status, took := ask("/closed"); status != 503 {
			t.Errorf("fail closed: %d", status)
		} else {
			longest = max(longest, took)
		}
		if status, took := ask("/open"); status != 0 {
			t.Errorf("fail open: %d", status)
		} else {
			longest = max(longest, took)
		}
	}

	test.AtMost(t, "the longest answer while Redis is frozen", longest, 70*time.Millisecond)
	server.Thaw()
	if passed != 5 { // as the other gateway may have started since
		t.Errorf("%d admitted by one gateway of two, want its part of 10, which is 5", passed)
	}

	until(t, "Redis decides again", func() bool {
		d, err := l.Allow(t.Context(), "again", 1)
		return err == nil && !d.Fallback
	})
}

// The time-out bounds calls of Redis, and a call within it is no reason to bypass Redis.
func TestTheTimeoutDecidesWhenRedisIsTooSlow(t *testing.T) {
	server := redistest.Start(t)
	link := faultproxy.New(t, server.Addr)

	// An answer that is there when a busy machine looks for it is no late one, so that one comes a
	// minute late. The other is slower than failover.DefaultSlow, and in time.
	for _, row := range []struct {
		timeout, delay time.Duration
		fallback       int
	}{{20 * time.Millisecond, time.Minute, 12}, {10 * time.Second, 120 * time.Millisecond, 0}} {
		e := open(t,
			Options{Redis: at(link.Addr), RedisPrefix: "x:", Source: Fixed(policy.Set{shop("all", "1000/1h")}),
				Timeout: row.timeout})
		l := limiterOf(t, e, "", Face{Name: "proxy"})

		until(t, "Redis decides", func() bool {
			d, err := l.Allow(t.Context(), "warm", 1)
			return err == nil && !d.Fallback
		})

		link.Set(faultproxy.Fault{Delay: row.delay})
		fallback := 0
		for range 12 {
			if d, err := l.Allow(t.Context(), "x", 1); err != nil {
				t.Error(err)
			} else if d.Fallback {
				fallback++
			}
		}

		// The connection answers at once again, for the engine of the next row.
		link.Set(faultproxy.Fault{})
		if fallback != row.fallback {
			t.Errorf("with a time-out of %v, %d of 12 were decided in memory, want %d", row.timeout, fallback,
				row.fallback)
		}
	}
}

func TestCheckWritesNothing(t *testing.T) {
	server := redistest.Start(t)
	publish(t, server.Addr, "x:", shop("all", "2/1h"))

	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()

	keys := func() string {
		list, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(list, " ")
	}

	before := keys()

	// A check reads what a gateway would, and a folder that is not there shows if it writes.
	e := open(t,
		Options{Redis: at(server.Addr), RedisPrefix: "x:", Check: true, LastGood: "/does/not/exist",
			Poll: 10 * time.Millisecond})
	l := limiterOf(t, e, "", Face{Name: "proxy"})
	if n := admitted(t, l, 3); n != 2 {
		t.Errorf("%d admitted", n)
	}

	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if after := keys(); after != before {
		t.Errorf("the keys are %s, want %s as before", after, before)
	}

	// A gateway would start without Redis and wait for it. A check has nothing to wait for.
	server.Kill()
	e = open(t, Options{Redis: at(server.Addr), RedisPrefix: "x:", Check: true})
	if _, err := e.Limiter("", Face{Name: "proxy"}); err == nil {
		t.Error("policies that cannot be loaded are no mistake")
	}
}

func TestLimiterReturnsSoonWhileRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	link := faultproxy.New(t, server.Addr)

	link.Set(faultproxy.Fault{Silent: true})

	e := open(t, Options{Redis: at(link.Addr), LoadTimeout: 100 * time.Millisecond})
	done := make(chan *limiter.Limiter, 1)
	go func() {
		l, err := e.Limiter("", Face{Name: "proxy"})
		if err != nil {
			t.Error(err)
		}
		done <- l
	}()

	select {
	case l := <-done:
		if n := admitted(t, l, 1); n != 1 {
			t.Error("a request does not pass without policies")
		}
	case <-time.After(time.Minute):
		t.Error("the first call has not returned in a minute")
	}
}

// A key whose value the store cannot read is no outage of Redis.
func TestValueThatCannotBeReadIsNoOutage(t *testing.T) {
	for name, value := range map[string]string{"of a later version": "\xfe\x63", "of another program": "no state"} {
		t.Run(name, func(t *testing.T) {
			addr, prefix := redistest.Addr(t), redistest.Prefix(t)
			publish(t, addr, prefix, shop("all", "1000/1h fixed-window"))
			e := open(t,
				Options{Apps: []string{"shop"}, Redis: at(addr), RedisPrefix: prefix, Timeout: 10 * time.Second})
			l := limiterOf(t, e, "shop", Face{Name: "proxy"})

			admitted(t, l, 1)
			client := redis.NewClient(&redis.Options{Addr: addr})
			defer client.Close()

			// Only the state of the limit is a plain text; policies and instances are of other
			// types.
			for _, key := range client.Keys(t.Context(), prefix+"{*").Val() {
				if client.Type(t.Context(), key).Val() == "string" {
					client.Set(t.Context(), key, value, time.Hour)
				}
			}

			admitted(t, l, 20)
			store := e.store.(*failover.Store)

			// The 20 were decided in memory, and the store as a whole was never given up.
			if n := store.Stats(); n.Local != 20 || n.Opened != 0 {
				t.Errorf("%+v after 20 requests about the key", n)
			}
		})
	}
}
