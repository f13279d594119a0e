package stats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/events"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy/stats"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func dial(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1})
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

func total(t testing.TB, client redis.UniversalClient, prefix string) map[string]stats.Counts {
	t.Helper()
	minutes, err := stats.Read(t.Context(), client, prefix, "shop")
	for late := net.Error(nil); errors.As(err, &late) && late.Timeout(); { // on a busy machine
		minutes, err = stats.Read(t.Context(), client, prefix, "shop")
	}
	if err != nil || len(minutes) != stats.Minutes {
		t.Fatalf("%d minutes, %v", len(minutes), err)
	}
	return stats.Total(minutes)
}

func TestRecorderCountsEachRequestOnceUnderEachPolicy(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix, Instance: "i1"})
	for range 3 {
		r.Observe(t.Context(), event("a", events.Allowed))
	}
	r.Observe(t.Context(), &events.Request{Verdict: events.Refused, Rules: []events.Rule{
		{Name: "a", Verdict: events.Overruled}, {Name: "b", Verdict: events.Denied}, {Name: "c", Verdict: events.ShadowRefused}}})
	for v := range events.Verdict(events.Verdicts) {
		r.Observe(t.Context(), event("d", v))
	}
	for v := range events.Verdict(events.Verdicts) {
		r.Observe(t.Context(), &events.Request{Verdict: v}) // no policy was reached
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]stats.Counts{"a": {Passed: 3}, "b": {Refused: 1}, "c": {Shadowed: 1},
		"d": {Passed: 2, Refused: 5, Degraded: 1, Shadowed: 1, Failed: 2, Banned: 1}, "": {Failed: 2}}
	if got := total(t, client, prefix); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := total(t, client, prefix); !reflect.DeepEqual(got, want) {
		t.Errorf("written twice: %+v", got)
	}
}

// Versions that count bans and versions that do not read each other's counts.
func TestReadOfOtherVersions(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	key := fmt.Sprintf("%s{stats:shop}:%d", prefix, time.Now().Unix()/60)
	if err := client.HSet(t.Context(), key, "old", `{"a":[1,2,3,4,5]}`, "new", `{"a":[1,2,3,4,5,6,7]}`).Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]stats.Counts{"a": {Passed: 2, Refused: 4, Degraded: 6, Shadowed: 8, Failed: 10, Banned: 6}}
	if got := total(t, client, prefix); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestRecorderCloseWritesTheRest(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	var all sync.WaitGroup
	for i := range 4 {
		r := recorder(t, client, stats.Options{Prefix: prefix, Instance: fmt.Sprint("i", i), Every: 10 * time.Millisecond})
		all.Go(func() {
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for n := range 1000 {
						r.Observe(context.Background(), event(fmt.Sprint("p", n%10), events.Allowed))
					}
				})
			}
			callers.Wait()
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got := total(t, client, prefix)
	for i := range 10 {
		if n := got[fmt.Sprint("p", i)].Passed; n != 4*4*100 {
			t.Errorf("p%d: %d", i, n)
		}
	}
	if len(got) != 10 {
		t.Errorf("%+v", got)
	}
}

func TestRecorderKeysExpire(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix, Instance: "i1"})
	r.Observe(t.Context(), event("a", events.Allowed))
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := client.Keys(t.Context(), prefix+"*").Val()
	if len(keys) != 1 || !strings.HasPrefix(keys[0], prefix+"{stats:shop}:") {
		t.Fatalf("%v", keys)
	}
	if ttl := client.PTTL(t.Context(), keys[0]).Val(); ttl <= 19*time.Minute || ttl > 20*time.Minute {
		t.Errorf("%s", ttl)
	}
}

// calls counts round trips.
type calls struct{ pipelines, single int }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" { // of a new connection
			c.single++
		}
		return next(ctx, cmd)
	}
}

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.pipelines++; return next(ctx, cmds) }
}

func TestFlushIsOneCallAndNoneWithoutNews(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	count := &calls{}
	client.AddHook(count)
	r := recorder(t, client, stats.Options{Prefix: prefix, Instance: "i1"})
	for i := range 1000 {
		r.Observe(t.Context(), event(fmt.Sprint("p", i), events.Allowed))
	}
	for range 3 {
		if err := r.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if count.pipelines != 1 || count.single != 0 {
		t.Errorf("%+v", *count)
	}
}

func TestRecorderWritesCountsOfAnOutageLater(t *testing.T) {
	server := redistest.Start(t)
	client, prefix := dial(t, server.Addr), redistest.Prefix(t)
	r := recorder(t, client, stats.Options{Prefix: prefix, Instance: "i1"})
	server.Kill()
	for range 3 {
		r.Observe(t.Context(), event("a", events.Allowed))
		if err := r.Flush(t.Context()); err == nil {
			t.Error("written to nobody")
		}
	}
	server.Restart()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := total(t, client, prefix); got["a"].Passed != 3 {
		t.Errorf("%+v", got)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	r := recorder(t, dial(t, "127.0.0.1:1"), stats.Options{Instance: "i1"})
	e := event("a", events.Allowed)
	if n := testing.AllocsPerRun(1000, func() { r.Observe(t.Context(), e) }); n != 0 {
		t.Errorf("%v", n)
	}
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := stats.New(nil, stats.Options{Prefix: "}", Every: time.Hour, Timeout: -1})
	want := strings.Join([]string{
		`stats: Options.App: "" is not 1 to 64 letters, digits, _, ., - and /, a letter or digit first`,
		"stats: Options.Instance is not 1 to 128 bytes",
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
	r := recorder(b, dial(b, "127.0.0.1:1"), stats.Options{Instance: "i1"})
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
