package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
)

// banning returns a function that has the store ban a key.
func banning(t *testing.T, s *Store, now func() int64) func(rule, key string, span time.Duration) core.Banned {
	return func(rule, key string, span time.Duration) core.Banned {
		t.Helper()
		l := limit(t, "1/1s")
		b := &core.Ban{Strikes: 1, Within: time.Minute, For: span, Max: time.Hour}
		impose := core.Op{Verb: core.Impose, Rule: rule, Key: key, Limit: l, Ban: b}
		if d := apply(t, s, impose)[0]; !d.Banned {
			t.Errorf("the key is not banned: %+v", d)
		}
		s.bans.idle.Wait()
		return core.Banned{Rule: rule, Key: key, Until: now() + span.Microseconds()}
	}
}

// Each process lists the bans that any has imposed or met. They end, are lifted, and have a bound.
func TestBansAreListed(t *testing.T) {
	clients := map[string]func(t *testing.T) redis.UniversalClient{
		"standalone": func(t *testing.T) redis.UniversalClient { return connect(t, redistest.Addr(t)) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t, 3)),
				ContextTimeoutEnabled: true})
			t.Cleanup(func() { c.Close() })
			return c
		},
	}

	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := int64(1_700_000_000_000_000)

			o := Options{Prefix: redistest.Prefix(t), Timeout: patient, Clock: func() int64 { return now }}
			c := client(t)
			s, other := MustNew(c, o), MustNew(c, o)

			// The hostile key is as long as a listed key may be, and the one of an hour too long by
			// a byte.
			ban := banning(t, s, o.Clock)
			hostile := "\x00\n{b}" + strings.Repeat("k", listedKey-5)
			b, a, x := ban("r", "b", time.Minute), ban("r", "a", time.Minute), ban("s", hostile, 2*time.Minute)
			short, _ := ban("r", "short", time.Second), ban("other", "a", time.Minute)
			ban("r", strings.Repeat("k", listedKey+1), time.Hour)

			lists := func(rules []string, most int, want ...core.Banned) {
				t.Helper()
				for i, s := range []*Store{s, other} {
					if got, err := s.Report().Bans(t.Context(), rules, most); err != nil || !slices.Equal(got, want) {
						t.Errorf("store %d: %+v, %v, want %+v", i+1, got, err, want)
					}
				}
			}

			// Both stores list the same, the longest first, and of equal ends by the key.
			lists([]string{"r", "s"}, 10, x, a, b, short)
			lists([]string{"r", "s"}, 2, x, a)
			lists([]string{"r"}, 0)
			lists(nil, 10)

			// The short ban is there until its very last microsecond.
			now += time.Second.Microseconds() - 1
			lists([]string{"r"}, 10, a, b, short)
			now++
			lists([]string{"r"}, 10, a, b)

			// A lift by one store is seen by the other.
			apply(t, other, core.Op{Verb: core.Lift, Rule: "r", Key: "a", Limit: limit(t, "1/1s")})
			lists([]string{"r"}, 10, b)

			// A take that is allowed makes no ban, and one that is refused does.
			take := core.Op{Rule: "r", Key: "met", Limit: limit(t, "1/1s"),
				Ban: &core.Ban{Strikes: 1, Within: time.Minute, For: 2 * time.Minute, Max: time.Hour}, Cost: 1}
			apply(t, s, take)
			lists([]string{"r"}, 10, b)
			apply(t, s, take) // is refused, which begins a ban

			s.bans.idle.Wait()
			lists([]string{"r"}, 10, core.Banned{Rule: "r", Key: "met", Until: now + 2*time.Minute.Microseconds()}, b)
		})
	}
}

// The sorted set keeps the bans that last longest, and a process remembers few of them.
func TestBanListIsBounded(t *testing.T) {
	t.Parallel()
	const now = 1_700_000_000_000_000
	s := MustNew(connect(t, redistest.Addr(t)), Options{Prefix: redistest.Prefix(t), Timeout: patient})

	// A hundred more than may be listed, each a microsecond longer than the one before.
	for i := range listedBans + 100 {
		s.bans.remember(fmt.Sprint("gr\x00", i), now, now+int64(i)+1)
	}
	s.bans.idle.Wait()

	name := s.bans.key()
	if n := s.client.ZCard(t.Context(), name).Val(); n != listedBans {
		t.Errorf("%d bans are listed", n)
	}

	// The hundred shortest were dropped.
	if first := s.client.ZRange(t.Context(), name, 0, 0).Val(); !slices.Equal(first, []string{"gr\x00100"}) {
		t.Errorf("the shortest is %q", first)
	}

	if n := len(s.bans.known); n > knownBans {
		t.Errorf("the process remembers %d bans", n)
	}

	// A late ban finds all but the hundred that last longer ended.
	s.bans.remember("gr\x00late", now+listedBans, now+2*listedBans)
	s.bans.idle.Wait()
	if n := s.client.ZCard(t.Context(), name).Val(); n != 101 {
		t.Errorf("%d bans are listed after those that ended were dropped", n)
	}

	if ttl := s.client.PTTL(t.Context(), name).Val(); ttl <= 0 || ttl > core.MaxPeriod {
		t.Errorf("the list expires after %s", ttl)
	}
}

func TestBansThatCannotBeListed(t *testing.T) {
	t.Parallel()

	// With a secret the keys in Redis are digests, which a person could not read in a list.
	hidden := MustNew(connect(t, redistest.Addr(t)),
		Options{Prefix: redistest.Prefix(t), Timeout: patient, Secret: []byte("0123456789abcdef")})
	banning(t, hidden, func() int64 { return 0 })("r", "k", time.Minute)
	if n := hidden.client.Exists(t.Context(), hidden.bans.key()).Val(); n != 0 {
		t.Error("a hidden key was listed")
	}

	if _, err := hidden.Report().Bans(t.Context(), []string{"r"}, 1); !errors.Is(err, errHidden) {
		t.Errorf("error %v", err)
	}

	server := redistest.Start(t)
	gone := MustNew(connect(t, server.Addr), Options{Timeout: patient})
	server.Kill()
	if _, err := gone.Report().Bans(t.Context(), []string{"r"}, 1); err == nil ||
		!strings.HasPrefix(err.Error(), "redisstore: list bans: ") {
		t.Errorf("error %v", err)
	}
}

// A Peek of a banned key writes nothing, and the next Take of it lists the ban.
func TestPeekListsNoBan(t *testing.T) {
	now := int64(1_700_000_000_000_000)
	o := Options{Prefix: redistest.Prefix(t), Timeout: patient, Clock: func() int64 { return now }}
	c := connect(t, redistest.Addr(t))
	banning(t, MustNew(c, o), o.Clock)("r", "k", time.Hour)

	s := MustNew(c, o)
	b := &core.Ban{Strikes: 1, Within: time.Minute, For: time.Minute, Max: time.Hour}
	for _, row := range []struct {
		verb   core.Verb
		listed int64
	}{{core.Peek, 0}, {core.Take, 1}} {
		if err := c.Del(t.Context(), s.bans.key()).Err(); err != nil {
			t.Fatal(err)
		}

		// Both meet the ban.
		d := apply(t, s, core.Op{Verb: row.verb, Rule: "r", Key: "k", Limit: limit(t, "1/1s"), Ban: b, Cost: 1})[0]
		s.bans.idle.Wait()
		if n := c.ZCard(t.Context(), s.bans.key()).Val(); !d.Banned || n != row.listed {
			t.Errorf("%s: banned %t, and %d listed", row.verb, d.Banned, n)
		}
	}
}
