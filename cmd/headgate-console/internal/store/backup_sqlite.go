package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	for _, rest := range []string{"-wal", "-shm"} {
		if err := os.Remove(s.path + rest); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}

	if err := os.Rename(backup.path, s.path); err != nil {
		return err
	}
	return syncDirectory(s.directory())
}

// settle returns an error if another program uses the database. One that cannot be read is none.
func (s sqlite) settle(ctx context.Context) error {
	db, err := sql.Open("sqlite", s.dsn("_txlock=deferred", sqliteWriteWait))
	if err != nil {
		return err
	}
	defer db.Close()

	// The database leaves its log only to the last one that uses it.
	_, err = db.ExecContext(ctx, "PRAGMA journal_mode = DELETE")
	if s.kind(err) == kindContended {
		return errors.New("a console uses the database: end it first")
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
