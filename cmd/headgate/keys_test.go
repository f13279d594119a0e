package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/policy/policyyaml"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run(), test.SentinelLeak()...) }

// system is a Redis in which policies are published.
type system struct {
	t      *testing.T
	url    string
	prefix string
	client redis.UniversalClient
}

const systemPolicies = `policies:
- {name: login, apps: [shop], limit: 3/1h fixed-window, key: ip, ban: 5/1m for 10m max 24h}
- name: api
  apps: [shop, web]
  limit: 10/1h fixed-window
  key: user
  plans: {pro: 100/1h fixed-window}
  plan_by: user
  overrides: {alice: 50/1h fixed-window}
  cost: 2
  access: {allow: {keys: [bob]}, deny: {keys: [mallory]}}
- {name: token, apps: [web], limit: 7/1h fixed-window, key: api-key}
- {name: all, apps: [web], limit: 9/1h fixed-window, key: global}
- {name: place, apps: [web], limit: 8/1h fixed-window, key: ip+route}
- {name: month, apps: [web], limit: 6/month, key: user}
- {name: jobs, apps: [web], limit: 2 concurrent ttl=1m, key: user}
- {name: quiet, apps: [web], limit: 1/1h, key: user, mode: shadow, ban: 5/1m for 10m max 24h}
- {name: idle, apps: [web], limit: 1/1h, key: user, mode: "off"}
`

// newSystem starts a Redis, or one of several servers for which the options say how they are
// reached, and publishes policies.
func newSystem(t *testing.T, url string) *system {
	t.Helper()
	if url == "" {
		url = "redis://" + redistest.Addr(t)
	}

	s := &system{t: t, url: url, prefix: redistest.Prefix(t)}
	o, err := (&redisFlags{url: url, prefix: s.prefix}).options()
	if err != nil {
		t.Fatal(err)
	}
	s.client = redis.NewUniversalClient(o)
	t.Cleanup(func() { s.client.Close() })
	return s
}

