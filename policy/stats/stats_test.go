package stats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func dial(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

func recorder(t testing.TB, client redis.UniversalClient, o stats.Options) *stats.Recorder {
	t.Helper()
	o.Timeout = time.Minute // for a busy machine
	o.App, o.Logger = "shop", slog.New(slog.DiscardHandler)
	if o.Every == 0 {
		o.Every = time.Minute
	}
	r, err := stats.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// event is of a request under one rule.
func event(rule string, v events.Verdict) *events.Request {
	return &events.Request{Verdict: v, Rules: []events.Rule{{Name: rule, Verdict: v}}}
}

// read returns the last minutes.
func read(t testing.TB, client redis.UniversalClient, prefix string) []stats.Minute {
	t.Helper()
	minutes, err := test.Patiently(func() ([]stats.Minute, error) {
		return stats.Read(t.Context(), client, prefix, "shop")
	})
	if err != nil || len(minutes) != stats.Minutes {
		t.Fatalf("%d minutes, %v", len(minutes), err)
	}
	return minutes
}

// readAt reads a minute.
func readAt(t testing.TB, client redis.UniversalClient, prefix string, at time.Time) ([]stats.Minute, error) {
	t.Helper()
	return test.Patiently(func() ([]stats.Minute, error) {
		return stats.ReadMinutes(t.Context(), client, prefix, "shop", []time.Time{at})
	})
}

// total returns the decisions of the last minutes by policy, and all requests.
func total(t testing.TB, client redis.UniversalClient, prefix string) (policies map[string]stats.Counts,
	requests stats.Counts) {
	t.Helper()
	minutes := read(t, client, prefix)
	requests, lost := stats.Requests(minutes)
	if lost != 0 {
		t.Errorf("%d requests are lost", lost)
	}
	return stats.Total(minutes), requests
}

// wantRequests fails unless so many requests were allowed under the policy a.
func wantRequests(t testing.TB, client redis.UniversalClient, prefix string, want int64) {
	t.Helper()
	policies, requests := total(t, client, prefix)
	if requests != (stats.Counts{events.Allowed: want}) || policies["a"] != requests {
		t.Errorf("%v requests and %v decisions, want %d", requests, policies, want)
	}
}

func observe(r *stats.Recorder, n int) {
	for range n {
		r.Observe(context.Background(), event("a", events.Allowed))
	}
}

func flush(t testing.TB, r *stats.Recorder) {
	t.Helper()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRecorderCountsRequestsAndDecisionsApart(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})

	// A request has one verdict, and each of its rules one of its own. The third failed before any
	// rule decided.
	r.Observe(t.Context(), &events.Request{Verdict: events.ShadowRefused, Rules: []events.Rule{
		{Name: "a"}, {Name: "b", Verdict: events.Waited}, {Name: "c", Verdict: events.ShadowRefused}, {Name: "d"}}})
	r.Observe(t.Context(), &events.Request{Verdict: events.Banned, Rules: []events.Rule{
		{Name: "a", Verdict: events.Overruled}, {Name: "b", Verdict: events.Banned}}})
	r.Observe(t.Context(), &events.Request{Verdict: events.FailedClosed})

	// The second flush has nothing new, and must not add the same counts again.
	for range 2 {
		flush(t, r)
		got, requests := total(t, client, prefix)
		if want := (stats.Counts{events.ShadowRefused: 1, events.Banned: 1, events.FailedClosed: 1}); requests != want {
			t.Errorf("requests: %v, want %v", requests, want)
		}

		want := map[string]stats.Counts{
			"a": {events.Allowed: 1, events.Overruled: 1}, "b": {events.Waited: 1, events.Banned: 1},
			"c": {events.ShadowRefused: 1}, "d": {events.Allowed: 1},
		}
		if !maps.Equal(got, want) {
			t.Errorf("decisions: %v, want %v", got, want)
		}
	}
}

// Requests that are counted without an event count as others do.
func TestRecorderCountsPlainRequests(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})

	// A counter alone is no count: nothing is written for it.
	a := r.RuleCounter("a")
	flush(t, r)
	if got, requests := total(t, client, prefix); len(got) != 0 || requests != (stats.Counts{}) {
		t.Errorf("before a request: %v %v", got, requests)
	}

	// Both ways to count go on in the same numbers, over several writes.
	r.Observe(t.Context(), event("a", events.Allowed))
	for range 3 {
		r.CountRequest(t.Context(), events.Plain{Verdict: events.Allowed})
		a.Count(t.Context(), events.Allowed)
		flush(t, r)
	}

	r.CountRequest(t.Context(), events.Plain{Verdict: events.Refused, Rule: "b"})
	r.RuleCounter("b").Count(t.Context(), events.Refused)
	flush(t, r)

	got, requests := total(t, client, prefix)
	want := map[string]stats.Counts{"a": {events.Allowed: 4}, "b": {events.Refused: 1}}
	if !maps.Equal(got, want) || requests != (stats.Counts{events.Allowed: 4, events.Refused: 1}) {
		t.Errorf("%v %v", got, requests)
	}

	// The counter is on the path of every request.
	if n := testing.AllocsPerRun(1000, func() { a.Count(t.Context(), events.Refused) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Every verdict is told apart, under a letter that never changes.
func TestCountsInRedis(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})

	// Verdict v is counted v+1 times, so that two letters that were swapped show.
	for v := range events.Verdict(events.Verdicts) {
		for range v + 1 {
			r.Observe(t.Context(), event("a:b", v))
		}
	}
	flush(t, r)

	// The letters are what older and newer programs find in Redis.
	letters := map[string]string{"allowed": "a", "waited": "w", "degraded": "g", "shadow_refused": "s",
		"failed_open": "o", "refused": "r",
		"banned": "b", "impossible": "i", "denied": "d", "queue_full": "q", "canceled": "c",
		"failed_closed": "f", "overruled": "x"}

	want := map[string]string{}
	for v := range events.Verdict(events.Verdicts) {
		want[letters[v.String()]] = fmt.Sprint(int(v) + 1)
		want[letters[v.String()]+":a:b"] = fmt.Sprint(int(v) + 1)
	}

	keys := client.Keys(t.Context(), prefix+"{stats:shop}:minute:*").Val()
	if len(keys) != 1 {
		t.Fatal(keys)
	}
	if got := client.HGetAll(t.Context(), keys[0]).Val(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	// A newer version may write more.
	client.HSet(t.Context(), keys[0], "z", 5, "z:a:b", 5, "ab", 5, "a:c", "?", "!", 3)
	minutes := read(t, client, prefix)

	var all stats.Counts
	for v := range all {
		all[v] = int64(v) + 1
	}

	// Unknown fields are left out, and the lost requests are their own number.
	requests, lost := stats.Requests(minutes)
	if got := stats.Total(minutes); requests != all || lost != 3 || len(got) != 1 || got["a:b"] != all {
		t.Errorf("%v %v, lost %d", requests, got, lost)
	}
}

func TestRecorderCloseWritesTheRest(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)

	// Four recorders with four callers each, which write every 10ms while they count.
	var all sync.WaitGroup
	for range 4 {
		r := recorder(t, client, stats.Options{Prefix: prefix, Every: 10 * time.Millisecond})
		all.Go(func() {
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for n := range 1000 {
						r.Observe(context.Background(), event(fmt.Sprint("p", n%10), events.Allowed))
					}
				})
			}

			// Close comes right after the last request, so the last counts are still in memory.
			callers.Wait()
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	got, requests := total(t, client, prefix)
	if len(got) != 10 || requests != (stats.Counts{events.Allowed: 4 * 4 * 1000}) {
		t.Errorf("%v %v", requests, got)
	}

	// Every policy has a tenth of the requests.
	for i := range 10 {
		if n := got[fmt.Sprint("p", i)]; n != (stats.Counts{events.Allowed: 4 * 4 * 100}) {
			t.Errorf("p%d: %v", i, n)
		}
	}
}

