package redisstore

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/findings"
)

// documentedACL are the lines of docs/redis.md that name what a user needs.
func documentedACL(t *testing.T) (rules []any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range strings.Fields(regexp.MustCompile(`(?m)^ +(\+eval .*\n(?: .*\n)*)`).FindString(string(text))) {
		rules = append(rules, rule)
	}
	return rules
}

// needed are the documented permissions that a store needs for its decisions.
var needed = []any{"+eval", "+evalsha", "+get", "+mget", "+exists", "+set", "+del", "+time", "+pttl",
	"+pexpire", "~hg:*"}

// setUser makes the user limiter anew, with a password and these rules.
func setUser(t testing.TB, admin *redis.Client, rules ...any) {
	t.Helper()
	line := append([]any{"ACL", "SETUSER", "limiter", "reset", "on", ">password"}, rules...)
	if err := admin.Do(context.Background(), line...).Err(); err != nil {
		t.Fatal(err)
	}
}

// asUser returns a client that logs in as limiter.
func asUser(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, Username: "limiter", Password: "password", ContextTimeoutEnabled: true, DisableIdentity: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// The documented permissions suffice. One that a store needs cannot be left out without
// an error that has a name, and a finding at the start.
func TestPermissionsAreAsDocumented(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	ctx := context.Background()
	rules := documentedACL(t)

	// Each permission is left out once; the last round leaves none out.
	for without := range len(rules) + 1 {
		if err := admin.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}

		// Without the scripts of the round before, every one has to be loaded again.
		admin.ScriptFlush(ctx)

		granted, left := slices.Clone(rules), any("")
		if without < len(rules) {
			left = rules[without]
			granted = slices.Delete(granted, without, without+1)
		}

		setUser(t, admin, granted...)
		c := asUser(t, server.Addr)
		s := MustNew(c, Options{Prefix: DefaultPrefix, Timeout: patient})

		// The diagnosis has to find what is missing without writing anything.
		found := s.Report().Diagnose(ctx, nil)
		if n := admin.DBSize(ctx).Val(); n != 0 {
			t.Errorf("the diagnosis left %d keys", n)
		}

		err := useEverything(t, s, admin)

		// Some permissions make things better and are not needed. Of these only INFO is missed by a
		// finding.
		if !slices.Contains(needed, left) {
			if err != nil {
				t.Errorf("without %q of %v: %v", left, rules, err)
			}
			if left != "+info" {
				if len(found) != 0 {
					t.Errorf("without %q of %v: %v", left, rules, found)
				}
				continue
			}
		} else if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), remedyOfLimiter) {
			// To scripts a key that they cannot read is one of another type.
			t.Errorf("without %v: %v", left, err)
		}

		lacks := strings.TrimPrefix(left.(string), "+")

		// Without its keys a user lacks every command that acts on them.
		if lacks == "~hg:*" {
			lacks = "get, mget, exists, set, del, pttl, pexpire"
		}

		want := "the Redis user may not run " + lacks +
			", which the limiter needs: this command grants what is needed: " + remedyOfLimiter
		if len(found) != 1 || found[0].Code != findings.Permission || found[0].Text != want {
			t.Errorf("without %v: %v\nwant %s", left, found, want)
		}
	}
}

// The line in errors grants what the documentation lists.
func TestPermissionRemedyIsTheDocumentedOne(t *testing.T) {
	// The address is never dialled.
	c := connect(t, "127.0.0.1:1")
	var granted []any
	_, line, _ := strings.Cut(rediscall.Remedy(c, "hg:"), ">PASSWORD ")
	for _, word := range strings.Fields(line) {
		granted = append(granted, word)
	}

	documented := documentedACL(t)

	// The order of the rules is of no meaning.
	for _, list := range [][]any{granted, documented} {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	}
	if !slices.Equal(granted, documented) {
		t.Errorf("granted %v\ndocumented %v", granted, documented)
	}
}

const remedyOfLimiter = "ACL SETUSER limiter ~hg:* &hg:* " +
	"+eval +evalsha +get +mget +exists +set +del +time +pttl +pexpire +info " +
	"+zadd +zremrangebyscore +zremrangebyrank +zrevrangebyscore +getrange +zrem +zcard " +
	"+hget +hmget +hset +hincrby +hdel +zrangebyscore +subscribe +ping +multi +exec " +
	"+hexists +hgetall +hscan +llen +lindex +lrange"

// useEverything has every algorithm take, refuse, refund and reset, decides two
// operations in one step, and meets an unreadable key. It returns the first error of permissions.
func useEverything(t *testing.T, s *Store, admin *redis.Client) error {
	t.Helper()
	ctx := context.Background()

	// Every algorithm, over every verb, so that each command of the scripts runs once.
	for _, text := range everyAlgorithm {
		op := core.Op{Rule: "r", Key: text, Limit: limit(t, text), Cost: 10, Lease: "a"}
		for _, verb := range []core.Verb{core.Take, core.Peek, core.Take, core.Refund, core.Take, core.Reset} {
			op.Verb, op.Lease = verb, op.Lease+"x"
			if verb == core.Refund {
				op.Lease = "ax"
			}
			if err := s.Apply(ctx, inWindows(s, op), make([]core.Decision, 1)); err != nil {
				return err
			}
		}
	}

	two := []core.Op{{Rule: "r", Key: "two", Limit: limit(t, "1/1h"), Cost: 1},
		{Rule: "s", Key: "two", Limit: limit(t, "1/1h"), Cost: 1}}
	if err := s.Apply(ctx, two, make([]core.Decision, 2)); err != nil {
		return err
	}

	// A list where a state should be is the one way to the command that looks at types.
	op := core.Op{Rule: "r", Key: "list", Limit: limit(t, "1/1h"), Cost: 1}
	admin.RPush(ctx, string(s.wire.key(nil, "list", "r", "g")), "x")
	err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1))

	if errors.Is(err, ErrUnreadable) {
		return nil
	}
	return err
}

