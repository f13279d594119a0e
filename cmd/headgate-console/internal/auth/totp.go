package auth

import (
	"crypto/rand"
	"encoding/base32"
	"strings"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
	"github.com/pquerna/otp/totp"
)

const (
	// stepLife is how many microseconds a code of RFC 6238 lasts.
	stepLife = 30_000_000

	// skew is how many steps the clock of a device may be early or late.
	skew = 1

	issuer = "headgate"
)

// RecoveryCodes is how many recovery codes a user gets at once.
const RecoveryCodes = 10

var factorEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// NewFactor returns a secret of 160 random bits for the codes of RFC 6238, in base32.
func NewFactor() string {
	raw := make([]byte, 20)
	rand.Read(raw)
	return factorEncoding.EncodeToString(raw)
}

// FactorAddress returns the address by which a program for such codes learns the secret of a
// user.
func FactorAddress(user, secret string) (string, error) {
	raw, err := factorEncoding.DecodeString(secret)
	if err != nil {
		return "", err
	}
	key, err := totp.Generate(totp.GenerateOpts{Issuer: issuer, AccountName: user, Secret: raw})
	if err != nil {
		return "", err
	}
	return key.URL(), nil
}

// CodeStep returns the time step of a code, if the code is that of a secret at the time at in
// µs or one step before or after. It does not accept the step used or one before it, so
// that a code is accepted once. A new secret has used no step, which is 0.
func CodeStep(secret, code string, at, used int64) (step int64, ok bool) {
	code = typedCode(code)
	now := at / stepLife
	for step = max(now-skew, used+1); step <= now+skew; step++ {
		right, err := hotp.ValidateCustom(code, uint64(step), secret,
			hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err == nil && right {
			return step, true
		}
	}
	return 0, false
}

// CodeUsed reports whether a code was right, and of a step that was used.
func CodeUsed(secret, code string, at, used int64) bool {
	step, ok := CodeStep(secret, code, at, 0)
	return ok && step <= used
}

// IsCode reports whether a text has the form of a code of RFC 6238, and not of a recovery
// code. There are only a million of them.
func IsCode(s string) bool {
	s = typedCode(s)
	return len(s) <= otp.DigitsSix.Length() || strings.Trim(s, "0123456789") == ""
}

// NewRecoveryCodes returns recovery codes of 80 random bits, and the digests to store.
func NewRecoveryCodes() (codes, digests []string) {
	for range RecoveryCodes {
		s := NewSecret()[:16]
		codes = append(codes, s[:4]+"-"+s[4:8]+"-"+s[8:12]+"-"+s[12:])
		digests = append(digests, Digest(s))
	}
	return codes, digests
}

// RecoveryDigest returns the digest of a recovery code as it was typed.
func RecoveryDigest(code string) string { return Digest(typedCode(code)) }

// typedCode removes what people add to a code to read it.
func typedCode(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "", "\t", "").Replace(code))
}
