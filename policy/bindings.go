package policy

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
)

// Bindings holds what the program decides and no policy can change: which
// proxies it trusts, and how it finds the user. The zero value is ready for use
// by a server without a proxy in front of it and without users.
type Bindings struct {
	// IP is the key of "ip"; nil means IPPrefix(64), or keyfuncs.RemoteIP if
	// IPPrefix is nil too. Behind proxies, use keyfuncs.ForwardedIP.
	IP core.KeyFunc

	// IPPrefix returns the key of "ip/56" and the like, which counts IPv6
	// addresses by their first bits, 32 to 128. That of 128 bits is the address which
	// the networks of Policy.Access are about. nil means
	// keyfuncs.RemoteIPPrefix if IP is nil too; otherwise policies with such a
	// key, or with networks, are a mistake.
	IPPrefix func(bits int) (core.KeyFunc, error)

	// Trusted reports whether a request comes from a proxy that the program trusts, such as
	// keyfuncs.FromProxy returns. Policies with a header in their Cost believe it from such a proxy
	// alone. If it is nil, they are a mistake.
	Trusted func(core.Request) bool

	// User is the key of "user", such as keyfuncs.UserID returns. If it is nil,
	// policies with that key are a mistake.
	User core.KeyFunc

	// Claims returns the claims of the token of a request, as encoding/json decodes them, or nil if
	// it has no token. The program must have verified the token, and no client may choose what
	// the function returns. It is called at most once while policies are selected for a request,
	// and only if one asks for a claim. If it is nil, policies with claims are a mistake.
	Claims func(core.Request) map[string]any

	// Plans are the functions that know the plan of a caller, by the name that policies
	// with plans call them by, such as "user" for one that looks up the plan of a user,
	// or "claim" for one that reads it from a token which an authentication has
	// checked. A policy that names another function is a mistake.
	Plans map[string]PlanFunc

	// APIKeyHeader is the header that "api-key" reads; "" means "X-Api-Key".
	APIKeyHeader string

	// beside, unless nil, returns the overrides that a follower keeps beside the policy of the
	// name, or nil if it has none.
	beside func(policy string) *table
}

// Validate returns what is wrong with the bindings, or nil.
func (b *Bindings) Validate() error {
	if !isToken(b.apiKeyHeader()) {
		return fmt.Errorf("policy: Bindings.APIKeyHeader: %q is not the name of a header",
			textform.Clip(b.APIKeyHeader))
	}
	if err := checkReadable(b.apiKeyHeader()); err != nil {
		return fmt.Errorf("policy: Bindings.APIKeyHeader: %w", err)
	}
	return nil
}

func (b *Bindings) apiKeyHeader() string { return cmp.Or(b.APIKeyHeader, "X-Api-Key") }

// addressFunc returns the key of the caller's address; bits 0 means the default.
func (b *Bindings) addressFunc(bits int) (core.KeyFunc, error) {
	switch {
	case bits == 0 && b.IP != nil:
		return b.IP, nil
	case bits == 0 && b.IPPrefix == nil:
		return keyfuncs.RemoteIP, nil
	case b.IPPrefix != nil:
		return b.IPPrefix(cmp.Or(bits, defaultBits))
	case b.IP != nil:
		return nil, fmt.Errorf(`"ip/%d" cannot be used here: the program does not set Bindings.IPPrefix`, bits)
	}
	return keyfuncs.RemoteIPPrefix(bits)
}

// keyFunc compiles the parts of a recipe.
func (b *Bindings) keyFunc(parts []recipePart) (core.KeyFunc, error) {
	var errs []error
	keys := make([]core.KeyFunc, len(parts))
	for i, p := range parts {
		key, err := b.partFunc(p)
		if err != nil {
			errs = append(errs, err)
		}
		keys[i] = key
	}

	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	// A single key stays as its function returns it: Join would escape it.
	if len(keys) == 1 {
		return keys[0], nil
	}
	return keyfuncs.Join(keys...), nil
}

func (b *Bindings) partFunc(p recipePart) (core.KeyFunc, error) {
	switch p.kind {
	case "ip":
		return b.addressFunc(p.bits)
	case "user":
		if b.User == nil {
			return nil, errors.New(`"user" cannot be used here: the program does not set Bindings.User`)
		}
		return b.User, nil

	// What a client sends as its credential is kept as a digest.
	case "header":
		return keyfuncs.APIKey(p.name), nil
	case "cookie":
		return keyfuncs.Cookie(p.name), nil
	case "api-key":
		return keyfuncs.APIKey(b.apiKeyHeader()), nil
	case "basic-auth":
		return keyfuncs.BasicUser, nil

	// The request itself has the others.
	case "route":
		return keyfuncs.Route, nil
	case "method":
		return keyfuncs.Method, nil
	case "path":
		return keyfuncs.Path, nil
	case "host":
		return keyfuncs.Host, nil
	}
	return sharedKey, nil
}

// sharedKey returns the same key for all requests. The key is not empty, as the
// empty key stands for callers without an identity.
func sharedKey(core.Request) (string, bool) { return globalKey, true }

const globalKey = "all"
