package keyfuncs

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

func tuple(parts []string) core.KeyFunc {
	var keys []core.KeyFunc
	for _, s := range parts {
		keys = append(keys, constant(s, true))
	}
	return Join(keys...)
}

func TestJoinText(t *testing.T) {
	r := &test.Request{Peer: "192.0.2.1:80", Pattern: "/login"}

	if got := keyOf(t, Join(RemoteIP, Route), r); got != "192.0.2.1|/login" {
		t.Errorf("key %q", got)
	}

	// The separator and the escape are escaped, or callers who choose a part could make two tuples
	// equal.
	if got := keyOf(t, tuple([]string{"", "a|b", `c\`, ""}), r); got != `|a\|b|c\\|` {
		t.Errorf("key %q", got)
	}

	// Neither no function nor a nil one panics.
	if got := keyOf(t, Join(), r); got != "" {
		t.Errorf("nothing has key %q", got)
	}
	if got := keyOf(t, Join(nil, Route), r); got != "|/login" {
		t.Errorf("a nil function gave key %q", got)
	}
}

func TestJoinPartNotAboutRequest(t *testing.T) {
	yes, no := constant("a", true), constant("a", false)
	for _, k := range []core.KeyFunc{Join(no), Join(no, yes), Join(yes, no), Join(yes, no, yes),
		Join(yes, Join(yes, no))} {
		if key, ok := k(with("")); ok || key != "" {
			t.Errorf("key %q, ok %t", key, ok)
		}
	}
}

// anyPart generates parts with separators and escapes, some of them long.
func anyPart() *rapid.Generator[string] {
	text := rapid.StringOfN(rapid.RuneFrom([]rune{'|', '\\', ':', 'a', '0', 0, 's'}), 0, 6, -1)
	return rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "", "", "sha256:", strings.Repeat("x", 125)}).Draw(t,
			"start") + text.Draw(t, "text")
	})
}

func TestJoinInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(anyPart(), 1, 4).Draw(t, "a")
		b := rapid.SliceOfN(anyPart(), 1, 4).Draw(t, "b")

		// Parts whose plain concatenation is the same are what an unescaped join would mix up.
		if rapid.Bool().Draw(t, "same text") {
			b = strings.Split(strings.Join(a, "|"), "|")
		}

		keyA, _ := tuple(a)(with(""))
		keyB, _ := tuple(b)(with(""))

		// Equal keys mean equal parts, and a long tuple is cut to a digest without losing that.
		if slices.Equal(a, b) != (keyA == keyB) {
			t.Fatalf("%q has key %q, %q has key %q", a, keyA, b, keyB)
		}

		if len(keyA) > maxReadable {
			t.Fatalf("%q has a key of %d bytes", a, len(keyA))
		}
	})
}

func TestJoinLongParts(t *testing.T) {
	long := keyOf(t, tuple([]string{strings.Repeat("a", 128), "b"}), with(""))
	if len(long) != len("sha256:")+22 {
		t.Errorf("key %q", long)
	}
	if got := keyOf(t, tuple([]string{long}), with("")); got == long {
		t.Errorf("the part %q has the key of a long tuple", long)
	}
}

func TestJoinCopiesList(t *testing.T) {
	list := []core.KeyFunc{constant("a", true)}
	joined, chosen := Join(list...), First(list...)
	list[0] = constant("b", true)
	if got := keyOf(t, joined, with("")); got != "a" {
		t.Errorf("Join: key %q", got)
	}
	if got := keyOf(t, chosen, with("")); got != "0:a" {
		t.Errorf("First: key %q", got)
	}
}

func TestFirst(t *testing.T) {
	// One function of each kind: with a key, with the key of unknown callers, and one about other
	// requests.
	a, b, none, not := constant("a", true), constant("b", true), constant("", true), constant("x", false)
	rows := []struct {
		name string
		keys []core.KeyFunc
		want string
		ok   bool
	}{
		// The number before the key keeps the spaces of the functions apart.
		{"the first", []core.KeyFunc{a, b}, "0:a", true},
		{"the second, for want of a key", []core.KeyFunc{none, b}, "1:b", true},
		{"the second, since the first is about others", []core.KeyFunc{not, b}, "1:b", true},
		{"a nil function", []core.KeyFunc{nil, b}, "1:b", true},

		// Between "no key" and "not about this request" the first wins, in any order: else an
		// unknown caller would pass unlimited.
		{"no key", []core.KeyFunc{none, none}, "", true},
		{"no key, and one about others", []core.KeyFunc{none, not}, "", true},
		{"one about others, and no key", []core.KeyFunc{not, none}, "", true},
		{"all about others", []core.KeyFunc{not, not}, "", false},
		{"nothing", nil, "", true},
		{"the eleventh", []core.KeyFunc{none, none, none, none, none, none, none, none, none, none, a}, "10:a", true},
	}

	for _, row := range rows {
		if key, ok := First(row.keys...)(with("")); key != row.want || ok != row.ok {
			t.Errorf("%s: key %q, ok %t, want %q, %t", row.name, key, ok, row.want, row.ok)
		}
	}
}

func TestFirstUserNamedLikeAddress(t *testing.T) {
	k := First(UserID(user), RemoteIP)
	anonymous, named := from("127.0.0.1:80", ""), signedIn("127.0.0.1")
	if a, b := keyOf(t, k, anonymous), keyOf(t, k, named); a == b {
		t.Errorf("both have key %q", a)
	}
	if got := keyOf(t, k, signedIn("1:127.0.0.1")); got != "0:1:127.0.0.1" {
		t.Errorf("key %q", got)
	}
}

func TestFirstBoundsLength(t *testing.T) {
	if got := keyOf(t, First(constant(strings.Repeat("a", 900_000), true)), with("")); len(got) != len("0:sha256:")+22 {
		t.Errorf("a key of %d bytes", len(got))
	}
}

func TestWhenAndUnlessTiers(t *testing.T) {
	// Two tiers split all requests between them.
	byUser := UserID(user)
	signed, anonymous := When(Known(byUser), byUser), Unless(Known(byUser), RemoteIP)
	rows := []struct {
		name             string
		r                *test.Request
		signed, unsigned string
		isUser           bool
	}{
		{"a user", signedIn("alice"), "alice", "", true},
		{"nobody", with(""), "", "192.0.2.1", false},

		// An empty user is as good as none.
		{"an empty user", signedIn(""), "", "192.0.2.1", false},
	}

	for _, row := range rows {
		// Each request is in exactly one of the tiers.
		if key, ok := signed(row.r); key != row.signed || ok != row.isUser {
			t.Errorf("%s, tier of users: key %q, ok %t", row.name, key, ok)
		}
		if key, ok := anonymous(row.r); key != row.unsigned || ok == row.isUser {
			t.Errorf("%s, tier of addresses: key %q, ok %t", row.name, key, ok)
		}
	}

	if Known(constant("a", false))(with("")) {
		t.Error("a key for other requests is known")
	}
}

func TestWhenNilFunctions(t *testing.T) {
	always := func(core.Request) bool { return true }
	never := func(core.Request) bool { return false }
	r := with("")

	// Without a function there is no key, but the request is still limited, with all unknown
	// callers.
	for name, k := range map[string]core.KeyFunc{"When": When(always, nil), "Unless": Unless(never, nil)} {
		if got := keyOf(t, k, r); got != "" {
			t.Errorf("%s without a function: key %q", name, got)
		}
	}

	// Without a condition the function holds for all requests.
	for name, k := range map[string]core.KeyFunc{"When": When(nil, RemoteIP), "Unless": Unless(nil, RemoteIP)} {
		if got := keyOf(t, k, r); got != "192.0.2.1" {
			t.Errorf("%s without a condition: key %q", name, got)
		}
	}

	if Known(nil)(r) {
		t.Error("nothing is known")
	}
}

func TestWhenPartNotAboutRequest(t *testing.T) {
	no := constant("x", false)
	always := func(core.Request) bool { return true }
	never := func(core.Request) bool { return false }
	for name, k := range map[string]core.KeyFunc{
		"When": When(always, no), "When not": When(never, RemoteIP), "Unless": Unless(never, no),
		"Unless so": Unless(always, RemoteIP),
	} {
		if key, ok := k(with("")); ok {
			t.Errorf("%s: key %q", name, key)
		}
	}
}
