package auth

import (
	"encoding/base32"
	"strings"
	"testing"
	"time"
)

// The vectors of RFC 6238, appendix B, with the last six of eight digits.
func TestCodesAreThoseOfRFC6238(t *testing.T) {
	secret := base32.StdEncoding.EncodeToString([]byte("12345678901234567890"))

	for _, row := range []struct {
		at   int64 // s
		code string
		step int64
	}{
		{59, "287082", 1}, {1111111109, "081804", 37037036}, {1111111111, "050471", 37037037},
		{1234567890, "005924", 41152263},
		{2000000000, "279037", 66666666}, {20000000000, "353130", 666666666},
	} {
		if step, ok := CodeStep(secret, row.code, row.at*1e6, 0); !ok || step != row.step {
			t.Errorf("%s at %d: %d %t, want %d", row.code, row.at, step, ok, row.step)
		}
	}
}

func TestCodeIsRightForThreeSteps(t *testing.T) {
	secret := base32.StdEncoding.EncodeToString([]byte("12345678901234567890"))

	const code, step = "081804", 37037036

	// A clock may be a step behind or ahead, to the microsecond.
	at := func(d time.Duration) int64 { return step*stepLife + d.Microseconds() }
	for d, want := range map[time.Duration]bool{
		-30*time.Second - 1000: false,
		-30 * time.Second:      true,
		0:                      true,
		60*time.Second - 1000:  true,
		60 * time.Second:       false,
	} {
		if _, ok := CodeStep(secret, code, at(d), 0); ok != want {
			t.Errorf("%s after its step begins: %t, want %t", d, ok, want)
		}
	}

	// A code that was used is not right again, and none from before it either.
	for used, want := range map[int64]bool{step - 1: true, step: false, step + 1: false, step + 5: false} {
		if _, ok := CodeStep(secret, code, at(0), used); ok != want || CodeUsed(secret, code, at(0), used) == want {
			t.Errorf("after the step %d: %t, want %t", used-step, ok, want)
		}
	}

	if CodeUsed(secret, "000000", at(0), step) {
		t.Error("a wrong code was used")
	}
}

func TestFactorsAreRandomAndHaveAnAddress(t *testing.T) {
	secret := NewFactor()
	if len(secret) != 32 || secret == NewFactor() {
		t.Errorf("a secret is %q", secret)
	}
	address, err := FactorAddress("ada@example.com", secret)
	if err != nil || !strings.HasPrefix(address, "otpauth://totp/headgate:ada@example.com?") ||
		!strings.Contains(address, "secret="+secret) {
		t.Errorf("%q %v", address, err)
	}
}
