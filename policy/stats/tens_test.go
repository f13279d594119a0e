package stats_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// readTens returns the last minutes with their tens.
func readTens(t *testing.T, client redis.UniversalClient, prefix string) []stats.Minute {
	t.Helper()
	minutes, err := test.Patiently(func() ([]stats.Minute, error) {
		minutes := read(t, client, prefix)
		return minutes, stats.ReadTens(t.Context(), client, prefix, "shop", minutes)
	})
	if err != nil {
		t.Fatal(err)
	}
	return minutes
}

// Tens add up to their minute, and are not told if they do not.
func TestTensAddUpToTheirMinute(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})
	flush(t, r)
	for v := range events.Verdict(events.Verdicts) {
		r.Observe(t.Context(), event("p", v))
	}
	flush(t, r)

	tens := func() []stats.Minute { return readTens(t, client, prefix) }

	// One request of each verdict is in some ten seconds, and none in the others.
	var sum stats.Counts
	for _, m := range tens() {
		var of stats.Counts
		for _, n := range m.Tens {
			of.Add(n)
		}
		if len(m.Tens) != stats.Tens || of != m.Requests || m.Seen.IsZero() {
			t.Errorf("%s: %v of %v", m.Start, m.Tens, m.Requests)
		}
		sum.Add(of)
	}
	for v, n := range sum {
		if n != 1 {
			t.Errorf("%d requests have the verdict %d", n, v)
		}
	}

	// A request of an instance of an earlier version is in the minute alone.
	keys := client.Keys(t.Context(), prefix+"*:minute:*").Val()
	if err := client.HIncrBy(t.Context(), keys[0], "a", 1).Err(); err != nil {
		t.Fatal(err)
	}
	unknown := 0
	for _, m := range tens() {
		if m.Tens == nil && m.Requests[events.Allowed] == 2 {
			unknown++
		}
	}
	if unknown != 1 {
		t.Errorf("the tens of %d minutes are not known, want 1", unknown)
	}

}

// The tens of a minute are small, however large the counts are.
func TestTensAreSmall(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})
	observe(r, 1)
	flush(t, r)

	keys := client.Keys(t.Context(), prefix+"*:tens:*").Val()
	if len(keys) != 1 {
		t.Fatalf("the keys are %q", keys)
	}
	for _, key := range keys {
		for ten := range stats.Tens {
			for _, letter := range strings.Split("awgsorbidqcfx", "") {
				client.HIncrBy(t.Context(), key, string(rune('0'+ten))+letter, 1_000_000)
			}
		}
		size := client.MemoryUsage(t.Context(), key).Val()
		if t.Logf("%s has %d bytes at most", key, size); size > 2000 {
			t.Errorf("%s has %d bytes", key, size)
		}
	}
}

// Where all instances together write less often, the requests of ten seconds come nevertheless.
func TestRequestsAreWrittenWhenTenSecondsEnd(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix, Every: 10 * time.Second})
	flush(t, r)
	counted := func() (requests, decisions int64) {
		policies, all := total(t, client, prefix)
		for _, c := range policies {
			decisions += c.Total()
		}
		return all.Total(), decisions
	}

	// A write that comes soon takes them all, so nothing is written before.
	observe(r, 3)
	if err := r.EndTen(time.Second); err != nil {
		t.Error(err)
	}
	if requests, decisions := counted(); requests != 0 || decisions != 0 {
		t.Errorf("shortly before a write %d requests and %d decisions are written", requests, decisions)
	}

	if err := r.EndTen(5 * time.Second); err != nil {
		t.Error(err)
	}
	if requests, decisions := counted(); requests != 3 || decisions != 0 {
		t.Errorf("long before a write %d requests and %d decisions are written", requests, decisions)
	}

	flush(t, r)
	if requests, decisions := counted(); requests != 3 || decisions != 3 {
		t.Errorf("after a write %d requests and %d decisions are written", requests, decisions)
	}
}
