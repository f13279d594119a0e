package keyfuncs

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"

	"github.com/headgate/headgate/core"
)

// minSecret is the minimum length of a secret in bytes.
const minSecret = 16

// HMAC replaces every key of k, except "", by its HMAC-SHA-256 under the
// secret, cut to 128 bits, in base64url. A reader of the store cannot learn the
// keys from it, even where all possible keys can be tried, as with addresses,
// user names or short credentials. The secret has at least 16 bytes. All
// processes that share a store need the same secret, and a new secret starts
// all counts anew.
func HMAC(secret []byte, k core.KeyFunc) (core.KeyFunc, error) {
	var errs []error
	if len(secret) < minSecret {
		errs = append(errs, fmt.Errorf("a secret of %d bytes is shorter than %d", len(secret), minSecret))
	}
	if k == nil {
		errs = append(errs, errors.New("the key function is nil"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("keyfuncs: HMAC: %w", errors.Join(errs...))
	}
	secret = slices.Clone(secret)
	macs := &sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}
	return func(r core.Request) (string, bool) {
		key, ok := k(r)
		if !ok || key == "" {
			return "", ok
		}
		m := macs.Get().(*mac)
		defer macs.Put(m)
		return m.sign(key), true
	}, nil
}

// MustHMAC is [HMAC] for arguments that are known to be valid; it panics on an
// error.
func MustHMAC(secret []byte, k core.KeyFunc) core.KeyFunc { return must(HMAC(secret, k)) }

// mac is a keyed hash with its buffers, reused from one request to the next.
type mac struct {
	hash.Hash
	piece [sha256.BlockSize]byte
	sum   [sha256.Size]byte
}

func (m *mac) sign(s string) string {
	m.Reset()
	feed(m, s, m.piece[:])
	return encode(m.Sum(m.sum[:0]), "")
}