func (s *system) publish(text string) {
	s.t.Helper()
	set, err := policyyaml.Decode([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}

	source, err := redissource.New(s.client, redissource.Options{Prefix: s.prefix, Timeout: time.Minute})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := source.Publish(s.t.Context(), set, ""); err != nil {
		s.t.Fatal(err)
	}
}

// call carries a command of the system out.
func (s *system) call(args ...string) result {
	s.t.Helper()
	return call(s.t, "", append(args, "-redis", s.url, "-prefix", s.prefix)...)
}

// peek returns what the command finds about a key.
func (s *system) peek(args ...string) peeked {
	s.t.Helper()
	var got keyResult
	out := s.call(append([]string{"keys", "peek", "-json"}, args...)...).want(s.t, fine).out
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Peek == nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return *got.Peek
}

// open starts an instance of the shop.
func (s *system) open(user func(context.Context) (string, bool)) *managed.Limits {
	s.t.Helper()
	limits, err := managed.Open(s.t.Context(), s.client, managed.Options{
		App: "shop", Store: redisstore.Options{Prefix: s.prefix, Timeout: 10 * time.Second},
		Bindings: policy.Bindings{User: keyfuncs.UserID(user), Plans: map[string]policy.PlanFunc{
			"user": func(context.Context, string) (string, error) { return "", nil }}},
		Limiter: limiter.Config{Logger: slog.New(slog.DiscardHandler), OnStoreError: limiter.FailClosed, Top: 20},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { limits.Close() })
	return limits
}

// caller is a request of an address and a user.
func caller(ctx context.Context, addr, user string) *test.Request {
	return &test.Request{Ctx: context.WithValue(ctx, userKey{}, user), Verb: "GET", URLPath: "/", Peer: addr + ":1"}
}

type userKey struct{}

func userOf(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(userKey{}).(string)
	return id, ok
}

// wantPeek fails unless the command finds what is wanted about a key, apart from the times.
func (s *system) wantPeek(want peeked, args ...string) {
	s.t.Helper()
	got := s.peek(args...)
	got.Now, got.Next, got.Full = want.Now, want.Next, want.Full
	if got != want {
		s.t.Errorf("%q: %+v, want %+v", args, got, want)
	}
}

// admits reports whether an instance admits a request, and whether the key is banned.
func admits(t *testing.T, l *limiter.Limiter, user string) (allowed, banned bool) {
	t.Helper()
	res, err := l.TakeRequest(caller(t.Context(), "192.0.2.7", user))
	if err != nil {
		t.Fatal(err)
	}
	return res.Allowed(), res.Banned()
}

// What the commands do to a key, a running instance sees, and what it counts, the commands see.
func TestKeysOfARunningInstance(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies)
	shop := s.open(userOf)

	// One request costs 1 under login and 2 under api, where alice has a limit of her own.
	if allowed, _ := admits(t, shop.Limiter, "alice"); !allowed {
		t.Fatal("the first request is refused")
	}
	login := []string{"-policy", "login", "192.0.2.7"}
	s.wantPeek(peeked{Left: 2, Capacity: 3, Cost: 1, Allowed: true}, login...)
	s.wantPeek(peeked{Left: 48, Capacity: 50, Cost: 2, Allowed: true}, "-app", "shop", "-policy", "api", "alice")

	// A ban turns the next request away, and lists show it at once.
	until := time.Now().Add(2 * time.Hour)
	got := s.call("keys", "ban", "-policy", "login", "-for", "2h", "192.0.2.7").want(t, fine, "banned until ")
	if strings.Contains(got.out, "note:") {
		t.Errorf("%s", got.out)
	}
	if allowed, banned := admits(t, shop.Limiter, "alice"); allowed || !banned {
		t.Error("the banned key is admitted")
	}

	bans, err := shop.Limiter.Bans(t.Context())
	if err != nil || len(bans) != 1 || bans[0].Key != "192.0.2.7" {
		t.Fatalf("%+v, %v", bans, err)
	}
	if off := time.UnixMicro(bans[0].Until).Sub(until).Abs(); off > time.Minute {
		t.Errorf("the ban ends %s off", off)
	}
	s.wantPeek(peeked{Capacity: 3, Cost: 1, Banned: true}, login...)

	// A shorter ban does not shorten it, and says so by the end that it prints.
	s.call("keys", "ban", "-policy", "login", "-for", "1m", "192.0.2.7").want(t, fine,
		time.UnixMicro(bans[0].Until).UTC().Format("2006-01-02 15:04:05"))

	// After the lift the units stay used, and after a reset none are.
	s.call("keys", "lift", "-policy", "login", "192.0.2.7").want(t, fine, "lifted")
	s.wantPeek(peeked{Left: 2, Capacity: 3, Cost: 1, Allowed: true}, login...)
	s.call("keys", "reset", "-policy", "login", "192.0.2.7").want(t, fine, "the key is fresh")
	s.wantPeek(peeked{Left: 3, Capacity: 3, Cost: 1, Allowed: true}, login...)
	if allowed, _ := admits(t, shop.Limiter, "alice"); !allowed {
		t.Error("after the lift and the reset the request is refused")
	}
}

// The limit of a key is that of its own, or of its plan, or of the policy, and notes say what the
// policy does with the key.
func TestKeysKnowWhatThePolicySaysOfAKey(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies)
	digest := keyfuncs.Digest("s3cret")

	// An empty text means that there is nothing to note.
	for _, row := range []struct {
		args, want string
		capacity   int64
	}{
		{"-policy api carol", "which plan the key has is not known here", 10},
		{"-policy api -plan pro carol", "", 100},
		{"-policy api -plan pro alice", "", 50},
		{"-policy api -plan pro bob", "one that it does not limit", 100},
		{"-policy api -plan pro mallory", "one that it refuses", 100},
		{"-policy token " + digest, "", 7},
		{"-policy token -credential s3cret", "", 7},
		{"-policy all", "", 9},
		{"-policy all all", "", 9},
		{"-policy place 192.0.2.7|/items", "", 8},
		{"-policy month alice", "", 6},
		{"-policy jobs alice", "", 2},
		{"-policy quiet alice", "the policy is in shadow", 1},
		{"-limit 5/1h -rule of-a-service alice", "", 5},
	} {
		var got keyResult
		out := s.call(append([]string{"keys", "peek", "-json"}, strings.Fields(row.args)...)...).want(t, fine).out
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Peek == nil {
			t.Fatalf("%s: %v: %s", row.args, err, out)
		}
		note := got.Note == "" && row.want == "" || row.want != "" && strings.Contains(got.Note, row.want)
		if got.Peek.Capacity != row.capacity || !note {
			t.Errorf("%s: %+v %+v", row.args, got, got.Peek)
		}
	}

	// An IPv6 address counts as its network, and the text of people says so.
	s.call("keys", "peek", "-policy", "login", "2001:db8::7").want(t, fine, "2001:db8::/64 under login",
		"left        3 of 3", "next        now", "full again  nothing is in use")

	// A credential can come from the standard input, and is shown as its digest alone.
	got := call(t, "s3cret\nmore\n", "keys", "peek", "-policy", "token", "-credential", "-redis", s.url, "-prefix",
		s.prefix, "-").want(t, fine, digest)
	if strings.Contains(got.out, "s3cret") {
		t.Errorf("%s", got.out)
	}
}

