package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	my "github.com/go-sql-driver/mysql"
)

func TestFullDiskIsKnownUntilAWriteSucceeds(t *testing.T) {
	db := open(t, "sqlite://"+filepath.Join(t.TempDir(), "console.db"))
	pages := func(n int) {
		t.Helper()
		if _, err := db.write.ExecContext(t.Context(), fmt.Sprint("PRAGMA max_page_count = ", n)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string) error {
		return db.Update(t.Context(), func(tx *Tx) error {
			return tx.InsertApp(App{Name: name, Description: strings.Repeat("x", 100_000)})
		})
	}

	// The pragma has at least as many pages as there are.
	must(t, write("before"))
	pages(1)
	if db.Full() {
		t.Error("it is full before a write has failed")
	}
	err := write("a")
	if !errors.Is(err, ErrFull) || !errors.Is(err, ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) || !db.Full() {
		t.Errorf("a write without space: %v, full %v", err, db.Full())
	}

	// What only reads, or changes nothing, works and says nothing about the space.
	if n := count(t, db, "SELECT COUNT(*) FROM apps"); n != 1 {
		t.Errorf("there are %d applications", n)
	}
	update(t, db, func(tx *Tx) error { return nil })
	if !db.Full() {
		t.Error("a transaction that wrote nothing counts as a write")
	}
	if err := db.Ping(t.Context()); err != nil && !errors.Is(err, ErrFull) {
		t.Errorf("the ping: %v", err)
	}

	// With space again a ping is enough.
	db.full.Store(true)
	pages(1_000_000)
	if err := db.Ping(t.Context()); err != nil || db.Full() {
		t.Errorf("the ping with space: %v, full %v", err, db.Full())
	}
	must(t, write("a"))
}

func TestFullDiskIsKnownOnMySQL(t *testing.T) {
	d := &DB{engine: mysql{}}
	for _, number := range []uint16{1021, 1114} {
		d.full.Store(false)
		if err := d.translate(&my.MySQLError{Number: number}); !errors.Is(err, ErrFull) || !d.Full() {
			t.Errorf("%d: %v, full %v", number, err, d.Full())
		}
	}
}
