package keyfuncs

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Callers lists callers, for [Lists].
type Callers struct {
	// Networks are addresses and CIDR prefixes, such as "192.0.2.7", "10.0.0.0/8" or
	// "2001:db8::/32". A prefix with bits set behind its length is an error.
	Networks []string

	// Keys are keys as the Key function of the rule returns them. A credential has its
	// [Digest] as its key.
	Keys []string
}

// Lists says which callers a rule does not limit, and which it refuses at once.
//
// The most specific entry decides: a key before any network, and a longer prefix
// before a shorter one, in whichever list it is. So Allow of 10.1.0.0/16 is an
// exception from Deny of 10.0.0.0/8, and the other way round. Their order does not
// matter.
type Lists struct {
	Allow, Deny Callers

	// DenyOthers denies all callers that Allow does not list. To deny every address by
	// Networks is an error, so that a slip does not close a service.
	DenyOthers bool

	// Address returns the address of the caller, which Networks apply to. nil means the
	// peer of the connection. Behind proxies it is that of [ForwardedIP] with an
	// IPv6Prefix of 128, because Networks apply to whole addresses: a function that
	// returns a network in which only a part is listed has failed, and so has one that
	// returns a text without an address. A caller without an address, "", is in no
	// network.
	Address core.KeyFunc
}

// Verdict is what an [Access] says about a caller.
type Verdict uint8

// The verdicts. The zero value is Limited.
const (
	Limited Verdict = iota // on no list
	Allowed                // not limited
	Denied                 // refused at once
)

// String returns "limited", "allowed" or "denied".
func (v Verdict) String() string {
	switch v {
	case Limited:
		return "limited"
	case Allowed:
		return "allowed"
	case Denied:
		return "denied"
	}
	return "unknown verdict"
}

// Access holds [Lists] in a form in which a caller is found quickly: a network by a binary
// search, and a key in a map. A network takes at most 34 bytes. An Access does not change,
// is safe for concurrent use, and may serve any number of rules.
type Access struct {
	keys    map[string]Verdict
	v4, v6  networks
	others  Verdict
	address core.KeyFunc
}

// NewAccess returns the lists as an Access, or an error that names every mistake: an
// entry that cannot be read, that is listed twice or on both lists, or that lies within
// another entry of its list, and networks that together cover every address. Of more than
// 20 mistakes in networks, or in keys, it names the first 20.
func NewAccess(l Lists) (*Access, error) {
	a := &Access{address: l.Address}
	if l.DenyOthers {
		a.others = Denied
	}

	// Both kinds of mistakes are collected apart, so that many of one hide none of the other.
	keys, networks := &mistakes{}, &mistakes{}
	a.keys = readKeys(&l, keys)

	var v4, v6 []network
	for _, list := range []struct {
		verdict Verdict
		texts   []string
	}{{Allowed, l.Allow.Networks}, {Denied, l.Deny.Networks}} {
		for _, text := range list.texts {
			p, err := parseNetwork(text)
			switch {
			case err != nil:
				networks.add(fmt.Errorf("the %s network %q %w", list.verdict, textform.Clip(text), err))
			case p.Addr().Is4():
				v4 = append(v4, newNetwork(p, list.verdict, text))
			default:
				v6 = append(v6, newNetwork(p, list.verdict, text))
			}
		}
	}

	a.v4.build(v4, a.others, "IPv4", networks)
	a.v6.build(v6, a.others, "IPv6", networks)

	if err := errors.Join(append(keys.list(), networks.list()...)...); err != nil {
		return nil, fmt.Errorf("keyfuncs: Lists: %w", err)
	}
	return a, nil
}

// MustAccess is [NewAccess] for lists that are known to be valid; it panics on an error.
func MustAccess(l Lists) *Access {
	a, err := NewAccess(l)
	if err != nil {
		panic(err)
	}
	return a
}

