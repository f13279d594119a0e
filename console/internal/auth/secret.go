package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// TokenPrefix begins the secret of every API token, so that one that leaked is
// recognised by people and by scanners.
const TokenPrefix = "hgt_"

// NewSecret returns 130 random bits as 26 letters and digits.
func NewSecret() string { return strings.ToLower(rand.Text()) }

// NewID returns a random name for a row, which is no secret.
func NewID() string { return NewSecret()[:16] }

// Digest is what is stored of a secret that was made here. Such a secret cannot
// be guessed, so a fast hash without salt does, and it is found by equality: how
// long that takes tells nothing about the secret.
func Digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
