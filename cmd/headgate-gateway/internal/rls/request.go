// This file shows the descriptors of a call to the rules, as a request.
//
// All descriptors of a call describe one request. An entry of a descriptor is a property of
// the request:
//
//	remote_address            the address of the caller: the keys ip and ip/56, networks
//	method, :method           the method
//	path, :path               the path, and the query for policies with match.query
//	host, :authority          the host
//	route                     the route
//	user                      the user, for the key user
//	plan                      the plan of the caller, for plan_by: header
//	claim.NAME                the claim NAME of a token that Envoy has verified
//	any other NAME            the header NAME, for header:NAME, api-key and basic-auth
//
// So an entry tenant=acme is for policies with the key header:tenant. Envoy is believed: it is
// the client of this service, which only Envoy may reach.
//
// A policy applies to a descriptor that has all that the policy asks for: its key, its
// match, and an address if it has networks. A count to which several descriptors lead is
// charged once. All descriptors are decided in one step: a request that is refused costs
// nothing anywhere.

package rls

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls/limitfile"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// The entry that makes a debit of a descriptor.
const (
	debitKey   = "headgate"
	debitValue = "debit"
)

// described is a request as a descriptor describes it. It knows only some properties.
type described struct {
	ctx     context.Context
	entries []*ratelimit.RateLimitDescriptor_Entry
	lacked  bool

	// In a domain of a folder: the limit, where it was found, and the key of its count.
	limit    *limitfile.Limit
	domain   *limitfile.Domain
	key      string
	override bool // the limit came with the call
	empty    bool // the limit is in quota mode and of no requests, so it is exceeded
}

// Lacked reports whether a property was asked for since the last call that is not known.
func (d *described) Lacked() bool {
	was := d.lacked
	d.lacked = false
	return was
}

// property returns the value of the first entry that has one of the keys.
func (d *described) property(key, pseudo string) (value string, ok bool) {
	for _, e := range d.entries {
		if e.GetKey() == key || pseudo != "" && e.GetKey() == pseudo {
			return e.GetValue(), true
		}
	}
	return "", false
}

// need is property, and keeps for Lacked that a value is not known.
func (d *described) need(key, pseudo string) string {
	value, ok := d.property(key, pseudo)
	d.lacked = d.lacked || !ok
	return value
}

func (d *described) Context() context.Context { return d.ctx }

func (d *described) Method() string { return d.need("method", ":method") }

// Path returns the decoded path.
func (d *described) Path() string {
	raw := d.RawPath()
	if path, err := url.PathUnescape(raw); err == nil {
		return path
	}
	return raw
}

// RawPath returns the path as the client encoded it, for policies with a path.
func (d *described) RawPath() string {
	path, _, _ := strings.Cut(d.need("path", ":path"), "?")
	return path
}

// RawQuery returns the query of the path, for policies with parameters.
func (d *described) RawQuery() string {
	_, query, _ := strings.Cut(d.need("path", ":path"), "?")
	return query
}

func (d *described) Route() string { return d.need("route", "") }

// RemoteAddr returns the address of the caller with the port 0.
func (d *described) RemoteAddr() string {
	addr := d.need("remote_address", "")
	if addr == "" {
		return ""
	}
	return net.JoinHostPort(addr, "0")
}

// Header returns the values of all entries of that name in any case.
func (d *described) Header(name string) (lines []string) {
	// The host is no entry of that name, but one of those of Envoy.
	if name == "Host" {
		if host := d.need("host", ":authority"); host != "" {
			return []string{host}
		}
		return nil
	}

	for _, e := range d.entries {
		if http.CanonicalHeaderKey(e.GetKey()) == name {
			lines = append(lines, e.GetValue())
		}
	}

	d.lacked = d.lacked || lines == nil
	return lines
}

// claimPrefix begins the entry of a claim.
const claimPrefix = "claim."

// claims returns the claims that entries name.
func (d *described) claims() map[string]any {
	if d == nil {
		return nil
	}

	var claims map[string]any
	for _, e := range d.entries {
		name, ok := strings.CutPrefix(e.GetKey(), claimPrefix)
		if !ok {
			continue
		}
		if claims == nil {
			claims = map[string]any{}
		}
		claims[name] = e.GetValue()
	}
	return claims
}

// bind returns the bindings of this face, which believe what Envoy says.
func bind(b policy.Bindings) policy.Bindings {
	// The address of the caller is that of its entry. The peer is Envoy.
	b.IP, b.IPPrefix = nil, nil
	b.User = func(r core.Request) (string, bool) {
		d, ok := r.(*described)
		if !ok {
			return "", true
		}
		return d.need("user", ""), true
	}

	b.Claims = func(r core.Request) map[string]any {
		d, _ := r.(*described)
		return d.claims()
	}

	// The plan of a header is replaced by that of the entry; other functions of plans stay.
	plans := map[string]policy.PlanFunc{callers.PlanBy: planOf}
	for name, f := range b.Plans {
		if name != callers.PlanBy {
			plans[name] = f
		}
	}
	b.Plans = plans
	return b
}

type planKey struct{}

// planOf returns the plan that the entry "plan" names.
func planOf(ctx context.Context, _ string) (string, error) {
	plan, _ := ctx.Value(planKey{}).(string)
	return plan, nil
}

// withPlan puts the plan of the entries into the context.
func (d *described) withPlan() {
	if plan, ok := d.property("plan", ""); ok && plan != "" {
		d.ctx = context.WithValue(d.ctx, planKey{}, plan)
	}
}
