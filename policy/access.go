// This file has the lists of callers whom a policy does not limit, and whom it refuses.

package policy

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

// Access says which callers a policy does not limit, and which it refuses at once. The
// most specific entry decides: a key before any network, and a longer prefix before a
// shorter one, in whichever list it is.
type Access struct {
	Allow Callers `json:"allow,omitzero" yaml:"allow,omitempty"`
	Deny  Callers `json:"deny,omitzero" yaml:"deny,omitempty"`

	// DenyOthers denies all callers that Allow does not list. To deny every address by
	// Networks is a mistake.
	DenyOthers bool `json:"deny_others,omitempty" yaml:"deny_others,omitempty"`

	// DenyStatus is the status of the answer to a caller who is denied: 403, which is
	// also the meaning of 0, or 429.
	DenyStatus int `json:"deny_status,omitempty" yaml:"deny_status,omitempty"`
}

// Callers lists callers.
type Callers struct {
	// Networks are addresses and CIDR prefixes, which the address of the caller is looked
	// up in. Behind proxies they need Bindings.IPPrefix.
	Networks []string `json:"networks,omitempty" yaml:"networks,omitempty"`

	// Keys are keys by which the policy counts. Under "api-key", "basic-auth",
	// "header:NAME" and "cookie:NAME" they are digests, as keyfuncs.Digest returns them.
	Keys []string `json:"keys,omitempty" yaml:"keys,omitempty"`
}

// IsZero reports whether c lists no caller, so that nothing of it is written.
func (c Callers) IsZero() bool { return len(c.Networks) == 0 && len(c.Keys) == 0 }

// isEmpty reports whether no caller is on a list.
func (a *Access) isEmpty() bool { return a.Allow.IsZero() && a.Deny.IsZero() && !a.DenyOthers }

// isZero reports whether nothing of it is written.
func (a *Access) isZero() bool { return a.isEmpty() && a.DenyStatus == 0 }

// check returns what is wrong with the lists of a policy that counts by the recipe.
func (a *Access) check(key string) error {
	if a.isZero() {
		return nil
	}

	// The entries are checked as they are compiled, whatever the address is that they are looked up
	// in.
	_, err := a.compile(nil)
	errs := []error{err, checkEncoding("allow", a.Allow.Keys), checkEncoding("deny", a.Deny.Keys)}

	// A recipe with a mistake is reported by itself. Keys of joined recipes are not checked here,
	// but doubted; see doubtJoinedKey.
	if parts, bad := parseRecipe(key); bad == nil && len(parts) == 1 {
		errs = append(errs, checkKeys("allow", a.Allow.Keys, parts[0]), checkKeys("deny", a.Deny.Keys, parts[0]))
	}

	switch {
	case a.DenyStatus != 0 && a.DenyStatus != 403 && a.DenyStatus != 429:
		errs = append(errs, fmt.Errorf("deny_status: %d is not 403 or 429", a.DenyStatus))
	case a.DenyStatus != 0 && a.Deny.IsZero() && !a.DenyOthers:
		errs = append(errs, errors.New("deny_status: no caller is denied"))
	}
	return errors.Join(errs...)
}

// compile makes the lists that find a caller quickly.
func (a *Access) compile(address core.KeyFunc) (*keyfuncs.Access, error) {
	access, err := keyfuncs.NewAccess(keyfuncs.Lists{
		Allow:      keyfuncs.Callers(a.Allow),
		Deny:       keyfuncs.Callers(a.Deny),
		DenyOthers: a.DenyOthers,
		Address:    address,
	})
	if err != nil {
		return nil, errors.Unwrap(err) // without the name of the package
	}
	return access, nil
}

// access returns the lists for a rule, or nil if they are empty.
func (p *Policy) access(b *Bindings) (*keyfuncs.Access, error) {
	if p.Access.isEmpty() {
		return nil, nil
	}

	// Behind proxies the peer is a proxy, so networks need the function of the program that reads
	// whole addresses.
	var address core.KeyFunc // nil is the peer
	if len(p.Access.Allow.Networks)+len(p.Access.Deny.Networks) > 0 && (b.IP != nil || b.IPPrefix != nil) {
		if b.IPPrefix == nil {
			return nil, errors.New("networks cannot be used here: the program does not set Bindings.IPPrefix")
		}
		var err error
		if address, err = b.IPPrefix(128); err != nil {
			return nil, err
		}
	}

	return p.Access.compile(address)
}

// isDigest reports whether the keys of the recipe are digests.
func (r recipePart) isDigest() bool {
	switch r.kind {
	case "header", "cookie", "api-key", "basic-auth":
		return true
	}
	return false
}

// checkEncoding refuses keys that no text form of a policy can hold.
func checkEncoding(list string, keys []string) error {
	for i, key := range keys {
		if !utf8.ValidString(key) {
			return fmt.Errorf("%s.keys[%d] is not UTF-8, so no policy can hold it", list, i)
		}
	}
	return nil
}

// checkKeys refuses keys that no caller can have.
func checkKeys(list string, keys []string, p recipePart) error {
	for i, key := range keys {
		if key == "" || !utf8.ValidString(key) {
			continue // which is a mistake by itself
		}
		switch err := p.checkKey(key); {
		case errors.Is(err, errNotDigest):
			return fmt.Errorf("%s.keys[%d] is not a digest as keyfuncs.Digest returns it", list, i)
		case err != nil:
			return fmt.Errorf("%s.keys[%d]: %w", list, i, err)
		}
	}
	return nil
}

func isDigestText(key string) bool {
	valid := len(key) == len(keyfuncs.Digest("any"))
	for _, c := range []byte(key) {
		valid = valid && (isAlphanumeric(c) || c == '-' || c == '_')
	}
	return valid
}
