package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
)

// trustedProxies returns the trusted proxies, or nil for none.
func (g *given) trustedProxies() (*trustedproxy.Proxies, error) {
	trusted, err := networks("-trusted-proxy", g.proxies)
	errs := []error{err}

	// A header that no proxy may set would be a mistake that shows only at the first log-in.
	if g.identity != "" {
		if err := trustedproxy.CheckHeader(g.identity); err != nil {
			errs = append(errs, fmt.Errorf("-identity-header: %w", err))
		}
		if len(g.proxies) == 0 {
			errs = append(errs, errors.New("-identity-header: without -trusted-proxy it is ignored"))
		}
	}

	if err := errors.Join(errs...); err != nil || len(trusted) == 0 {
		return nil, err
	}
	return trustedproxy.New(trusted, g.identity)
}

// networks reads the addresses and CIDR prefixes of a flag.
func networks(flag string, texts []string) (list []netip.Prefix, err error) {
	var errs []error
	for _, s := range texts {
		p, err := parseNetwork(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q %w", flag, s, err))
		}
		list = append(list, p)
	}
	return list, errors.Join(errs...)
}

// parseNetwork reads an address or a CIDR prefix.
func parseNetwork(s string) (netip.Prefix, error) {
	// An address is the network that has it alone.
	if !strings.Contains(s, "/") {
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.Zone() != "" {
			return netip.Prefix{}, errors.New("is not an address or a CIDR prefix")
		}
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}

	// A prefix that is written differently from what it means would trust more, or others, than its
	// author meant.
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, errors.New("is not a CIDR prefix")
	case p.Masked() != p:
		return p, fmt.Errorf("has bits set beyond its length; %s or %s is meant", p.Masked(), p.Addr())
	case p.Bits() == 0:
		return p, errors.New("is every address")
	case p.Addr().Is4In6():
		return p, errors.New("is IPv4 written as IPv6; write it as IPv4")
	}
	return p, nil
}

// webhookNetworks returns the internal networks to which alerts may be sent, or nil for none.
func (g *given) webhookNetworks() (*webhook.Networks, error) {
	allowed, err := networks("-webhook-allow", g.webhooks)
	if err != nil || len(allowed) == 0 {
		return nil, err
	}
	return webhook.NewNetworks(allowed), nil
}
