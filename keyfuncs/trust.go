// This file reads lists of trusted proxies.

package keyfuncs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// Private returns the networks that cannot be reached from the Internet: the
// private, loopback and link-local ones of IPv4 and IPv6. Use them as trusted
// proxies where everything that runs in them may be trusted to name the caller.
// The caller owns the slice.
func Private() []string {
	return []string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", // RFC 1918
		"fc00::/7", // RFC 4193
		"127.0.0.0/8", "::1/128",
		"169.254.0.0/16", "fe80::/10",
	}
}

// parseTrusted reads the list and appends its mistakes to errs.
func parseTrusted(list []string, errs []error) ([]netip.Prefix, []error) {
	trusted := make([]netip.Prefix, 0, len(list))
	for i, s := range list {
		p, err := parsePrefix(s)
		if err == nil && p.Bits() == 0 {
			err = errors.New("trusts every address")
		}

		if err != nil {
			errs = append(errs, inField(fmt.Sprintf("Trusted[%d]", i), fmt.Errorf("%q %w", textform.Clip(s), err)))
			continue
		}
		trusted = append(trusted, p)
	}
	return trusted, errs
}

// parsePrefix reads an address or a CIDR prefix and unmaps it, because
// addresses are unmapped before they are compared.
func parsePrefix(s string) (netip.Prefix, error) {
	// An address is a network of one. A zone means something only on the host that wrote it.
	if !strings.Contains(s, "/") {
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.Zone() != "" {
			return netip.Prefix{}, notNetwork(s)
		}
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}

	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errors.New("is not a CIDR prefix")
	}

	// Bits behind the length are a slip: of the length, or of the address.
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("has bits set beyond its length; %s or %s is meant", p.Masked(), p.Addr())
	}

	// The 96th bit of a mapped address is set, so a prefix of fewer bits was refused above.
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, nil
}

// notNetwork returns what is wrong with a text that is not an address.
func notNetwork(s string) error {
	a, ok := parseAddress(s)
	if !ok || strings.Contains(s, "%") {
		return errors.New("is not an address or a CIDR prefix")
	}
	return fmt.Errorf("is not an address or a CIDR prefix, which have no port and no brackets; write %s", a.ip)
}
