package failover

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/redistest"
)

func TestNewInstancesNamesEveryMistake(t *testing.T) {
	_, err := NewInstances(nil, InstancesOptions{TTL: time.Millisecond, Expected: -1})
	want := "failover: the client is nil\n" +
		"failover: the prefix of instances is empty: give that of the store in Redis, such as \"shop:\"\n" +
		"failover: the TTL 1ms of instances is neither 0 nor within 100ms to 1h0m0s\n" +
		"failover: -1 expected instances are not within 0 to 1048576"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Each row is a heartbeat at a second, what Redis answered, 0 for an error, and
// the number that is believed after it. The TTL is ten seconds.
func TestInstancesRiseAtOnceAndFallAfterATTL(t *testing.T) {
	rows := []struct{ at, heard, live int64 }{
		{0, 3, 5}, {5, 4, 5}, {9, 3, 5}, {10, 3, 4}, // lower than 5 since 0, and 4 at most
		{12, 2, 4}, {15, 6, 6}, {20, 1, 6}, {25, 6, 6}, {30, 1, 6}, {39, 2, 6}, {40, 1, 2},
		{45, 1, 2}, {50, 0, 2}, {56, 1, 2}, {60, 1, 2}, {66, 1, 1}, {70, 0, 1}, {71, 2, 2},
	}
	i := &Instances{ttl: 10 * time.Second, log: silent}
	i.live.Store(5)
	for _, row := range rows {
		var err error
		if row.heard == 0 {
			err = errDown
		}
		i.hear(time.Unix(row.at, 0), row.heard, err)
		if got := int64(i.Live()); got != row.live {
			t.Errorf("at %d s: %d, want %d", row.at, got, row.live)
		}
	}
}

// Two services under one Redis do not halve each other's limits, if each has a prefix.
func TestInstancesHaveAPrefix(t *testing.T) {
	client := connect(t, "127.0.0.1:1")
	for prefix, want := range map[string]string{
		"":       `failover: the prefix of instances is empty: give that of the store in Redis, such as "shop:"`,
		"shop{:": `failover: the prefix "shop{:" of instances holds a brace`,
	} {
		if _, err := NewInstances(client, InstancesOptions{Prefix: prefix}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", prefix, err, want)
		}
	}
}

func TestInstancesLogSilenceOnce(t *testing.T) {
	var text bytes.Buffer
	i := &Instances{ttl: time.Second, log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTime}))}
	i.live.Store(3)
	for _, err := range []error{nil, errDown, errors.New("worse"), nil, nil} {
		i.hear(time.Unix(0, 0), 3, err)
	}
	want := `level=WARN msg="headgate: instances cannot be counted, and their last number stays" instances=3 error=down` + "\n" +
		`level=INFO msg="headgate: instances are counted again"` + "\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

func begin(t testing.TB, c redis.UniversalClient, o InstancesOptions) *Instances {
	t.Helper()
	o.Logger, o.Prefix = cmp.Or(o.Logger, silent), cmp.Or(o.Prefix, "hg:")
	i, err := NewInstances(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	return i
}

// heart is as much of a Redis as instances need.
type heart struct {
	redis.UniversalClient

	mu     sync.Mutex
	frozen bool
	fleets map[string]map[string]time.Time // until when an instance counts, by key and id
}

// Process carries out a heartbeat. While frozen it ends with its context.
func (h *heart) Process(ctx context.Context, cmd redis.Cmder) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen {
		h.mu.Unlock()
		<-ctx.Done()
		h.mu.Lock()
		return ctx.Err()
	}
	args := cmd.Args()
	key, id, ttl := args[3].(string), args[4].(string), time.Duration(args[5].(int64))*ms
	if h.fleets[key] == nil {
		h.fleets[key] = map[string]time.Time{}
	}
	h.fleets[key][id] = time.Now().Add(ttl)
	maps.DeleteFunc(h.fleets[key], func(_ string, until time.Time) bool { return !until.After(time.Now()) })
	cmd.(rediscall.Reply).SetVal(int64(len(h.fleets[key])))
	return nil
}

func (h *heart) freeze(frozen bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = frozen
}

func (h *heart) count(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.fleets[key])
}

// Each instance sends a heartbeat at least every three seconds here.
func TestInstancesKnowOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heart{fleets: map[string]map[string]time.Time{}}
		o := InstancesOptions{Prefix: "fleet:", TTL: 9 * time.Second}
		fleet := []*Instances{begin(t, h, o), begin(t, h, o), begin(t, h, o)}
		others := begin(t, h, InstancesOptions{})
		want := func(what string, live int) {
			t.Helper()
			synctest.Wait()
			if got := fleet[0].Live(); got != live {
				t.Errorf("%s: %d live, want %d", what, got, live)
			}
		}
		time.Sleep(3 * time.Second)
		want("all have begun", 3)
		h.freeze(true)
		closed := time.Now()
		fleet[2].Close()
		if took := time.Since(closed); took != time.Second {
			t.Errorf("Close took %v", took)
		}
		time.Sleep(time.Hour)
		want("in an outage", 3)
		h.freeze(false)
		time.Sleep(9*time.Second - 1)
		want("less than a TTL after it", 3)
		time.Sleep(7 * time.Second) // two more heartbeats, and the end of one that began in the outage
		want("a TTL after it", 2)
		fleet[1].Close()
		if n := h.count("fleet:{instances}"); n != 1 {
			t.Errorf("%d are left after one has left", n)
		}
		time.Sleep(15 * time.Second)
		want("one has left", 1)
		if got := others.Live(); got != 1 {
			t.Errorf("%d of another fleet", got)
		}
	})
}

