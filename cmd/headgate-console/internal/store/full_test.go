package store

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
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
	db.unwritten.Store(true)
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

// A replica is read, and its ping fails until it takes writes.
func TestPingOfAReadOnlyDatabaseFails(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		db := open(t, "sqlite://"+filepath.Join(t.TempDir(), "console.db"))
		testReadOnly(t, db, db.write, "PRAGMA query_only = ")
	})

	// The user of a test may write whatever the server says, so the console has another one.
	t.Run("mariadb", func(t *testing.T) {
		address := maria.Server(t).Database(t)
		all := open(t, address).write
		u, err := url.Parse(address)
		must(t, err)
		for _, q := range []string{"CREATE USER reader@127.0.0.1 IDENTIFIED BY 'x'",
			"GRANT ALL ON " + strings.TrimPrefix(u.Path, "/") + ".* TO reader@127.0.0.1"} {
			_, err := all.ExecContext(t.Context(), q)
			must(t, err)
		}
		defer all.ExecContext(t.Context(), "DROP USER reader@127.0.0.1")

		u.User = url.UserPassword("reader", "x")
		testReadOnly(t, open(t, u.String()), all, "SET GLOBAL read_only = ")
	})
}

// testReadOnly switches the database by a statement.
func testReadOnly(t *testing.T, db *DB, by *sql.DB, statement string) {
	only := func(on string) {
		t.Helper()
		_, err := by.ExecContext(t.Context(), statement+on)
		must(t, err)
	}
	only("1")
	defer only("0")

	err := db.Update(t.Context(), func(tx *Tx) error { return tx.InsertApp(App{Name: "a"}) })
	if !errors.Is(err, ErrUnavailable) || db.Full() {
		t.Errorf("a write: %v, full %v", err, db.Full())
	}
	if n := count(t, db, "SELECT COUNT(*) FROM apps"); n != 0 {
		t.Errorf("there are %d applications", n)
	}
	if err := db.Ping(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the ping: %v", err)
	}

	only("0")
	for range 2 {
		if err := db.Ping(t.Context()); err != nil {
			t.Errorf("the ping of one that takes writes again: %v", err)
		}
	}
	if db.unwritten.Load() {
		t.Error("a write that succeeded is not known")
	}
}
