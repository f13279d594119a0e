package keyfuncs

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// maxHops is far above the number of proxies in any real chain.
const maxHops = 32

// Proxies describes the reverse proxies between the callers and this server.
// Set either Trusted or Hops.
type Proxies struct {
	// Trusted lists the addresses and CIDR prefixes of the proxies, such as
	// "10.1.0.0/16", "2001:db8::/32" or "192.0.2.7". See [Private]. A prefix
	// with bits set behind its length and one that covers all addresses are
	// errors.
	Trusted []string

	// Hops is the number of proxies that every request passes, 1 to 32, for
	// proxies whose addresses cannot be listed, such as one that connects over a
	// Unix socket. With 1, the last address of the header is the caller, so the one
	// proxy has to write it. It is only safe if no client
	// can reach this server except through all of them, and it has to change
	// whenever their number does. Prefer Trusted.
	Hops int

	// Header is the one header that the proxies write. "" and "X-Forwarded-For"
	// mean a list of addresses to which every proxy appends its peer, and
	// "Forwarded" means the list of RFC 7239. Any other name, such as
	// "X-Real-Ip" or "Cf-Connecting-Ip", is that of a header which holds one
	// address and which the proxies always overwrite, whatever the caller sent.
	// Hops needs a list. No other header is ever read.
	Header string

	// IPv6Prefix is the number of bits of an IPv6 address that count as one
	// caller, 32 to 128; 0 means 64.
	IPv6Prefix int
}

// ForwardedIP returns the address of the caller as reported by known proxies.
// Addresses are counted as [RemoteIP] counts them. The error lists every
// mistake in p by its field.
//
// # Threat model
//
// A caller may send any header, in any number of lines, with any text, and
// proxies append to the right of it. So entries are read from the right, over
// all lines in their order, and an entry is believed only if its writer is
// trusted:
//
//   - With Trusted, a peer that is not trusted is the caller, whatever its
//     headers say. Trusted entries are proxies, and the first entry that is not
//     trusted is the caller. If all are trusted, the leftmost is the caller.
//   - With Hops, the caller is the entry at that place from the right. The
//     peer is ignored, so it may be a Unix socket.
//   - With a header of one address, the peer must be trusted and the header
//     must have come in one line with one address. Otherwise the peer is the
//     caller.
//
// An entry may have a port. Forwarded is also read as gateways write it: an IPv6
// address or a host with a port may lack its quotes and brackets, and space may
// surround ";" and ",". Without brackets, "2001:db8::1:80" is an address without
// a port, which is the same /64 and not the same address, so with an IPv6Prefix
// above 112 such a proxy has to write brackets.
//
// Reading stops at any entry that is not an address: junk, an empty entry,
// "unknown", an obfuscated identifier of RFC 7239, a text in unbalanced quotes,
// an element with two "for".
// Then the caller is the last proxy that was recognised or, with Hops, the
// peer. The peer is also the caller if there are fewer entries than Hops. So a
// caller can neither pose as another caller nor become many; at worst the
// caller shares the count of a proxy.
//
// To trust a NAT64 address, list it in that form: 64:ff9b::10.0.0.1 is counted
// as 10.0.0.1, but trusting 10.0.0.1 does not trust it.
func ForwardedIP(p Proxies) (core.KeyFunc, error) {
	f, err := newForwarded(p)
	if err != nil {
		return nil, err
	}
	return f.key, nil
}

// newForwarded reads the proxies.
func newForwarded(p Proxies) (*forwarded, error) {
	f := &forwarded{hops: p.Hops, bits: p.IPv6Prefix}
	if f.bits == 0 {
		f.bits = defaultBits
	}

	var errs []error
	if err := checkBits(f.bits); err != nil {
		errs = append(errs, inField("IPv6Prefix", err))
	}

	f.trusted, errs = parseTrusted(p.Trusted, errs)
	errs = f.readHeader(p.Header, errs)

	// Exactly one of Hops and Trusted says which entries to believe.
	switch {
	case p.Hops < 0 || p.Hops > maxHops:
		errs = append(errs, inField("Hops", fmt.Errorf("%d is not within 1 to %d", p.Hops, maxHops)))
	case p.Hops > 0 && len(p.Trusted) > 0:
		errs = append(errs, inField("Hops", errors.New("not together with Trusted; one of them must decide")))
	case p.Hops == 0 && len(p.Trusted) == 0:
		errs = append(errs, inField("Trusted", errors.New("no proxy is listed; without proxies use RemoteIP")))
	}

	if len(errs) > 0 {
		return nil, fmt.Errorf("keyfuncs: Proxies: %w", errors.Join(errs...))
	}
	return f, nil
}

