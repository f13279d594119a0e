// This file copies a database to a file, and a file to a database. The file is an SQLite with the
// tables of its version, whatever the engine that it is from, so that each engine reads it.

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoBackup means that a file is not one that [Backup] has written.
var ErrNoBackup = errors.New("it is not a backup of a console")

// Backup writes a backup of the database at a URL, as of Options, to a new file, which only its
// owner can read. Consoles may use the database meanwhile: the file has its state of one instant.
// An error leaves no file. The tables are left as they are, also if they are of an older version.
func Backup(ctx context.Context, url, file string) error {
	e, err := engineOf(url)
	if err != nil {
		return err
	}
	if s, ok := e.(sqlite); ok {
		if _, err := os.Stat(s.path); err != nil {
			return fmt.Errorf("database: %w", err) // to open it would make one
		}
	}

	d := &DB{engine: e}
	if d.read, d.write, err = e.open(); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return errors.Join(d.Backup(ctx, file), d.Close())
}

// Backup is [Backup] of an open database. The file must not exist.
func (d *DB) Backup(ctx context.Context, file string) (err error) {
	// The file is made here, because SQLite would make it readable for everyone.
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			os.Remove(file)
		}
	}()

	if err := d.engine.backUp(ctx, d.read, file); err != nil {
		return fmt.Errorf("database: %w", d.translate(err))
	}
	return f.Sync()
}

// Directory returns where the database has its files, or "" if that is on another machine.
func (d *DB) Directory() string { return d.engine.directory() }

// Restore brings the database at a URL, as of Options, to the state of a backup, or leaves it as it
// is. The file may be of an older version, and of another engine. The error is ErrNoBackup, if the
// file is none, or ErrExists, if the database is in use already and force is not set.
//
// No console may use an SQLite meanwhile. Its file keeps its owner, and a new one gets that of its
// directory, if the system lets it. A link to the file stays one. If a MySQL fails while rows are
// written, it keeps its rows, and may have the tables of this version already.
func Restore(ctx context.Context, url, file string, force bool) (err error) {
	e, err := engineOf(url)
	if err != nil {
		return err
	}

	// A link to the file of an SQLite stays one.
	if s, ok := e.(sqlite); ok {
		if s.path, err = followLinks(s.path); err != nil {
			return err
		}
		e = s
	}

	// All that may change a file is done to a copy, on the disk on which the database is to be.
	dir := e.directory()
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	dir, err = os.MkdirTemp(dir, ".restore-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	backup := sqlite{path: filepath.Join(dir, "backup.db")}
	if err := copyFile(file, backup.path); err != nil {
		return err
	}
	if err := backup.check(ctx); err != nil {
		return err
	}
	return e.restore(ctx, backup, force)
}

// copyFile copies a file to a new one that only its owner can read.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()

	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// The beginning of a file of SQLite, and where it says that changes may be in another file, of the
// name with -wal behind it.
const (
	sqliteMagic = "SQLite format 3\x00"
	sqliteWAL   = 18
)

// check returns an error unless the file is a backup that is whole, of a version that this
// program knows, and has nothing that a console of that version does not have: a foreign
// trigger would change what a console writes.
func (s sqlite) check(ctx context.Context) error {
	head := make([]byte, sqliteWAL+1)
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(f, head)
	f.Close()

	switch {
	case err != nil || !strings.HasPrefix(string(head), sqliteMagic):
		return ErrNoBackup
	case head[sqliteWAL] != 1:
		return fmt.Errorf("%w: it is a copy of the file of a database, which may lack the latest changes; "+
			"the command backup makes a backup", ErrNoBackup)
	}

	db := s.db("_pragma=query_only(1)", sqliteReadWait)
	defer db.Close()

	if err := checkSchema(ctx, db); err != nil {
		return err
	}
	return checkIntegrity(ctx, db)
}

// checkSchema returns an error unless an SQLite is made of what a console has.
func checkSchema(ctx context.Context, db *sql.DB) error {
	is, err := schemaOf(ctx, db)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoBackup, err)
	}

	// A view of this name could take forever to tell the version.
	if _, ok := is[object{"table", "migrations"}]; !ok {
		return fmt.Errorf("%w: it lacks the table of migrations", ErrNoBackup)
	}
	version, err := versionOf(ctx, db)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoBackup, err)
	}
	if err := checkKnown(version); err != nil {
		return err
	}
	return is.check(ctx, version)
}

// checkIntegrity returns an error if a page, an index or a reference of an SQLite is wrong.
func checkIntegrity(ctx context.Context, db *sql.DB) error {
	var result string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&result); err != nil {
		return fmt.Errorf("the backup is damaged: %w", err)
	}
	if result != "ok" {
		return fmt.Errorf("the backup is damaged: %s", result)
	}

	rows, err := db.QueryContext(ctx, "PRAGMA foreign_key_check")
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		return errors.New("the backup is damaged: a row refers to one that is missing")
	}
	return rows.Err()
}
