package store

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

var key, otherKey = bytes.Repeat([]byte{1}, KeySize), bytes.Repeat([]byte{2}, KeySize)

// openWith opens a database with a key, or nil.
func openWith(t *testing.T, url string, key []byte) *DB {
	t.Helper()
	db, err := Open(t.Context(), Options{URL: url, Timeout: patience, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

const (
	factorSecret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
	hookURL      = "https://hooks.example.com/T000/s3cret"
)

var hookRow = Webhook{ID: "hook", Name: "ops", URL: hookURL, Apps: "[]", Conditions: "[]", Secret: "whsec_" + strings.Repeat("n", 44), SecretBefore: "whsec_" + strings.Repeat("b", 44)}

// fill adds a user with a second factor, and a webhook.
func fill(t *testing.T, db *DB) {
	t.Helper()
	update(t, db, func(tx *Tx) error {
		return errors.Join(tx.InsertUser(User{Name: "x"}), tx.InsertUser(User{Name: "y"}),
			tx.InsertSecondFactor(SecondFactor{User: "x", Secret: factorSecret}), tx.InsertWebhook(hookRow))
	})
}

// wantSecrets fails unless the secrets of fill can be read.
func wantSecrets(t *testing.T, what string, db *DB) (f SecondFactor) {
	t.Helper()
	err := db.View(t.Context(), func(tx *Tx) (err error) {
		if f, err = tx.SecondFactor("x"); err != nil {
			return err
		}
		one, err := tx.Webhook("hook")
		if err != nil {
			return err
		}
		list, err := tx.Webhooks()
		if err == nil && (f.Secret != factorSecret || one != hookRow || len(list) != 1 || list[0] != hookRow) {
			t.Errorf("%s: %+v, %+v, %+v", what, f, one, list)
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return f
}

// stored returns the texts of all secrets in the tables.
func stored(t *testing.T, db *DB) (list []string) {
	t.Helper()
	err := db.View(t.Context(), func(tx *Tx) (err error) {
		list, err = all(tx, scanText, "SELECT secret FROM second_factors UNION ALL SELECT url FROM webhooks UNION ALL SELECT secret FROM webhooks UNION ALL SELECT secret_before FROM webhooks")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func sealedCount(t *testing.T, db *DB) (n int) {
	t.Helper()
	for _, text := range stored(t, db) {
		if strings.HasPrefix(text, sealedBy) {
			n++
		}
	}
	return n
}

func TestSecretsAreEncryptedWithAKey(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := openWith(t, url, key)
		fill(t, db)
		if n := sealedCount(t, db); n != 4 {
			t.Errorf("%d secrets are encrypted: %q", n, stored(t, db))
		}
		wantSecrets(t, "with the key", db)
		wantSecrets(t, "after a start", openWith(t, url, key))
		for _, row := range []struct {
			key  []byte
			want error
		}{{nil, errNoKey}, {otherKey, errWrongKey}} {
			_, err := Open(t.Context(), Options{URL: url, Timeout: patience, Key: row.key})
			if !errors.Is(err, row.want) {
				t.Errorf("the error is %v, want %v", err, row.want)
			}
		}
	})
}

// Secrets that were stored before there was a key can be read, and are encrypted when they are
// written next.
func TestSecretsInTheClearAreEncryptedWhenWritten(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		clear := openWith(t, url, nil)
		fill(t, clear)
		if got := stored(t, clear); sealedCount(t, clear) != 0 || got[0] != factorSecret {
			t.Errorf("without a key the secrets are %q", got)
		}
		db := openWith(t, url, key)
		f := wantSecrets(t, "with a new key", db)
		update(t, db, func(tx *Tx) error { return tx.ConfirmSecondFactor(f, 1, 7) })
		update(t, db, func(tx *Tx) error { return tx.UpdateWebhook(hookRow) })
		update(t, db, func(tx *Tx) error { return tx.UseStep(f, 8) })
		if n := sealedCount(t, db); n != 4 {
			t.Errorf("%d secrets are encrypted: %q", n, stored(t, db))
		}
		if err := db.Update(t.Context(), func(tx *Tx) error { return tx.UseStep(f, 9) }); !errors.Is(err, ErrStale) {
			t.Errorf("the row was read before it was written: %v", err)
		}
		f = wantSecrets(t, "afterwards", db)
		if err := db.Update(t.Context(), func(tx *Tx) error { return tx.UseStep(f, 8) }); !errors.Is(err, ErrStale) {
			t.Errorf("a step is used twice: %v", err)
		}
		update(t, db, func(tx *Tx) error { return tx.UseStep(f, 9) })
	})
}

// An encrypted text is worth nothing in another row or column, or when it was changed.
func TestSecretsAreOfTheirRow(t *testing.T) {
	db := openWith(t, "sqlite://"+t.TempDir()+"/x.db", key)
	fill(t, db)
	texts := stored(t, db)
	for i, a := range texts {
		for _, b := range texts[i+1:] {
			if a == b {
				t.Error("two texts are the same")
			}
		}
	}
	cut := texts[0][:len(sealedBy)+4]
	flipped, err := base64.StdEncoding.DecodeString(texts[0][len(sealedBy):])
	if err != nil {
		t.Fatal(err)
	}
	flipped[len(flipped)-1] ^= 1
	for what, change := range map[string][]any{
		"of another column": {"UPDATE webhooks SET secret = secret_before"},
		"of another table":  {"UPDATE webhooks SET secret = ?", texts[0]},
		"of another row":    {"UPDATE webhooks SET id = 'x'"},
		"of another user":   {"UPDATE second_factors SET user_name = 'y'"},
		"that was cut":      {"UPDATE second_factors SET secret = ?", cut},
		"that was changed":  {"UPDATE second_factors SET secret = ?", sealedBy + base64.StdEncoding.EncodeToString(flipped)},
		"of no base64":      {"UPDATE second_factors SET secret = ?", sealedBy + "%"},
	} {
		err := db.Update(t.Context(), func(tx *Tx) error {
			if _, err := tx.exec(change[0].(string), change[1:]...); err != nil {
				t.Fatal(err)
			}
			return tx.checkSecrets() // which rolls the change back
		})
		if !errors.Is(err, errWrongKey) {
			t.Errorf("a text %s: %v", what, err)
		}
	}
	wantSecrets(t, "afterwards", db)
}

func TestKeyHasASize(t *testing.T) {
	for _, n := range []int{1, 16, 24, 31, 33, 64} {
		if _, err := Open(t.Context(), Options{URL: "sqlite://" + t.TempDir() + "/x.db", Key: make([]byte, n)}); err == nil {
			t.Errorf("a key of %d bytes is accepted", n)
		}
	}
}
