package auth

import (
	"context"
	"strings"
	"testing"
)

var cheap = Cost{Memory: 8, Time: 1}

func passwords(t *testing.T, cost Cost) *Passwords {
	t.Helper()
	p, err := NewPasswords(cost)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPasswordsMatchOnlyTheirHash(t *testing.T) {
	p := passwords(t, cheap)

	hash, err := p.Hash(t.Context(), "right")
	if err != nil {
		t.Fatal(err)
	}

	// The salt makes two hashes of one password.
	other, err := p.Hash(t.Context(), "right")
	if err != nil || other == hash {
		t.Errorf("the same password has the same hash twice (%v)", err)
	}

	for _, row := range []struct {
		stored, password string
		want             bool
	}{
		{hash, "right", true}, {other, "right", true}, {hash, "Right", false}, {hash, "", false},
		{hash, "right\x00", false},
		{hash, strings.Repeat("x", 1<<20), false}, {"", "", false}, {"", "right", false},
	} {
		if got, err := p.Matches(t.Context(), row.stored, row.password); got != row.want || err != nil {
			t.Errorf("%.10q with %.10q: %t %v, want %t", row.password, row.stored, got, err, row.want)
		}
	}
}

func TestPasswordsEmptyHashMatchesNothing(t *testing.T) {
	p := passwords(t, cheap)
	hash, err := p.Hash(t.Context(), "right")
	if err != nil {
		t.Fatal(err)
	}
	p.dummy = hash
	if ok, err := p.Matches(t.Context(), "", "right"); ok || err != nil {
		t.Errorf("%t %v", ok, err)
	}
}

func TestPasswordsMatchAtAnotherCost(t *testing.T) {
	old, err := passwords(t, Cost{Memory: 16, Time: 3}).Hash(t.Context(), "right")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := passwords(t, cheap).Matches(t.Context(), old, "right"); !ok || err != nil {
		t.Errorf("%t %v", ok, err)
	}
}

func TestPasswordsBrokenHashIsAnError(t *testing.T) {
	p := passwords(t, cheap)

	hash, err := p.Hash(t.Context(), "right")
	if err != nil {
		t.Fatal(err)
	}

	// A hash that a fault of the database changed must not cost memory without bound, or match
	// anything.
	for _, broken := range []string{
		"x", "right", "$argon2id$", hash[:len(hash)-1], strings.Replace(hash, "m=8", "m=4294967295", 1),
		strings.Replace(hash, "t=1", "t=0", 1), strings.Replace(hash, "argon2id", "argon2i", 1),
		strings.Replace(hash, "v=19", "v=16", 1), hash + "$",
	} {
		if ok, err := p.Matches(t.Context(), broken, "right"); ok || err == nil {
			t.Errorf("%q: %t %v", broken, ok, err)
		}
	}
}

func TestCheckPasswordRefusesWhatIsEasyToGuess(t *testing.T) {
	// Repeats, rows of keys, common words with the usual changes, the name of the user, and much
	// of little.
	for _, password := range []string{
		"aaaaaaaaaaaa", "abcabcabcabc", "123456789012", "qwertyuiop12", "password1234", "passwordpassword",
		"Passw0rd!Passw0rd!",
		"iloveyouiloveyou", "administrator1", "headgateheadgate", "ada.lovelace1815", "Lovelace-Lovelace",
		"somebody's password",
		strings.Repeat("a", MaxPassword), strings.Repeat("€", 12), strings.Repeat("password", 32),
	} {
		if err := CheckPassword("ada.lovelace", password); err == nil ||
			!strings.Contains(err.Error(), "easy to guess") {
			t.Errorf("%q: %v", password, err)
		}
	}

	// Words that do not belong together, letters of other scripts, and secrets that were drawn.
	for _, password := range []string{
		"trumpet garden seven", "correct horse battery staple", "5zz4b7wjqk2m", "żółta łódź na rzece",
		"高い山と深い川と青い空です", NewSecret(),
		strings.Repeat("aB3$xyzqQ", 28),
	} {
		if err := CheckPassword("ada.lovelace", password); err != nil {
			t.Errorf("%q: %v", password, err)
		}
	}
}

func TestHashEndsWithItsContext(t *testing.T) {
	p := passwords(t, cheap)
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Hash(ctx, "x"); err != context.Canceled {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestNewPasswordsRefusesBadCosts(t *testing.T) {
	for _, c := range []Cost{{}, {Memory: 7, Time: 1}, {Memory: 8}, {Memory: 1<<20 + 1, Time: 1},
		{Memory: 8, Time: 65}} {
		if _, err := NewPasswords(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestSecretsAreLongAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		s := NewSecret()
		if len(s) != 26 || seen[s] || seen[Digest(s)] {
			t.Fatalf("%q", s)
		}
		seen[s], seen[Digest(s)] = true, true
	}
}

func BenchmarkHash(b *testing.B) {
	p, err := NewPasswords(DefaultCost)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := p.Hash(b.Context(), "a password"); err != nil {
			b.Fatal(err)
		}
	}
}
