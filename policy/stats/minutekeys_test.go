package stats_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

// inMinute returns a rule that has counted keys in the minute before noon, by a clock, and as many
// single ones as the rest of the total.
func inMinute(name string, total, floor int64, keys ...topkeys.Key) topkeys.Rule {
	return topkeys.Rule{Rule: name, Minute: topkeys.Summary{From: noon.Add(-time.Minute), To: noon, Total: total,
		Floor: floor, Keys: keys}}
}

// atNoon returns a clock that shows noon, and the server's time when it does.
func atNoon() (func() time.Time, time.Time) {
	at := time.Now().UTC().Truncate(time.Minute)
	ahead := noon.Sub(at)
	return func() time.Time { return time.Now().Add(ahead) }, at
}

// readMinutes returns what is known of the minute before an instant, and of the one before.
func readMinutes(
	t *testing.T, client redis.UniversalClient, r *stats.Recorder, prefix string, until time.Time,
) (before, last topkeys.Summary) {
	t.Helper()
	flush(t, r)
	list, err := test.Patiently(func() ([]topkeys.Summary, error) {
		return stats.ReadMinuteKeys(t.Context(), client, prefix, "shop", "p", until.Add(-2*time.Minute), 2)
	})
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	return list[0], list[1]
}

// The keys of all instances add up, and a list that lacks a key may have counted it as often as its
// floor says. Times are those of the server.
func TestMinuteKeysAddUp(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	clock, until := atNoon()
	publish := func(list ...topkeys.Rule) *stats.Recorder {
		r := recorder(t, client, stats.Options{Prefix: prefix, Clock: clock})
		r.PublishTop(always(list...))
		observe(r, 1)
		flush(t, r)
		return r
	}

	one := publish(inMinute("p", 40, 2, topkeys.Key{Key: "a", Count: 20}, topkeys.Key{Key: "b", Count: 9, Error: 1},
		topkeys.Key{Key: "seldom", Count: 1}), inMinute("idle", 0, 0), inMinute("q", 7, 0))
	readMinutes(t, client, one, prefix, until)
	two := publish(inMinute("p", 60, 4, topkeys.Key{Key: "\xff", Count: 30, Error: 4}, topkeys.Key{Key: "b", Count: 7}))
	before, last := readMinutes(t, client, two, prefix, until)

	wantKeys(t, "of both", last, 100, 6, topkeys.Key{Key: "\xff", Count: 32, Error: 6},
		topkeys.Key{Key: "a", Count: 24, Error: 4}, topkeys.Key{Key: "b", Count: 16, Error: 1})
	if !last.From.Equal(until.Add(-time.Minute)) || !last.To.Equal(until) {
		t.Errorf("from %v to %v, want the minute before %v", last.From, last.To, until)
	}
	wantKeys(t, "of the minute before", before, 0, 0)

	// A minute is written once, however often it is read, and a call that is repeated adds nothing.
	one.Overdue()
	readMinutes(t, client, one, prefix, until)
	if err := two.RepeatMinutes(t.Context(), inMinute("p", 60, 4)); err != nil {
		t.Fatal(err)
	}
	if _, last = readMinutes(t, client, one, prefix, until); last.Total != 100 {
		t.Errorf("the total is %d", last.Total)
	}

	// All of it ends.
	names := append(client.Keys(t.Context(), prefix+"{stats:shop}:keys:*").Val(),
		client.Keys(t.Context(), prefix+"{stats:shop}:written:*").Val()...)
	if len(names) != 3 {
		t.Error(names)
	}
	for _, name := range names {
		ttl := client.PTTL(t.Context(), name).Val()
		if ttl <= stats.MinuteKeysKept-time.Minute || ttl > stats.MinuteKeysKept {
			t.Errorf("%s lives for %s", name, ttl)
		}
	}
}

// A window that is not a minute of the server's clock says so.
func TestMinuteKeysOfAnotherClock(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	clock, until := atNoon()
	r := recorder(t, client, stats.Options{Prefix: prefix, Clock: clock})
	rule := inMinute("p", 5, 0, topkeys.Key{Key: "a", Count: 5})
	rule.Minute.From, rule.Minute.To = rule.Minute.From.Add(-10*time.Second), rule.Minute.To.Add(7*time.Second)
	r.PublishTop(always(rule))
	observe(r, 1)
	flush(t, r)

	_, last := readMinutes(t, client, r, prefix, until)
	early, late := until.Add(-time.Minute).Sub(last.From), last.To.Sub(until)
	if early.Round(time.Second) != 10*time.Second || late.Round(time.Second) != 7*time.Second {
		t.Errorf("%v too early and %v too late, want 10s and 7s", early, late)
	}
}

// All instances share what is written: with many of them, each writes its heaviest keys of its
// busiest policies.
func TestMinuteKeysAreBounded(t *testing.T) {
	var keys []topkeys.Key
	for i := range int64(100) {
		keys = append(keys, topkeys.Key{Key: strconv.FormatInt(i, 10), Count: 200 - i})
	}
	var rules []topkeys.Rule
	for i := range int64(1000) {
		rules = append(rules, inMinute("p"+strconv.FormatInt(i, 10), 1000+i, 0, keys...))
	}

	for _, row := range []struct {
		rules         int
		writers       int64
		policies, all int
		floor         int64
	}{
		{1, 1, 1, 20, 180}, {1000, 1, 1000, 20_000, 180}, {1, 200, 1, 4, 196}, {40, 200, 40, 160, 196},
		{1000, 2, 1000, 16_000, 184}, {1000, 200, 160, 160, 199}, {1000, 10_000, 3, 3, 199},
	} {
		policies, all, floor := stats.MinuteKeysOf(rules[:row.rules], row.writers)
		if policies != row.policies || all != row.all || floor != row.floor {
			t.Errorf("%d policies, %d writers: %d keys of %d, each other at most %d times; want %d of %d, %d", row.rules,
				row.writers, all, policies, floor, row.all, row.policies, row.floor)
		}
	}
}

// What another program has written is an error, or left out.
func TestMinuteKeysOfAnotherProgram(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	name := prefix + "{stats:shop}:keys:" + strconv.FormatInt(noon.Unix()/60, 10) + ":p"
	read := func() ([]topkeys.Summary, error) {
		return test.Patiently(func() ([]topkeys.Summary, error) {
			return stats.ReadMinuteKeys(t.Context(), client, prefix, "shop", "p", noon, 1)
		})
	}

	for _, fields := range [][]any{{"n", "x"}, {"n", -1}, {"=a", "1e9"}, {"f", "9223372036854775807"}, {"", -1}} {
		client.Del(t.Context(), name)
		client.HSet(t.Context(), name, fields...)
		if got, err := read(); err == nil {
			t.Errorf("%v: %+v", fields, got)
		}
	}
	client.Del(t.Context(), name)
	client.HSet(t.Context(), name, "n", 5, "?", 7, "", 8, "+x", -3, "=a", 2)
	if got, err := read(); err != nil {
		t.Error(err)
	} else {
		wantKeys(t, "with other fields", got[0], 5, 0, topkeys.Key{Key: "a", Count: 2})
	}
	client.Del(t.Context(), name)
	client.Set(t.Context(), name, "text", 0)
	if got, err := read(); err == nil {
		t.Errorf("a text: %+v", got)
	}
}
