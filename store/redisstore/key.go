// This file names keys and leases, and says which keys share a server.

package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// maxReadable is the length of the longest subject or rule that is written out
// in a key.
const maxReadable = 64

// appendText appends a subject or rule in the form for keys: letters, digits and a
// few marks as they are, any other byte as %XX, and a longer text as a hash. With a
// secret, which rules have none of, any text is a keyed hash. No two texts have the
// same form, no form is empty, and none has a brace, so a client can choose neither a
// slot nor the key of another subject.
func appendText(dst []byte, text string, secret []byte) []byte {
	switch {
	case text == "":
		return append(dst, '%')
	case secret != nil:
		mac := hmac.New(sha256.New, secret)
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

	// Most texts are readable as a whole.
	done := 0
	for i := range len(text) {
		if c := text[i]; !readable[c] {
			dst = append(append(dst, text[done:i]...), '%', hex[c>>4], hex[c&15])
			done = i + 1
		}
	}
	return append(dst, text[done:]...)
}

// readable has the bytes that are written as they are.
var readable = func() (list [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@/+=,") {
		list[c] = true
	}
	return list
}()

// key appends the name of the state of an operation:
//
//	<prefix>{<subject>}:<rule>:<letter>
//
// or, when all keys share a slot, <prefix>{*}<subject>:<rule>:<letter>.
func (w *wire) key(dst []byte, subject, rule, letter string) []byte {
	dst = append(dst, w.prefix...)
	if w.oneSlot {
		dst = appendText(append(dst, "{*}"...), subject, w.secret)
	} else {
		dst = append(appendText(append(dst, '{'), subject, w.secret), '}')
	}

	dst = append(dst, ':')
	if rule != "" {
		dst = appendText(dst, rule, nil)
	}
	dst = append(dst, ':')
	return append(dst, letter...)
}

// leaseID returns the form of a lease's name in scripts: 128 bits of its hash.
func leaseID(lease string) string {
	if lease == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(lease))
	return string(sum[:16])
}

// tag returns the hash tag of the keys of a subject.
func (w *wire) tag(subject string) string {
	if w.oneSlot {
		return "*"
	}

	var text [2 * maxReadable]byte
	if tag := appendText(text[:0], subject, w.secret); string(tag) != subject {
		return string(tag)
	}
	return subject
}

// sharing is which steps may be decided by one script call.
type sharing uint8

const (
	shareNone sharing = iota // it is not known which keys share a server
	shareSlot                // steps whose keys are in one slot
	shareAll
)

// shares returns which steps of a store may share a script call.
func shares(client redis.UniversalClient, o Options) sharing {
	if o.Batch == 1 {
		return shareNone
	}

	if o.OneSlot {
		return shareAll
	}

	// How another client spreads its keys over servers is not known.
	switch c := client.(type) {
	case *redis.Client:
		return shareAll
	case *redis.ClusterClient:
		return shareSlot
	case *foreign:
		if c.own.Kind() == kindCluster {
			return shareSlot
		}
		return shareAll
	}
	return shareNone
}

// Slots besides those of a Cluster: one for steps that may share a call with
// any other, and one for steps that may share with none.
const (
	anySlot = -1
	noSlot  = -2
)

// slotOf returns the slot of a step whose keys share one, or anySlot or noSlot.
func (w *wire) slotOf(ops []core.Op) int {
	switch w.shared {
	case shareAll:
		return anySlot
	case shareSlot:
		return w.clusterSlot(ops[0].Key)
	}
	return noSlot
}

// clusterSlot returns the slot of a subject's keys in a Cluster.
func (w *wire) clusterSlot(subject string) int {
	var tag [2 * maxReadable]byte
	return int(crc16(appendText(tag[:0], subject, w.secret)) % 16384)
}

// crc16 returns the CRC-16/XMODEM of text, from which a Cluster derives the
// slot of a hash tag.
func crc16(text []byte) (crc uint16) {
	nibbles := [...]uint16{
		0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
		0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
	}
	for _, c := range text {
		crc = crc<<4 ^ nibbles[crc>>12^uint16(c>>4)]
		crc = crc<<4 ^ nibbles[crc>>12^uint16(c&15)]
	}
	return crc
}
