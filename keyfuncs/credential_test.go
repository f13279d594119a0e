package keyfuncs

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/tally"
)

// credentials are texts that differ, none of them empty or within space.
func credentials() []string {
	// Cases that are folded, cut, decoded or taken for a hash tag somewhere on the way to a store.
	texts := []string{
		"a", "A", "ab", "a b", "a  b", "a\tb", "0", "-", "*", ":", "::", "{", "}", "{}", "}{", "{a}", "}a{", "{a",
		"a}", "a{b}c", "%00", "%2500", "%0d%0a", "a%00b",
		"a\x00b", "\x00", "\x00\x00", "a\r\nb", "\r", "\n", "a\nb", "\x1b[31m", "\x7f", "\xff", "\xfe", "\xff\xfe",
		"é", "e\u0301", "É", "ß", "ss", "ſ", "K", "k", "\u212a",
		"\u200b", "\ufeff", "\u202e", "日本", "👩‍👩‍👧", "sha256:", "sha256:a", "SHA256:a", "|", "\\", "\\|", "a|b",
		"a\\|b", "0:a", "1:a", "127.0.0.1", "::1", "2001:db8::/64", "null", "undefined", "true", "[]",
		"../../etc/passwd", "'; DROP TABLE keys; --", "<script>alert(1)</script>", "${jndi:ldap://x}", "$(id)",
		"`id`", "%n%s%x", "\"", "\"\"", "\"a\"", "'a'", "a,b", "a, b", "a;b", "a=b", "=", "==", "a=", "Bearer",
		"bearer",
	}

	// Lengths around the borders at which texts are digested, and of a megabyte that differ in the
	// last byte.
	for n := range 12 {
		texts = append(texts, strings.Repeat("x", 126+n), strings.Repeat("y", 506+n), strings.Repeat("{", 126+n))
	}
	texts = append(texts, strings.Repeat("z", 1<<20), strings.Repeat("z", 1<<20)+"z", strings.Repeat("z", 1<<20-1)+"y")

	// Credentials of one issuer, which differ only at the end.
	for i := range 400 {
		texts = append(texts, fmt.Sprintf("sk_live_%04d", i))
	}
	return texts
}

