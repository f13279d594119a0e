package policy_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// planned returns a policy with two plans.
func planned(t testing.TB, algorithm string) policy.Policy {
	p := valid(t, "api")
	p.Limit, p.Key, p.PlanBy = limit(t, "2/24h"+algorithm), "user", "user"
	p.Plans = map[string]core.Limit{"free": limit(t, "3/24h"+algorithm), "pro": limit(t, "10/24h"+algorithm)}
	return p
}

type userKey struct{}

func as(user string) context.Context { return context.WithValue(context.Background(), userKey{}, user) }

func userOf(ctx context.Context) (string, bool) {
	user, ok := ctx.Value(userKey{}).(string)
	return user, ok
}

// A caller has the limit of the plan, and keeps what was used when the plan changes.
func TestPlansChooseTheLimit(t *testing.T) {
	for _, algorithm := range []string{"", " fixed-window", " sliding-log", " sliding-window", " token-bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			plans := map[string]string{"alice": "free", "bob": "pro"}
			bindings := policy.Bindings{User: keyfuncs.UserID(userOf), Plans: map[string]policy.PlanFunc{
				"user": func(_ context.Context, key string) (string, error) { return plans[key], nil },
			}}

			compiled, err := policy.Compile("shop", policy.Set{planned(t, algorithm)}, bindings)
			if err != nil {
				t.Fatal(err)
			}

			l := limiter.MustNew(limiter.Config{Rules: compiled.Rules()})

			// The text is whether the request passed, the quota in force, and what remains of it.
			take := func(user string) string {
				res, err := l.TakeRequest(&test.Request{Ctx: as(user)})
				if err != nil {
					t.Fatal(err)
				}
				d := res.Decisions()[0]
				return fmt.Sprint(res.Allowed(), " ", d.Limit.Quota, " ", d.Decision.Remaining)
			}

			want := func(user string, list ...string) {
				t.Helper()
				for i, w := range list {
					if got := take(user); got != w {
						t.Errorf("%s, request %d: %s, want %s", user, i, got, w)
					}
				}
			}

			// The plan "free" has 3, "pro" 10, and callers without a plan 2.
			want("alice", "true 3 2", "true 3 1", "true 3 0", "false 3 0")
			want("bob", "true 10 9")
			want("carol", "true 2 1", "true 2 0", "false 2 0")

			// The 3 requests stay used after the upgrade: one more leaves 6 of 10.
			plans["alice"] = "pro"
			want("alice", "true 10 6")

			// Without a plan the quota is 2, which 4 used requests exceed.
			plans["alice"] = ""
			want("alice", "false 2 0")
		})
	}
}

