package limiter

import (
	"net/netip"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

const (
	// setupRequests is how many requests under a rule are examined for a mistake.
	setupRequests = 1000

	// maxSetupRequests bounds the examination when some rules apply to hardly any
	// request.
	maxSetupRequests = 10 * setupRequests

	// maxCompared is how many bytes of a key are kept to compare others with.
	maxCompared = 256
)

// setupCheck examines the first requests under a set of rules. Afterwards it costs a
// request one atomic load.
type setupCheck struct {
	on        atomic.Bool
	left      atomic.Int64 // requests
	undecided atomic.Int64 // rules
}

// keyCheck examines the first keys of one rule.
type keyCheck struct {
	seen    atomic.Int64
	first   atomic.Pointer[string]
	several atomic.Bool
}

// begin starts the examination of n rules.
func (c *setupCheck) begin(n int) {
	c.left.Store(maxSetupRequests)
	c.undecided.Store(int64(n))
	c.on.Store(n > 0)
}

// record notes the key, and reports whether it was the last one to examine.
func (c *keyCheck) record(key string) bool {
	if c.seen.Load() >= setupRequests {
		return false
	}
	key = key[:min(len(key), maxCompared)]
	if !c.several.Load() {
		if c.first.Load() == nil {
			mine := strings.Clone(key)
			c.first.CompareAndSwap(nil, &mine)
		}
		c.several.CompareAndSwap(false, *c.first.Load() != key)
	}
	return c.seen.Add(1) == setupRequests
}

// global is where the code of keyfuncs.Global begins.
var global = reflect.ValueOf(keyfuncs.Global).Pointer()

// isGlobal reports whether k is keyfuncs.Global, which gives all requests one key.
func isGlobal(k core.KeyFunc) bool { return reflect.ValueOf(k).Pointer() == global }

// origin is where a request comes from.
type origin struct {
	peer      netip.Addr // of the connection
	forwarded netip.Addr // the peer of the peer, by its forwarding header
}

// These key functions read whole addresses as those of rules read networks: the address
// of the peer, and the last one of a header, which the peer has appended.
var (
	wholePeer          = keyfuncs.MustRemoteIPPrefix(128)
	wholeForwardedFor  = lastIn("X-Forwarded-For")
	wholeForwarded7239 = lastIn("Forwarded")
)

func lastIn(header string) core.KeyFunc {
	return keyfuncs.MustForwardedIP(keyfuncs.Proxies{Hops: 1, Header: header, IPv6Prefix: 128})
}

func originOf(r core.Request) origin {
	from := origin{peer: addressBy(wholePeer, r)}
	if !from.peer.IsPrivate() && !from.peer.IsLoopback() && !from.peer.IsLinkLocalUnicast() {
		return from
	}
	for _, last := range []core.KeyFunc{wholeForwardedFor, wholeForwarded7239} {
		// Without an address in the header, the key is the peer's.
		if a := addressBy(last, r); a != from.peer {
			from.forwarded = a
			break
		}
	}
	return from
}

// addressBy returns the address in the key of r, which is such as "192.0.2.1" or
// "2001:db8::1/128".
func addressBy(k core.KeyFunc, r core.Request) netip.Addr {
	key, _ := k(r)
	text, _, _ := strings.Cut(key, "/")
	a, _ := netip.ParseAddr(text) // the zero Addr for a peer without one
	return a
}

// isUnheededBy reports whether the key holds the address of the peer although the
// peer forwards another address.
func (o origin) isUnheededBy(key string) bool {
	return o.forwarded.IsValid() && mentions(key, o.peer) && !mentions(key, o.forwarded)
}

// mentions reports whether the address, or its IPv6 network, stands in the key.
func mentions(key string, a netip.Addr) bool {
	if containsAddress(key, a.String(), a) {
		return true
	}
	network, _ := a.Prefix(64) // an error for IPv4
	return a.Is6() && containsAddress(key, network.String(), a)
}

// containsAddress reports whether the text is in the key and not a part of another
// address.
func containsAddress(key, text string, a netip.Addr) bool {
	for from := 0; ; from++ {
		at := strings.Index(key[from:], text)
		if at < 0 {
			return false
		}
		from += at
		end := from + len(text)
		if (from == 0 || !inAddress(key[from-1], a)) && (end == len(key) || !inAddress(key[end], a)) {
			return true
		}
	}
}

func inAddress(c byte, a netip.Addr) bool {
	switch {
	case '0' <= c && c <= '9', c == '.':
		return true
	case a.Is4(): // may have a port
		return false
	}
	return 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' || c == ':'
}
