package webhook

import (
	"fmt"
	"net/netip"
	"slices"
)

// internal are the networks to which nothing is sent without leave: those of this machine and of
// its site, those that reach other networks by a gateway, and those that no host has.
var internal = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // the metadata of a cloud; others are at link-local, private and shared addresses
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// global is the part of IPv6 that hosts of the Internet have. Loopback, private, link-local,
// multicast and mapped addresses are outside of it, and so are those that stand for IPv4.
var global = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// Networks are internal networks to which messages may be sent. Nil has none.
type Networks struct{ allowed []netip.Prefix }

// NewNetworks returns the networks with these prefixes.
func NewNetworks(allowed []netip.Prefix) *Networks { return &Networks{slices.Clone(allowed)} }

// Check returns an error if nothing may be sent to an address: if it is no address of the
// Internet and not in the networks. Addresses of IPv4 that are written as IPv6 are refused, too.
func (n *Networks) Check(ip netip.Addr) error {
	in := func(p netip.Prefix) bool { return p.Contains(ip) }
	if ip.Zone() == "" && n != nil && slices.ContainsFunc(n.allowed, in) {
		return nil
	}
	if slices.ContainsFunc(internal, in) || ip.Zone() != "" || !ip.Is4() && !global.Contains(ip) {
		return fmt.Errorf("%s is an internal address, which needs leave: start the console with -webhook-allow", ip)
	}
	return nil
}
