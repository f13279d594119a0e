package telling

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/observe/findings"
)

const (
	// setupRequests is how many requests under a rule are examined for a mistake.
	setupRequests = 1000

	// maxSetupRequests bounds the examination when some rules apply to hardly any
	// request.
	maxSetupRequests = 10 * setupRequests

	// maxProbes is how many requests under a rule are examined by a probe, which
	// calls the rule's Key again.
	maxProbes = 100

	// maxCompared is how many bytes of a key are kept to compare others with.
	maxCompared = 256
)

// setupCodes are the codes of what an examination can find.
var setupCodes = []string{findings.Unheeded, findings.OneKey, findings.NoAddress, findings.NotForwarded}

// Setup examines the first requests under a set of rules for likely mistakes. Afterwards it costs a
// request one atomic load. The zero value examines none.
type Setup struct {
	found     *Findings
	on        atomic.Bool
	remaining atomic.Int64 // requests to examine
	undecided atomic.Int64 // rules with fewer than setupRequests requests
}

// Keys examines the first keys of one rule.
type Keys struct {
	Rule string
	Func core.KeyFunc

	seen    atomic.Int64
	probes  atomic.Int64
	first   atomic.Pointer[string]
	several atomic.Bool
}

// Begin starts the examination of n rules, unless there is nothing more to find.
func (s *Setup) Begin(n int, found *Findings) {
	if !slices.ContainsFunc(setupCodes, func(code string) bool { return !found.Has(code) }) {
		return
	}
	s.found = found
	s.remaining.Store(maxSetupRequests)
	s.undecided.Store(int64(n))
	s.on.Store(n > 0)
}

// On reports whether requests are examined.
func (s *Setup) On() bool { return s.on.Load() }

// Request returns what to examine the keys of a request with. ok is false if enough requests were
// examined.
func (s *Setup) Request(r core.Request) (e Examination, ok bool) {
	if s.remaining.Add(-1) < 0 {
		s.on.Store(false)
		return e, false
	}
	return Examination{s, r, originOf(r)}, true
}

// Examination is that of one request.
type Examination struct {
	setup *Setup
	r     core.Request
	from  origin
}

// Key examines the key of the request under a rule.
func (e *Examination) Key(rule *Keys, key string) {
	if e.from.isUnheededBy(key) {
		e.add(findings.Unheeded, rule, "a proxy forwards the addresses of callers, but the rule counts by the "+
			"address of the proxy: all callers share its limit; use keyfuncs.ForwardedIP, and name this peer in "+
			"Trusted if it is a proxy")
	}

	// A probe calls the key function again, so only requests are probed whose key may be of the
	// peer.
	if !e.from.peer.IsValid() || mentions(key, e.from.peer) {
		e.checkAddress(rule)
	}

	// The last of the first requests decides for all of them.
	if rule.record(key) {
		e.reportSharedKey(rule, key)
		if e.setup.undecided.Add(-1) == 0 {
			e.setup.on.Store(false)
		}
	}
}

func (e *Examination) add(code string, rule *Keys, text string) {
	e.setup.found.Add(core.Finding{Code: code, Rule: rule.Rule, Text: text})
}

// checkAddress warns if the rule counts a request by the address of the peer where it
// cannot mean to: the peer is trusted to forward another address and forwards none, or
// it has no address.
func (e *Examination) checkAddress(rule *Keys) {
	hasPeer := e.from.peer.IsValid()
	if hasPeer && e.setup.found.Has(findings.NotForwarded) || rule.probes.Add(1) > maxProbes {
		return
	}

	// The rule reads a forwarding header that the request lacks. It would believe one of the
	// caller.
	believes := &probe{Request: e.r}
	if believes.addressedBy(rule.Func) && believes.missing != "" {
		e.add(findings.NotForwarded, rule, "a trusted proxy sent a request without "+believes.missing+
			": unless that was a health check, the proxy does not write the header, so callers can write it and "+
			"choose their keys; configure the proxy to set it")
		return
	}

	// Without an address of the peer, a made-up one shows whether the rule counts by it.
	if !hasPeer && (&probe{Request: e.r, peer: probedAddress + ":1"}).addressedBy(rule.Func) {
		e.add(findings.NoAddress, rule, "the rule counts by the address of the peer, and the connection has none, "+
			"as with a Unix socket: all callers share its limit; if a proxy forwards their addresses, use "+
			"keyfuncs.ForwardedIP with Hops")
	}
}

