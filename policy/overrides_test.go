package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// The limit of a key comes before that of its plan, and that before the limit of all others.
// What was used stays used when a key gets a limit of its own, and when it loses it.
func TestOverridesChooseTheLimit(t *testing.T) {
	memory := func(t *testing.T) core.Store { return memstore.MustNew(memstore.Options{}) }
	overRedis := func(t *testing.T) core.Store {
		client := redis.NewClient(&redis.Options{Addr: redistest.Addr(t), ContextTimeoutEnabled: true})
		t.Cleanup(func() { client.Close() })

		store, err := redisstore.New(client, redisstore.Options{Prefix: redistest.Prefix(t), Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}

	for name, open := range map[string]func(*testing.T) core.Store{"memory": memory, "redis": overRedis} {
		for _, algorithm := range []string{"", " fixed-window", " sliding-log", " sliding-window", " token-bucket"} {
			t.Run(name+algorithm, func(t *testing.T) {
				p := planned(t, algorithm)
				bindings := policy.Bindings{User: keyfuncs.UserID(userOf), Plans: map[string]policy.PlanFunc{
					"user": func(_ context.Context, key string) (string, error) {
						return map[string]string{"alice": "free", "bob": "free"}[key], nil
					},
				}}

				rules := func() []limiter.Rule {
					compiled, err := policy.Compile("shop", policy.Set{p}, bindings)
					if err != nil {
						t.Fatal(err)
					}
					return compiled.Rules()
				}

				l := limiter.MustNew(limiter.Config{Rules: rules(), Store: open(t)})
				t.Cleanup(func() { l.Close() })

				// Each entry is whether the request passed, the quota in force, and what remains of
				// it.
				want := func(user string, list ...string) {
					t.Helper()
					for i, w := range list {
						res, err := l.TakeRequest(&test.Request{Ctx: as(user)})
						if err != nil {
							t.Fatal(err)
						}
						d := res.Decisions()[0]
						if got := fmt.Sprint(res.Allowed(), " ", d.Limit.Quota, " ", d.Decision.Remaining); got != w {
							t.Errorf("%s, request %d: %s, want %s", user, i, got, w)
						}
					}
				}

				// Alice is on the plan of 3 and uses it up. Carol has no plan, and the limit of 2
				// for all others.
				want("alice", "true 3 2", "true 3 1", "true 3 0", "false 3 0")
				want("carol", "true 2 1")

				// Now alice has 5 and carol 1. Alice used 3 of hers, so 2 are left; carol used her
				// only one.
				p.Overrides = map[string]policy.Override{"alice": {Limit: limit(t, "5/24h"+algorithm)},
					"carol": {Limit: limit(t, "1/24h"+algorithm)}}
				if err := l.SetRules(rules()); err != nil {
					t.Fatal(err)
				}

				want("alice", "true 5 1", "true 5 0", "false 5 0")
				want("bob", "true 3 2")
				want("carol", "false 1 0")
				want("dave", "true 2 1", "true 2 0", "false 2 0")

				// Without overrides alice is back at 3, all of which are used; carol has her second
				// request.
				p.Overrides = nil
				if err := l.SetRules(rules()); err != nil {
					t.Fatal(err)
				}
				want("alice", "false 3 0")
				want("carol", "true 2 0")
			})
		}
	}
}

func TestOverridesReportEveryMistakeButNoSecret(t *testing.T) {
	p := planned(t, "")
	p.Overrides = map[string]policy.Override{
		"": {Limit: limit(t, "1/1s")}, "a": {Limit: limit(t, "1/1s fixed-window")}, "b": {},
		"c": {Limit: limit(t, "1/1s")}, strings.Repeat("d", 513): {Limit: limit(t, "1/1s")},
	}
	wantError(t, p.Validate(), strings.Join([]string{
		`policy "api": overrides.: the key is empty`,
		`policy "api": overrides.a: its algorithm is fixed-window, and that of the limit gcra: only under one algorithm does an upgrade keep what was used`,
		`policy "api": overrides.b: quota 0 is not positive; period 0s is below 1ms`,
		`policy "api": overrides.` + strings.Repeat("d", 100) + `…: the key has 513 bytes, more than 512`,
	}, "\n"))

	p.Overrides = map[string]policy.Override{"\xff": {Limit: limit(t, "1/1s")}}
	wantError(t, p.Validate(), `policy "api": overrides.`+"\xff"+`: the key is not UTF-8, so no policy can hold it`)

	// An empty table is a mistake, because it looks like limits and has none.
	p.Overrides = map[string]policy.Override{}
	wantError(t, p.Validate(), `policy "api": overrides: the table is empty`)

	// One key more than the 64 allowed, then exactly 64.
	for i := range policy.MaxOverrides + 1 {
		p.Overrides[fmt.Sprint(i)] = policy.Override{Limit: limit(t, "1/1s")}
	}
	wantError(t, p.Validate(), `policy "api": overrides: 65 keys are more than 64; give callers plans instead, or keep the keys beside the policies`)

	delete(p.Overrides, "0")
	wantError(t, p.Validate(), "")

	p.Key = "global"
	wantError(t, p.Validate(),
		`policy "api": overrides: all callers are counted together, so no key can have a limit of its own`)

	// A decoder reports the place of a bad entry by number: its key may be a secret that was
	// written by mistake.
	for _, key := range []string{"api-key", "api-key+route"} {
		for limit, fault := range map[string]string{"x": "overrides[0]: limit",
			"1/1s": "overrides[0]: the key is not a digest"} {
			_, err := policyyaml.Decode([]byte("policies: [{name: a, apps: [b], limit: 1/1s, key: " + key +
				", overrides: {sk_live_s3cret: " + limit + "}}]"))
			if key != "api-key" && limit != "x" {
				continue // which part of the key is a digest is not to be seen
			}

			if err == nil || !strings.Contains(err.Error(), fault) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v, want %s", key, err, fault)
			}
		}
	}
}

func TestOverridesTakeNoMemoryForARequest(t *testing.T) {
	// The table is full, so a lookup that copied or sorted it would show.
	p := valid(t, "api")
	p.Key, p.Overrides = "user", map[string]policy.Override{}
	for i := range policy.MaxOverrides {
		p.Overrides[fmt.Sprintf("user:%d", i)] = policy.Override{Limit: limit(t, fmt.Sprintf("%d/1m", i+1000000))}
	}

	compiled, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{User: keyfuncs.UserID(userOf)})
	if err != nil {
		t.Fatal(err)
	}

	ctx, rules := t.Context(), compiled.Rules()

	// The first and the last key, and one that is not in the table.
	for _, key := range []string{"user:0", "user:63", "another"} {
		if n := testing.AllocsPerRun(1000, func() { rules[0].Override(ctx, key) }); n != 0 {
			t.Errorf("%s: %v allocations", key, n)
		}
	}
}
