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
	var errs []error
	var trusted []netip.Prefix
	for _, s := range g.proxies {
		p, err := parseNetwork(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("-trusted-proxy: %q %w", s, err))
		}
		trusted = append(trusted, p)
	}

	// A header that no proxy may set would be a mistake that shows only at the first log-in.
	if g.identity != "" {
		if err := trustedproxy.CheckHeader(g.identity); err != nil {
			errs = append(errs, fmt.Errorf("-identity-header: %w", err))
		}
		if len(g.proxies) == 0 {
			errs = append(errs, errors.New("-identity-header: without -trusted-proxy it is ignored"))
		}
	}

	if len(errs) > 0 || len(trusted) == 0 {
		return nil, errors.Join(errs...)
	}
	return trustedproxy.New(trusted, g.identity)
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
	var errs []error
	var allowed []netip.Prefix
	for _, s := range g.webhooks {
		p, err := parseNetwork(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("-webhook-allow: %q %w", s, err))
		}
		allowed = append(allowed, p)
	}

	if len(errs) > 0 || len(allowed) == 0 {
		return nil, errors.Join(errs...)
	}
	return webhook.NewNetworks(allowed), nil
}
