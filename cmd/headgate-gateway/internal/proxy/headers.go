// This file makes the headers that the upstream and the client get.

package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/limiter"
)

// rewrite makes the request that the upstream gets.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	to := exchangeOf(r.In.Context()).upstream
	r.SetURL(to.Target())

	// As it was sent: policies read it as net/http does, and leave out what that cannot read.
	r.Out.URL.RawQuery = r.In.URL.RawQuery

	// The host is the client's, unless the upstream goes by one of its own.
	r.Out.Host = r.In.Host
	if host := to.Host(); host != "" {
		r.Out.Host = host
	}

	// The headers are cleaned before those of the gateway are added, so that no client can write
	// them.
	p.keepUpgrade(r)
	removeOtherSpellings(r.Out.Header)
	p.forward(r)
	r.Out.Header.Del(degradedHeader)
	if limiter.Degraded(r.In.Context()) {
		r.Out.Header.Set(degradedHeader, "1")
	}

	asked := p.costs.inForce().asked
	if !p.trusts(r.In) {
		for _, name := range asked {
			delete(r.Out.Header, name)
		}
	}

	exchangeOf(r.In.Context()).keepTrailers(r, p.options.Callers, asked)
}

// trusts reports whether a request comes from a trusted proxy.
func (p *Proxy) trusts(r *http.Request) bool {
	return p.options.Callers != nil && p.options.Callers.Trusts(r.RemoteAddr)
}

// degradedHeader is set to 1 in the request that the upstream gets if it is over the limit of
// a policy that degrades, and removed from all others.
const degradedHeader = "Headgate-Degraded"

// keepUpgrade removes the wish for another protocol, unless it is one that is allowed.
func (p *Proxy) keepUpgrade(r *httputil.ProxyRequest) {
	if p.options.Upgrades.Allow(r.In.Header) {
		return
	}
	for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
		r.Out.Header.Del(name)
	}
}

// removeOtherSpellings removes the headers whose names have other bytes than letters, digits and
// hyphens, as nginx does: programs that take headers from variables of their environment, by CGI,
// WSGI or Rack, read X_User as X-User, and some read X.User so.
func removeOtherSpellings(h http.Header) {
	for name := range h {
		if !isPlainName(name) {
			delete(h, name)
		}
	}
}

func isPlainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '-' && (c < '0' || c > '9') && (c|' ' < 'a' || c|' ' > 'z') {
			return false
		}
	}
	return true
}

// keepTrailers passes on the values of the trailers that the client has announced, which come
// with the end of the body. No proxy writes its headers there, so those that one might write are
// the client's.
func (e *exchange) keepTrailers(r *httputil.ProxyRequest, c *callers.Callers, costs []string) {
	for name := range r.Out.Trailer {
		if !isPlainName(name) || isClaim(name) || name == degradedHeader || c.Reads(name) ||
			slices.Contains(costs, name) {
			delete(r.Out.Trailer, name)
		}
	}
	e.trailer, e.passed = r.In.Trailer, r.Out.Trailer
}

// claims are headers about the client that proxies write. So are all headers that begin
// with X-Forwarded-, see isClaim.
var claims = []string{"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip"}

// isClaim reports whether proxies write what they know of the client into the header.
func isClaim(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(claims, name)
}

