package caddymw

import (
	"context"
	"net"
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/policy"
)

// request is the view that policies have of a request: what the client has asked for,
// before a rewrite, and the address that Caddy takes for the client's.
type request struct {
	*http.Request
	method string
	url    *url.URL
	client string
}

func newRequest(r *http.Request) *request {
	view := &request{Request: r, method: r.Method, url: r.URL}
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		view.method, view.url = original.Method, original.URL
	}
	if ip, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok && ip != "" {
		view.client = net.JoinHostPort(ip, "0")
	}
	return view
}

func (r *request) Context() context.Context { return r.Request.Context() }
func (r *request) Method() string           { return r.method }
func (r *request) Path() string             { return r.url.Path }
func (r *request) RawPath() string          { return r.url.RawPath }
func (r *request) RawQuery() string         { return r.url.RawQuery }

// Route is unknown: the routes of Caddy have no names.
func (r *request) Route() string { return "" }

// RemoteAddr is the address that Caddy takes for the client's, by its trusted_proxies, or
// "" if Caddy knows none, as of a client at a Unix socket.
func (r *request) RemoteAddr() string { return r.client }

func (r *request) Header(name string) []string {
	if name == "Host" {
		return []string{r.Host}
	}
	return r.Request.Header[name]
}

// ReadAhead returns the body, for package policy.
func (r *request) ReadAhead(max int64) ([]byte, bool) { return httpexchange.ReadAhead(r.Request, max) }

// bindings let policies name the user whom Caddy has authenticated, and plans that
// placeholders hold.
func bindings(plans map[string]string) policy.Bindings {
	b := policy.Bindings{User: keyfuncs.UserID(user), Trusted: fromProxy}
	for name, placeholder := range plans {
		if b.Plans == nil {
			b.Plans = map[string]policy.PlanFunc{}
		}
		b.Plans[name] = func(ctx context.Context, _ string) (string, error) {
			return placeholders(ctx).ReplaceAll(placeholder, ""), nil
		}
	}
	return b
}

// fromProxy reports whether a request comes from one of Caddy's trusted_proxies.
func fromProxy(r core.Request) bool {
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return trusted
}

var _ core.Request = (*request)(nil)

func user(ctx context.Context) (string, bool) {
	return placeholders(ctx).GetString("http.auth.user.id")
}

// placeholders returns the placeholders of the request with the context.
func placeholders(ctx context.Context) *caddy.Replacer {
	if r, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		return r
	}
	return caddy.NewEmptyReplacer()
}

// believesAnyone reports whether Caddy takes the first address in a forwarded header for the
// client's, which the client itself may have put there: it does so for a trusted proxy
// unless trusted_proxies_strict is set.
func believesAnyone(r *http.Request) bool {
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); !trusted {
		return false
	}
	s, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return ok && s.TrustedProxiesStrict == 0
}
