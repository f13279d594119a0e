package failover

import (
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/test/redistest"
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

// Each row is a heartbeat at a second, what Redis counted, 0 for an error, and
// the number that is believed after it. The TTL is ten seconds.
func TestInstancesRiseAtOnceAndFallAfterATTL(t *testing.T) {
	rows := []struct{ at, heard, count int64 }{
		{0, 3, 5}, {5, 4, 5}, {9, 3, 5}, {10, 3, 4}, // lower than 5 since 0, and 4 at most
		{12, 2, 4}, {15, 6, 6}, {20, 1, 6}, {25, 6, 6}, {30, 1, 6}, {39, 2, 6}, {40, 1, 2},
		{45, 1, 2}, {50, 0, 2}, {56, 1, 2}, {60, 1, 2}, {66, 1, 1}, {70, 0, 1}, {71, 2, 2},
	}

	// The count of five is from before. It falls only when no heartbeat in ten seconds has counted
	// as many.
	i := &Instances{ttl: 10 * time.Second, log: silent, count: 5}
	for _, row := range rows {
		var err error
		if row.heard == 0 {
			err = errDown
		}

		i.hear(t.Context(), time.Unix(row.at, 0), answer{count: row.heard, number: 7}, err)
		if i.count != row.count || i.Live() != 7 {
			t.Errorf("at %d s: %d and %d, want %d and 7", row.at, i.count, i.Live(), row.count)
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

// Each row is a heartbeat at a second, whether it failed, and the line that it wrote. The
// TTL is ten seconds.
func TestInstancesLogSilenceOnce(t *testing.T) {
	const (
		unknown = `level=WARN msg="headgate: instances cannot be counted yet, so each admits one unit of a key ` +
			`while Redis is away: set Expected to the number of instances" error=down` + "\n"
		stays = `level=WARN msg="headgate: instances cannot be counted, and their last number stays" ` +
			`instances=3 error=down` + "\n"
		again = `level=INFO msg="headgate: instances are counted again"` + "\n"
	)

	// The lines are compared whole, without their times.
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	i := &Instances{ttl: 10 * time.Second, log: log}
	i.live.Store(UnknownInstances)

	for _, row := range []struct {
		at   int64
		err  error
		line string
	}{
		// Never counted: one line at once. Later a silence is told after a TTL, and its end once.
		{0, errDown, unknown}, {1, errDown, ""}, {20, errDown, ""}, {21, nil, again}, {22, nil, ""},
		{30, errDown, ""}, {31, nil, ""}, {40, errDown, ""}, {49, errDown, ""}, {50, errDown, stays}, {51, errDown, ""},
		{80, errDown, ""}, {81, nil, again}, {82, errDown, ""},
	} {
		text.Reset()
		i.hear(t.Context(), time.Unix(row.at, 0), answer{count: 3, number: 3}, row.err)
		if text.String() != row.line {
			t.Errorf("at %d s: got\n%swant\n%s", row.at, text.String(), row.line)
		}
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

func TestInstancesWithoutRedisAreAsExpected(t *testing.T) {
	c := connect(t, "127.0.0.1:1")
	if got := begin(t, c, InstancesOptions{Expected: 4}).Live(); got != 4 {
		t.Errorf("%d", got)
	}
	if got := begin(t, c, InstancesOptions{}).Live(); got != UnknownInstances {
		t.Errorf("%d", got)
	}
}

func TestInstancesOfAClusterUseOneSlot(t *testing.T) {
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

	// Each command that the script uses is taken away in turn. EVALSHA has EVAL to fall back to,
	// and resetkeys takes the keys.
	for lacking, want := range map[string]string{
		"-zadd": "zadd", "-zrem": "zrem", "-zcard": "zcard", "-zrevrangebyscore": "zrevrangebyscore", "-time": "time",
		"-pexpire": "pexpire", "-eval": "eval", "-evalsha": "", "": "",
		"resetkeys": "zrevrangebyscore, zrem, zadd, zcard, pexpire",
	} {
		t.Run(lacking, func(t *testing.T) {
			set := func(rules ...any) {
				t.Helper()
				line := append([]any{"ACL", "SETUSER", "limiter"}, rules...)
				if err := admin.Do(ctx, line...).Err(); err != nil {
					t.Fatal(err)
				}
			}

			// The user has the documented permissions but one. The server forgets its scripts, so
			// that EVAL is needed too.
			set(append([]any{"reset", "on", ">password"}, documentedACL(t)...)...)
			if lacking != "" {
				set(lacking)
			}
			if err := admin.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}

			c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limiter", Password: "password",
				ContextTimeoutEnabled: true, DisableIdentity: true})
			defer c.Close()
			i := &Instances{client: c, calls: rediscall.NewCaller(c), prefix: "hg:", key: "hg:{instances}", id: "a",
				ttl: time.Hour}

			beat := func() (err error) {
				until(t, "an answer", func() bool {
					// An answer that is late because the machine is busy says nothing about
					// permissions.
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

			// The text ends in a command that an operator can paste, and it has to work.
			text := i.explain(ctx, err).Error()
			_, line, _ := strings.Cut(text, "ACL SETUSER limiter ")
			if !strings.HasPrefix(text, "failover: the Redis user may not run "+want+" on hg:{instances}: ") ||
				line == "" {
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

	// The permissions of the store as they were before instances were counted.
	line := []any{"ACL", "SETUSER", "limiter", "on", ">password", "~hg:*", "+eval", "+evalsha", "+get", "+mget",
		"+exists", "+set",
		"+del", "+time", "+pttl", "+pexpire"}

	if err := connect(t, server.Addr).Do(t.Context(), line...).Err(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limiter", Password: "password",
		ContextTimeoutEnabled: true})
	defer c.Close()

	lines := make(chan string, 10)
	i := begin(t, c, InstancesOptions{Logger: slog.New(slog.NewTextHandler(writer(lines), nil))})

	// One line names both the commands and the remedy.
	got := <-lines
	for _, part := range []string{"may not run zrevrangebyscore, zrem, zadd, zcard on hg:{instances}",
		"ACL SETUSER limiter ~hg:* "} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in %s", part, got)
		}
	}

	// Not counted means that a unit is granted of each key.
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
