package keyfuncs

import (
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test"
)

func TestHeader(t *testing.T) {
	rows := []struct {
		lines []string
		want  string
	}{
		// Space around the text is not part of it; case and other bytes are.
		{nil, ""},
		{[]string{""}, ""},
		{[]string{" \t "}, ""},
		{[]string{"acme"}, "acme"},
		{[]string{" \tacme \t"}, "acme"},
		{[]string{"a, b"}, "a, b"},
		{[]string{"Acme"}, "Acme"},
		{[]string{"a{b}\xff\t\x00c"}, "a{b}\xff\t\x00c"},

		// Two lines are ambiguous, even if they are equal.
		{[]string{"acme", "other"}, ""},
		{[]string{"acme", "acme"}, ""},
		{[]string{"", "acme"}, ""},
	}

	for _, row := range rows {
		if got := keyOf(t, Header("x-TENANT"), with("X-Tenant", row.lines...)); got != row.want {
			t.Errorf("%q: key %q, want %q", row.lines, got, row.want)
		}
	}
}

func TestHeaderLongText(t *testing.T) {
	// All lengths up to 1200 cross the border of 128 bytes, beyond which the key is a digest.
	k := Header("X-Tenant")
	seen := map[string]int{}
	for n := range 1200 {
		key := keyOf(t, k, with("X-Tenant", strings.Repeat("a", n)))
		if other, dup := seen[key]; dup {
			t.Errorf("%d and %d bytes have one key", n, other)
		}
		seen[key] = n
		if kept := key == strings.Repeat("a", n); kept != (n <= 128) {
			t.Errorf("%d bytes: key %q", n, key)
		}
	}

	// A digest has the same length for a text of any size.
	long := keyOf(t, k, with("X-Tenant", strings.Repeat("a", 900_000)))
	if len(long) != len("sha256:")+22 || !strings.HasPrefix(long, "sha256:") {
		t.Errorf("900 kB have key %q", long)
	}

	// A text that looks like a digest is digested in its turn, so no client can send another's key.
	if forged := keyOf(t, k, with("X-Tenant", long)); forged == long {
		t.Errorf("the text %q has the key of a long one", long)
	}

	if got := keyOf(t, k, with("X-Tenant", "SHA256:x")); got != "SHA256:x" {
		t.Errorf("key %q", got)
	}
}

func TestCookie(t *testing.T) {
	// The value is a credential, so the key is the one that APIKey gives it.
	want := keyOf(t, APIKey("X-Api-Key"), with("X-Api-Key", "abc"))
	rows := []struct {
		lines []string
		known bool
	}{
		// One value, in one of several spellings and places.
		{[]string{"sid=abc"}, true},
		{[]string{`sid="abc"`}, true},
		{[]string{" sid = abc "}, true},
		{[]string{"a=b; sid=abc; c=d"}, true},
		{[]string{"a=b;sid=abc;c=d"}, true},
		{[]string{"a=b", "sid=abc"}, true},
		{[]string{"sid2=x; xsid=y; sid=abc; SID=z; sid"}, true},
		{[]string{"; ;=;sid=abc;"}, true},

		// No value, or more than one.
		{nil, false},
		{[]string{""}, false},
		{[]string{"sid"}, false},
		{[]string{"sid="}, false},
		{[]string{`sid=""`}, false},
		{[]string{"SID=abc"}, false},
		{[]string{"a=sid=abc"}, false},
		{[]string{"sid=abc; sid=abc"}, false},
		{[]string{"sid=abc; sid=x"}, false},
		{[]string{"sid=; sid=abc"}, false},
		{[]string{"sid=abc", "sid=x"}, false},
	}

	for _, row := range rows {
		got := keyOf(t, Cookie("sid"), with("Cookie", row.lines...))
		if row.known && got != want || !row.known && got != "" {
			t.Errorf("%q: key %q", row.lines, got)
		}
	}

	// Characters that another parser may take off are kept, so that values that differ have keys
	// that differ.
	for _, value := range []string{"ABC", "abc=", "=abc", `"abc`, `abc"`, "a bc"} {
		if got := keyOf(t, Cookie("sid"), with("Cookie", "sid="+value)); got == want || got == "" {
			t.Errorf("value %q: key %q", value, got)
		}
	}

	if got := keyOf(t, Cookie("sid"), with("Cookie", `sid="`)); !digestText.MatchString(got) {
		t.Errorf("a lone quote has key %q", got)
	}
}

// Handlers decode cookies in several ways: not at all, as Gin does, or as paths are
// decoded. Spellings that are one value to some of them have one key.
func TestCookieSpellings(t *testing.T) {
	key := func(value string) string { return keyOf(t, Cookie("sid"), with("Cookie", "sid="+value)) }
	rows := [][]string{
		// Each row is one value; escapes are undone once, and those that are broken are kept as
		// text.
		{"abc", "%61bc", "a%62c", "%61%62%63", `"%61bc"`, "%61b%63"},
		{"a+b", "a b", "a%20b", "a%2Bb", "a%2bb", "%61+b"},
		{"100%", "100%25"}, {"%zz", "%25zz"}, {"%", "%25"}, {"%4", "%254"},
		{"%2541"}, // decoded once
		{"%00"}, {"%22abc%22"}, {"a%3Bb"},
	}

	seen := map[string]string{}
	for _, row := range rows {
		for _, value := range row {
			if got := key(value); got != key(row[0]) || !digestText.MatchString(got) {
				t.Errorf("%s has key %q, and %s has %q", value, got, row[0], key(row[0]))
			}
		}

		// Values of two rows must not meet in one key.
		if other, dup := seen[key(row[0])]; dup {
			t.Errorf("%s and %s have one key", row[0], other)
		}
		seen[key(row[0])] = row[0]
	}
}

// unescaping is a request of a framework whose handlers read unescaped cookies, and ""
// for those that cannot be unescaped.
type unescaping struct{ *test.Request }

func (unescaping) UnescapeCookie(value string) string {
	value, _ = url.QueryUnescape(value)
	return value
}

func TestCookieAsFrameworkReadsIt(t *testing.T) {
	for value, want := range map[string]string{"abc": "abc", "%61bc": "abc", "a+b": "a b", "%zz": "", "abc%": "",
		"%2541": "%2541"} {
		got := keyOf(t, Cookie("sid"), unescaping{with("Cookie", "sid="+value)})
		key := ""
		if want != "" {
			key = keyOf(t, Cookie("sid"), with("Cookie", "sid="+want))
		}
		if got != key {
			t.Errorf("%s: key %q, want %q", value, got, key)
		}
	}
}