// MustForwardedIP is [ForwardedIP] for Proxies that are known to be valid; it
// panics on an error.
func MustForwardedIP(p Proxies) core.KeyFunc { return must(ForwardedIP(p)) }

// FromProxy returns a function that reports whether a request comes from one of the proxies:
// whether its peer is among Trusted, and always with Hops, as no client reaches the server
// otherwise. The error is that of [ForwardedIP]. A program that believes other headers of such a
// request needs proxies that replace what a client sends there.
func FromProxy(p Proxies) (func(core.Request) bool, error) {
	f, err := newForwarded(p)
	if err != nil {
		return nil, err
	}
	return func(r core.Request) bool {
		if f.hops > 0 {
			return true
		}
		peer, known := parseAddress(r.RemoteAddr())
		return known && f.trusts(peer)
	}, nil
}

// inField names the field of Proxies that the error is about.
func inField(field string, err error) error { return fmt.Errorf("%s: %w", field, err) }

// forwarded is a valid Proxies.
type forwarded struct {
	trusted []netip.Prefix
	hops    int
	header  string
	list    *notation // nil for a header of one address
	bits    int
}

// readHeader reads Proxies.Header and appends its mistakes to errs.
func (f *forwarded) readHeader(name string, errs []error) []error {
	if name == "" {
		name = "X-Forwarded-For"
	}
	if !isToken(name) {
		return append(errs, inField("Header", fmt.Errorf("%q is not the name of a header", textform.Clip(name))))
	}

	f.header = textproto.CanonicalMIMEHeaderKey(name)
	switch f.header {
	case "X-Forwarded-For":
		f.list = &xForwardedFor
	case "Forwarded":
		f.list = &rfc7239
	default:
		// Another header holds one address, so there is no entry to count from the right.
		if f.hops > 0 {
			err := fmt.Errorf("%s is not a list, so Hops means nothing to it", f.header)
			return append(errs, inField("Header", err))
		}
	}
	return errs
}

// key is the KeyFunc that ForwardedIP returns.
func (f *forwarded) key(r core.Request) (string, bool) {
	peer, known := parseAddress(r.RemoteAddr())

	// With Hops the peer may have no address, so it is not asked for trust.
	caller := peer
	switch {
	case f.hops > 0:
		caller = f.atHop(peer, r.Header(f.header))
	case !known || !f.trusts(peer):
	case f.list != nil:
		caller = f.firstUntrusted(peer, r.Header(f.header))
	default:
		caller = singleEntry(peer, r.Header(f.header))
	}

	return caller.key(f.bits), true
}

// firstUntrusted returns the first address from the right that is not trusted, or the
// last one that could be read.
func (f *forwarded) firstUntrusted(peer address, lines []string) address {
	t := trail{lines: lines}
	for f.trusts(peer) {
		entry, ok := t.previous(f.list)
		if !ok {
			break
		}
		peer = entry
	}
	return peer
}

// atHop returns the entry at the given place from the right.
func (f *forwarded) atHop(peer address, lines []string) address {
	t := trail{lines: lines}
	caller := peer
	for range f.hops {
		entry, ok := t.previous(f.list)
		if !ok {
			return peer
		}
		caller = entry
	}
	return caller
}

// singleEntry returns the one address of a header that holds one.
func singleEntry(peer address, lines []string) address {
	if len(lines) != 1 {
		return peer
	}
	caller, ok := parseAddress(trimSpace(lines[0]))
	if !ok {
		return peer
	}
	return caller
}

// trusts reports whether the address is that of a listed proxy.
func (f *forwarded) trusts(a address) bool {
	for i := range f.trusted {
		if f.trusted[i].Contains(a.ip) {
			return true
		}
	}
	return false
}
