package keyfuncs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/textform"
)

// networks finds the longest listed prefix of an address. The prefixes are kept as the
// ranges that they divide the addresses into, so a binary search finds the verdict, and
// there are no pointers for the garbage collector.
type networks struct {
	starts   []number // of the ranges, in ascending order
	verdicts []Verdict
	longest  int // the longest prefix, in bits
}

// number is an address as a number of 128 bits. An IPv4 address is in the high ones.
type number struct{ high, low uint64 }

// network is a listed prefix.
type network struct {
	first, last number
	bits        int
	verdict     Verdict
	text        string // as listed
}

// newNetwork returns a prefix that is listed as text.
func newNetwork(p netip.Prefix, v Verdict, text string) network {
	n := network{first: numberOf(p.Addr()), bits: p.Bits(), verdict: v, text: text}
	n.last = number{n.first.high | ^uint64(0)>>min(n.bits, 64), n.first.low | ^uint64(0)>>max(0, n.bits-64)}
	return n
}

// numberOf returns an address as a number.
func numberOf(ip netip.Addr) number {
	if ip.Is4() {
		b := ip.As4()
		return number{high: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := ip.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// compare returns -1, 0 or 1 where n is less than, equal to or greater than m.
func (n number) compare(m number) int {
	return cmp.Or(cmp.Compare(n.high, m.high), cmp.Compare(n.low, m.low))
}

// next returns n + 1, which is 0 behind the last number.
func (n number) next() number {
	n.low++
	if n.low == 0 {
		n.high++
	}
	return n
}

var errPartOfNetwork = errors.New("the Address function of the lists returned a network, " +
	"of which only a part is listed: it has to return whole addresses")

// verdictOn returns the verdict on an address, or on a network in which all have the same.
func (n *networks) verdictOn(p netip.Prefix, others Verdict) (Verdict, error) {
	if p.Bits() < min(n.longest, p.Addr().BitLen()) {
		return others, errPartOfNetwork
	}
	i, found := slices.BinarySearchFunc(n.starts, numberOf(p.Addr()), number.compare)
	if !found {
		i--
	}
	if i < 0 {
		return others, nil
	}
	return n.verdicts[i], nil
}

// build fills the table with the networks of one family, and adds to m what is wrong with
// them.
func (n *networks) build(list []network, others Verdict, family string, m *mistakes) {
	// In this order a network comes after those that hold it, so those form a stack.
	slices.SortStableFunc(list, func(a, b network) int {
		return cmp.Or(a.first.compare(b.first), cmp.Compare(a.bits, b.bits))
	})
	if len(list) == 0 {
		return
	}

	n.starts, n.verdicts = make([]number, 0, 2*len(list)), make([]Verdict, 0, 2*len(list))

	// open are the networks that hold the current address, the longest prefix last. Where one
	// ends, the verdict is that of the network around it. Behind the last address there is
	// nothing.
	var open []*network
	closeInnermost := func() {
		last := open[len(open)-1].last
		open = open[:len(open)-1]
		around := others
		if len(open) > 0 {
			around = open[len(open)-1].verdict
		}
		if next := last.next(); next != (number{}) {
			n.addRange(next, around)
		}
	}

	for i := range list {
		here := &list[i]
		// Those that end before n begins do not hold it.
		for len(open) > 0 && open[len(open)-1].last.compare(here.first) < 0 {
			closeInnermost()
		}

		// A network in conflict with the one around it is left out, and named.
		if len(open) > 0 {
			if err := here.conflictWith(open[len(open)-1]); err != nil {
				m.add(err)
				continue
			}
		}

		n.longest = max(n.longest, here.bits)
		n.addRange(here.first, here.verdict)
		open = append(open, here)
	}

	for len(open) > 0 {
		closeInnermost()
	}
	n.checkReach(others, family, m)
}

// addRange begins a range with the verdict at start, unless the range before it has the same.
func (n *networks) addRange(start number, v Verdict) {
	if last := len(n.starts) - 1; last >= 0 && n.starts[last] == start { // a range without an address
		n.starts, n.verdicts = n.starts[:last], n.verdicts[:last]
	}
	if last := len(n.starts) - 1; last >= 0 && n.verdicts[last] == v {
		return
	}
	n.starts, n.verdicts = append(n.starts, start), append(n.verdicts, v)
}

// conflictWith returns what is wrong with a network that lies in another or is equal to it.
func (n *network) conflictWith(m *network) error {
	text := textform.Clip(n.text)
	switch {
	case n.bits == m.bits && n.verdict != m.verdict:
		return fmt.Errorf("the network %q is on both lists", text)
	case n.bits == m.bits && n.text == m.text:
		return fmt.Errorf("the %s network %q is listed twice", n.verdict, text)
	case n.bits == m.bits:
		return fmt.Errorf("the %s network %q is listed twice, also as %q", n.verdict, text, textform.Clip(m.text))
	case n.verdict == m.verdict:
		return fmt.Errorf("the %s network %q lies within %q of the same list", n.verdict, text, textform.Clip(m.text))
	}
	return nil
}

// checkReach refuses networks that leave no address to be limited.
func (n *networks) checkReach(others Verdict, family string, m *mistakes) {
	if len(n.starts) == 0 || n.starts[0] != (number{}) || slices.Contains(n.verdicts, Limited) {
		return
	}
	switch {
	case !slices.Contains(n.verdicts, Denied):
		m.add(fmt.Errorf("the allowed networks cover every %s address", family))
	case others != Denied:
		m.add(fmt.Errorf("the networks leave no %s address to be limited: to deny all that are not allowed, "+
			"say so for all others", family))
	}
}

// parseNetwork reads an address or a CIDR prefix, and unmaps it as addresses are unmapped
// before they are looked up.
func parseNetwork(s string) (netip.Prefix, error) {
	p, err := parsePrefix(s)
	if err != nil {
		return p, err
	}
	return unmap(p), nil
}

// unmap returns the IPv4 form of an IPv4-mapped address, and of one that a translator
// shows.
func unmap(p netip.Prefix) netip.Prefix {
	const bits = 96 // in front of the IPv4 address, in both forms
	ip := p.Addr()
	if p.Bits() < bits || !ip.Is4In6() && !nat64.Contains(ip) {
		return p
	}
	b := ip.As16()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(b[12:])), p.Bits()-bits)
}