// words splits a line as redis-cli does.
func words(t testing.TB, line string) []any {
	t.Helper()
	var list []any
	for _, word := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`).FindAllString(line, -1) {
		if word[0] == '"' {
			text, err := strconv.Unquote(word)
			if err != nil {
				t.Fatalf("%s: %v", word, err)
			}
			word = text
		}
		list = append(list, word)
	}
	return list
}

// The command in the error works as it stands, and opens no other keys.
func TestPermissionRemedyGrantsOnlyThePrefix(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	ctx := context.Background()
	for prefix, foreign := range map[string]string{
		"hg:":                   "hgx",
		`*?[a]\`:                `xya\`,
		`[ab]`:                  "a",
		`\*`:                    `\x`,
		`"quoted" 'text'`:       "quoted",
		"line\nbreak\tand\x00":  "line",
		"ü\xff^-":               "u",
		"@all +@all ~* resetx:": "x",
	} {
		// The user begins with all commands and no key.
		setUser(t, admin, "+@all")
		c := asUser(t, server.Addr)
		s := MustNew(c, Options{Prefix: prefix, Timeout: patient})
		op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "5/1h"), Cost: 1}

		err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1))
		if !errors.Is(err, ErrPermission) {
			t.Fatalf("%q: %v", prefix, err)
		}

		// The line is printed in logs, so it may not hold control characters.
		_, line, _ := strings.Cut(err.Error(), "ACL SETUSER ")
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: unsafe to print: %q", prefix, line)
		}

		if err := admin.Do(ctx, append([]any{"ACL", "SETUSER"}, words(t, line)...)...).Err(); err != nil {
			t.Errorf("%q: %s: %v", prefix, line, err)
			continue
		}

		// With the line applied, the store works and the diagnosis is silent.
		apply(t, s, op)
		if found := s.Report().Diagnose(ctx, nil); len(found) != 0 {
			t.Errorf("%q: %v", prefix, found)
		}

		// A pattern that was quoted wrongly would match the keys of others.
		if err := c.Get(ctx, foreign).Err(); !redis.IsPermissionError(err) {
			t.Errorf("%q: the key %q of others: %v", prefix, foreign, err)
		}

		admin.FlushAll(ctx)
	}
}

// A client without a name is the default user, by which administrators come in:
// the line is about a new user.
func TestPermissionRemedySparesTheDefaultUser(t *testing.T) {
	given := func() (string, string) { return "later", "" }
	for name, c := range map[string]redis.UniversalClient{
		"none":     redis.NewClient(&redis.Options{}),
		"default":  redis.NewClient(&redis.Options{Username: "default"}),
		"provided": redis.NewClient(&redis.Options{Username: "u", CredentialsProvider: given}),
		"cluster":  redis.NewClusterClient(&redis.ClusterOptions{}),
		"ring":     redis.NewRing(&redis.RingOptions{}),
		"foreign":  struct{ redis.UniversalClient }{},
	} {
		got := rediscall.Remedy(c, "hg:")
		want := "ACL SETUSER headgate on >PASSWORD ~hg:* &hg:* +eval"
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
		if c, ok := c.(interface{ Close() error }); ok && name != "foreign" {
			c.Close()
		}
	}

	// A name that the client has is used, and quoted for redis-cli.
	for _, c := range []redis.UniversalClient{
		redis.NewClient(&redis.Options{Username: `a"b`}),
		redis.NewClusterClient(&redis.ClusterOptions{Username: `a"b`}),
		redis.NewRing(&redis.RingOptions{Username: `a"b`}),
	} {
		if got := rediscall.Remedy(c, "hg:"); !strings.Contains(got, `ACL SETUSER "a\"b" ~hg:*`) {
			t.Errorf("%T: %s", c, got)
		}
		c.Close()
	}
}

// Permissions belong to a server, not to a cluster.
func TestPermissionLackedByOneClusterServerIsFound(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 3)

	// One server of three lacks a single command.
	for i, node := range nodes {
		rules := []any{"~hg:*", "+eval", "+evalsha", "+get", "+mget", "+exists", "+set", "+del", "+time",
			"+pttl", "+pexpire", "+cluster|slots", "+command", "+info"}
		if i == 1 {
			rules = append(rules, "-pexpire")
		}
		setUser(t, connect(t, node.Addr), rules...)
	}

	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redistest.Addrs(nodes), Username: "limiter", Password: "password", ContextTimeoutEnabled: true,
	})
	defer c.Close()

	found := MustNew(c, Options{Prefix: DefaultPrefix}).Report().Diagnose(context.Background(), nil)
	if len(found) != 1 || found[0].Code != findings.Permission ||
		!strings.Contains(found[0].Text, "may not run pexpire, which") {
		t.Errorf("%v", found)
	}
}
