package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

func (s sqlite) directory() string { return filepath.Dir(s.path) }

// backUp has SQLite write all that a reader sees to a file, which may be there and empty.
func (s sqlite) backUp(ctx context.Context, _ *sql.DB, file string) error {
	// A connection that may only read writes no other file either.
	db, err := sql.Open("sqlite", s.dsn("_txlock=deferred", sqliteReadWait))
	if err != nil {
		return err
	}
	defer db.Close()

	if _, err := versionOf(ctx, db); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", file)
	return err
}

// restore puts the file of a backup in the place of the database. The next start of a console
// brings its tables up to date.
func (s sqlite) restore(ctx context.Context, backup sqlite, force bool) error {
	switch _, err := os.Stat(s.path); {
	case err == nil && !force:
		return fmt.Errorf("%s: %w", s.path, ErrExists)
	case err == nil:
		if err := s.settle(ctx); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}

	// What is left of the database before would be taken for changes of the new one.
	for _, rest := range []string{"-wal", "-shm", "-journal"} {
		if err := os.Remove(s.path + rest); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}

	if err := os.Rename(backup.path, s.path); err != nil {
		return err
	}
	return syncDirectory(s.directory())
}

// settle returns an error unless it is sure that no other program uses the database. A file that is
// not an SQLite, or a damaged one, is in no use.
func (s sqlite) settle(ctx context.Context) error {
	db, err := sql.Open("sqlite", s.dsn("_txlock=deferred", sqliteWriteWait))
	if err != nil {
		return err
	}
	defer db.Close()

	// The database leaves its log only to the last one that uses it.
	var mode string
	err = db.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&mode)
	var e *driver.Error
	switch {
	case s.kind(err) == kindContended || err == nil && mode != "delete":
		return errors.New("a console uses the database: end it first")
	case errors.As(err, &e) && (e.Code()&0xff == codes.SQLITE_NOTADB || e.Code()&0xff == codes.SQLITE_CORRUPT):
		return nil
	case err != nil:
		return fmt.Errorf("whether a console uses %s cannot be told: %w", s.path, err)
	}
	return nil
}

// syncDirectory makes the names of files in a directory last.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
