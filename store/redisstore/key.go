// This file names keys and leases.

package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// maxReadable is the length of the longest subject or rule that is written out
// in a key.
const maxReadable = 64

// text appends a subject or rule in the form for keys: letters, digits and a
// few marks as they are, any other byte as %XX, and a longer text as a hash. No
// two texts have the same form, no form is empty, and none has a brace, so a
// client can choose neither a slot nor the key of another subject.
func (s *Store) text(dst []byte, text string) []byte {
	switch {
	case text == "":
		return append(dst, '%')
	case s.secret != nil:
		mac := hmac.New(sha256.New, s.secret)
		mac.Write([]byte(text))
		return appendHash(dst, mac.Sum(nil))
	case len(text) > maxReadable:
		sum := sha256.Sum256([]byte(text))
		return appendHash(dst, sum[:])
	}
	return appendReadable(dst, text)
}

// appendHash appends 128 bits of a hash after a tilde, which no readable text
// contains.
func appendHash(dst, sum []byte) []byte {
	return base64.RawURLEncoding.AppendEncode(append(dst, '~'), sum[:16])
}

func appendReadable(dst []byte, text string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(text) {
		if c := text[i]; readable(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}

func readable(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '.', '_', '-', '@', '/', '+', '=', ',':
		return true
	}
	return false
}

// key appends the name of the state of an operation:
//
//	<prefix>{<subject>}:<rule>:<letter>
//
// or, when all keys share a slot, <prefix>{*}<subject>:<rule>:<letter>.
func (s *Store) key(dst []byte, subject, rule, letter string) []byte {
	dst = append(dst, s.prefix...)
	if s.oneSlot {
		dst = s.text(append(dst, "{*}"...), subject)
	} else {
		dst = append(s.text(append(dst, '{'), subject), '}')
	}
	dst = append(dst, ':')
	if rule != "" {
		dst = s.ruleText(dst, rule)
	}
	dst = append(dst, ':')
	return append(dst, letter...)
}

// ruleText appends a rule's name, which is not secret.
func (s *Store) ruleText(dst []byte, rule string) []byte {
	if len(rule) > maxReadable {
		sum := sha256.Sum256([]byte(rule))
		return appendHash(dst, sum[:])
	}
	return appendReadable(dst, rule)
}

// leaseID returns the form of a lease's name in scripts: 128 bits of its hash.
func leaseID(lease string) string {
	if lease == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(lease))
	return string(sum[:16])
}
