package managed_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

const visitors = `{"policies":[{"name":"visitors","apps":["shop"],"limit":"3/1h sliding-log","key":"ip"}]}`

func connect(t *testing.T, s *redistest.Server) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	return client
}

func publish(t *testing.T, client redis.UniversalClient, prefix, text string) {
	t.Helper()
	set, err := policy.DecodeJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	source, err := redissource.New(client, redissource.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Publish(t.Context(), set, ""); err != nil {
		t.Fatal(err)
	}
}

// options wait for Redis however busy the machine is.
func options(prefix string) managed.Options {
	return managed.Options{
		App:     "shop",
		Follow:  policy.Options{Timeout: time.Minute},
		Store:   redisstore.Options{Prefix: prefix, Timeout: time.Minute},
		Limiter: limiter.Config{Logger: slog.New(slog.DiscardHandler)},
	}
}

func open(t *testing.T, client redis.UniversalClient, o managed.Options) *managed.Limits {
	t.Helper()
	l, err := managed.Open(t.Context(), client, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// admitted returns how many of n requests from one address pass.
func admitted(t *testing.T, l *managed.Limits, n int) (passed int) {
	t.Helper()
	for range n {
		r, err := l.Limiter.TakeRequest(&test.Request{Peer: "127.0.0.1:1234"})
		if err != nil {
			t.Fatal(err)
		}
		if r.Allowed() {
			passed++
		}
	}
	return passed
}

func TestLimitsFollowAndShareCounts(t *testing.T) {
	client := connect(t, redistest.Start(t))
	publish(t, client, "a:", visitors)
	first, second := open(t, client, options("a:")), open(t, client, options("a:"))
	if one, two := admitted(t, first, 2), admitted(t, second, 2); one != 2 || two != 1 {
		t.Errorf("%d and %d of 2 and 2 requests passed under 3/1h, want 2 and 1", one, two)
	}
	if a, b := first.Follower.Instance(), second.Follower.Instance(); a == b {
		t.Errorf("both instances are named %q", a)
	}
}

// All parts work under the permissions that docs/redis.md lists: the server denies nothing.
func TestLimitsWorkUnderTheDocumentedPermissions(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server)
	permitAsDocumented(t, admin)

	// The server allows the client what the documentation lists, and denies everything else, such
	// as the client's name.
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limiter", Password: "password",
		ContextTimeoutEnabled: true, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })

	publish(t, admin, "hg:", visitors)
	readOverrides(t, admin, client)
	o := options("")
	o.Limiter.Top = 20
	l := open(t, client, o)

	if passed := admitted(t, l, 5); passed != 3 {
		t.Errorf("%d of 5 requests passed under 3/1h", passed)
	}

	// The subscription starts beside Open, and it needs permissions too: the test waits until the
	// server has it.
	const channel = "hg:{policies}:changed"
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for subscribed := int64(0); subscribed == 0; <-tick.C {
		n, err := admin.PubSubNumSub(t.Context(), channel).Result()
		if err != nil {
			t.Fatal(err)
		}
		subscribed = n[channel]
	}

	if err := l.Close(); err != nil {
		t.Error(err)
	}

	// Every denied command would be in the server's log, so an empty log shows that the list is
	// complete.
	denied, err := admin.Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(denied) != 0 {
		t.Errorf("%v, denied: %v", err, denied)
	}

	// The counts of 3 passed and 2 refused requests were written by Close.
	minutes, err := readMinutes(t, admin, "hg:")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := stats.Total(minutes)["visitors"],
		(stats.Counts{events.Allowed: 3, events.Refused: 2}); got != want {
		t.Errorf("the page shows %+v, want %+v", got, want)
	}
	wantTop(t, admin)
}

