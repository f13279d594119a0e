package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// TokenPrefix begins the secret of every API token, so that people and scanners
// recognise a leaked one.
const TokenPrefix = "hgt_"

// NewSecret returns 130 random bits as 26 letters and digits.
func NewSecret() string { return strings.ToLower(rand.Text()) }

// NewID returns a random name for a row. It is not a secret.
func NewID() string { return NewSecret()[:16] }

// Digest returns the text to store for a secret of this package. Such a secret
// cannot be guessed, so a fast hash without salt suffices. The hash is looked up
// by equality, whose timing reveals nothing about the secret.
func Digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
