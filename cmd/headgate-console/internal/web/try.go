package web

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// tester is the form that shows which policies apply to a request.
type tester struct {
	Verb, Path, Host, Route, Address, Who, Headers, Claims string

	Mistakes mistakes
	Tried    bool
	Hits     []hit
	Others   int    // policies of the application that do not match
	Refuser  string // the policy that would refuse the request, or ""
	Unknown  bool   // a policy might refuse it: what its key has used is not known
}

// hit is a policy that matches a request.
type hit struct {
	policy.Policy
	Describe string
	Unknown  bool   // the caller has no key, and all such callers share a count
	Shown    string // the key as people read it
	Path     string // the page of the key
	Verdict  keyfuncs.Verdict
	Gauge    *gauge // nil if the key could not be looked up
	Banned   bool
	InForce  bool // for this key: a policy in shadow, or whose share leaves the key out, is not
	Refuses  bool
}

// Words says what happens to the request.
func (h *hit) Words() string {
	// Shadow lets pass what it counts, and so does a policy that is not in force for the key yet.
	over := onLimitWords(h.OnLimit)
	if !h.InForce {
		over = "counted, and passes (in shadow)"
	}

	switch g := h.Gauge; {
	case h.Mode == policy.Off:
		return "nothing: it is off"
	case h.Verdict == keyfuncs.Allowed:
		return "passes: it is among the exceptions"
	case h.Verdict == keyfuncs.Denied && h.InForce:
		return "is denied by the exceptions"
	case g == nil && h.InForce:
		return "what it has used is not known; over the limit it " + over
	case g == nil:
		return "what it has used is not known; it passes (in shadow)"
	case g.Passes:
		return "passes: " + digits(g.Remaining) + " of " + digits(g.Capacity) + " left"
	case h.Banned:
		return "is banned for " + g.After.String() + " more"
	case g.Never:
		return "over the limit at any time: " + over
	}
	return "over the limit for " + h.Gauge.After.String() + " more: " + over
}

// tryAs returns the form for a request of a key.
func tryAs(key string) *tester {
	t := &tester{Verb: "GET", Path: "/", Address: "192.0.2.1"}
	prefix, err := netip.ParsePrefix(strings.TrimSpace(key))
	switch {
	case err == nil:
		t.Address = prefix.Addr().String()
	case looksLikeAddress(key):
		t.Address = strings.TrimSpace(key)
	default:
		t.Who = key
	}
	return t
}

// tryRequest answers with the page of the key, and what would happen to the request.
func tryRequest(r *request) error {
	k, err := r.keys(r.req.PostForm)
	if err != nil {
		return err
	}
	k.View, k.Try = viewOne, &tester{
		Verb: strings.ToUpper(strings.TrimSpace(r.field("method"))), Path: strings.TrimSpace(r.field("path")),
		Host: strings.TrimSpace(r.field("host")), Route: strings.TrimSpace(r.field("route")), Who: r.field("user"),
		Address: strings.TrimSpace(r.field("address")), Headers: r.field("headers"), Claims: r.field("claims"),
	}

	asked, m := k.Try.request(r.req.Context())
	if k.App == "" {
		m.add("", "you have no role in any application")
	}
	if k.Try.Mistakes = m; len(m) > 0 {
		return r.showKeys(k)
	}

	// Nothing is charged: the counts are looked at, and each policy says what it would do.
	k.Try.Mistakes = nil
	if err := r.match(k, asked); err != nil {
		return err
	}
	k.Try.Tried = true
	return r.showKeys(k)
}

// match finds the policies that match the request, as an instance would. It includes
// policies that are off.
func (r *request) match(k *keys, asked *sample) error {
	t, all := k.Try, k.ordered()

	bare := slices.Clone(all)
	for i := range bare {
		bare[i].Plans, bare[i].PlanBy = nil, "" // only the program knows plans, and they change no key
	}

	compiled, err := policy.Compile(k.App, bare, policy.Bindings{User: asked.userKey,
		Claims: func(core.Request) map[string]any { return asked.claims }})
	if err != nil {
		return fmt.Errorf("the policies of %q: %w", k.App, err)
	}

	rules := map[string]*limiter.Rule{}
	for _, rule := range compiled.Rules() {
		rules[rule.Name] = &rule
	}

	// Policies that are off have no rule. The index has them, as the page shows what would match.
	x, err := policy.NewIndex(all)
	if err != nil {
		return err
	}

	places := x.Select(asked, nil)
	t.Others = len(all) - len(places)
	for _, i := range places {
		h := hit{Policy: all[i], Describe: all[i].Describe()}
		if rule := rules[h.Name]; rule != nil {
			r.tryUnder(k, &h, rule, asked)
		}
		if t.Refuser == "" && h.Refuses {
			t.Refuser = h.Name
		}
		t.Unknown = t.Unknown || h.InForce && h.Gauge == nil && h.Verdict != keyfuncs.Allowed && h.OnLimit != "degrade"
		t.Hits = append(t.Hits, h)
	}
	return nil
}

