// This file bounds the length of keys.

package topkeys

import (
	"crypto/sha256"
	"encoding/base64"
	"unicode/utf8"
)

// maxText is the number of bytes up to which a key is kept as it is. The longest keys of
// package keyfuncs that are not joined from others are addresses, digests and UUIDs, which
// have up to 43 bytes.
const maxText = 80

// ellipsis stands between the beginning of a longer key and its digest.
const ellipsis = "…sha256:"

var encoding = base64.RawURLEncoding

const (
	digestSize = 16                     // the number of bytes used of a digest
	digestText = (digestSize*8 + 5) / 6 // their length in base64
)

// isKept reports whether summaries have the key as it is.
func isKept(key string) bool {
	at := len(key) - digestText - len(ellipsis)
	return len(key) <= maxText && (at < 0 || key[at:at+len(ellipsis)] != ellipsis)
}

// Shorten returns key as summaries have it. A key of more than 80 bytes is replaced by its
// beginning and a digest of all of it: 128 bits of SHA-256, in base64url. So is a shorter one
// that looks like such a text, so that Shorten returns different texts for different keys.
func Shorten(key string) string {
	if isKept(key) {
		return key
	}
	var text [maxText]byte
	return string(text[:copyText(&text, key)])
}

// copyText writes Shorten(key) to text and returns its length. A holder keeps the text in
// place, without a string of its own.
func copyText(text *[maxText]byte, key string) int {
	if isKept(key) {
		return copy(text[:], key)
	}
	var sum [sha256.Size]byte
	digest(&sum, key)

	// A rune is not cut in two. Bytes that are no UTF-8 are cut anywhere.
	n := min(len(key), maxText-len(ellipsis)-digestText)
	for end := n; n > end-utf8.UTFMax && n > 0 && n < len(key) && !utf8.RuneStart(key[n]); {
		n--
	}

	n = copy(text[:], key[:n])
	n += copy(text[n:], ellipsis)
	encoding.Encode(text[n:n+digestText], sum[:digestSize])
	return n + digestText
}

// digest writes the SHA-256 of key to sum. It reads key in pieces, so that it is never copied
// whole.
func digest(sum *[sha256.Size]byte, key string) {
	h := sha256.New()
	var piece [512]byte
	for key != "" {
		n := copy(piece[:], key)
		h.Write(piece[:n])
		key = key[n:]
	}
	h.Sum(sum[:0])
}
