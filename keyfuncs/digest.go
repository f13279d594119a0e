// This file bounds the length of keys and conceals credentials.

package keyfuncs

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

const (
	// maxReadable is the number of bytes up to which a text is kept as it is.
	maxReadable = 128

	// digestPrefix begins the key of a text that was replaced by its digest.
	digestPrefix = "sha256:"

	// digestSize is the number of bytes used of a digest. 128 bits are enough:
	// finding another text with a given digest takes 2^128 attempts.
	digestSize = 16
)

var encoding = base64.RawURLEncoding

// shorten bounds the length of a key. It is injective: a short text that begins
// with digestPrefix is replaced by its digest too.
func shorten(s string) string {
	if len(s) <= maxReadable && !strings.HasPrefix(s, digestPrefix) {
		return s
	}
	return digest(s, digestPrefix)
}

// Digest returns the key of a credential, as [APIKey], [BearerToken] and [BasicUser]
// return it, for [Lists]. That of "" is "".
func Digest(credential string) string { return conceal(credential) }

// conceal turns a credential into a key that does not reveal it.
func conceal(s string) string {
	if s == "" {
		return ""
	}
	return digest(s, "")
}

// digest returns the prefix and the SHA-256 of s, cut to 128 bits, in
// base64url. It reads s in pieces, so that a long text is never copied whole.
func digest(s, prefix string) string {
	var piece [512]byte
	if len(s) <= len(piece) {
		sum := sha256.Sum256(piece[:copy(piece[:], s)])
		return encode(sum[:], prefix)
	}
	h := sha256.New() // neither it nor piece leaves the stack
	for s != "" {
		n := copy(piece[:], s)
		h.Write(piece[:n])
		s = s[n:]
	}
	return encode(h.Sum(piece[:0]), prefix)
}

// encode returns the prefix and the first bytes of a digest in base64url.
func encode(sum []byte, prefix string) string {
	var buf [len(digestPrefix) + (digestSize*8+5)/6]byte
	return string(encoding.AppendEncode(append(buf[:0], prefix...), sum[:digestSize]))
}