// A ban by an override, in the policy or beside it, is found with its end, and lift says where it
// is lifted. The limit beside a policy counts, and what has ended does not.
func TestKeysKnowTheBansOfOverrides(t *testing.T) {
	s := newSystem(t, "")
	end := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	banned := "banned until " + end.Format(time.RFC3339)
	s.publish(strings.Replace(systemPolicies, "alice: 50/1h fixed-window",
		"alice: 50/1h fixed-window, eve: \""+banned+"\", tom: 60/1h fixed-window, ann: 70/1h fixed-window", 1))

	source, err := redissource.New(s.client, redissource.Options{Prefix: s.prefix, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var changes []policy.OverrideChange
	for key, text := range map[string]string{"tom": banned, "acme:*": banned, "acme:sue": "80/1h fixed-window",
		"max": "90/1h fixed-window", "ann": "9/1h fixed-window until 2020-01-01T00:00:00Z", "kim": "7/1h gcra"} {
		changes = append(changes, policy.OverrideChange{Policy: "api", Key: key, Text: text})
	}
	if err := source.PublishOverrides(t.Context(), redissource.OverrideBatch{Changes: changes}); err != nil {
		t.Fatal(err)
	}

	// The limit of a banned key is the one that it has without the ban.
	for key, capacity := range map[string]int64{"eve": 10, "tom": 60, "acme:bob": 10} {
		got := s.peek("-policy", "api", key)
		if !got.Banned || got.Allowed || got.Next == nil || !got.Next.Equal(end) || got.Capacity != capacity {
			t.Errorf("%s: %+v, want a ban until %s and a limit of %d", key, got, end, capacity)
		}

		words := "an override of the policy api bans the key until " + end.Format(timeForm) +
			" UTC: lift it in the console"
		s.call("keys", "peek", "-policy", "api", key).want(t, fine, "banned, in ", words)
		s.call("keys", "reset", "-policy", "api", key).want(t, fine, "the key is fresh", words)
		if out := s.call("keys", "lift", "-policy", "api", key).want(t, usage, words).out; out != "" {
			t.Errorf("%s", out)
		}
	}

	// No ban holds on the others: each has the limit of its override, or that of its plan.
	for key, capacity := range map[string]int64{"acme:sue": 80, "max": 90, "ann": 70, "kim": 10, "alice": 50} {
		s.wantPeek(peeked{Left: capacity, Capacity: capacity, Cost: 2, Allowed: true}, "-policy", "api", key)
		s.call("keys", "lift", "-policy", "api", key).want(t, fine, "no ban holds")
	}
}

// A peek leaves all of Redis as it is, also that of a banned key.
func TestPeekWritesNothing(t *testing.T) {
	server := redistest.Start(t)
	s := newSystem(t, "redis://"+server.Addr)
	s.publish(systemPolicies)
	s.call("keys", "ban", "-policy", "login", "-for", "1h", "192.0.2.7").want(t, fine)

	// A peek that met the ban would add it to the list again.
	if err := s.client.Del(t.Context(), s.prefix+"bans").Err(); err != nil {
		t.Fatal(err)
	}

	all := func() (state []string) {
		t.Helper()
		keys, err := s.client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(keys)
		for _, key := range keys {
			state = append(state, key+" "+s.client.Dump(t.Context(), key).Val())
		}
		return state
	}

	before := all()
	s.call("keys", "peek", "-policy", "login", "192.0.2.7").want(t, fine, "banned, in ")
	s.call("keys", "peek", "-policy", "login", "192.0.2.8").want(t, fine)
	if after := all(); !slices.Equal(after, before) || len(before) != 2 {
		t.Errorf("before %q\nafter %q", before, after)
	}
}

// Granted units are used after the limit, and end with a revocation.
func TestKeysAreGrantedUnits(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies)
	shop := s.open(userOf)
	grant := func(args ...string) result {
		return s.call(append([]string{"keys", "grant", "-policy", "login"}, append(args, "192.0.2.7")...)...)
	}

	grant("-units", "2", "-for", "48h").want(t, fine, "granted 2 until ")
	end := time.Now().Add(240 * time.Hour).In(time.FixedZone("", 3600))
	grant("-units", "5", "-until", end.Format(time.RFC3339)).want(t, fine,
		"granted 5 until "+end.UTC().Format(timeForm)+" UTC")
	s.call("keys", "peek", "-policy", "login", "192.0.2.7").want(t, fine, "10 of 3, 7 of them granted",
		"granted     2 until ", "granted     5 until "+end.UTC().Format(timeForm)+" UTC")
	var found keyResult
	out := s.call("keys", "peek", "-json", "-policy", "login", "192.0.2.7").want(t, fine).out
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Grants) != 2 ||
		found.Grants[1] != (granted{5, end.UTC().Truncate(time.Second)}) {
		t.Errorf("%v: %s", err, out)
	}

	// The limit has three units, and 7 were granted. Alice has a limit of her own under another
	// policy, which admits more.
	for i := range 11 {
		if allowed, _ := admits(t, shop.Limiter, "alice"); allowed != (i < 10) {
			t.Errorf("request %d is allowed: %t", i, allowed)
		}
	}
	grant("-units", "1", "-for", "1h").want(t, fine)
	s.call("keys", "revoke", "-policy", "login", "192.0.2.7").want(t, fine, "no granted units are left")
	s.call("keys", "peek", "-policy", "login", "192.0.2.7").want(t, fine, "0 of 3\n")

	// A mistake grants nothing.
	for want, args := range map[string][]string{
		"the end 2020-01-01T00:00:00Z has come":         {"-units", "1", "-until", "2020-01-01T00:00:00Z"},
		"is more than ten years ahead":                  {"-units", "1", "-for", "100000h"},
		"-units has to say how many units are granted":  {"-for", "1h"},
		"a grant needs -for or -until":                  {"-units", "1"},
		"invalid value \"Friday\" for flag -until":      {"-units", "1", "-until", "Friday"},
		"-units has to say how many units are granted;": {"-units", "-1"},
	} {
		got := grant(args...).want(t, usage, strings.TrimSuffix(want, ";"))
		if got.out != "" {
			t.Errorf("%q", got.out)
		}
	}
	s.call("keys", "grant", "-policy", "jobs", "-units", "1", "-for", "1h", "alice").want(t, usage,
		"a leased limit has no credit")
	s.call("keys", "peek", "-policy", "login", "-units", "1", "192.0.2.7").want(t, usage,
		"-units is for grants and debits")
	s.call("keys", "peek", "-policy", "login", "192.0.2.7").want(t, fine, "0 of 3\n")
}

