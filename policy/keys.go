// This file finds keys that no caller has.

package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
)

// digestedKey begins the key of a text that was too long to be kept as it is.
const digestedKey = "sha256:"

// errNotDigest does not repeat the key, which may be a secret.
var errNotDigest = errors.New("the key is not a digest as keyfuncs.Digest returns it")

// doubtJoinedKey returns why no caller can have the key under recipes that are joined, or
// nil. The error does not repeat a key that may be a secret.
func doubtJoinedKey(parts []recipePart, key string) error {
	if len(parts) == 1 || strings.HasPrefix(key, digestedKey) {
		return nil
	}

	texts := splitKey(key)
	if len(texts) != len(parts) {
		return fmt.Errorf(`the key has %d parts, and the recipe %d; write a part for each, with "|" between them`,
			len(texts), len(parts))
	}

	for i, p := range parts {
		if texts[i] == "" { // unknown
			continue
		}
		if err := p.checkKey(texts[i]); err != nil {
			return fmt.Errorf("part %d: %w", i+1, err)
		}
	}
	return nil
}

// splitKey returns the parts of a key that keyfuncs.Join has made.
func splitKey(key string) []string {
	var parts []string
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c == '|':
			parts = append(parts, b.String())
			b.Reset()
		case c == '\\' && i+1 < len(key):
			i++
			b.WriteByte(key[i])
		default:
			b.WriteByte(c)
		}
	}
	return append(parts, b.String())
}

// checkKey returns why no caller can have the key under one recipe.
func (r recipePart) checkKey(key string) error {
	switch r.kind {
	case "ip":
		return r.checkAddress(key)
	case "host":
		if host := keyfuncs.HostKey(key); host != key {
			return notKey(key, "the host of a request", strings.TrimPrefix(meantHost(key), "*."))
		}
	case "method":
		if method := methodKey(key); method != key {
			return notKey(key, "a method", method)
		}
	case "path":
		if key[0] != '/' && key != "*" && !strings.HasPrefix(key, digestedKey) {
			return notKey(key, "the path of a request", "/"+key)
		}
	case "global":
		if key != globalKey {
			return errGlobalKey
		}
	}

	if r.isDigest() && !isDigestText(key) {
		return errNotDigest
	}
	return nil
}

// checkPrefix returns why no two callers can have keys with the prefix, under recipes that are
// joined or one alone. The error does not repeat a prefix that may be a secret.
func checkPrefix(parts []recipePart, prefix string) error {
	if slices.ContainsFunc(parts, recipePart.isDigest) {
		return errors.New("the keys are digests, and callers have no prefix of a digest in common")
	}

	// A program may have keys of users that are longer.
	const readable = 128
	if strings.HasPrefix(prefix, digestedKey) ||
		len(prefix) > readable && (len(parts) > 1 || parts[0].kind != "user") {
		return fmt.Errorf("a key of more than %d bytes is counted by its digest, which has no prefix", readable)
	}
	if len(parts) > 1 {
		return nil
	}

	return parts[0].checkPrefix(prefix)
}

// checkPrefix returns why no two callers can have keys with the prefix under one recipe.
func (r recipePart) checkPrefix(prefix string) error {
	switch r.kind {
	case "ip":
		return errors.New("an address has no prefix: each address, or each network as it is counted, needs an entry of its own")
	case "host":
		if lower := strings.ToLower(prefix); lower != prefix {
			return notKey(prefix, "the beginning of a host", lower)
		}
		if strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz0123456789-_.:") != "" || prefix[0] == '.' {
			return notKey(prefix, "the beginning of a host", "")
		}
	case "method":
		if !slices.ContainsFunc(countedMethods, func(m string) bool { return strings.HasPrefix(m, prefix) }) {
			return notKey(prefix, "the beginning of a method", "")
		}
	case "path":
		if prefix[0] != '/' {
			return notKey(prefix, "the beginning of a path", "/"+prefix)
		}
	}
	return nil
}

// notKey is the mistake of a key that is not in the form in which a key function returns it.
func notKey(key, what, meant string) error {
	if meant == "" || meant == key {
		return fmt.Errorf("%q is not %s", textform.Clip(key), what)
	}
	return fmt.Errorf("%q is not %s as it is counted; write %q", textform.Clip(key), what, textform.Clip(meant))
}

// countedMethods are the keys of keyfuncs.Method.
var countedMethods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "other"}

// methodKey returns the key of keyfuncs.Method for a method in any spelling.
func methodKey(text string) string {
	switch m := strings.ToUpper(text); {
	case m == "HEAD":
		return "GET"
	case slices.Contains(countedMethods, m):
		return m
	}
	return "other"
}

// checkAddress returns why no caller has the key of an address. Where the policy does not
// say how many bits of an IPv6 address count, the program may.
func (r recipePart) checkAddress(key string) error {
	bits := r.bits
	if bits == 0 {
		bits = defaultBits
	}
	byPeer, err := keyfuncs.RemoteIPPrefix(bits)
	if err != nil {
		return err
	}

	// An address that counts under its own text is a key.
	meant, _ := byPeer(peer{addr: key})
	if meant == key {
		return nil
	}

	// What follows is either a network that counts IPv6 addresses, or a mistake.
	network, err := netip.ParsePrefix(key)
	if err != nil || network.Addr().Is4() {
		if err == nil {
			return fmt.Errorf("%q is a network, and an IPv4 address counts by itself", textform.Clip(key))
		}
		return notKey(key, "an address", meant)
	}

	if network.Masked().String() == key && (network.Bits() == bits || r.bits == 0 && network.Bits() >= 32) {
		return nil
	}
	return fmt.Errorf(
		"%q is not a network as it is counted: that of an IPv6 address has %d bits, and none set beyond them",
		textform.Clip(key), bits)
}

// checkNetworks refuses keys that are networks of another size than those that the program
// counts by. Validate accepts any size under "ip", as the program may choose it.
func (p *Policy) checkNetworks(parts []recipePart, b *Bindings) error {
	if len(parts) != 1 || parts[0].kind != "ip" || parts[0].bits != 0 || b.IP != nil {
		return nil
	}

	// The program counts by the default.
	own := recipePart{kind: "ip", bits: defaultBits}
	for i, key := range slices.Sorted(maps.Keys(p.Overrides)) {
		if err := own.checkKey(key); err != nil {
			return &FieldError{p.Name, OverrideField(p.Key, key, i), err}
		}
	}

	err := errors.Join(checkKeys("allow", p.Access.Allow.Keys, own), checkKeys("deny", p.Access.Deny.Keys, own))
	if err != nil {
		return &FieldError{p.Name, "access", err}
	}
	return nil
}

// defaultBits is how many bits of an IPv6 address count if neither the policy nor the
// program says so.
const defaultBits = 64

// peer is a request of which only the address of the peer is known.
type peer struct {
	core.Request
	addr string
}

func (p peer) RemoteAddr() string { return p.addr }
