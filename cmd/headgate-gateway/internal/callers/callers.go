// Package callers finds the caller of a request: the address, the user, the plan and the claims
// that a trusted proxy names. It believes no header of any other peer.
//
// A [Callers] is made of the flags of the gateway. Its Bindings go to the engine, so that policies
// count by what it finds, and its Handler stands before the faces that speak HTTP.
package callers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

// PlanBy is the name by which policies call the plan that a trusted proxy names.
const PlanBy = "header"

// Options say which proxies are trusted, and which headers they write. The zero value
// trusts none.
type Options struct {
	// Trusted lists addresses and CIDR prefixes, as keyfuncs.Proxies.Trusted does.
	Trusted []string

	// AddressHeader is the header in which the proxies name the address of the caller,
	// as keyfuncs.Proxies.Header; "" means X-Forwarded-For.
	AddressHeader string

	// UserHeader and PlanHeader are the headers in which the proxies name the user and
	// the plan of the caller; "" means that they name none. They have to remove both
	// from the requests of clients.
	UserHeader, PlanHeader string

	// ClaimsHeader is the header in which the proxies write the claims of a token that they have
	// verified, see ReadClaims; "" means that they write none. They have to remove it from the
	// requests of clients, too.
	ClaimsHeader string

	// APIKeyHeader is as policy.Bindings.APIKeyHeader.
	APIKeyHeader string

	// Log, unless nil, records claims that cannot be read.
	Log *quietlog.Log
}

// Callers finds the callers of requests. It is safe for concurrent use.
type Callers struct {
	options  Options
	trusted  []netip.Prefix
	bindings policy.Bindings
	address  core.KeyFunc // see Address; nil without trusted proxies
}

// New returns the Callers of the options. The error names every mistake in them, by the
// flag of the gateway that sets the option.
func New(o Options) (*Callers, error) {
	c := &Callers{options: o}
	var errs []error
	if len(o.Trusted) > 0 {
		ip, err := keyfuncs.ForwardedIP(c.proxies(0))
		if err != nil {
			errs = append(errs, fmt.Errorf("-trusted-proxy and -address-header: %w", err))
		}

		// A policy may count by larger networks than single addresses, each by its own.
		c.bindings.IP = ip
		c.bindings.IPPrefix = func(bits int) (core.KeyFunc, error) { return keyfuncs.ForwardedIP(c.proxies(bits)) }

		// What names a cost, and what the log shows, is read by the same addresses.
		if err == nil {
			c.trusted = prefixes(o.Trusted)
			c.bindings.Trusted = func(r core.Request) bool { return c.Trusts(r.RemoteAddr()) }
			c.address, err = keyfuncs.ForwardedIP(c.proxies(128))
			errs = append(errs, err)
		}
	}

	errs = append(errs, o.checkHeaders()...)
	c.bindings.APIKeyHeader = o.APIKeyHeader
	if err := c.bindings.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("-api-key-header: %w", err))
	}

	// A user is set even where no request names one: policies by user then count all as one caller.
	if o.UserHeader != "" {
		c.bindings.User = c.user
	}
	if o.PlanHeader != "" {
		c.bindings.Plans = map[string]policy.PlanFunc{PlanBy: planOf}
	}
	if o.ClaimsHeader != "" {
		c.bindings.Claims = c.claims
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	// net/http keeps headers by these names, so that they are looked up and removed without a
	// conversion.
	for _, name := range []*string{&c.options.AddressHeader, &c.options.UserHeader, &c.options.PlanHeader,
		&c.options.ClaimsHeader} {
		*name = http.CanonicalHeaderKey(*name)
	}
	return c, nil
}

// checkHeaders returns the mistakes in the headers by which proxies name callers.
func (o *Options) checkHeaders() (errs []error) {
	// Without a trusted proxy no header is believed, so one that is named would count for nothing.
	for _, f := range []struct{ option, header string }{
		{"-address-header", o.AddressHeader}, {"-user-header", o.UserHeader}, {"-plan-header", o.PlanHeader},
		{"-claims-header", o.ClaimsHeader},
	} {
		if f.header != "" && len(o.Trusted) == 0 {
			errs = append(errs, fmt.Errorf("%s: without -trusted-proxy the header is ignored", f.option))
		}
	}

	return append(errs, checkHeader("-user-header", o.UserHeader), checkHeader("-plan-header", o.PlanHeader),
		checkHeader("-claims-header", o.ClaimsHeader))
}

