package stats_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// readNear reads the keys near their limits.
func readNear(t *testing.T, client redis.UniversalClient) []stats.NearKey {
	t.Helper()
	keys, err := test.Patiently(func() ([]stats.NearKey, error) {
		return stats.ReadNear(t.Context(), client, "", "shop")
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// nearOf returns the keys near their limits as "policy key".
func nearOf(t *testing.T, client redis.UniversalClient) (list []string) {
	t.Helper()
	for _, k := range readNear(t, client) {
		list = append(list, k.Policy+" "+k.Key)
	}
	return list
}

// A key is listed once in an hour, whichever instance it came near its limit on, and how often.
func TestNearIsListedOnceByAllInstances(t *testing.T) {
	s := redistest.Start(t)
	client := dial(t, s.Addr)
	a, b := recorder(t, client, stats.Options{}), recorder(t, client, stats.Options{})

	a.Hooks().Near(events.Near{Rule: "api", Key: "ann"})
	a.Hooks().Near(events.Near{Rule: "api", Key: "ann"})
	flush(t, a)
	first := readNear(t, client)
	if len(first) != 1 {
		t.Fatal(first)
	}

	b.Hooks().Near(events.Near{Rule: "api", Key: "ann"})
	b.Hooks().Near(events.Near{Rule: "other", Key: "ann"})
	flush(t, b)
	flush(t, a)
	again := readNear(t, client)
	if len(again) != 2 || again[0] != first[0] || again[1].Policy != "other" {
		t.Errorf("%v after %v", again, first)
	}

	// An hour later it is listed anew.
	now := first[0].At.UnixMicro()
	if err := client.ZAdd(t.Context(), "hg:{stats:shop}:near", redis.Z{Score: float64(now - 3600_000_000),
		Member: "api:ann"}).Err(); err != nil {
		t.Fatal(err)
	}
	if got := nearOf(t, client); !slices.Equal(got, []string{"other ann"}) {
		t.Errorf("%q", got)
	}
	a.Hooks().Near(events.Near{Rule: "api", Key: "ann"})
	flush(t, a)
	if got := nearOf(t, client); !slices.Equal(got, []string{"other ann", "api ann"}) {
		t.Errorf("%q", got)
	}
}

// Keys hold what clients send, and neither their length nor their number is without a bound.
func TestNearOfHostileKeys(t *testing.T) {
	s := redistest.Start(t)
	client := dial(t, s.Addr)
	r := recorder(t, client, stats.Options{})
	near := r.Hooks().Near

	near(events.Near{Rule: "api", Key: "a:b\x00\xff\r\n"})
	near(events.Near{Rule: "api", Key: strings.Repeat("x", 513)})
	near(events.Near{Rule: "api", Key: ""})
	flush(t, r)
	if got := nearOf(t, client); !slices.Contains(got, "api a:b\x00\xff\r\n") || !slices.Contains(got, "api ") ||
		len(got) != 2 {
		t.Errorf("%q", got)
	}

	for i := range stats.MaxNear + 500 {
		near(events.Near{Rule: "api", Key: fmt.Sprint(i)})
		if i%1000 == 999 {
			flush(t, r)
		}
	}
	for i := range 1500 { // of which no more than a thousand wait
		near(events.Near{Rule: "late", Key: fmt.Sprint(i)})
	}
	flush(t, r)
	if n := len(nearOf(t, client)); n != stats.MaxNear {
		t.Errorf("%d keys are listed", n)
	}
}

// What cannot be written waits, and a limiter reports by itself.
func TestNearOutlivesAnOutage(t *testing.T) {
	s := redistest.Start(t)
	client := dial(t, s.Addr)
	r := recorder(t, client, stats.Options{})
	l := limiter.MustNew(limiter.Config{Observer: r, Hooks: r.Hooks(), Rules: []limiter.Rule{
		{Name: "api", Limit: core.MustParseLimit("10/1h fixed-window"), Warn: 8000}}})
	defer l.Close()
	for range 12 {
		if _, err := l.Allow(t.Context(), "ann", 1); err != nil {
			t.Fatal(err)
		}
	}

	s.Kill()
	if err := r.Flush(t.Context()); err == nil {
		t.Error("it was written to a server that is away")
	}
	s.Restart()
	for range 3 { // the connections of before are found dead
		_ = r.Flush(t.Context())
	}
	if got := nearOf(t, client); !slices.Equal(got, []string{"api ann"}) {
		t.Errorf("%q", got)
	}
}