// What a debit has charged, later requests wait for, and what it could not charge it says.
func TestDebitChargesBeyondTheLimit(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies + "- {name: debts, apps: [shop], limit: 3/1h fixed-window debt=4, key: ip}\n" +
		"- {name: none, apps: [shop], limit: 3/1h sliding-log, key: ip}\n")
	shop := s.open(userOf)
	debit := func(units string, args ...string) result {
		args = append([]string{"keys", "debit", "-policy", "debts", "-units", units}, args...)
		return s.call(append(args, "192.0.2.7")...)
	}
	debit("2").want(t, fine, "charged     2", "left        1 of 3", "next        now")
	if allowed, _ := admits(t, shop.Limiter, "alice"); !allowed {
		t.Error("the unit that is left is refused")
	}
	debit("3").want(t, fine, "charged     3", "left        0 of 3", "over the limit, in ")
	if allowed, _ := admits(t, shop.Limiter, "alice"); allowed {
		t.Error("a request is admitted in spite of the debt")
	}

	// One of four fits into what is left of the debt.
	var got keyResult
	out := debit("4", "-json").want(t, fine).out
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Units != 1 || got.Peek == nil ||
		got.Peek.Next == nil || got.Note != "3 of the 4 units were not charged: its debt is full" {
		t.Errorf("%v: %s", err, out)
	}

	// The reference says of the same units when the next one passes: when the window ends.
	if left := got.Peek.Next.Sub(got.Peek.Now); left <= 0 || left > time.Hour || !got.Peek.Next.Equal(got.Peek.Full) {
		t.Errorf("%+v", got.Peek)
	}

	for _, units := range []string{"0", "-1"} {
		debit(units).want(t, usage, "-units has to say how many units are charged")
	}
	debit("8").want(t, usage, "-units: 8 is more than the 7 that 3/1h fixed-window debt=4 and its debt hold")
	s.call("keys", "debit", "-policy", "none", "-units", "1", "::1").want(t, usage, "sliding-log has no debt")
	s.call("keys", "debit", "-policy", "jobs", "-units", "1", "alice").want(t, usage, "has no debt")
}