func TestRecorderRestartErasesNothing(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	for range 3 {
		r := recorder(t, client, stats.Options{Prefix: prefix})
		observe(r, 5)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantRequests(t, client, prefix, 15)
}

func TestKeysExpire(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})
	observe(r, 1)
	flush(t, r)

	keys := client.Keys(t.Context(), prefix+"*").Val()
	slices.Sort(keys)
	wants := []struct {
		prefix string
		lives  time.Duration
	}{{"changed", stats.Keep}, {"minute:", stats.Keep}, {"tens:", 20 * time.Minute}, {"writer:", stats.Keep},
		{"writers", 2 * time.Minute}}
	if len(keys) != len(wants) {
		t.Fatalf("%v", keys)
	}

	for i, want := range wants {
		ttl := client.PTTL(t.Context(), keys[i]).Val()
		if !strings.HasPrefix(keys[i], prefix+"{stats:shop}:"+want.prefix) || ttl <= want.lives-time.Minute ||
			ttl > want.lives {
			t.Errorf("%s lives for %s, want %s and %s", keys[i], ttl, want.prefix, want.lives)
		}
	}
}

// calls counts round trips, and may lose answers.
type calls struct {
	n    int
	lose bool
}

var errLost = errors.New("the answer is lost")

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" { // of a new connection
			c.n++
		}
		err := next(ctx, cmd)
		if c.lose && err == nil {
			cmd.SetErr(errLost)
			return errLost
		}
		return err
	}
}

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.n++; return next(ctx, cmds) }
}

