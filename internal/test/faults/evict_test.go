package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// evict fills a server with other data until it evicts keys by that policy. The count
// of an evicted key is lost, so each eviction may admit one limit more. The limiter is
// not informed, so no stricter bound can be promised.
func evict(s *scene, policy string) {
	ctx := context.Background()
	s.do(config("notify-keyspace-events", "Ee")...)

	// Under RESP3 the client reads messages itself before it hands them on.
	c := redis.NewClient(&redis.Options{Addr: s.server.Addr, Protocol: 2, DisableIdentity: true})
	defer c.Close()

	// The server reports each eviction by name. The test listens before the first one.
	events := c.Subscribe(ctx, evictions)
	defer events.Close()
	if _, err := events.Receive(ctx); err != nil {
		s.t.Fatal(err)
	}

	s.do(config("maxmemory-policy", policy)...)

	// Connections count too, and must not fill the server by themselves.
	const room, other = 4_000_000, 20_000
	s.do(config("maxmemory", strconv.Itoa(s.info(s.admin, "memory", "used_memory")+room))...)

	// Twice as much data as fits, at a pace at which requests come between, so that counts are
	// among the oldest keys or the newest.
	tick, data := time.NewTicker(5*time.Millisecond), strings.Repeat("x", other)
	defer tick.Stop()
	for n := range 2 * room / other {
		s.do("SET", fmt.Sprint("other ", n), data, "EX", "60")
		<-tick.C
	}

	// Enough room again, or the requests afterwards would go on losing their counts.
	s.do(config("maxmemory", "0")...)
	gone, unknown := s.evicted(events)
	s.forgotWhat(gone, unknown)
}

const (
	evictions = "__keyevent@0__:evicted"
	lastEvent = "no more is evicted"
)

// evicted returns how often each key of the limits was evicted, and the number of
// evictions that were not reported.
func (s *scene) evicted(events *redis.PubSub) (gone map[string]int, unknown int) {
	s.t.Helper()
	s.do("PUBLISH", evictions, lastEvent)

	gone, all := map[string]int{}, s.info(s.admin, "stats", "evicted_keys")

	// The last message is the test's own: what comes before it are all evictions that were
	// reported. What is left of the server's own number was not.
	for unknown = all; ; unknown-- {
		event, err := events.ReceiveTimeout(context.Background(), patience)
		m, ok := event.(*redis.Message)
		if !ok {
			s.t.Fatal(errors.Join(fmt.Errorf("%T is no message", event), err))
		}
		if m.Payload == lastEvent {
			break
		}
		if strings.HasPrefix(m.Payload, "test-") {
			gone[m.Payload]++
		}
	}

	if unknown != 0 {
		s.t.Logf("%d evictions were not reported", unknown)
	}

	// A fault that evicts no count tests nothing.
	if len(gone) == 0 {
		s.t.Errorf("none of %d evicted keys belonged to a limit", all)
	}
	return gone, unknown
}

// forgotWhat records how often the server has lost each of those keys, and how many
// unknown keys it has lost.
func (s *scene) forgotWhat(gone map[string]int, unknown int) {
	s.lossFrom = time.Unix(0, 0)
	for _, l := range s.lanes {
		s.losses = max(s.losses, gone[sharedKeyOf(l)]+unknown)
	}
}

// info returns a number that a server reports about itself.
func (s *scene) info(c *redis.Client, section, field string) int {
	s.t.Helper()
	_, after, _ := strings.Cut(c.Info(context.Background(), section).Val(), "\n"+field+":")
	digits, _, _ := strings.Cut(after, "\r")
	n, err := strconv.Atoi(digits)
	if err != nil {
		s.t.Fatalf("%s: %v", field, err)
	}
	return n
}