var digestText = regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`)

func TestCredentialKeysDifferAndHideIt(t *testing.T) {
	texts := credentials()
	tally.Add(t, "credentials, each in several spellings", int64(len(texts)))
	if len(texts) < 500 {
		t.Errorf("%d credentials are fewer than 500", len(texts))
	}

	sources := []struct {
		name string
		of   func(string) (core.KeyFunc, *test.Request)
	}{
		{"APIKey", func(s string) (core.KeyFunc, *test.Request) { return APIKey("x-api-key"), with("X-Api-Key", s) }},
		{"BearerToken", func(s string) (core.KeyFunc, *test.Request) {
			return BearerToken, with("Authorization", "Bearer "+s)
		}},
		{"APIKey in Authorization", func(s string) (core.KeyFunc, *test.Request) {
			return APIKey("authorization"), with("Authorization", "Key "+s)
		}},
	}

	for _, source := range sources {
		seen := map[string]string{}
		for _, s := range texts {
			// Two credentials with one key would share a limit.
			key := keyOf(t, first(source.of(s)), second(source.of(s)))
			if other, dup := seen[key]; dup {
				t.Errorf("%s: %.50q and %.50q have one key", source.name, s, other)
			}
			seen[key] = s

			// The credential itself must never be in a key, which is logged and stored.
			if !digestText.MatchString(key) {
				t.Errorf("%s: %.50q has key %q", source.name, s, key)
			}

			// Space around it is not part of it.
			for _, spelled := range []string{" " + s, s + " ", "\t" + s + " \t"} {
				if got := keyOf(t, first(source.of(s)), second(source.of(spelled))); got != key {
					t.Errorf("%s: %.50q has another key than %.50q", source.name, spelled, s)
				}
			}
		}
	}
}

func first(k core.KeyFunc, _ *test.Request) core.KeyFunc   { return k }
func second(_ core.KeyFunc, r *test.Request) *test.Request { return r }

// Stores hold the digest, so another digest would lose all counts.
func TestCredentialDigestIsSHA256(t *testing.T) {
	// printf secret | sha256sum: 2bb80d537b1da3e38bd30361aa855686 bde0eacd7162fef6a25fe97bf527a25b
	if got := keyOf(t, APIKey("X-Api-Key"), with("X-Api-Key", "secret")); got != "K7gNU3sdo-OL0wNhqoVWhg" {
		t.Errorf("key %q", got)
	}
}

func TestCredentialSchemeSpellings(t *testing.T) {
	want := keyOf(t, BearerToken, with("Authorization", "Bearer n1"))
	for _, value := range []string{"bearer n1", "BEARER n1", "Bearer  n1", "Bearer\tn1", " Bearer n1 ",
		"bEaReR \t n1\t"} {
		if got := keyOf(t, BearerToken, with("Authorization", value)); got != want {
			t.Errorf("BearerToken: %q has another key", value)
		}
	}

	// In headers that have schemes an API key may have any scheme or none.
	for _, name := range []string{"Authorization", "authorization", "Proxy-Authorization"} {
		for _, value := range []string{"n1", " n1", "Bearer n1", "bearer  n1", "Token n1", "ApiKey n1"} {
			if got := keyOf(t, APIKey(name), with(name, value)); got != want {
				t.Errorf("APIKey(%s): %q has another key", name, value)
			}
		}
	}

	// The token's own letters matter, and other headers have no schemes to take off.
	if got := keyOf(t, BearerToken, with("Authorization", "Bearer N1")); got == want {
		t.Error("the case of a token does not matter")
	}
	if got := keyOf(t, APIKey("X-Api-Key"), with("X-Api-Key", "Bearer n1")); got == want {
		t.Error("a header without schemes has one")
	}
}

func TestCredentialMissingOrAmbiguous(t *testing.T) {
	functions := map[string]core.KeyFunc{"APIKey": APIKey("Authorization"), "BearerToken": BearerToken,
		"BasicUser": BasicUser}
	for name, k := range functions {
		// Two credentials in one request could be counted by one and admitted by the other.
		for _, lines := range [][]string{nil, {}, {""}, {" \t"}, {"Bearer a", "Bearer b"},
			{"Basic YTpi", "Basic YTpi"}, {"", "Bearer a"}} {
			if got := keyOf(t, k, with("Authorization", lines...)); got != "" {
				t.Errorf("%s: %q has key %q", name, lines, got)
			}
		}
	}

	// BearerToken reads its own scheme only, with something in it.
	for _, value := range []string{"Bearer", "Bearer ", "bearer\t", "a", "Basic YTpi", "BearerX a", "Bearer:a"} {
		if got := keyOf(t, BearerToken, with("Authorization", value)); got != "" {
			t.Errorf("BearerToken: %q has key %q", value, got)
		}
	}
}

func TestBasicUserIgnoresPassword(t *testing.T) {
	// The key is the user's alone: guesses of passwords count together.
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	want := keyOf(t, APIKey("X-Api-Key"), with("X-Api-Key", "al"))

	for _, value := range []string{
		"Basic " + encode("al:"), "Basic " + encode("al:pw"), "basic " + encode("al:other"),
		"BASIC  " + encode("al:a:b") + " ",

		// Base64 with and without padding, and with bits that do not count.
		"Basic YWw6", "Basic YWw6cHc=", "Basic YWw6cHc", "Basic YWw6cHd=", "Basic YWw6cHc==",
	} {
		if got := keyOf(t, BasicUser, with("Authorization", value)); got != want {
			t.Errorf("%q has key %q, want %q", value, got, want)
		}
	}

	// Without a name, or with text that is not base64, there is no user.
	for _, value := range []string{"Basic", "Basic ", "Basic " + encode("al"), "Basic " + encode(":pw"), "Basic !!!!",
		"Basic YWw6c", "Bearer " + encode("al:pw"), encode("al:pw")} {
		if got := keyOf(t, BasicUser, with("Authorization", value)); got != "" {
			t.Errorf("%q has key %q", value, got)
		}
	}

	// The alphabet's last two letters are read in the standard's way, not in that of URLs.
	if got := keyOf(t, BasicUser, with("Authorization", "Basic /////fv7Ojo=")); got == "" {
		t.Error("a name with all of the alphabet in its base64 is not read")
	}

	if got := keyOf(t, BasicUser, with("Authorization", "Basic "+encode("Al:pw"))); got == want {
		t.Error("two names are one user")
	}
}
