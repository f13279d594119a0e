package policy

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
)

// Bindings is what only the program can tell: whom it trusts, and its secrets. No
// policy can change it. The zero value is ready for use by a server that no
// proxy stands before and that knows no users.
type Bindings struct {
	// IP is the key of "ip"; nil means keyfuncs.RemoteIP. Behind proxies it is
	// what keyfuncs.ForwardedIP returns.
	IP core.KeyFunc

	// IPPrefix is the key of "ip/56" and its like, with IPv6 addresses counted
	// by that many bits, 32 to 128. nil means keyfuncs.RemoteIPPrefix if IP is
	// nil too; otherwise policies with such a key are a mistake.
	IPPrefix func(bits int) (core.KeyFunc, error)

	// User is the key of "user", such as keyfuncs.UserID returns. If it is nil,
	// policies with that key are a mistake.
	User core.KeyFunc

	// APIKeyHeader is the header that "api-key" reads; "" means "X-Api-Key".
	APIKeyHeader string

	// Secret, if set, replaces every key by its HMAC-SHA-256, as keyfuncs.HMAC
	// does; all instances share it. It has at least 16 bytes.
	Secret []byte
}

// Validate reports everything that is wrong with the environment, joined.
func (e *Bindings) Validate() error {
	var errs []error
	if !isToken(e.apiKeyHeader()) {
		errs = append(errs, fmt.Errorf("policy: Bindings.APIKeyHeader:%q is not the name of a header", textform.Clip(e.APIKeyHeader)))
	}
	if e.Secret != nil {
		if _, err := keyfuncs.HMAC(e.Secret, keyfuncs.Global); err != nil {
			errs = append(errs, fmt.Errorf("policy: Bindings.Secret:%w", err))
		}
	}
	return errors.Join(errs...)
}

func (e *Bindings) apiKeyHeader() string { return cmp.Or(e.APIKeyHeader, "X-Api-Key") }

// addressFunc is the key of the caller's address; bits 0 means the usual ones.
func (e *Bindings) addressFunc(bits int) (core.KeyFunc, error) {
	switch {
	case bits == 0 && e.IP != nil:
		return e.IP, nil
	case bits == 0 && e.IPPrefix == nil:
		return keyfuncs.RemoteIP, nil
	case e.IPPrefix != nil:
		return e.IPPrefix(cmp.Or(bits, 64))
	case e.IP != nil:
		return nil, fmt.Errorf(`"ip/%d" is of no use here: the program reads addresses in one way only (Env.IPPrefix)`, bits)
	}
	return keyfuncs.RemoteIPPrefix(bits)
}
