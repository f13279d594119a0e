package web

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// tester is the page that shows which policies apply to a request.
type tester struct {
	App, Verb, Path, Host, Route, Address, Who, Headers, Claims string

	Apps     []service.App
	Mistakes mistakes
	Tried    bool
	Hits     []hit
	Others   int // policies of the application that do not match
	Redis    bool
}

// hit is a policy that matches a request.
type hit struct {
	policy.Policy
	Describe string
	Key      string
	Unknown  bool   // the caller has no key, and all such callers share a count
	Gauge    *gauge // nil if it could not be looked up
}

func testerPage(r *request) error {
	t := tester{App: r.query("app"), Verb: "GET", Path: "/", Address: "192.0.2.1"}
	return r.showTester(&t, http.StatusOK)
}

func (r *request) showTester(t *tester, status int) error {
	var err error
	t.Redis = r.Fleet != nil
	if t.Apps, err = r.Service.Apps(r.req.Context(), r.actor); err != nil {
		return err
	}
	if t.App == "" && len(t.Apps) > 0 {
		t.App = t.Apps[0].Name
	}
	return r.show(status, "tester", "Try a request", t)
}

func try(v *request) error {
	t := tester{
		App: v.field("app"), Verb: strings.ToUpper(strings.TrimSpace(v.field("method"))),
		Path: strings.TrimSpace(v.field("path")),
		Host: strings.TrimSpace(v.field("host")), Route: strings.TrimSpace(v.field("route")), Who: v.field("user"),
		Address: strings.TrimSpace(v.field("address")), Headers: v.field("headers"),
		Claims: v.field("claims"),
	}

	r, m := t.request(v.req.Context())
	if policy.CheckApp(t.App) != nil {
		m.add("app", "choose an application")
	}

	if t.Mistakes = m; len(m) > 0 {
		return v.showTester(&t, http.StatusUnprocessableEntity)
	}

	if err := v.match(&t, r); err != nil {
		return err
	}
	t.Tried = true
	return v.showTester(&t, http.StatusOK)
}

// match finds the policies that match the request, as an instance would. It includes
// policies that are off.
func (r *request) match(t *tester, asked *sample) error {
	all, err := r.policiesOf(t.App)
	if err != nil {
		return err
	}

	bare := slices.Clone(all)
	for i := range bare {
		bare[i].Plans, bare[i].PlanBy = nil, "" // only the program knows plans, and they change no key
	}

	compiled, err := policy.Compile(t.App, bare, policy.Bindings{User: asked.userKey,
		Claims: func(core.Request) map[string]any { return asked.claims }})
	if err != nil {
		return fmt.Errorf("the policies of %q: %w", t.App, err)
	}

	keys := map[string]core.KeyFunc{}
	for _, rule := range compiled.Rules() {
		keys[rule.Name] = rule.Key
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
		if key := keys[h.Name]; key != nil {
			h.Key, _ = key(asked)
			h.Unknown = h.Key == ""
			h.Gauge = r.gaugeOf(all[i], h.Key)
		}

		t.Hits = append(t.Hits, h)
	}

	return nil
}

// policiesOf returns all policies of an application in the order of its rules,
// those that are off last.
func (r *request) policiesOf(app string) (policy.Set, error) {
	all, err := r.Service.PoliciesOf(r.req.Context(), r.actor, app)
	if err != nil {
		return nil, err
	}

	set := policy.Set(all)
	list := set.For(app)
	for _, p := range set {
		if p.Mode == policy.Off {
			list = append(list, p)
		}
	}
	return list, nil
}

// gaugeOf looks up a key, or returns nil.
func (r *request) gaugeOf(p policy.Policy, key string) *gauge {
	if r.Fleet == nil {
		return nil
	}

	var g *gauge
	err := r.Service.LookUp(r.req.Context(), r.actor, p.Name, key,
		func(ctx context.Context, p policy.Policy, key string) (err error) {
			g, err = r.peek(ctx, p, key)
			return err
		})
	if err != nil {
		return nil // the page shows what it knows
	}
	return g
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

	// A line of any length that a form can hold is read whole.
	lines := bufio.NewScanner(strings.NewReader(t.Headers))
	lines.Buffer(nil, maxForm)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		name, value, ok := strings.Cut(line, ":")
		switch {
		case line == "":
		case !ok || strings.TrimSpace(name) == "":
			m.add("headers", fmt.Sprintf("line %d is not a name, a colon and a value", n))
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