func TestKeysRefuseWhatCannotBe(t *testing.T) {
	s := newSystem(t, "")
	s.publish(systemPolicies)
	long := strings.Repeat("k", 10<<10)

	// Each is one line, and shows nothing else.
	for args, want := range map[string]string{
		"":                                "no action is named: peek, reset, ban, lift",
		"drop -policy api alice":          `there is no action "drop", only peek`,
		"peek alice":                      "no policy is named",
		"peek -policy api -limit 1/s a b": "more than one KEY is given",
		"peek -policy apy alice":          `there is no policy "apy"; the policies are: all, api, idle, jobs,`,
		"peek -app shop -policy token x":  `no policy "token" of the application shop; the policies are: api, login`,
		"peek -app shpo -policy api x":    `names the application "shpo"; the applications are: shop, web`,
		"peek -policy api":                "no KEY is given",
		"peek -policy login alice":        `counts by ip: "alice" is not an address`,
		"peek -policy token alice":        "is not a digest as keyfuncs.Digest returns it; -credential makes it",
		"peek -policy all alice":          `all callers count under "all", and under no other key`,
		"peek -policy place 192.0.2.7":    "the key has 1 parts, and the recipe 2",
		"peek -policy idle alice":         `the policy "idle" is switched off`,
		"peek -policy api -plan max a":    `has no plan "max"; its plans are: pro`,
		"peek -policy api " + long:        "the key has 10240 bytes, more than 512",
		"peek -limit often -rule r k":     "-limit: limit \"often\": ",
		"peek -limit 1/s -rule {} k":      "-rule: ",
		"peek -limit 1/s k":               "-limit needs -rule",
		"peek -rule r -policy api k":      "-rule is for -limit",
		"peek -limit 1/s -rule r -app a":  "-app and -plan are for -policy",
		"peek -for 1m -policy api a":      "-for is for bans and grants",
		"ban -policy login 192.0.2.7":     "-for has to say how long the ban lasts",
		"ban -policy login -for often a":  "invalid value \"often\"",
		"ban -policy login -for 0s a":     "-for has to say how long the ban lasts",
		"ban -policy login -for 25h ::1":  "-for: 25h0m0s is not a time from 1s to 24h",
		"ban -policy login -for 1ms ::1":  "-for: 1ms is not a time from 1s to 24h",
		"ban -policy api -for 1m alice":   "ban the key in the console, or by banned_until in an override",
		"ban -policy quiet -for 1m alice": "bans no keys in the mode shadow",
		"ban -policy jobs -for 1m alice":  "a concurrency limit has no bans",
		"lift -policy jobs alice":         "a concurrency limit has no bans",
		"peek -nothing":                   "flag provided but not defined",
	} {
		got := s.call(append([]string{"keys"}, strings.Fields(args)...)...).want(t, usage, want)
		if strings.Count(got.err, "\n") != 1 || len(got.err) > 600 || got.out != "" {
			t.Errorf("%.60s: %q %q", args, got.out, got.err)
		}
	}

	// A prefix under which no policies are, and a hostile text.
	call(t, "", "keys", "peek", "-redis", s.url, "-prefix", "other:", "-policy", "api", "a").want(t, usage,
		`there are no policies published in Redis under the prefix "other:"`)
	if got := s.call("keys", "peek", "-policy", "\x1b[2J", "a").want(t, usage); strings.Contains(got.err, "\x1b") {
		t.Errorf("%q", got.err)
	}
}