// A write is one call, however many requests there were, and there is none without news.
func TestFlushIsOneCall(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})

	// The first write learns the server's clock with a call of its own, which is not counted.
	observe(r, 1)
	flush(t, r)
	count := &calls{}
	client.AddHook(count)

	// Ten thousand requests under 900 policies, and two flushes without news.
	for i := range 10_000 {
		r.Observe(t.Context(), event(fmt.Sprint("p", i%900), events.Allowed))
	}
	for range 3 {
		flush(t, r)
	}

	if count.n != 1 {
		t.Errorf("%d calls", count.n)
	}
}

func TestRecorderCountsOnceWhenAnAnswerIsLost(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	hook := &calls{}
	client.AddHook(hook)

	r := recorder(t, client, stats.Options{Prefix: prefix})
	observe(r, 1)
	flush(t, r)

	// Three times the server adds the counts, and the answer is lost twice. Counts that come
	// meanwhile wait for their own batch.
	for range 3 {
		observe(r, 10)
		hook.lose = true
		for range 2 {
			if err := r.Flush(t.Context()); !errors.Is(err, errLost) {
				t.Fatal(err)
			}
		}

		observe(r, 100)
		hook.lose = false
		flush(t, r)
	}

	// One at the start and 110 in each round: a batch that was added twice would make it more.
	wantRequests(t, client, prefix, 331)
}

func TestRecorderWritesCountsOfAnOutageLater(t *testing.T) {
	server := redistest.Start(t)
	client, prefix := dial(t, server.Addr), redistest.Prefix(t)

	// Before the first answer the server's minute is unknown, whether the own clock is right or
	// seven hours off.
	for name, off := range map[string]time.Duration{"before": 0, "off": -7 * time.Hour} {
		r := recorder(t, client, stats.Options{Prefix: prefix + name,
			Clock: func() time.Time { return time.Now().Add(off) }})

		server.Kill()
		for range 3 {
			observe(r, 1)
			if err := r.Flush(t.Context()); err == nil {
				t.Error("written to nobody")
			}
		}

		server.Restart()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}

		wantRequests(t, client, prefix+name, 3)
	}
}

