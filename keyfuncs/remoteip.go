package keyfuncs

import (
	"fmt"
	"net/netip"

	"github.com/headgate/headgate/core"
)

// RemoteIP returns the address of the peer of the connection. It reads no header. It
// is right where no proxy stands in front of the server; behind a proxy it is
// the proxy's address, see [ForwardedIP].
//
// An IPv4 address is counted by itself, whether it came as IPv4, as an
// IPv4-mapped IPv6 address or through a translator at 64:ff9b::/96. An IPv6
// address is counted by its /64 network, as "2001:db8::/64". Zones and ports do
// not matter. A peer that has no address, such as a Unix socket, has the key
// "".
func RemoteIP(r core.Request) (key string, ok bool) {
	return remoteIP(r, defaultBits), true
}

// RemoteIPPrefix returns [RemoteIP] with IPv6 counted by the first bits, 32 to 128
// of them, or an error for another number. Fewer than 64 cover callers that hold
// many networks: a /48 is common for an organisation, a /56 for a household.
func RemoteIPPrefix(bits int) (core.KeyFunc, error) {
	if err := checkBits(bits); err != nil {
		return nil, fmt.Errorf("keyfuncs: RemoteIPPrefix: %w", err)
	}
	return func(r core.Request) (string, bool) { return remoteIP(r, bits), true }, nil
}

// MustRemoteIPPrefix is [RemoteIPPrefix] for a constant; it panics on an error.
func MustRemoteIPPrefix(bits int) core.KeyFunc { return must(RemoteIPPrefix(bits)) }

// addressed is a request that also knows the address of its peer in binary
// form, which saves formatting and parsing it.
type addressed interface{ RemoteAddrPort() netip.AddrPort }

// remoteIP returns the key of the peer, with IPv6 counted by its first bits.
func remoteIP(r core.Request, bits int) string {
	if r, ok := r.(addressed); ok {
		if ip := r.RemoteAddrPort().Addr(); ip.IsValid() {
			return address{ip: ip.Unmap().WithZone("")}.key(bits)
		}
	}
	text := r.RemoteAddr()
	if host, ok := dottedHost(text); ok {
		return host
	}
	peer, ok := parseAddress(text)
	if !ok {
		return ""
	}
	return peer.key(bits)
}

// checkBits returns an error if the number of bits of an IPv6 prefix is not within its bounds.
func checkBits(bits int) error {
	if bits < 32 || bits > 128 {
		return fmt.Errorf("an IPv6 prefix of %d bits is not within 32 to 128", bits)
	}
	return nil
}

// must returns k, and panics on an error.
func must(k core.KeyFunc, err error) core.KeyFunc {
	if err != nil {
		panic(err)
	}
	return k
}
