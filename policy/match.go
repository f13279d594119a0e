package policy

import (
	"errors"
	"fmt"
	"github.com/headgate/headgate/internal/textform"
	"net/netip"
	"strings"
)

// maxMethods is the most methods that a policy may name.
const maxMethods = 16

func checkMethods(methods []string) error {
	if len(methods) > maxMethods {
		return fmt.Errorf("%d methods are more than %d", len(methods), maxMethods)
	}
	var errs []error
	seen := map[string]bool{}
	for _, m := range methods {
		switch {
		case !isToken(m) || strings.ToUpper(m) != m:
			errs = append(errs, fmt.Errorf("%q is not a method in upper case", textform.Clip(m)))
		case seen[m]:
			errs = append(errs, fmt.Errorf("%q is named twice", textform.Clip(m)))
		}
		seen[m] = true
	}
	return errors.Join(errs...)
}

// canonicalMethod returns the method under which a request or a policy is looked
// up: a policy for GET covers HEAD.
func canonicalMethod(m string) string {
	if m == "HEAD" {
		return "GET"
	}
	return m
}

// maxHost is the most bytes of a name in the DNS.
const maxHost = 253

func checkHost(host string) error {
	if host == "" {
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Unmap().WithZone("").String() != host {
			return fmt.Errorf("%q is not in its shortest form; write %s", textform.Clip(host), a.Unmap().WithZone(""))
		}
		return nil
	}
	name, _ := strings.CutPrefix(host, "*.")
	if len(host) > maxHost || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
		return fmt.Errorf("%q is not the name of a host", textform.Clip(host))
	}
	for i := range len(name) {
		if !inName(name[i]) {
			return fmt.Errorf("%q is not a name in lower case without a port, or an address", textform.Clip(host))
		}
	}
	if name == "" {
		return fmt.Errorf("%q is not the name of a host", textform.Clip(host))
	}
	return nil
}