// Of returns the verdict on the caller that r comes from and that is counted under key. r
// may be nil for a caller without a request, who is in no network. A nil Access returns
// Limited. The error is about the Address function.
func (a *Access) Of(r core.Request, key string) (Verdict, error) {
	if a == nil {
		return Limited, nil
	}
	// A key is more specific than any network.
	if v, listed := a.keys[key]; listed {
		return v, nil
	}

	// Without networks the address of the caller does not matter and is not determined.
	if r == nil || len(a.v4.starts) == 0 && len(a.v6.starts) == 0 {
		return a.others, nil
	}

	p, err := a.callerOf(r)
	switch {
	case err != nil || !p.IsValid():
		return a.others, err
	case p.Addr().Is4():
		return a.v4.verdictOn(p, a.others)
	}
	return a.v6.verdictOn(p, a.others)
}

var errNoAddress = errors.New("the Address function of the lists returned a text that is no address")

// callerOf returns the address of the caller, or the network that is known of it. It is
// not valid if the caller has no address.
func (a *Access) callerOf(r core.Request) (netip.Prefix, error) {
	if a.address == nil {
		ip := peerOf(r)
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}

	// What KeyFuncs return for an unknown caller, or a request to which they do not apply.
	key, ok := a.address(r)
	if key == "" || !ok {
		return netip.Prefix{}, nil
	}

	// An address may have a port, as from a key function of the program's own.
	text, length, isNetwork := strings.Cut(key, "/")
	if !isNetwork {
		a, known := parseAddress(text)
		if !known {
			return netip.Prefix{}, errNoAddress
		}
		return unmap(netip.PrefixFrom(a.ip, a.ip.BitLen())), nil
	}

	// A network is compared as a whole later: it has one verdict, or the function has failed.
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, errNoAddress
	}
	bits, err := strconv.Atoi(length)
	if err != nil {
		return netip.Prefix{}, errNoAddress
	}

	p := netip.PrefixFrom(ip.WithZone(""), bits)
	if !p.IsValid() {
		return p, errNoAddress
	}
	return unmap(p), nil
}

// peerOf returns the address of the peer of the connection. It is not valid if the peer
// has none.
func peerOf(r core.Request) netip.Addr {
	var ip netip.Addr
	if r, ok := r.(addressed); ok {
		ip = r.RemoteAddrPort().Addr()
	}

	if !ip.IsValid() {
		peer, _ := parseAddress(r.RemoteAddr()) // the zero address without one
		ip = peer.ip
	}
	if !ip.IsValid() {
		return ip
	}

	ip = ip.WithZone("")
	return unmap(netip.PrefixFrom(ip, ip.BitLen())).Addr()
}

// readKeys returns the verdicts on the keys of the lists.
func readKeys(l *Lists, m *mistakes) map[string]Verdict {
	keys := make(map[string]Verdict, len(l.Allow.Keys)+len(l.Deny.Keys))
	read := func(list []string, v Verdict) {
		for _, key := range list {
			// The key is kept also after a mistake, so that a third entry is noticed.
			before, listed := keys[key]
			switch {
			case key == "":
				m.add(fmt.Errorf("one %s key is empty, which is the key of all unknown callers", v))
			case listed && before != v:
				m.add(fmt.Errorf("the key %q is on both lists", textform.Clip(key)))
			case listed:
				m.add(fmt.Errorf("the %s key %q is listed twice", v, textform.Clip(key)))
			}
			keys[key] = v
		}
	}

	read(l.Allow.Keys, Allowed)
	read(l.Deny.Keys, Denied)
	return keys
}

// maxMistakes is how many mistakes of a kind are named.
const maxMistakes = 20

// mistakes holds the first ones, because a list may have very many.
type mistakes struct {
	first []error
	more  int
}

func (m *mistakes) add(err error) {
	if len(m.first) < maxMistakes {
		m.first = append(m.first, err)
	} else {
		m.more++
	}
}

func (m *mistakes) list() []error {
	if m.more > 0 {
		return append(m.first, fmt.Errorf("and %d more", m.more))
	}
	return m.first
}