// tryUnder finds what the rule of a policy would do with a request.
func (r *request) tryUnder(k *keys, h *hit, rule *limiter.Rule, asked *sample) {
	key, _ := rule.Key(asked)
	h.Unknown, h.Shown, h.Path = key == "", readable(key), keysPath(h.Name, key)
	if rule.Access != nil {
		h.Verdict, _ = rule.Access.Of(asked, key)
	}
	h.InForce = h.Mode == policy.Enforce && (h.Enforce == 0 || h.Enforce.Has(h.Name, key))
	row := r.rowToTry(k, h.Policy, key)
	h.Gauge, h.Banned = row.Gauge, row.Banned

	// The exceptions come before the limit, and a policy that waits refuses only what would wait
	// too long.
	over := h.Gauge != nil && !h.Gauge.Passes && h.Verdict != keyfuncs.Allowed
	waits := false
	if span, ok := strings.CutPrefix(h.OnLimit, "wait "); ok && over {
		most, err := time.ParseDuration(span)
		waits = err == nil && h.Gauge.After <= most && !h.Gauge.Never
	}
	h.Refuses = h.InForce && (h.Verdict == keyfuncs.Denied || over && !waits && h.OnLimit != "degrade")
}

// ordered returns all policies of the application in the order of its rules, those that are off
// last.
func (k *keys) ordered() policy.Set {
	var set policy.Set
	for _, name := range slices.Sorted(maps.Keys(k.policies)) {
		set = append(set, *k.policies[name])
	}
	list := set.For(k.App)
	for _, p := range set {
		if p.Mode == policy.Off {
			list = append(list, p)
		}
	}
	return list
}

// rowToTry looks up a key. If that fails, the page shows what it knows.
func (r *request) rowToTry(k *keys, p policy.Policy, key string) (row keyRow) {
	if r.Fleet == nil {
		return row
	}
	err := r.Service.LookUp(r.req.Context(), r.actor, p.Name, key,
		func(ctx context.Context, p policy.Policy, key string) (err error) {
			row, err = r.looked(ctx, k, p, key)
			return err
		})
	if err != nil {
		r.Logger.WarnContext(r.req.Context(), "a key cannot be looked up", "error", err)
	}
	return row
}

// sample is a core.Request made of the form.
type sample struct {
	ctx                         context.Context
	method, path, route, remote string
	query, user                 string
	header                      map[string][]string
	claims                      map[string]any
}

func (s *sample) Context() context.Context            { return s.ctx }
func (s *sample) Method() string                      { return s.method }
func (s *sample) Path() string                        { return s.path }
func (s *sample) RawQuery() string                    { return s.query }
func (s *sample) Claims() map[string]any              { return s.claims }
func (s *sample) Route() string                       { return s.route }
func (s *sample) RemoteAddr() string                  { return s.remote }
func (s *sample) Header(name string) []string         { return s.header[name] }
func (s *sample) userKey(core.Request) (string, bool) { return s.user, true }

// request returns the request that the form describes, and the mistakes in it.
func (t *tester) request(ctx context.Context) (*sample, mistakes) {
	m := mistakes{}
	s := &sample{ctx: ctx, method: t.Verb, route: t.Route, user: t.Who,
		header: map[string][]string{}, claims: map[string]any{}}
	s.path, s.query, _ = strings.Cut(t.Path, "?")
	for name, values := range table(m, "claims", t.Claims, "plan: free") {
		s.claims[name] = []string(values)
	}
	if t.Verb == "" {
		m.add("method", "it is empty; write a method such as GET")
	}
	if !strings.HasPrefix(t.Path, "/") {
		m.add("path", "it does not begin with a slash")
	}

	a, err := netip.ParseAddr(t.Address)
	if err != nil {
		m.add("address", fmt.Sprintf("%q is not an IPv4 or IPv6 address", clip(t.Address)))
	} else {
		s.remote = netip.AddrPortFrom(a, 40000).String()
	}

	for i, line := range strings.Split(t.Headers, "\n") {
		name, value, ok := strings.Cut(line, ":")
		switch {
		case strings.TrimSpace(line) == "":
		case !ok || strings.TrimSpace(name) == "":
			m.add("headers", fmt.Sprintf("line %d is not a name, a colon and a value", i+1))
		default:
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			s.header[name] = append(s.header[name], strings.TrimSpace(value))
		}
	}

	// The field comes last, so that it counts more than a header of that name.
	if t.Host != "" {
		s.header["Host"] = []string{t.Host}
	}

	return s, m
}
