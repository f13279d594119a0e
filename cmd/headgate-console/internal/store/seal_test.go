package store

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
)

var key, otherKey, thirdKey = bytes.Repeat([]byte{1}, KeySize), bytes.Repeat([]byte{2}, KeySize),
	bytes.Repeat([]byte{3}, KeySize)

// openWith opens a database with keys.
func openWith(t *testing.T, url string, keys ...[]byte) *DB {
	t.Helper()
	db, err := Open(t.Context(), Options{URL: url, Timeout: patience, Keys: keys})
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

const (
	factorSecret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
	hookURL      = "https://hooks.example.com/T000/s3cret"
)

var hookRow = Webhook{ID: "hook", Name: "ops", URL: hookURL, Apps: "[]", Conditions: "[]",
	Secret: "whsec_" + strings.Repeat("n", 44), SecretBefore: "whsec_" + strings.Repeat("b", 44)}

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
		list, err = readAll[string](tx,
			"SELECT secret FROM second_factors UNION ALL SELECT url FROM webhooks UNION ALL SELECT secret FROM webhooks UNION ALL SELECT secret_before FROM webhooks")
		return err
	})
	must(t, err)
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

		// Two secrets of the webhook, its URL, and that of the second factor.
		if n := sealedCount(t, db); n != 4 {
			t.Errorf("%d secrets are encrypted: %q", n, stored(t, db))
		}
		wantSecrets(t, "with the key", db)
		wantSecrets(t, "after a start", openWith(t, url, key))

		// A console without the right key must not start, as it could not read the secrets.
		for _, row := range []struct {
			keys [][]byte
			want error
		}{{nil, errNoKey}, {[][]byte{otherKey}, errWrongKey}, {[][]byte{otherKey, thirdKey}, errWrongKey}} {
			_, err := Open(t.Context(), Options{URL: url, Timeout: patience, Keys: row.keys})
			if !errors.Is(err, row.want) {
				t.Errorf("the error is %v, want %v", err, row.want)
			}
		}
	})
}

// Secrets that were stored before there was a key are encrypted when the database is opened with
// one.
func TestSecretsInTheClearAreEncrypted(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		clear := openWith(t, url)
		fill(t, clear)

		if got := stored(t, clear); sealedCount(t, clear) != 0 || got[0] != factorSecret {
			t.Errorf("without a key the secrets are %q", got)
		}

		// What is read here is the row as it was before it was encrypted.
		before := wantSecrets(t, "without a key", clear)

		db := openWith(t, url, key)
		if n := sealedCount(t, db); n != 4 {
			t.Errorf("%d secrets are encrypted: %q", n, stored(t, db))
		}

		f := wantSecrets(t, "with a new key", db)
		update(t, db, func(tx *Tx) error { return tx.ConfirmSecondFactor(f, 1, 7) })

		// The row in the database has another text now, so a step may not be used by the old one.
		err := db.Update(t.Context(), func(tx *Tx) error { return tx.UseStep(before, 8) })
		if !errors.Is(err, ErrStale) {
			t.Errorf("the row was read before it was encrypted: %v", err)
		}

		update(t, db, func(tx *Tx) error { return tx.UseStep(f, 8) })
		err = db.Update(t.Context(), func(tx *Tx) error { return tx.UseStep(f, 8) })
		if !errors.Is(err, ErrStale) {
			t.Errorf("a step is used twice: %v", err)
		}
	})
}

// A key is changed without a time in which a console cannot read the secrets: first all get the new
// key as a second one, and then as the first one.
func TestKeyIsChanged(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		fill(t, openWith(t, url, key))
		first := stored(t, openWith(t, url, key))

		// A second key may read, but nothing is written by it.
		both := openWith(t, url, key, otherKey)
		if got := stored(t, both); !slices.Equal(got, first) {
			t.Errorf("a second key changes %q to %q", first, got)
		}

		// As the first key it encrypts everything again.
		changed := openWith(t, url, otherKey, key)
		texts := stored(t, changed)
		for i, text := range texts {
			if !strings.HasPrefix(text, sealedBy) || text == first[i] {
				t.Errorf("%q was %q", text, first[i])
			}
		}

		wantSecrets(t, "with the key before it", both)
		wantSecrets(t, "with the former key after it", changed)

		alone := openWith(t, url, otherKey)
		if got := stored(t, alone); !slices.Equal(got, texts) {
			t.Errorf("the key alone changes %q to %q", texts, got)
		}
		wantSecrets(t, "with the new key alone", alone)

		// From here the former key is worth nothing.
		former := Options{URL: url, Timeout: patience, Keys: [][]byte{key}}
		if _, err := Open(t.Context(), former); !errors.Is(err, errWrongKey) {
			t.Errorf("with the former key alone: %v", err)
		}

		update(t, changed, func(tx *Tx) error {
			return errors.Join(tx.InsertUser(User{Name: "z"}),
				tx.InsertSecondFactor(SecondFactor{User: "z", Secret: factorSecret}))
		})
		wantSecrets(t, "what is new is of the new key", openWith(t, url, otherKey))
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
	must(t, err)

	flipped[len(flipped)-1] ^= 1
	changed := sealedBy + base64.StdEncoding.EncodeToString(flipped)

	// Each change is of a kind that a person with access to the database could make.
	for what, change := range map[string][]any{
		"of another column": {"UPDATE webhooks SET secret = secret_before"},
		"of another table":  {"UPDATE webhooks SET secret = ?", texts[0]},
		"of another row":    {"UPDATE webhooks SET id = 'x'"},
		"of another user":   {"UPDATE second_factors SET user_name = 'y'"},
		"that was cut":      {"UPDATE second_factors SET secret = ?", cut},
		"that was changed":  {"UPDATE second_factors SET secret = ?", changed},
		"of no base64":      {"UPDATE second_factors SET secret = ?", sealedBy + "%"},
	} {
		err := db.Update(t.Context(), func(tx *Tx) error {
			must(t, tx.exec(change[0].(string), change[1:]...))
			return tx.renewSecrets() // which rolls the change back
		})

		if !errors.Is(err, errWrongKey) {
			t.Errorf("a text %s: %v", what, err)
		}
	}
	wantSecrets(t, "afterwards", db)
}

func TestKeyHasASize(t *testing.T) {
	for _, n := range []int{1, 16, 24, 31, 33, 64} {
		o := Options{URL: "sqlite://" + t.TempDir() + "/x.db", Keys: [][]byte{key, make([]byte, n)}}
		if _, err := Open(t.Context(), o); err == nil {
			t.Errorf("a key of %d bytes is accepted", n)
		}
	}
}