func (c *Callers) proxies(bits int) keyfuncs.Proxies {
	return keyfuncs.Proxies{Trusted: c.options.Trusted, Header: c.options.AddressHeader, IPv6Prefix: bits}
}

// prefixes returns the addresses and prefixes, which keyfuncs.ForwardedIP has accepted.
func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			if p.Addr().Is4In6() {
				p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
			}
			out = append(out, p)
			continue
		}
		if ip, err := netip.ParseAddr(s); err == nil {
			ip = ip.Unmap()
			out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return out
}

// checkHeader returns an error if a header cannot be used to name a user or a plan.
func checkHeader(option, name string) error {
	if name == "" {
		return nil
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("%s: %q is not the name of a header", option, textform.Clip(name))
	}
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Forwarded", "Host",
		"Origin", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id":
		return fmt.Errorf("%s: the header %s has another meaning", option, http.CanonicalHeaderKey(name))
	}
	return nil
}

// Bindings returns what policies need to find the caller.
func (c *Callers) Bindings() policy.Bindings { return c.bindings }

// AddressHeader returns the header in which the proxies name the address of the caller, in
// canonical form.
func (c *Callers) AddressHeader() string {
	return cmp.Or(c.options.AddressHeader, "X-Forwarded-For")
}

// Trusts reports whether the peer, an "ip:port" or an address, is a trusted proxy.
func (c *Callers) Trusts(peer string) bool {
	if len(c.trusted) == 0 {
		return false
	}

	var ip netip.Addr
	if p, err := netip.ParseAddrPort(peer); err == nil {
		ip = p.Addr()
	} else if ip, err = netip.ParseAddr(peer); err != nil {
		return false
	}

	ip = ip.Unmap().WithZone("")
	return slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Address returns the address of the caller of a request, as policies count by it, but whole: that
// which a trusted proxy names, and else that of the peer. It is "-" if neither is known.
func (c *Callers) Address(r *http.Request) string {
	if c != nil && c.address != nil {
		if text, ok := c.address(nethttp.Request(r)); ok && text != "" {
			return strings.TrimSuffix(text, "/128") // as keys write a whole address
		}
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil && host != "" {
		return host
	}
	return "-"
}

// user is the key of "user": the value of the header if a trusted proxy sends it in one line. All
// other callers share the empty key.
func (c *Callers) user(r core.Request) (string, bool) {
	if !c.Trusts(r.RemoteAddr()) {
		return "", true
	}
	return keyfuncs.Header(c.options.UserHeader)(r)
}

// planKey is the key of the plan in a context.
type planKey struct{}

// WithPlan returns a context for a request of a caller on the plan, for
// core.Request.Context. "" is no plan.
func WithPlan(ctx context.Context, plan string) context.Context {
	if plan == "" {
		return ctx
	}
	return context.WithValue(ctx, planKey{}, plan)
}

// planOf is the function of PlanBy.
func planOf(ctx context.Context, _ string) (string, error) {
	plan, _ := ctx.Value(planKey{}).(string)
	return plan, nil
}

// Plan returns the plan that a trusted proxy names in the headers of a request, or "".
func (c *Callers) Plan(r core.Request) string {
	if c.options.PlanHeader == "" || !c.Trusts(r.RemoteAddr()) {
		return ""
	}

	// Of two lines one may be the client's, which the proxy has only added to.
	lines := r.Header(c.options.PlanHeader)
	if len(lines) != 1 {
		return ""
	}
	return strings.TrimSpace(lines[0])
}

// headers returns the headers of the Options in which trusted proxies name the caller.
func (c *Callers) headers() []string {
	names := []string{c.options.AddressHeader, c.options.UserHeader, c.options.PlanHeader, c.options.ClaimsHeader}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// Reads reports whether a header, in canonical form, is one of the Options in which trusted
// proxies name the caller. A nil Callers reads none.
func (c *Callers) Reads(header string) bool {
	return c != nil && slices.Contains(c.headers(), header)
}

// Handler returns a handler for a server that callers and trusted proxies reach. It puts
// the plan into the context, and removes the headers of the Options from the requests of
// peers that are not trusted, so that no server behind it believes them.
func (c *Callers) Handler(next http.Handler) http.Handler {
	names := c.headers()
	if len(names) == 0 {
		return next
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.Trusts(r.RemoteAddr) {
			for _, name := range names {
				delete(r.Header, name)
			}
		} else if plan := c.Plan(nethttp.Request(r)); plan != "" {
			r = r.WithContext(WithPlan(r.Context(), plan))
		}
		next.ServeHTTP(w, r)
	})
}