// An error, and a plan that nobody defined, are answered as the failure mode says.
func TestPlansMayFail(t *testing.T) {
	p := planned(t, "")
	for mode, want := range map[string]limiter.Outcome{"open": limiter.Pass, "closed": limiter.Failed} {
		var reported []error
		p.OnStoreError = mode

		// Alice's plan is one that no policy defines, and bob's cannot be found out.
		compiled, err := policy.Compile("shop", policy.Set{p},
			policy.Bindings{User: keyfuncs.UserID(userOf), Plans: map[string]policy.PlanFunc{
				"user": func(ctx context.Context, key string) (string, error) {
					if user, _ := userOf(ctx); user != key {
						t.Errorf("key %q of %q", key, user)
					}

					if key == "bob" {
						return "pro", errors.New("no plans today")
					}
					return "gold\n", nil
				},
			}})
		if err != nil {
			t.Fatal(err)
		}

		l := limiter.MustNew(limiter.Config{Rules: compiled.Rules(),
			OnError: func(_ context.Context, err error) { reported = append(reported, err) }})

		for _, user := range []string{"alice", "bob"} {
			a := l.Admit(&test.Request{Ctx: as(user)})
			if a.Outcome() != want {
				t.Errorf("%s, %s: %s", mode, user, a.Outcome())
			}
			a.Done(200)

			// Peek has no failure mode to follow: it returns the error.
			list, err := l.Peek(as(user), user)
			if err == nil {
				t.Errorf("Peek: %v", list)
			}
		}

		// Two errors for each caller, and a line end in a plan's name is quoted: it must not forge
		// a line of a log.
		if got := fmt.Sprint(reported); got != `[rule 0 "api": the limit from Override: the plan "gold\n" is not defined rule 0 "api": the limit from Override: no plans today]` {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

func TestPlansNeedTheirFunction(t *testing.T) {
	p := planned(t, "")
	user := keyfuncs.UserID(userOf)
	_, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{User: user})
	wantError(t, err, `policy "api": plan_by: "user" cannot be used here: the program does not set Bindings.Plans`)
	f := func(context.Context, string) (string, error) { return "", nil }
	_, err = policy.Compile("shop", policy.Set{p},
		policy.Bindings{User: user, Plans: map[string]policy.PlanFunc{"tenant": f, "claim": f}})
	wantError(t, err,
		`policy "api": plan_by: "user" cannot be used here: Bindings.Plans of the program has only "claim", "tenant"`)
}

func TestPlansValidateReportsAllMistakesAtOnce(t *testing.T) {
	// Mistakes in every field of the plans, sorted by name.
	p := planned(t, " fixed-window")
	p.PlanBy = "User"
	p.Plans = map[string]core.Limit{
		"pro": limit(t, "10/1h"), "none": {}, "Big": limit(t, "1/1h fixed-window"),
		"free": limit(t, "3/1h fixed-window"),
	}

	wantError(t, p.Validate(), strings.Join([]string{
		`policy "api": plans.Big: it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`,
		`policy "api": plans.none: quota 0 is not positive; period 0s is below 1ms`,
		`policy "api": plans.pro: its algorithm is gcra, and that of the limit fixed-window: only under one algorithm does an upgrade keep what was used`,
		`policy "api": plan_by: it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`,
	}, "\n"))

	// An empty table asks for plans and has none, with or without a function.
	p = planned(t, "")
	p.Plans, p.PlanBy = map[string]core.Limit{}, ""
	wantError(t, p.Validate(), strings.Join([]string{
		`policy "api": plans: the table is empty`,
		`policy "api": plan_by: it is empty; it has to name the function in Bindings.Plans that knows the plan of a caller`,
	}, "\n"))

	p.Plans, p.PlanBy = nil, "user"
	wantError(t, p.Validate(), `policy "api": plan_by: there are no plans to choose from`)

	// One plan more than the 64 allowed.
	p.Plans = map[string]core.Limit{}
	for i := range 65 {
		p.Plans[fmt.Sprint("p", i)] = limit(t, "1/1s")
	}
	wantError(t, p.Validate(), `policy "api": plans: 65 plans are more than 64`)

	// Leases that expire at different times would let an upgrade keep requests that have ended.
	p.Limit, p.Plans = limit(t, "2 concurrent ttl=30s"), map[string]core.Limit{"pro": limit(t, "9 concurrent ttl=10s")}
	wantError(t, p.Validate(),
		`policy "api": plans.pro: its ttl is 10s, and that of the limit 30s: all have to have one`)
}

// listing returns a policy with both lists.
func listing(t testing.TB) policy.Policy {
	p := valid(t, "api")
	p.Key = "user"
	p.Access = policy.Access{
		Allow: policy.Callers{Networks: []string{"10.0.0.0/8"}, Keys: []string{"carol"}},
		Deny:  policy.Callers{Networks: []string{"10.6.0.0/16", "2001:db8::7"}, Keys: []string{"mallory"}},
	}
	return p
}

func TestAccessDecidesByAddressAndKey(t *testing.T) {
	behind := func(bits int) (core.KeyFunc, error) {
		return keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: []string{"192.0.2.1"}, IPv6Prefix: bits})
	}
	user := keyfuncs.UserID(userOf)

	// Both ways to know the address decide alike: the peer's own, and the one that a proxy
	// forwards.
	for name, b := range map[string]policy.Bindings{
		"by the peer":    {User: user},
		"behind a proxy": {User: user, IP: keyfuncs.RemoteIP, IPPrefix: behind},
	} {
		for _, row := range []struct {
			user, address string
			want          int
		}{
			// The networks decide between callers that no list names; a key on a list comes before
			// its network.
			{"bob", "10.1.1.1", 200}, {"bob", "10.6.1.1", 429}, {"bob", "2001:db8::7", 429}, {"carol", "10.6.1.1", 200},
			{"mallory", "10.1.1.1", 429}, {"bob", "2001:db8::8", 200},
		} {
			p := listing(t)
			p.Access.DenyStatus = 429
			compiled, err := policy.Compile("shop", policy.Set{p}, b)
			if err != nil {
				t.Fatal(err)
			}

			r := &test.Request{Ctx: as(row.user), Peer: row.address}
			if b.IP != nil {
				r.Peer, r.Headers = "192.0.2.1:80", map[string][]string{"X-Forwarded-For": {row.address}}
			}

			a := limiter.MustNew(limiter.Config{Rules: compiled.Rules()}).Admit(r)
			answer, answered := a.Answer()
			if answered != (row.want != 200) || answered && answer.Status != row.want ||
				a.Result().Denied() != answered {
				t.Errorf("%s: %s from %s: %d", name, row.user, row.address, answer.Status)
			}
			a.Done(row.want)
		}
	}

	// With a function for addresses of its own the program must also say how their networks are
	// read, or a denied network would be compared with the proxy's address.
	_, err := policy.Compile("shop", policy.Set{listing(t)}, policy.Bindings{User: user, IP: keyfuncs.RemoteIP})
	wantError(t, err, `policy "api": access: networks cannot be used here: the program does not set Bindings.IPPrefix`)
}