// A rule as text is that of a service that has it, and a key may be anything.
func TestKeysOfARuleAsText(t *testing.T) {
	for _, limit := range []string{"5/1h fixed-window", "5/month"} {
		t.Run(limit, func(t *testing.T) { keysOfARule(t, limit) })
	}
}

func keysOfARule(t *testing.T, limit string) {
	t.Helper()
	s := newSystem(t, "")
	l := limiter.MustNew(limiter.Config{
		Store: redisstore.MustNew(s.client, redisstore.Options{Prefix: s.prefix, Timeout: 10 * time.Second}),
		Rules: []limiter.Rule{{Name: "per-key", Limit: core.MustParseLimit(limit),
			Ban: core.MustParseBan("9/1m for 10m max 1h")}},
		OnStoreError: limiter.FailClosed, Logger: slog.New(slog.DiscardHandler),
	})
	defer l.Close()

	for _, key := range []string{"alice", strings.Repeat("\x00{k}", 2500)} {
		if res, err := l.Take(t.Context(), key, 2); err != nil || !res.Allowed() {
			t.Fatal(err)
		}

		rule := func(action string, more ...string) result {
			t.Helper()
			args := append([]string{"keys", action, "-limit", limit, "-rule", "per-key"}, more...)
			// An argument of a program has no zero byte, and the standard input may have one.
			return call(t, key+"\n", append(args, "-redis", s.url, "-prefix", s.prefix, "-")...)
		}

		rule("peek").want(t, fine, "left        3 of 5")
		rule("ban", "-for", "30m").want(t, fine, "only services whose rule has a Ban heed it")
		rule("peek").want(t, fine, "banned, in ")
		if res, err := l.Take(t.Context(), key, 1); err != nil || !res.Banned() {
			t.Errorf("%.10q is not banned: %v", key, err)
		}
		rule("lift").want(t, fine)
		rule("reset").want(t, fine)
		if res, err := l.Take(t.Context(), key, 5); err != nil || !res.Allowed() {
			t.Errorf("%.10q is not fresh: %v", key, err)
		}
	}
}

