package keyfuncs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
)

var testSecret = []byte("a secret of thirty-two bytes....")

func TestHMACHidesWhatIsCountedFromWhoDoesNotKnowTheSecret(t *testing.T) {
	k := MustHMAC(testSecret, Header("X-Tenant"))
	for _, text := range []string{"a", "192.0.2.1", strings.Repeat("b", 128), "{}\x00\xff"} {
		mac := hmac.New(sha256.New, testSecret)
		mac.Write([]byte(text))
		want := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
		for range 3 {
			if got := keyOf(t, k, with("X-Tenant", text)); got != want {
				t.Errorf("%q: key %q, want %q", text, got, want)
			}
		}
	}
	if got := keyOf(t, k, with("X-Tenant")); got != "" {
		t.Errorf("an unknown caller has key %q", got)
	}
	long := constant(strings.Repeat("c", 5000), true)
	mac := hmac.New(sha256.New, testSecret)
	mac.Write([]byte(strings.Repeat("c", 5000)))
	if got, want := keyOf(t, MustHMAC(testSecret, long), with("")), base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]); got != want {
		t.Errorf("a long key: %q, want %q", got, want)
	}
}

func TestHMACDoesNotSeeALaterChangeOfTheSecret(t *testing.T) {
	secret := []byte("0123456789abcdef")
	k := MustHMAC(secret, RemoteIP)
	secret[0] = 'x'
	want := keyOf(t, MustHMAC([]byte("0123456789abcdef"), RemoteIP), with(""))
	if got := keyOf(t, k, with("")); got != want {
		t.Errorf("key %q, want %q", got, want)
	}
}

func TestEveryMistakeAboutAnHMACIsNamedAtOnce(t *testing.T) {
	k, err := HMAC([]byte("fifteen bytes.."), nil)
	const want = "keyfuncs: HMAC: a secret of 15 bytes is shorter than 16\nthe key function is nil"
	if err == nil || err.Error() != want || k != nil {
		t.Errorf("error %v, want %s", err, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("MustHMAC did not panic")
		}
	}()
	MustHMAC(nil, RemoteIP)
}

func TestHMACIsSafeForConcurrentUse(t *testing.T) {
	k := MustHMAC(testSecret, Header("X-Tenant"))
	requests := []*request{with("X-Tenant", "a"), with("X-Tenant", strings.Repeat("b", 100))}
	want := []string{keyOf(t, k, requests[0]), keyOf(t, k, requests[1])}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				if key, _ := k(requests[(g+i)%2]); key != want[(g+i)%2] {
					t.Errorf("key %q, want %q", key, want[(g+i)%2])
					return
				}
			}
		})
	}
	all.Wait()
}