// readOverrides has a client read overrides beside a policy as a follower does: those that are
// there, and then those that were changed since.
func readOverrides(t *testing.T, admin, client redis.UniversalClient) {
	t.Helper()

	to, err := redissource.New(admin, redissource.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	from, err := redissource.New(client, redissource.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}

	version := ""
	for _, key := range []string{"127.0.0.8", "127.0.0.9"} {
		change := policy.OverrideChange{Policy: "visitors", Key: key, Text: "9/1h"}
		if err := to.PublishOverrides(t.Context(), redissource.OverrideBatch{
			Changes: []policy.OverrideChange{change}}); err != nil {
			t.Fatal(err)
		}
		c, err := from.OverrideChanges(t.Context(), version)
		if err != nil || version != "" && !slices.Equal(c.Changes, []policy.OverrideChange{change}) {
			t.Fatalf("since %q: %+v, %v", version, c, err)
		}
		version = c.Version
	}

	n := 0
	err = from.ReadOverrides(t.Context(), "visitors", func(list []policy.OverrideChange) { n += len(list) })
	if err != nil || n != 2 {
		t.Fatalf("%d of 2 overrides are read: %v", n, err)
	}
}

// These read what is counted for the page.
func readMinutes(t *testing.T, client redis.UniversalClient, prefix string) ([]stats.Minute, error) {
	return test.Patiently(func() ([]stats.Minute, error) {
		return stats.Read(t.Context(), client, prefix, "shop")
	})
}

func readTop(t *testing.T, client redis.UniversalClient, prefix string) (stats.Top, error) {
	return test.Patiently(func() (stats.Top, error) {
		return stats.ReadTop(t.Context(), client, prefix, "shop")
	})
}

// permitAsDocumented adds the user limiter with the permissions that docs/redis.md lists.
func permitAsDocumented(t *testing.T, admin redis.UniversalClient) {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	line := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">password"}
	for _, word := range strings.Fields(regexp.MustCompile(`(?m)^ +(\+eval .*\n(?: .*\n)*)`).FindString(string(text))) {
		line = append(line, word)
	}
	if err := admin.Do(t.Context(), line...).Err(); err != nil {
		t.Fatal(err)
	}
}

func wantTop(t *testing.T, admin redis.UniversalClient) {
	t.Helper()
	top, err := readTop(t, admin, "hg:")
	if err != nil || len(top.Rules) != 1 || top.Instances != 1 {
		t.Fatalf("%+v, %v", top, err)
	}
	if keys := top.Rules[0].Refused.Keys; len(keys) != 1 || keys[0].Key != "127.0.0.1" || keys[0].Count != 2 ||
		keys[0].Error != 0 {
		t.Errorf("refused most: %+v", keys)
	}
}

// Keys leave the process only where the program or a policy asks for it.
func TestLimitsPublishNoKeysByDefault(t *testing.T) {
	client := connect(t, redistest.Start(t))
	publish(t, client, "a:", visitors)
	l := open(t, client, options("a:"))
	admitted(t, l, 5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if top, err := readTop(t, client, "a:"); err != nil || top.Instances != 0 {
		t.Errorf("%+v, %v", top, err)
	}
}

// observer counts requests.
type observer int

func (o *observer) Observe(context.Context, *events.Request) { *o++ }

func TestLimitsAreCountedForThePage(t *testing.T) {
	client := connect(t, redistest.Start(t))
	publish(t, client, "a:", visitors)

	// The program has an observer of its own, which must not push the recorder out.
	o, seen := options("a:"), new(observer)
	o.Limiter.Observer = seen
	l := open(t, client, o)
	admitted(t, l, 5)

	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	minutes, err := readMinutes(t, client, "a:")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := stats.Total(minutes)["visitors"],
		(stats.Counts{events.Allowed: 3, events.Refused: 2}); got != want || *seen != 5 {
		t.Errorf("the page shows %+v and the observer saw %d, want %+v and 5", got, *seen, want)
	}
}

func TestLimitsHoldWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	publish(t, client, "", visitors)

	// One expected instance has the whole limit to itself, or else it would keep to a share of it.
	o := options("")
	o.Expected = 1 // until a heartbeat is answered, which may take longer than the requests

	l := open(t, client, o)
	if n := admitted(t, l, 2); n != 2 {
		t.Fatalf("%d of 2 requests passed", n)
	}

	// Memory continues from the counts that it saw: 2 of 3 are used, so one is left, and not three.
	server.Kill()
	if n := admitted(t, l, 4); n != 1 {
		t.Errorf("%d of 4 requests passed in the outage after 2 under 3/1h, want 1", n)
	}
}

// An instance that starts in an outage does not know how many others there are.
func TestLimitsStartWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	for expected, want := range map[int]int{0: 1, 2: 4} {
		o := options("")
		o.Store.Timeout, o.Follow.Timeout, o.Follow.OnMissing, o.Expected = 0, 0, policy.OnMissingWait, expected
		o.Limiter.Rules = []limiter.Rule{{Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("8/1h fixed-window")}}
		if n := admitted(t, open(t, connect(t, server), o), 10); n != want {
			t.Errorf("with %d expected instances, %d of 10 requests passed under 8/1h, want %d", expected, n, want)
		}
	}
}