func TestAccessValidateReportsAllMistakesAtOnce(t *testing.T) {
	p := valid(t, "api")
	p.Key = "api-key"
	p.Access = policy.Access{
		Allow: policy.Callers{Networks: []string{"10.0.0.0/8", "10.0.0.0/8"},
			Keys: []string{keyfuncs.Digest("a"), "my secret"}},
		Deny: policy.Callers{Networks: []string{"::/0", "10.0.0.0/99"}},

		DenyStatus: 401,
	}

	wantError(t, p.Validate(), `policy "api": access: the denied network "10.0.0.0/99" is not a CIDR prefix; `+
		`the allowed network "10.0.0.0/8" is listed twice; `+
		`the networks leave no IPv6 address to be limited: to deny all that are not allowed, say so for all others; `+
		`allow.keys[1] is not a digest as keyfuncs.Digest returns it; deny_status: 401 is not 403 or 429`)

	// A status for the denied needs someone who is denied; all others who are not allowed are
	// enough.
	p.Access = policy.Access{DenyStatus: 429}
	wantError(t, p.Validate(), `policy "api": access: deny_status: no caller is denied`)

	p.Access = policy.Access{DenyOthers: true, DenyStatus: 429}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

const plansYAML = `policies:
- name: api
  apps:
  - shop
  limit: 60/1h fixed-window
  plans:
    free: 1000/24h fixed-window
    pro-2: 100000/24h fixed-window
    "yes": 5/1h fixed-window
  plan_by: claim
  key: user
  access:
    allow:
      networks:
      - "10.0.0.0/8"
    deny:
      networks:
      - "2001:db8::/32"
      keys:
      - mallory
    deny_others: true
    deny_status: 429
`

func TestPlansAndAccessHaveBothForms(t *testing.T) {
	p := valid(t, "api")

	// Names that look like YAML's own words, and numbers with a dash, must survive both forms.
	p.Limit, p.Key, p.PlanBy = limit(t, "60/1h fixed-window"), "user", "claim"
	p.Plans = map[string]core.Limit{"free": limit(t, "1000/24h fixed-window"),
		"pro-2": limit(t, "100000/24h fixed-window"), "yes": limit(t, "5/1h fixed-window")}
	p.Access = policy.Access{Allow: policy.Callers{Networks: []string{"10.0.0.0/8"}},
		Deny: policy.Callers{Networks: []string{"2001:db8::/32"}, Keys: []string{"mallory"}}, DenyOthers: true,
		DenyStatus: 429}

	for _, f := range formats {
		text, err := f.encode(policy.Set{p})
		if err != nil {
			t.Fatal(err)
		}
		if f.name == "YAML" && string(text) != plansYAML {
			t.Errorf("%s\nwant\n%s", text, plansYAML)
		}

		back, err := f.decode(text)
		if err != nil || !reflect.DeepEqual(back, policy.Set{p}) {
			t.Errorf("%s: %v\n%+v", f.name, err, back)
		}
	}

	// The first message that a mistake in the table gets, in the form with names that may be
	// repeated.
	for text, want := range map[string]string{
		`{}`:                             `policy "a": plans: the table is empty`,
		`{"pro": "1/1s", "pro": "2/1s"}`: `policy: the field "pro" is repeated`,
		`{"pro": 5}`:                     `policy 0 "a": plans: unexpected number`,
		`{"Pro": "1/1s", "free": "x"}`:   `policy "a": plans.free: limit "x": quota "x" is not a whole number`,
	} {
		_, err := policy.DecodeJSON([]byte(`{"policies":[{"name":"a","apps":["shop"],"limit":"1/1s","key":"ip","plan_by":"user","plans":` + text + `}]}`))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