// reportSharedKey warns if all first requests under a rule had one key by mistake.
func (e *Examination) reportSharedKey(rule *Keys, key string) {
	if rule.several.Load() {
		return
	}

	switch {
	case key == "" && !isGlobal(rule.Func):
		e.add(findings.OneKey, rule, "the first 1000 requests all had the empty key: the key function could not tell "+
			"callers apart; if one count for all is meant, use keyfuncs.Global")
	case e.from.peer.IsValid() && mentions(key, e.from.peer):
		e.add(findings.OneKey, rule, "the first 1000 requests all came from one address: if that is a proxy, it "+
			"has to forward the addresses of callers, and keyfuncs.ForwardedIP has to trust it")
	}
}

// record counts the key, and reports whether it was the last one to examine.
func (k *Keys) record(key string) bool {
	if k.seen.Load() >= setupRequests {
		return false
	}

	key = key[:min(len(key), maxCompared)]
	if !k.several.Load() {
		if k.first.Load() == nil {
			mine := strings.Clone(key)
			k.first.CompareAndSwap(nil, &mine)
		}
		k.several.CompareAndSwap(false, *k.first.Load() != key)
	}

	return k.seen.Add(1) == setupRequests
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

	// A peer in a private network may be a proxy. The last address of its header is the one that it
	// has seen itself.
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
	var buffer [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	if containsAddress(key, string(a.AppendTo(buffer[:0])), a) {
		return true
	}

	if !a.Is6() {
		return false
	}
	network, _ := a.Prefix(64) // an error for IPv4 alone
	return containsAddress(key, string(network.AppendTo(buffer[:0])), a)
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

// probedAddress is an address that no caller has (RFC 5737).
const probedAddress = "198.51.100.9"

var probed = netip.MustParseAddr(probedAddress)

// probe is a request with other addresses, which shows what a key function reads. Key
// functions of frameworks do not know it.
type probe struct {
	core.Request
	peer    string // replaces RemoteAddr; "" makes up forwarding headers instead
	missing string // the forwarding header that was read and made up
}

// addressedBy reports whether the key holds the address of the probe.
func (p *probe) addressedBy(k core.KeyFunc) (changes bool) {
	defer func() {
		if recover() != nil { // k expects another type of request
			changes = false
		}
	}()
	key, _ := k(p)
	return mentions(key, probed)
}

// RemoteAddr returns the address of the probe or of the request.
func (p *probe) RemoteAddr() string {
	if p.peer != "" {
		return p.peer
	}
	return p.Request.RemoteAddr()
}

// Header returns the lines of the request, or makes them up for a forwarding header
// that the request lacks.
func (p *probe) Header(name string) []string {
	lines := p.Request.Header(name)
	if p.peer != "" || len(lines) > 0 {
		return lines
	}

	switch {
	case name == "X-Forwarded-For":
		lines = probedForwardedFor
	case name == "Forwarded":
		lines = probedForwarded
	case strings.HasSuffix(name, "-Ip"): // X-Real-Ip, Cf-Connecting-Ip and others
		lines = []string{probedAddress}
	default:
		return nil
	}

	p.missing = name
	return lines
}

// The lists are as long as keyfuncs.Proxies.Hops may be.
var (
	probedForwardedFor = []string{probedAddress + strings.Repeat(", "+probedAddress, 31)}
	probedForwarded    = []string{"for=" + probedAddress + strings.Repeat(", for="+probedAddress, 31)}
)