func TestCloseLeavesTheClientOpen(t *testing.T) {
	client := connect(t, redistest.Start(t))
	publish(t, client, "", visitors)
	l := open(t, client, options(""))
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.Ping(t.Context()).Result(); err != nil {
		t.Errorf("the client was closed: %v", err)
	}
}

func TestOpenWithoutPoliciesFails(t *testing.T) {
	client := connect(t, redistest.Start(t))
	if _, err := managed.Open(t.Context(), client, options("")); !errors.Is(err, policy.ErrMissing) {
		t.Errorf("%v, want ErrMissing", err)
	}
	o := options("")
	o.Follow.OnMissing = policy.OnMissingWait
	if n := admitted(t, open(t, client, o), 5); n != 5 {
		t.Errorf("%d of 5 requests passed before there were policies", n)
	}
}

func TestOpenNamesEveryMistake(t *testing.T) {
	// A mistake in every part that Open puts together, each of which has to be found before any
	// part is started.
	_, err := managed.Open(t.Context(), nil, managed.Options{
		App:      "two words",
		Expected: -1,
		Follow:   policy.Options{Poll: -1},
		Store:    redisstore.Options{Prefix: "{"},
		Limiter: limiter.Config{
			Store: memstore.MustNew(memstore.Options{}), MaxWaiters: -1,
			Rules: []limiter.Rule{{Key: keyfuncs.RemoteIP, Limit: core.Limit{}}},
		},
	})
	if err == nil {
		t.Fatal("no error")
	}

	for _, want := range []string{
		"managed: Options.App", "managed: Options.Expected", "managed: Options.Limiter.Store",
		"policy: Options.Poll", "client is nil", `"{"`, "MaxWaiters",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s:\n%v", want, err)
		}
	}
}

// Policies of another source are in force, though others are published in Redis.
func TestLimitsFollowAnotherSource(t *testing.T) {
	// Redis has 3/1h and the file 2/1h, so the number that passes shows which one is in force.
	client := connect(t, redistest.Start(t))
	publish(t, client, "a:", visitors)
	path := filepath.Join(t.TempDir(), "limits.json")
	if err := os.WriteFile(path, []byte(strings.Replace(visitors, "3/1h", "2/1h", 1)), 0o600); err != nil {
		t.Fatal(err)
	}

	o := options("a:")
	var err error
	if o.Source, err = filesource.New(path); err != nil {
		t.Fatal(err)
	}

	// The counts are in Redis nevertheless: the two instances share the 2 requests.
	first, second := open(t, client, o), open(t, client, o)
	if one, two := admitted(t, first, 1), admitted(t, second, 2); one != 1 || two != 1 {
		t.Errorf("%d and %d of 1 and 2 requests passed under 2/1h, want 1 and 1", one, two)
	}
}

// A key whose value the store cannot read is decided in memory, and Redis goes on deciding
// about all others.
func TestValueThatCannotBeReadIsNoOutage(t *testing.T) {
	for name, value := range map[string]string{"of a later version": "\xfe\x63", "of another program": "no state"} {
		t.Run(name, func(t *testing.T) {
			client := connect(t, redistest.Start(t))
			publish(t, client, "a:", strings.Replace(visitors, "3/1h", "1000/1h", 1))
			local := 0

			o := options("a:")
			o.Limiter.OnError = func(context.Context, error) { local++ }
			l := open(t, client, o)
			admitted(t, l, 1)

			// The first request wrote the key that is now spoiled. Sets and hashes of the policies
			// stay as they are.
			for _, key := range client.Keys(t.Context(), "a:{*").Val() {
				if client.Type(t.Context(), key).Val() == "string" {
					client.Set(t.Context(), key, value, time.Hour)
				}
			}

			// All twenty are decided, none by Redis.
			if admitted(t, l, 20); local != 20 {
				t.Errorf("the memory decided %d of 20 requests", local)
			}

			// Another address has another key, which Redis decides: the bad value is no fault of
			// the server.
			if _, err := l.Limiter.TakeRequest(&test.Request{Peer: "127.0.0.2:1234"}); err != nil || local != 20 {
				t.Errorf("Redis is bypassed for another address: %v, %d", err, local)
			}
		})
	}
}
