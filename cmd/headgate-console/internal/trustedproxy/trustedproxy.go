// Package trustedproxy reads the address and the user of a request from the headers of trusted
// reverse proxies in front of the console. [Proxies] are these proxies.
package trustedproxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/nethttp"
)

// Proxies is a set of trusted proxies. Nil trusts none. It is safe for concurrent
// use.
type Proxies struct {
	trusted []netip.Prefix
	client  core.KeyFunc
	header  string
}

// New trusts the proxies within the prefixes, of which there is at least one, to
// name addresses in X-Forwarded-For. Unless header is "", the proxies name the user
// in it, and must remove it from the requests of clients.
func New(trusted []netip.Prefix, header string) (*Proxies, error) {
	texts := make([]string, len(trusted))
	for i, p := range trusted {
		texts[i] = p.String()
	}

	// People are told apart by whole addresses here, not by the networks of IPv6 that limits count
	// by default.
	client, err := keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: texts, IPv6Prefix: 128})
	if header != "" {
		err = errors.Join(err, CheckHeader(header))
	}

	if err != nil {
		return nil, fmt.Errorf("trustedproxy: %w", err)
	}
	return &Proxies{trusted: slices.Clone(trusted), client: client, header: header}, nil
}

// CheckHeader returns an error if a header cannot be used to name users.
func CheckHeader(name string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("%q is not the name of a header", name)
	}
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "Authorization", "Connection", "Content-Length", "Content-Type", "Cookie",
		"Forwarded", "Host", "Origin", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "X-Request-Id":
		return fmt.Errorf("the header %s has another meaning", http.CanonicalHeaderKey(name))
	}
	return nil
}

// Address returns the address of the client, "ip" or "ip:port": the peer's, or the
// one that a trusted peer names.
func (p *Proxies) Address(r *http.Request) string {
	if !p.trusts(r) {
		return r.RemoteAddr
	}
	address, _ := p.client(nethttp.Request(r))
	return strings.TrimSuffix(address, "/128")
}

// User returns the user that a trusted peer names. named is false if it names none,
// and for every other peer. The name is unchanged, and "" if there is more than
// one.
func (p *Proxies) User(r *http.Request) (name string, named bool) {
	if p == nil || p.header == "" || !p.trusts(r) {
		return "", false
	}
	lines := r.Header.Values(p.header)
	switch {
	case len(lines) == 0 || len(lines) == 1 && lines[0] == "":
		return "", false
	case len(lines) > 1:
		return "", true
	}
	return lines[0], true
}

// trusts reports whether the peer is one of the proxies.
func (p *Proxies) trusts(r *http.Request) bool {
	if p == nil {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	ip := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.trusted, func(n netip.Prefix) bool { return n.Contains(ip) })
}