func TestInstancesAreCountedByRedis(t *testing.T) {
	t.Parallel()
	c := patiently(t, redistest.Start(t).Addr)
	const hour = time.Hour
	old := redis.Z{Score: 1, Member: "one whose time is over"}
	if err := c.ZAdd(t.Context(), "fleet", old).Err(); err != nil {
		t.Fatal(err)
	}
	for i, row := range []struct {
		key, id string
		ttl     time.Duration
		want    int64
	}{
		{"fleet", "a", hour, 1}, {"fleet", "b", hour, 2}, {"others", "a", hour, 1}, {"fleet", "b", hour, 2},
		{"fleet", "c", hour, 3}, {"fleet", "b", 0, 2}, {"fleet", "b", 0, 2}, {"fleet", "b", hour, 3},
	} {
		instance := &Instances{client: c, calls: rediscall.NewCaller(c), key: row.key, id: row.id, ttl: hour}
		until(t, "an answer", func() bool { // a heartbeat may be repeated
			got, err := instance.beat(t.Context(), row.ttl)
			if err == nil && got != row.want {
				t.Errorf("row %d: %d are alive, want %d", i, got, row.want)
			}
			return err == nil
		})
	}
	everyKeyExpires(t, c)
}

func TestInstancesWithoutRedisAreAsExpected(t *testing.T) {
	c := connect(t, "127.0.0.1:1")
	if got := begin(t, c, InstancesOptions{Expected: 4}).Live(); got != 4 {
		t.Errorf("%d", got)
	}
	if got := begin(t, c, InstancesOptions{}).Live(); got != UnknownInstances {
		t.Errorf("%d", got)
	}
}

func TestInstancesOfAClusterUseOneKey(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	a, b := begin(t, c, InstancesOptions{TTL: time.Second}), begin(t, c, InstancesOptions{TTL: time.Second})
	until(t, "the cluster", func() bool { return a.Live() == 2 && b.Live() == 2 })
}

// The documented permissions suffice for heartbeats. Without one of them, the log names the
// command and the line that permits it, and the line works.
func TestInstancesNameThePermissionTheyLack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	ctx := t.Context()
	for lacking, want := range map[string]string{
		"-zadd": "zadd", "-zrem": "zrem", "-zcard": "zcard", "-zremrangebyscore": "zremrangebyscore", "-time": "time",
		"-pexpire": "pexpire", "-eval": "eval", "resetkeys": "zremrangebyscore, zadd, pexpire, zrem, zcard", "": "",
	} {
		t.Run(lacking, func(t *testing.T) {
			set := func(rules ...any) {
				t.Helper()
				line := append([]any{"ACL", "SETUSER", "limiter"}, rules...)
				if err := admin.Do(ctx, line...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			set(append([]any{"reset", "on", ">password"}, documentedACL(t)...)...)
			if lacking != "" {
				set(lacking)
			}
			c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limiter", Password: "password",
				ContextTimeoutEnabled: true, DisableIdentity: true})
			defer c.Close()
			i := &Instances{client: c, calls: rediscall.NewCaller(c), prefix: "hg:", key: "hg:{instances}", id: "a", ttl: time.Hour}
			beat := func() (err error) {
				until(t, "an answer", func() bool {
					// A heartbeat leaves too, by another command.
					_, arrival := i.beat(ctx, i.ttl)
					_, departure := i.beat(ctx, 0)
					err = cmp.Or(arrival, departure)
					var late net.Error
					return !errors.As(err, &late)
				})
				return err
			}
			err := beat()
			if want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("a heartbeat without the permission")
			}
			text := i.explain(ctx, err).Error()
			_, line, _ := strings.Cut(text, "ACL SETUSER limiter ")
			if !strings.HasPrefix(text, "failover: the Redis user may not run "+want+" on hg:{instances}: ") || line == "" {
				t.Fatalf("%s", text)
			}
			var rules []any
			for _, word := range strings.Fields(line) {
				rules = append(rules, word)
			}
			set(rules...)
			if err := beat(); err != nil {
				t.Errorf("after the line of the error: %v", err)
			}
		})
	}
}

// documentedACL is the line of docs/redis.md that names what a user needs.
func documentedACL(t *testing.T) (rules []any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(regexp.MustCompile(`(?m)^ +(\+eval .*\n(?: .*\n)*)`).FindString(string(text))) {
		rules = append(rules, word)
	}
	return rules
}

// A fleet under the permissions of the store alone is not counted, and says so.
func TestInstancesLogThePermissionTheyLack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := []any{"ACL", "SETUSER", "limiter", "on", ">password", "~hg:*", "+eval", "+evalsha", "+get", "+mget", "+exists", "+set",
		"+del", "+time", "+pttl", "+pexpire"}
	if err := connect(t, server.Addr).Do(t.Context(), line...).Err(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limiter", Password: "password", ContextTimeoutEnabled: true})
	defer c.Close()
	lines := make(chan string, 10)
	i := begin(t, c, InstancesOptions{Logger: slog.New(slog.NewTextHandler(writer(lines), nil))})
	got := <-lines
	for _, part := range []string{"may not run zremrangebyscore, zadd, zrem, zcard on hg:{instances}", "ACL SETUSER limiter ~hg:* "} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in %s", part, got)
		}
	}
	if n := i.Live(); n != UnknownInstances {
		t.Errorf("%d instances", n)
	}
}

// writer sends every line.
type writer chan string

func (w writer) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
