package web

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"net/url"
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
	url.Values // of the form

	Mistakes mistakes
	Tried    bool
	Hits     []hit
	Others   int    // policies of the application that do not match
	Refuser  string // the policy that would refuse the request, or ""
	Unknown  bool   // a policy might refuse it: what its key has used is not known
}

// hit is a policy that matches a request, with the key that it counts.
type hit struct {
	policy.Policy
	keyRow
	Describe       string
	Exempt, Denied bool // the key is on a list of exceptions
	InForce        bool // for this key: a policy in shadow, or whose share leaves the key out, is not
	Refuses        bool
}

// tryAs returns the form for a request of a key.
func tryAs(key string) *tester {
	v := url.Values{"method": {"GET"}, "path": {"/"}, "address": {"192.0.2.1"}}
	prefix, err := netip.ParsePrefix(strings.TrimSpace(key))

	switch {
	case err == nil:
		v.Set("address", prefix.Addr().String())
	case looksLikeAddress(key):
		v.Set("address", strings.TrimSpace(key))
	default:
		v.Set("user", key)
	}
	return &tester{Values: v}
}

// tryRequest answers with the page of the key, and what would happen to the request.
func tryRequest(r *request) error {
	k, err := r.keys(r.req.PostForm)
	if err != nil {
		return err
	}
	k.View, k.Try = viewOne, &tester{Values: r.req.PostForm}
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
		t.Unknown = t.Unknown || h.InForce && h.Gauge == nil && !h.Exempt && h.OnLimit != "degrade"
		t.Hits = append(t.Hits, h)
	}
	return nil
}

// tryUnder finds what the rule of a policy would do with a request.
func (r *request) tryUnder(k *keys, h *hit, rule *limiter.Rule, asked *sample) {
	key, _ := rule.Key(asked)
	if rule.Access != nil {
		verdict, _ := rule.Access.Of(asked, key)
		h.Exempt, h.Denied = verdict == keyfuncs.Allowed, verdict == keyfuncs.Denied
	}
	h.InForce = h.Mode == policy.Enforce && (h.Enforce == 0 || h.Enforce.Has(h.Name, key))
	h.keyRow = r.rowToTry(k, h.Policy, key)

	// The exceptions come before the limit, and a policy that waits refuses only what would wait
	// too long.
	over := h.Gauge != nil && !h.Gauge.Passes && !h.Exempt
	waits := false
	if span, ok := strings.CutPrefix(h.OnLimit, "wait "); ok && over {
		most, err := time.ParseDuration(span)
		waits = err == nil && h.Gauge.After <= most && !h.Gauge.Never
	}
	h.Refuses = h.InForce && (h.Denied || over && !waits && h.OnLimit != "degrade")
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
	row.target = target{Policy: p.Name, Counted: key}
	if r.Fleet == nil {
		return row
	}
	u, err := r.Service.LookUp(r.req.Context(), r.actor, p.Name, key)
	if err != nil {
		r.Logger.WarnContext(r.req.Context(), "a key cannot be looked up", "error", err)
		return row
	}
	return r.looked(k, u)
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
	field := func(name string) string { return strings.TrimSpace(t.Get(name)) }
	s := &sample{ctx: ctx, method: strings.ToUpper(field("method")), route: field("route"), user: t.Get("user"),
		header: map[string][]string{}, claims: map[string]any{}}
	s.path, s.query, _ = strings.Cut(field("path"), "?")
	for name, values := range table(m, "claims", t.Get("claims"), "plan: free") {
		s.claims[name] = []string(values)
	}
	if s.method == "" {
		m.add("method", "it is empty; write a method such as GET")
	}
	if !strings.HasPrefix(s.path, "/") {
		m.add("path", "it does not begin with a slash")
	}

	a, err := netip.ParseAddr(field("address"))
	if err != nil {
		m.add("address", fmt.Sprintf("%q is not an IPv4 or IPv6 address", clip(field("address"))))
	} else {
		s.remote = netip.AddrPortFrom(a, 40000).String()
	}

	for i, line := range strings.Split(t.Get("headers"), "\n") {
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
	if host := field("host"); host != "" {
		s.header["Host"] = []string{host}
	}

	return s, m
}
