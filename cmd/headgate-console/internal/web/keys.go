package web

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// keys is the page for looking up a key.
type keys struct {
	Policy, Key string

	Mistakes mistakes
	Redis    bool
	Of       service.KeyPolicy
	Found    *policy.Policy // as the instances apply it to the key
	Counted  string         // the key as it is counted
	Gauge    *gauge
	CanReset bool

	Everywhere bool          // the key was looked up under all policies
	Others     []otherPolicy // the other policies under which it counts, the most used first
	Further    bool          // there are more

	Notice string // what was done to a key just now, or ""
}

// gauge shows how much of a limit a key has used. Remaining is of the limit alone, without credit.
type gauge struct {
	Used, Remaining, Capacity int64
	Credit                    int64
	Credits                   []credit // what the credit consists of, where one key is looked up
	Percent                   int
	Passes                    bool // a request would pass now
	Banned                    bool
	After                     time.Duration
	Never                     bool
	ResetAfter                time.Duration
	ResetAt                   time.Time
}

func newGauge(l core.Limit, d core.Decision, now time.Time) *gauge {
	g := &gauge{
		Remaining: max(0, d.Remaining-d.Credit), Capacity: l.Capacity(), Credit: d.Credit, Passes: d.Allowed,
		Banned: d.Banned, Never: d.RetryAfter == core.Never,
		After: readableTime(d.RetryAfter), ResetAfter: readableTime(d.ResetAfter), ResetAt: now.Add(d.ResetAfter),
	}

	g.Used = max(0, g.Capacity-g.Remaining)
	g.Percent = int(min(100, float64(g.Used)/float64(max(1, g.Capacity))*100))
	return g
}

// readableTime rounds a time up: to seconds, or to milliseconds if it is less than one second.
func readableTime(d time.Duration) time.Duration {
	unit := time.Second
	if d < unit {
		unit = time.Millisecond
	}
	if d == core.Never || d%unit == 0 {
		return d
	}
	return d.Truncate(unit) + unit
}

func keysPage(r *request) error {
	return r.showKeys(&keys{Policy: r.query("policy")}, http.StatusOK)
}

func (r *request) showKeys(k *keys, status int) error {
	k.Redis = r.Fleet != nil
	r.takeNotice(k)
	return r.show(status, "keys", "Look up a key", k)
}

func lookUp(r *request) error {
	k, err := r.keyToLookUp()
	if err != nil || k.Mistakes != nil {
		return errOr(err, func() error { return r.showKeys(k, http.StatusUnprocessableEntity) })
	}

	err = r.lookUpEach(k)
	if k.Mistakes = mistakesOf(err); k.Mistakes != nil {
		return r.showKeys(k, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	return r.showKeys(k, http.StatusOK)
}

func errOr(err error, otherwise func() error) error {
	if err != nil {
		return err
	}
	return otherwise()
}

// keyToLookUp is sentKey for a form that may leave the policy out.
func (r *request) keyToLookUp() (*keys, error) {
	if strings.TrimSpace(r.field("policy")) != "" || r.Fleet == nil {
		return r.sentKey()
	}

	k := &keys{Key: r.field("key"), Everywhere: true}
	if k.Counted = strings.TrimSpace(k.Key); k.Counted == "" {
		k.Mistakes = mistakes{"policy": {"it is empty, and so is the key"}}
	}
	return k, nil
}

// sentKey reads the form, and finds the policy.
func (r *request) sentKey() (*keys, error) {
	k := &keys{Policy: strings.TrimSpace(r.field("policy")), Key: r.field("key")}
	exact, isExact, err := r.exactKey()
	if err != nil {
		return nil, err
	}

	if r.Fleet == nil {
		k.Mistakes = mistakes{"policy": {errNoFleet.Error()}}
		return k, nil
	}

	p, err := r.Service.Policy(r.req.Context(), r.actor, k.Policy)
	if errors.Is(err, service.ErrNotFound) {
		k.Mistakes = mistakes{"policy": {"the policy does not exist, or you may not see it"}}
		return k, nil
	}
	if err != nil {
		return nil, err
	}

	// What a person types may be an address, which is counted as its network. A key of the
	// console's own form is taken as it is, and is typed for the user only if it can be read.
	if !isExact {
		k.Counted = counted(r.req.Context(), p, k.Key)
	} else if k.Counted = exact; readable(exact) == exact {
		k.Key = exact
	}

	k.Of, err = r.Service.KeyPolicy(r.req.Context(), r.actor, k.Policy, k.Counted)
	k.Found, k.CanReset = &k.Of.Applied, r.access.CanEdit(p.Apps)
	if m := mistakesOf(err); m != nil {
		k.Found, k.Mistakes = &p, m
		return k, nil
	}
	return k, err
}

// counted returns the key of an address as the policy counts it, and any other key
// unchanged.
func counted(ctx context.Context, p policy.Policy, key string) string {
	a, err := netip.ParseAddr(strings.TrimSpace(key))
	if err != nil || !(p.Key == "ip" || strings.HasPrefix(p.Key, "ip/")) || strings.Contains(p.Key, "+") {
		return key
	}

	// The policy itself says what it counts an address as. It is compiled without all that does not
	// matter for the key, and might fail here: the program's own functions are not known.
	p.Match, p.Mode, p.Plans, p.PlanBy = policy.Match{}, policy.Enforce, nil, ""
	compiled, err := policy.Compile(p.Apps[0], []policy.Policy{p}, policy.Bindings{})
	if err != nil {
		return key
	}
	rules := compiled.Rules()
	if len(rules) != 1 {
		return key
	}

	text, ok := rules[0].Key(&sample{ctx: ctx, remote: netip.AddrPortFrom(a, 40000).String()})
	if !ok {
		return key
	}
	return text
}
