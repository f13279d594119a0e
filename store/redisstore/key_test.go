package redisstore

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// slotTag returns the part of a key that a Cluster hashes: the text between the
// first opening brace and the next closing one, if there is any, else the key.
func slotTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	tag, _, ok := strings.Cut(rest, "}")
	if !ok || tag == "" {
		return key
	}
	return tag
}

func keyStore(t testing.TB, o Options) *Store {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { c.Close() })
	s, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKeysAreReadable(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, row := range []struct{ subject, rule, want string }{
		// The empty subject, and signs that would end the subject or the slot, are escaped.
		{"203.0.113.7", "per-ip", "hg:{203.0.113.7}:per-ip:g"},
		{"", "global", "hg:{%}:global:g"},
		{"%", "r", "hg:{%25}:r:g"},
		{"}", "r", "hg:{%7D}:r:g"},
		{"a}{b", "r", "hg:{a%7D%7Bb}:r:g"},
		{"a:b", "r", "hg:{a%3Ab}:r:g"},
		{"~x", "r", "hg:{%7Ex}:r:g"},
		{"\x00\r\n", "r", "hg:{%00%0D%0A}:r:g"},
		{"ü", "r", "hg:{%C3%BC}:r:g"},
		// A long subject has a digest in its place, of a length that no subject can choose.
		{long, "r", "hg:{~j5kLoLV3tRzwCeoEk2jBaw}:r:g"},
		{"k", "", "hg:{k}::g"},
	} {
		if got := string(keyStore(t, Options{}).wire.key(nil, row.subject, row.rule, "g")); got != row.want {
			t.Errorf("subject %.20q, rule %q: %s, want %s", row.subject, row.rule, got, row.want)
		}
	}
}

func TestOneSlotPutsEveryKeyIntoOne(t *testing.T) {
	s := keyStore(t, Options{OneSlot: true, Prefix: "p:"})
	if got := string(s.wire.key(nil, "a", "r", "g")); got != "p:{*}a:r:g" {
		t.Error(got)
	}
}

func TestSecretHidesTheSubject(t *testing.T) {
	a := keyStore(t, Options{Secret: []byte("0123456789abcdef")})
	b := keyStore(t, Options{Secret: []byte("fedcba9876543210")})
	ka, kb := string(a.wire.key(nil, "alice", "r", "g")), string(b.wire.key(nil, "alice", "r", "g"))
	if strings.Contains(ka, "alice") || ka == kb || ka != string(a.wire.key(nil, "alice", "r", "g")) {
		t.Errorf("keys %s and %s", ka, kb)
	}
}

// No text collides with another or chooses a slot.
func TestKeysAreUniqueAndShareTheSubjectsSlot(t *testing.T) {
	stores := []*Store{keyStore(t, Options{}), keyStore(t, Options{Secret: []byte("0123456789abcdef")})}
	rapid.Check(t, func(t *rapid.T) {
		s := stores[rapid.IntRange(0, 1).Draw(t, "store")]

		// Among any texts, those of the signs that have a meaning, and those near the longest
		// readable length.
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[{}:%~*a]{0,5}`), rapid.StringN(60, 70, -1))
		subject, rule := text.Draw(t, "subject"), text.Draw(t, "rule")
		other, otherRule := text.Draw(t, "other"), text.Draw(t, "other rule")

		a, b := string(s.wire.key(nil, subject, rule, "g")), string(s.wire.key(nil, other, otherRule, "g"))
		if same := subject == other && rule == otherRule; (a == b) != same {
			t.Fatalf("%q and %q", a, b)
		}

		if c := string(s.wire.key(nil, subject, otherRule, "f")); slotTag(c) != slotTag(a) {
			t.Fatalf("%q and %q are about one subject", a, c)
		}

		if (slotTag(a) == slotTag(b)) != (subject == other) {
			t.Fatalf("tags of %q and %q", a, b)
		}

		if len(a) > 3+2+3*maxReadable+1+3*maxReadable+2 {
			t.Fatalf("a key of %d bytes", len(a))
		}
	})
}
