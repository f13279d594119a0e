// This file makes the headers that the upstream and the client get.

package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
)

// rewrite makes the request that the upstream gets.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	target := *p.options.Upstream
	if target.Scheme == "h2c" {
		target.Scheme = "http"
	}
	r.SetURL(&target)
	r.Out.URL.RawQuery = r.In.URL.RawQuery // no policy reads it, so no two readers can differ
	r.Out.Host = r.In.Host
	if p.options.Host != "" {
		r.Out.Host = p.options.Host
	}
	p.forward(r)
}

// claims are headers about the client that proxies write. So are all headers that begin
// with X-Forwarded-.
var claims = []string{"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip"}

// forward sets the headers that tell the upstream about the client. It keeps those of a
// trusted proxy and adds the proxy's address to the list, and it replaces those of any other
// peer.
func (p *Proxy) forward(r *httputil.ProxyRequest) {
	trusted := p.options.Callers != nil && p.options.Callers.Trusts(r.In.RemoteAddr)
	if trusted {
		for _, name := range []string{"Forwarded", "X-Forwarded-For"} { // ReverseProxy has removed them
			if lines := r.In.Header[name]; len(lines) > 0 {
				r.Out.Header[name] = lines[:len(lines):len(lines)]
			}
		}
	} else {
		for name := range r.Out.Header {
			if strings.HasPrefix(name, "X-Forwarded-") {
				delete(r.Out.Header, name)
			}
		}
		for _, name := range claims {
			delete(r.Out.Header, name)
		}
	}
	r.SetXForwarded()
	if !trusted {
		return
	}
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if lines := r.In.Header[name]; len(lines) > 0 {
			r.Out.Header[name] = lines
		}
	}
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
	header http.Header // of the answer
	kept   [12]field   // what the limiter has put there
	n      int         // of kept
	more   []field
	limits bool // rate limit headers are among them

	body    io.ReadCloser
	bodyErr error // of the last read, or nil
}

type field struct {
	name  string
	lines []string
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a request.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// save notes the headers that the limiter has set, as an interim answer of the upstream
// removes them.
func (x *exchange) save() {
	for name, lines := range x.header {
		x.limits = x.limits || isLimit(name)
		if x.n < len(x.kept) {
			x.kept[x.n] = field{name, lines}
			x.n++
		} else {
			x.more = append(x.more, field{name, lines})
		}
	}
}

// restore puts them back.
func (x *exchange) restore() {
	for _, f := range x.kept[:x.n] {
		x.header[f.name] = f.lines
	}
	for _, f := range x.more {
		x.header[f.name] = f.lines
	}
}

// isLimit reports whether a header is about limits. Names are canonical.
func isLimit(name string) bool {
	return name == "Ratelimit" || name == "Ratelimit-Policy" || strings.HasPrefix(name, "X-Ratelimit-")
}

// answered chooses between the rate limit headers of the upstream and those of the
// gateway, and so keeps ReverseProxy from sending both.
func answered(res *http.Response) error {
	x := exchangeOf(res.Request.Context())
	x.restore()
	if !x.limits {
		return nil
	}
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
func (x *exchange) Read(b []byte) (int, error) {
	n, err := x.body.Read(b)
	if err != nil && err != io.EOF {
		x.bodyErr = err
	}
	return n, err
}

// Close implements io.Closer, for the body of the request.
func (x *exchange) Close() error { return x.body.Close() }
