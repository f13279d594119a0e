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

// KeySize is the number of bytes of each of Options.Keys.
const KeySize = 32

// sealedBy begins each encrypted text, and says how it is encrypted: with AES-256-GCM, in base64,
// the nonce first. Secrets in the clear are base32, or begin with whsec_.
const sealedBy = "sealed1:"

// Errors of secrets that cannot be read.
var (
	errNoKey    = errors.New("secrets in the database are encrypted, and no key was given")
	errWrongKey = errors.New("secrets in the database are encrypted with another key")
)

// seal encrypts secrets with the first of its keys, and decrypts those of all. Without keys it
// leaves them as they are.
type seal []cipher.AEAD

// newSeal returns a seal with keys.
func newSeal(keys [][]byte) (seal, error) {
	var s seal
	for _, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("a key has %d bytes and not %d", len(key), KeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		s = append(s, aead)
	}
	return s, nil
}

// encrypted returns the text to store for a secret. place names the column and the row, so that the
// text is worth nothing in another one.
func (s seal) encrypted(secret, place string) string {
	if len(s) == 0 || secret == "" {
		return secret
	}
	nonce := make([]byte, s[0].NonceSize())
	rand.Read(nonce) // which never fails
	return sealedBy + base64.StdEncoding.EncodeToString(s[0].Seal(nonce, nonce, []byte(secret), []byte(place)))
}

// opened returns the secret of a stored text, which may have been stored before there was a key.
func (s seal) opened(stored, place string) (string, error) {
	text, sealed := strings.CutPrefix(stored, sealedBy)
	if !sealed {
		return stored, nil
	}

	if len(s) == 0 {
		return "", errNoKey
	}

	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", errWrongKey
	}

	// The text does not name its key. A former one is tried after the current one; each that does
	// not fit is found out by the tag of GCM.
	for _, key := range s {
		if n := key.NonceSize(); len(b) >= n {
			if secret, err := key.Open(nil, b[:n], b[n:], []byte(place)); err == nil {
				return string(secret), nil
			}
		}
	}

	return "", errWrongKey
}

// renewed returns the text to store for one that is stored: another one if it is in the clear or
// encrypted with a former key.
func (s seal) renewed(stored, place string) (string, error) {
	if len(s) > 0 && strings.HasPrefix(stored, sealedBy) {
		if _, err := s[:1].opened(stored, place); err == nil {
			return stored, nil
		}
	}
	secret, err := s.opened(stored, place)
	return s.encrypted(secret, place), err
}

// renewSecrets encrypts the secrets that are in the clear or encrypted with a former key. The error
// is errNoKey or errWrongKey if one cannot be read. One that another process writes meanwhile is
// left to the next start.
func (t *Tx) renewSecrets() error {
	factors, err := factorRows.all(t, "")
	if err != nil {
		return err
	}

	// The text before is a condition of the update, so that a secret that another process has just
	// replaced is not lost.
	for _, f := range factors {
		secret, err := t.db.seal.renewed(f.Secret, f.place())
		if err != nil {
			return err
		}

		if secret == f.Secret {
			continue
		}
		const q = "UPDATE second_factors SET secret = ? WHERE user_name = ? AND secret = ?"
		if err := t.exec(q, secret, f.User, f.Secret); err != nil {
			return err
		}
	}

	hooks, err := webhookRows.all(t, "")
	if err != nil {
		return err
	}
	for _, w := range hooks {
		before := w
		// A webhook has three secrets, each encrypted for its own column. All are written together.
		for column, text := range w.secrets() {
			if *text, err = t.db.seal.renewed(*text, w.place(column)); err != nil {
				return err
			}
		}

		if w == before {
			continue
		}
		const q = "UPDATE webhooks SET url = ?, secret = ?, secret_before = ? " +
			"WHERE id = ? AND url = ? AND secret = ? AND secret_before = ?"
		err := t.exec(q, w.URL, w.Secret, w.SecretBefore, w.ID, before.URL, before.Secret, before.SecretBefore)
		if err != nil {
			return err
		}
	}

	return nil
}
