package limiter

import (
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

const (
	// setupRequests is how many requests under a rule are looked at for a mistake.
	setupRequests = 1000

	// maxSetupRequests bounds how long a limiter looks, whatever becomes of rules
	// that hardly any request is about.
	maxSetupRequests = 10 * setupRequests

	// maxCompared is how many bytes of a key are kept to compare others with.
	maxCompared = 256
)

// setupCheck looks at the first requests under a set of rules. When it is over it
// costs a request one atomic load.
type setupCheck struct {
	on        atomic.Bool
	left      atomic.Int64 // requests
	undecided atomic.Int64 // rules
}

// keyCheck looks at the first keys of one rule.
type keyCheck struct {
	seen    atomic.Int64
	first   atomic.Pointer[string]
	several atomic.Bool
}

// begin starts to watch n rules.
func (w *setupCheck) begin(n int) {
	w.left.Store(maxSetupRequests)
	w.undecided.Store(int64(n))
	w.on.Store(n > 0)
}

// record takes note of the key, and tells that it was the last to be looked at.
func (w *keyCheck) record(key string) bool {
	if w.seen.Load() >= setupRequests {
		return false
	}
	key = key[:min(len(key), maxCompared)]
	if !w.several.Load() {
		if w.first.Load() == nil {
			mine := strings.Clone(key)
			w.first.CompareAndSwap(nil, &mine)
		}
		w.several.CompareAndSwap(false, *w.first.Load() != key)
	}
	return w.seen.Add(1) == setupRequests
}

// global is the key function that means one key for all.
const global = "github.com/headgate/headgate/keyfuncs.Global"

// isGlobal knows the function by its name, as keyfuncs imports this package.
func isGlobal(k core.KeyFunc) bool {
	f := runtime.FuncForPC(reflect.ValueOf(k).Pointer())
	return f != nil && f.Name() == global
}

// origin is where a request comes from.
type origin struct {
	peer      netip.Addr // of the connection
	forwarded netip.Addr // the peer of the peer, as that one says
}

func originOf(r core.Request) origin {
	from := origin{peer: address(r.RemoteAddr())}
	if !from.peer.IsPrivate() && !from.peer.IsLoopback() && !from.peer.IsLinkLocalUnicast() {
		return from
	}
	from.forwarded = address(lastEntry(r.Header("X-Forwarded-For")))
	if !from.forwarded.IsValid() {
		from.forwarded = address(forPart(lastEntry(r.Header("Forwarded"))))
	}
	return from
}

// isUnheededBy tells that the key is about the peer although the peer forwards
// another address.
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

// lastEntry is the last entry of a list that came in several lines.
func lastEntry(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	line := lines[len(lines)-1]
	return strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:])
}

// forPart is the address in an entry of Forwarded (RFC 7239).
func forPart(entry string) string {
	for part := range strings.SplitSeq(entry, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// address reads an address with or without a port. What is none is not valid.
func address(text string) netip.Addr {
	if p, err := netip.ParseAddrPort(text); err == nil {
		return p.Addr().Unmap().WithZone("")
	}
	a, _ := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap().WithZone("")
}
