package keyfuncs

import (
	"slices"

	"github.com/headgate/headgate/core"
)

// Join returns the tuple of all keys: Join(RemoteIP, Route) returns
// "192.0.2.1|/login". Different tuples are different keys whatever bytes they
// hold; within a key, "|" and "\" are escaped by "\". If ok of any is false, so
// is that of Join.
//
// Where one key is "", the others still distinguish callers. So put [First]
// into a Join, not a Join into a First.
func Join(keys ...core.KeyFunc) core.KeyFunc {
	keys = withoutNil(keys)
	return func(r core.Request) (string, bool) {
		// Most tuples fit, so that the only allocation is the text of the key.
		var buf [maxReadable]byte
		b := buf[:0]
		for i, k := range keys {
			key, ok := k(r)
			if !ok {
				return "", false
			}
			if i > 0 {
				b = append(b, '|')
			}
			b = appendEscaped(b, key)
		}

		return shorten(string(b)), true
	}
}

// appendEscaped appends a key of a tuple, with "|" and "\" escaped.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] == '|' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return b
}

// withoutNil returns a copy of the list in which unknown replaces nil functions.
func withoutNil(keys []core.KeyFunc) []core.KeyFunc {
	keys = slices.Clone(keys)
	for i, k := range keys {
		keys[i] = orUnknown(k)
	}
	return keys
}