// A server that is restarted without its data gets the counts of the last minutes again.
func TestRecorderRestoresWhatTheServerLost(t *testing.T) {
	client, prefix := dial(t, redistest.Start(t).Addr), redistest.Prefix(t)
	r, other := recorder(t, client, stats.Options{Prefix: prefix}), recorder(t, client, stats.Options{Prefix: prefix})

	for range 3 {
		observe(r, 10)
		flush(t, r)
		observe(other, 100)
		flush(t, other)
	}

	// Everything is gone, the numbers of the batches too.
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*stats.Recorder{r, other} {
		observe(w, 1)
		flush(t, w)
	}

	// 330 of before and one of each since: both writers have sent their own again.
	wantRequests(t, client, prefix, 332)

	// A replica takes over that lacks the last writes.
	dumps := map[string]string{}
	for _, key := range client.Keys(t.Context(), prefix+"*").Val() {
		dumps[key] = client.Dump(t.Context(), key).Val()
	}

	for range 3 {
		observe(r, 10)
		flush(t, r)
	}

	for key, dump := range dumps {
		if err := client.RestoreReplace(t.Context(), key, time.Hour, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
	observe(r, 1)
	flush(t, r)

	// 31 more than before, of which the restored data had none.
	wantRequests(t, client, prefix, 363)
}

// The minute is the server's, however far off the clock of an instance is.
func TestRecorderCountsInTheServersMinute(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)

	// The minute of the server, as it is before and after the writes.
	for {
		before := client.Time(t.Context()).Val()
		for _, off := range []time.Duration{0, 90 * time.Second, -90 * time.Second, 5 * time.Hour} {
			r := recorder(t, client, stats.Options{Prefix: prefix,
				Clock: func() time.Time { return time.Now().Add(off) }})
			observe(r, 10)
			flush(t, r)
		}

		// Only a round within one minute says anything; if it ended between, another prefix starts
		// anew.
		if minute := before.Truncate(time.Minute); client.Time(t.Context()).Val().Truncate(time.Minute).Equal(minute) {
			changed, now, err := stats.Changed(t.Context(), client, prefix, "shop", time.Time{})
			if err != nil || len(changed) != 1 || !changed[0].Equal(minute) || now.Before(before) ||
				now.After(before.Add(time.Minute)) {
				t.Errorf("%v changed, and it is %s, want %s; %v", changed, now, minute, err)
			}

			wantRequests(t, client, prefix, 40)
			return
		}
		prefix = redistest.Prefix(t) // the minute has ended in between
	}
}

// Many instances share a server: the more there are, the less often each writes.
func TestRecordersOfManyInstancesWriteLessOften(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)

	// Each of 50 instances writes 999 policies and the sum of requests: 1000 counts.
	var last *stats.Recorder
	for range 50 {
		last = recorder(t, client, stats.Options{Prefix: prefix, Every: time.Second})
		for p := range 999 {
			last.Observe(t.Context(), event(fmt.Sprint("p", p), events.Allowed))
		}
		flush(t, last)
	}

	// 50,000 counts at 20,000 a second for the whole server take 2.5 seconds.
	if pause := last.Pause(); pause != 2500*time.Millisecond {
		t.Errorf("each of 50 instances writes 1000 counts every %s, want 2.5s for 20,000 a second", pause)
	}

	// An instance with little to write has no reason to wait, however many others there are.
	observe(last, 1)
	flush(t, last)
	if pause := last.Pause(); pause != time.Second {
		t.Errorf("it writes two counts every %s", pause)
	}
}

func TestReadOfManyPolicies(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})

	// Ten thousand policies of one minute are more than one batch and more than one page of a read.
	for p := range 10_000 {
		r.Observe(t.Context(), event(fmt.Sprint("p", p), events.Refused))
	}
	flush(t, r)

	policies, requests := total(t, client, prefix)
	if len(policies) != 10_000 || requests != (stats.Counts{events.Refused: 10_000}) {
		t.Errorf("%d policies, %v", len(policies), requests)
	}

	for name, c := range policies {
		if c != (stats.Counts{events.Refused: 1}) {
			t.Fatalf("%s: %v", name, c)
		}
	}
}

