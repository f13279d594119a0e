// This file makes the tokens by which a client refunds, settles, renews or releases what
// it has taken, at any gateway with the same secret.

package jsonapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// tokenPrefix is how every token begins. It changes with their form.
const tokenPrefix = "hg1_"

const (
	idBytes   = 16
	timeBytes = 8
	macBytes  = sha256.Size
)

// MinSecret is the shortest secret, in bytes.
const MinSecret = 32

// token is what a client gets for a take. A token says which take it is of: those that
// Renew returns have the id of the first.
type token struct {
	id     [idBytes]byte
	issued time.Time // by the clock of a gateway, in whole seconds
	app    string
	result []byte // as limiter.Result.MarshalBinary returns it
}

func newToken(app string, result []byte, now time.Time) token {
	t := token{issued: now, app: app, result: result}
	_, _ = rand.Read(t.id[:]) // never fails, as its contract says
	return t
}

// name identifies the take.
func (t *token) name() string { return hex.EncodeToString(t.id[:]) }

// seal returns the token as text.
func (t *token) seal(secret []byte) string {
	b := make([]byte, 0, idBytes+timeBytes+1+len(t.app)+len(t.result)+macBytes)
	b = append(b, t.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.issued.Unix()))
	b = append(append(b, byte(len(t.app))), t.app...) // which has at most policy.MaxName bytes
	b = append(b, t.result...)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(mac(secret, b).Sum(b))
}

func mac(secret, b []byte) interface{ Sum([]byte) []byte } {
	h := hmac.New(sha256.New, secret)
	h.Write(b)
	return h
}

var (
	errNotToken = errors.New("it is not a token of this gateway, nor of one with the same secret")
	errExpired  = errors.New("it has expired")
)

// open returns the token that seal has returned with the secret. Tokens last for ttl.
func open(text string, secret []byte, ttl time.Duration, now time.Time) (t token, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(text, tokenPrefix))
	if err != nil || !strings.HasPrefix(text, tokenPrefix) || len(b) < idBytes+timeBytes+1+macBytes {
		return t, errNotToken
	}

	// Nothing in the token is read before its authenticity is known.
	b, sum := b[:len(b)-macBytes], b[len(b)-macBytes:]
	if !hmac.Equal(sum, mac(secret, b).Sum(nil)) {
		return t, errNotToken
	}

	copy(t.id[:], b)
	t.issued = time.Unix(int64(binary.BigEndian.Uint64(b[idBytes:])), 0)
	b = b[idBytes+timeBytes:]
	n := int(b[0])
	t.app, t.result = string(b[1:1+n]), b[1+n:]

	if now.Sub(t.issued) >= ttl {
		return t, errExpired
	}
	return t, nil
}
