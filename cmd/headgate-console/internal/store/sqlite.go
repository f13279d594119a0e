package store

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

const (
	// sqliteReaders is the number of transactions that may read at the same time. Only
	// one writes.
	sqliteReaders = 4

	// These are the milliseconds that SQLite waits for another program. Meanwhile
	// it ignores the context. A transaction that writes waits only when it begins,
	// and [begin] tries again.
	sqliteReadWait  = 5000
	sqliteWriteWait = 100
)

// sqlite is a database in a file. Readers do not wait for the writer, and
// transactions that write queue for its one connection.
type sqlite struct{ path string }

func (sqlite) name() string { return "sqlite" }

func (s sqlite) open() (read, write *sql.DB, err error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return nil, nil, err
	}

	// The file is made here, because SQLite would make it readable for everyone.
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err := f.Close(); err != nil {
		return nil, nil, err
	}

	// A transaction that is to write takes the lock when it begins, and not at its first write:
	// then it never has to give up what it has read.
	write = s.db("_txlock=immediate", sqliteWriteWait)
	write.SetMaxOpenConns(1)

	read = s.db("_pragma=query_only(1)", sqliteReadWait)
	read.SetMaxOpenConns(sqliteReaders)
	read.SetMaxIdleConns(sqliteReaders)
	return read, write, nil
}

// db opens the file by its dsn. What is wrong with the file shows when it is used: sql.Open fails
// only without the driver.
func (s sqlite) db(more string, wait int) *sql.DB {
	db, _ := sql.Open("sqlite", s.dsn(more, wait))
	return db
}

// dsn returns the URI of the file. SQLite waits for other programs for wait
// milliseconds. Every commit is on the disk when it returns, and foreign keys are
// enforced.
func (s sqlite) dsn(more string, wait int) string {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: s.path}).EscapedPath()}
	return file.String() + "?_pragma=busy_timeout(" + strconv.Itoa(wait) + ")&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&" + more
}

// alone runs f in a transaction that writes. SQLite runs one of them at a time.
func (sqlite) alone(ctx context.Context, db *sql.DB, f func(runner) error) error {
	tx, err := begin(ctx, sqlite{}, db, nil)
	return finish(tx, err, func() error { return f(tx) })
}

// finish commits a transaction that has begun without an error after f, or rolls it back.
func finish(tx *sql.Tx, err error, f func() error) error {
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if err := f(); err != nil {
		return err
	}
	return tx.Commit()
}

// places has the path of the file, and what stays the same if the file is renamed.
func (s sqlite) places() []string {
	path := s.path
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	if full, err := filepath.EvalSymlinks(path); err == nil {
		path = full
	}

	list := []string{"path:" + path}
	if file := inode(path); file != "" {
		list = append(list, "file:"+file)
	}
	return list
}

func (sqlite) addUp() string {
	sums := eachCount(func(c string) string { return c + " = " + c + " + excluded." + c })
	return " ON CONFLICT (level, series, at) DO UPDATE SET " + sums
}

func (sqlite) byPrimaryKey() string { return "" }

func (sqlite) repeated(error) bool { return false }

func (sqlite) kind(err error) kind {
	var e *driver.Error
	if !errors.As(err, &e) {
		return kindOther
	}

	switch e.Code() {
	case codes.SQLITE_CONSTRAINT_UNIQUE, codes.SQLITE_CONSTRAINT_PRIMARYKEY:
		return kindExists
	case codes.SQLITE_CONSTRAINT_FOREIGNKEY:
		return kindReferenced
	}

	// The lowest byte is the kind of an error, and the others are its detail.
	switch e.Code() & 0xff {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return kindContended
	case codes.SQLITE_FULL:
		return kindFull
	case codes.SQLITE_CANTOPEN, codes.SQLITE_IOERR, codes.SQLITE_READONLY,
		codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB, codes.SQLITE_PERM, codes.SQLITE_INTERRUPT, codes.SQLITE_NOMEM:
		return kindUnavailable
	}
	return kindOther
}