// The same commands reach a Redis with Sentinels and a Cluster.
func TestKeysWithSentinelsAndInACluster(t *testing.T) {
	watched := redistest.Sentinel(t)
	watched.Keep(t)
	for _, url := range []string{
		"redis+sentinel://" + strings.Join(redistest.Addrs(watched.Sentinels), ",") + "/" + redistest.MasterName,
		"redis+cluster://" + strings.Join(redistest.Addrs(redistest.Cluster(t, 3)), ","),
	} {
		s := newSystem(t, url)
		s.publish(systemPolicies)

		// Eight keys are on several servers of the Cluster.
		for i := range 8 {
			key := fmt.Sprintf("192.0.2.%d", i)
			s.call("keys", "ban", "-policy", "login", "-for", "1h", key).want(t, fine, "banned until")
			s.call("keys", "peek", "-policy", "login", key).want(t, fine, "banned, in ")
			s.call("keys", "reset", "-policy", "login", key).want(t, fine)
			s.call("keys", "peek", "-policy", "login", key).want(t, fine, "left        3 of 3")
		}
	}
}

// A Redis that cannot be used is one clear error, whatever the command.
func TestRedisThatCannotBeUsedIsAnError(t *testing.T) {
	closed := freeport.Addr(t)

	// A server with a password.
	server := redistest.Start(t)
	guarded := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer guarded.Close()
	if err := guarded.ConfigSet(t.Context(), "requirepass", "s3cret").Err(); err != nil {
		t.Fatal(err)
	}

	// Another server of this Cluster has the policies.
	nodes := redistest.Cluster(t, 3)
	first := redis.NewClient(&redis.Options{Addr: nodes[0].Addr})
	defer first.Close()
	node := nodes[(1+first.ClusterKeySlot(t.Context(), "{policies}").Val()*3/16384)%3]

	for _, row := range []struct{ url, want string }{
		{"", "no Redis is named: give -redis or set HEADGATE_GATEWAY_REDIS"},
		{"postgres://:s3cret@h", "-redis: the URL of Redis begins with none of"},
		{"redis://" + closed, "the Redis at " + closed + ": it cannot be reached: dial tcp " + closed},
		{"redis+cluster://" + closed, closed},
		{"redis+sentinel://" + closed + "/main", closed},
		{"redis://" + server.Addr, "the user or the password is wrong, or missing in the URL"},
		{"redis://:s3crit@" + server.Addr, "the user or the password is wrong, or missing in the URL"},
		{"redis+cluster://:s3cret@" + server.Addr, "the server is none of a Cluster: write redis://"},
	} {
		got := call(t, "", "keys", "peek", "-redis", row.url, "-policy", "api", "alice").want(t, usage, row.want)
		if strings.Count(got.err, "\n") != 1 || strings.Contains(got.err, "s3cr") || got.out != "" {
			t.Errorf("%s: %q", row.url, got.err)
		}
	}
	call(t, "", "keys", "peek", "-redis", "redis://"+node.Addr, "-policy", "api", "alice").want(t, usage,
		"the server is one of a Cluster: write redis+cluster:// instead of redis://")

	// The variable of the gateway holds the URL too.
	t.Setenv(envRedis, "redis://:s3cret@"+server.Addr)
	call(t, "", "keys", "peek", "-limit", "1/s", "-rule", "r", "alice").want(t, fine, "left        1 of 1")
	call(t, "", "keys", "peek", "-limit", "1/s", "-rule", "r", "-prefix", "{x}", "alice").want(t, usage, "-prefix: ")
}

// A key reaches a terminal without anything that it obeys, and in bounded width.
func TestShownKeys(t *testing.T) {
	for key, want := range map[string]string{
		"192.0.2.7":               "192.0.2.7",
		"müller":                  "müller",
		"a\x1b[2J\n\x7f\u009b":    `a\x1b[2J\n\x7f\u009b`,
		"\u202eevil":              `\u202eevil`,
		"a\u0300\u0300":           `a\u0300\u0300`,
		"\xff\xfe":                `\xff\xfe`,
		"\ufffd":                  `\ufffd`,
		strings.Repeat("k", 60):   strings.Repeat("k", 60),
		strings.Repeat("k", 9000): strings.Repeat("k", 60) + "…",
		strings.Repeat("漢", 9000): strings.Repeat("漢", 30) + "…",
	} {
		if got := shown(key); got != want {
			t.Errorf("shown(%.20q) = %q, want %q", key, got, want)
		}
	}
}