// forward sets the headers that tell the upstream about the client. It keeps those of a
// trusted proxy and adds the proxy's address to the list, and it replaces those of any other
// peer.
func (p *Proxy) forward(r *httputil.ProxyRequest) {
	trusted := p.trusts(r.In)

	if trusted {
		for _, name := range []string{"Forwarded", "X-Forwarded-For"} { // ReverseProxy has removed them
			if lines := r.In.Header[name]; len(lines) > 0 {
				r.Out.Header[name] = lines[:len(lines):len(lines)]
			}
		}
	} else {
		for name := range r.Out.Header {
			if isClaim(name) {
				delete(r.Out.Header, name)
			}
		}
	}

	// SetXForwarded appends the peer to X-Forwarded-For, and overwrites the host and the protocol,
	// which are those of the connection from the proxy.
	r.SetXForwarded()
	if !trusted {
		return
	}

	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if lines := r.In.Header[name]; len(lines) > 0 {
			r.Out.Header[name] = lines
		}
	}

	// The list of RFC 7239 is continued where a trusted proxy has begun one, and not begun here.
	if lines := r.Out.Header["Forwarded"]; len(lines) > 0 {
		r.Out.Header["Forwarded"] = append(lines, element(r.In))
	}
}

// element returns the element of RFC 7239 for the peer of a request.
func element(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	switch {
	case err != nil:
		return "for=unknown"
	case strings.Contains(host, ":"):
		return `for="[` + host + `]"`
	}
	return "for=" + host
}

// exchange is one request and its answer. It is also the body of the request.
type exchange struct {
	writer http.ResponseWriter
	header http.Header // of the answer
	kept   [12]field   // what the limiter has put there
	n      int         // of kept
	more   []field
	limits bool // rate limit headers are among them

	upstream *upstream.Pool
	call     upstream.Call

	body    io.ReadCloser
	bodyErr error // of the last read, or nil
	ended   bool  // the body was read to its end

	trailer, passed http.Header // of the client's request, and of the upstream's
}

type field struct {
	name  string
	lines []string
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a request.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// save keeps the headers that the limiter has set, as an interim answer of the upstream
// removes them.
func (e *exchange) save() {
	for name, lines := range e.header {
		e.limits = e.limits || isLimit(name)

		// Most answers have few headers, which take no memory of their own.
		if e.n < len(e.kept) {
			e.kept[e.n] = field{name, lines}
			e.n++
		} else {
			e.more = append(e.more, field{name, lines})
		}
	}
}

// restore puts them back.
func (e *exchange) restore() {
	for _, f := range e.kept[:e.n] {
		e.header[f.name] = f.lines
	}
	for _, f := range e.more {
		e.header[f.name] = f.lines
	}
}

// isLimit reports whether a header is about limits. Names are canonical.
func isLimit(name string) bool {
	return name == "Ratelimit" || name == "Ratelimit-Policy" || strings.HasPrefix(name, "X-Ratelimit-")
}

// answered chooses between the rate limit headers of the upstream and those of the
// gateway, and so keeps ReverseProxy from sending both.
func (p *Proxy) answered(res *http.Response) error {
	x := exchangeOf(res.Request.Context())
	names := p.costs.inForce().answered
	httpexchange.Hide(x.writer, res.Header, names)
	hideTrailers(res, names)

	x.restore()
	if !x.limits {
		return nil
	}

	// The upstream's own limit has refused the request: what it says about it is of use to the
	// client.
	from := res.Header
	if res.StatusCode == http.StatusTooManyRequests && hasLimits(res.Header) {
		from = x.header
	}

	for name := range from {
		if isLimit(name) {
			delete(from, name)
		}
	}
	return nil
}

func hasLimits(h http.Header) bool {
	for name := range h {
		if isLimit(name) {
			return true
		}
	}
	return false
}

// Read implements io.Reader, for the body of the request.
func (e *exchange) Read(b []byte) (int, error) {
	// A transport reads once more after the last byte, maybe after the answer. The server has then
	// closed the body, and an error would break off that answer.
	if e.ended {
		return 0, io.EOF
	}

	n, err := e.body.Read(b)
	switch {
	case err == io.EOF:
		e.ended = true
		for name := range e.passed {
			e.passed[name] = e.trailer[name]
		}
	case err != nil:
		e.bodyErr = err
		e.call.BodyFailed.Store(true)
	}
	return n, err
}

// Close implements io.Closer, for the body of the request.
func (e *exchange) Close() error { return e.body.Close() }
