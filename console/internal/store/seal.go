package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// KeySize is the number of bytes of Options.Key.
const KeySize = 32

// sealedBy begins each encrypted text, and says how it is encrypted: with AES-256-GCM, in base64,
// the nonce first. Secrets in the clear are base32, or begin with whsec_.
const sealedBy = "sealed1:"

// Errors of secrets that cannot be read.
var (
	errNoKey    = errors.New("secrets in the database are encrypted, and no key was given")
	errWrongKey = errors.New("secrets in the database are encrypted with another key")
)

// seal encrypts secrets. Nil leaves them as they are.
type seal struct{ cipher.AEAD }

// newSeal returns a seal with a key, or nil without one.
func newSeal(key []byte) (*seal, error) {
	if len(key) == 0 {
		return nil, nil
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("the key has %d bytes and not %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &seal{aead}, err
}

// closed returns the text to store for a secret. place names the column and the row, so that the
// text is worth nothing in another one.
func (s *seal) closed(secret, place string) string {
	if s == nil || secret == "" {
		return secret
	}
	nonce := make([]byte, s.NonceSize())
	rand.Read(nonce) // which never fails
	return sealedBy + base64.StdEncoding.EncodeToString(s.Seal(nonce, nonce, []byte(secret), []byte(place)))
}

// opened returns the secret of a stored text, which may have been stored before there was a key.
func (s *seal) opened(stored, place string) (string, error) {
	text, sealed := strings.CutPrefix(stored, sealedBy)
	if !sealed {
		return stored, nil
	}
	if s == nil {
		return "", errNoKey
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < s.NonceSize() {
		return "", errWrongKey
	}
	secret, err := s.Open(nil, b[:s.NonceSize()], b[s.NonceSize():], []byte(place))
	if err != nil {
		return "", errWrongKey
	}
	return string(secret), nil
}

// kept returns the text to store for one that is stored, which is another only if it is in the clear.
func (s *seal) kept(stored, place string) string {
	if strings.HasPrefix(stored, sealedBy) {
		return stored
	}
	return s.closed(stored, place)
}

// checkSecrets returns an error unless all secrets in the database can be read.
func (t *Tx) checkSecrets() error {
	users, err := all(t, scanText, "SELECT user_name FROM second_factors")
	if err != nil {
		return err
	}
	for _, name := range users {
		if _, err := t.SecondFactor(name); err != nil {
			return err
		}
	}
	_, err = t.Webhooks()
	return err
}
