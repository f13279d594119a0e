package store

import (
	"os"
	"testing"
)

func count(t testing.TB, db *DB, query string, args ...any) (n int64) {
	t.Helper()
	err := db.View(t.Context(), func(tx *Tx) (err error) {
		n, err = readOne[int64](tx, query, args...)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func exec(t testing.TB, db *DB, query string, args ...any) {
	t.Helper()
	update(t, db, func(tx *Tx) error {
		return tx.exec(query, args...)
	})
}

func update(t testing.TB, db *DB, f func(*Tx) error) {
	t.Helper()
	must(t, db.Update(t.Context(), f))
}

func mode(t testing.TB, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Mode().String()
}
