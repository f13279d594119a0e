package redisstore

import (
	"strings"
	"testing"
)

// FuzzKey tries to find two operations that share a key, a subject that chooses
// its slot, or a key that is not plain text of a bounded length.
func FuzzKey(f *testing.F) {
	// Texts that meet the escapes, the braces of the slot, the separator, and the digest of a long
	// subject.
	f.Add("203.0.113.7", "per-ip", "203.0.113.8", "per-ip")
	f.Add("}", "r", "", "r")
	f.Add("a}{b", "r", "a", "}{b:r")
	f.Add("%", "", "%25", "")
	f.Add("~j5kLoLV3tRzwCeoEk2jBaw", "r", strings.Repeat("x", 1<<20), "r")
	f.Add("a:b", "c", "a", "b:c")
	f.Add("\x00\r\n\xff", "r", "\x00\r\n", "\xffr")

	stores := []*Store{keyStore(f, Options{}), keyStore(f, Options{OneSlot: true}),
		keyStore(f, Options{Secret: []byte("0123456789abcdef")})}
	f.Fuzz(func(t *testing.T, subject, rule, other, otherRule string) {
		for _, s := range stores {
			a, b := string(s.wire.key(nil, subject, rule, "g")), string(s.wire.key(nil, other, otherRule, "g"))
			if (a == b) != (subject == other && rule == otherRule) {
				t.Fatalf("%q of %q and %q, %q of %q and %q", a, subject, rule, b, other, otherRule)
			}

			if strings.Count(a, "{") != 1 || strings.Count(a, "}") != 1 || len(a) > 3+3+6*maxReadable+3 {
				t.Fatalf("key %q", a)
			}

			for i := range len(a) {
				if a[i] <= ' ' || a[i] > '~' {
					t.Fatalf("key %q", a)
				}
			}

			// The rules of one subject are on one server, so that a step about it is one call.
			if tag := slotTag(string(s.wire.key(nil, subject, otherRule, "f"))); tag == "" || tag != slotTag(a) {
				t.Fatalf("the rules of %q have the slots of %q and %q", subject, tag, slotTag(a))
			}

			if !s.wire.oneSlot && (slotTag(a) == slotTag(b)) != (subject == other) {
				t.Fatalf("%q and %q", a, b)
			}
		}
	})
}