// A minute says when it changed last, by the server's clock.
func TestReadSaysWhenMinutesChanged(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})
	changes := prefix + "{stats:shop}:changed"

	last := func() redis.Z {
		t.Helper()
		list := client.ZRangeWithScores(t.Context(), changes, 0, -1).Val()
		if len(list) == 0 {
			t.Fatal("nothing has changed")
		}
		return list[len(list)-1]
	}

	for range 2 {
		observe(r, 1)
		flush(t, r)
		want := last()

		// A minute without requests has not changed, and the current one at the time that Redis has
		// for it.
		for _, m := range read(t, client, prefix) {
			switch m.Requests.Total() {
			case 0:
				if !m.Changed.IsZero() {
					t.Errorf("%v has no requests and changed at %v", m.Start, m.Changed)
				}
			default:

				if score := client.ZScore(t.Context(), changes,
					fmt.Sprint(m.Start.Unix()/60)).Val(); m.Changed.UnixMilli() != int64(score) ||
					m.Changed.Location() != time.UTC {
					t.Errorf("%v changed at %v, want %v of %v", m.Start, m.Changed, score, want)
				}
			}
		}
	}

	// Scores that are no times of this century, as another program could write them, read as
	// unknown.
	at, err := strconv.ParseInt(last().Member.(string), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, score := range []float64{math.Inf(1), math.Inf(-1), -1, 1 << 53} { // no recorder writes those
		client.ZAdd(t.Context(), changes, redis.Z{Score: score, Member: at})
		minutes, err := readAt(t, client, prefix, time.Unix(at*60, 0))
		if err != nil || !minutes[0].Changed.IsZero() || minutes[0].Requests.Total() == 0 {
			t.Errorf("%v: %v %v", score, minutes, err)
		}
	}
}

// A minute that no fleet writes takes a bounded part of the reader's memory.
func TestReadMinutesIsBounded(t *testing.T) {
	test.Long(t, "it reads 262,144 fields")
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	key := fmt.Sprint(prefix, "{stats:shop}:minute:", at.Unix()/60)

	// 300,000 policies in one minute, of which the reader takes as many as it may hold.
	for part := range 30 {
		var fields []any
		for i := range 10_000 {
			fields = append(fields, fmt.Sprint("r:invented-", part, "-", i), 1)
		}
		if err := client.HSet(t.Context(), key, fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}

	minutes, err := readAt(t, client, prefix, at)
	if err != nil || len(minutes) != 1 {
		t.Fatal(len(minutes), err)
	}
	if n := len(minutes[0].Policies); n != stats.MaxFields {
		t.Errorf("%d policies, want %d", n, stats.MaxFields)
	}
}

// The policies beyond the bound share a counter, so that nothing is left out.
func TestRecorderTellsSoManyPoliciesApart(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix})

	// More names than the recorder keeps apart.
	const names = 50_000
	for p := range names {
		r.Observe(t.Context(), event(fmt.Sprint("p", p), events.Allowed))
	}
	flush(t, r)

	policies, requests := total(t, client, prefix)
	var sum stats.Counts
	for _, c := range policies {
		sum.Add(c)
	}

	// Not one decision is lost. The share beyond the bound is under no name.
	if sum != requests || sum[events.Allowed] != names || policies[""][events.Allowed] < names/10 {
		t.Errorf("%d policies with %v decisions on %v requests, %v beyond the bound", len(policies), sum,
			requests, policies[""])
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	r := recorder(t, dial(t, "127.0.0.1:1"), stats.Options{})
	e := event("a", events.Allowed)
	if n := testing.AllocsPerRun(1000, func() { r.Observe(t.Context(), e) }); n != 0 {
		t.Errorf("%v", n)
	}
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := stats.New(nil, stats.Options{Prefix: "}", Every: time.Hour, Timeout: -1})
	want := strings.Join([]string{
		`stats: Options.App: "" is not 1 to 64 letters, digits, _, ., - and /, a letter or digit first`,
		`stats: Options.Prefix: "}" holds a brace`,
		"stats: Options.Every: 1h0m0s is not within 0 to 1m",
		"stats: Options.Timeout: -1ns is not within 0 to 1m",
		"stats: the client is nil",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func BenchmarkObserve(b *testing.B) {
	r := recorder(b, dial(b, "127.0.0.1:1"), stats.Options{})
	for i := range 1000 {
		r.Observe(b.Context(), event(fmt.Sprint("p", i), events.Allowed))
	}
	e := event("p500", events.Allowed)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r.Observe(context.Background(), e)
		}
	})
}
