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
	db := s.db("_txlock=deferred", sqliteReadWait)
	defer db.Close()

	if _, err := versionOf(ctx, db); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "VACUUM INTO ?", file)
	return err
}

// restore puts the file of a backup in the place of the database. The next start of a console
// brings its tables up to date.
func (s sqlite) restore(ctx context.Context, backup sqlite, force bool) error {
	_, err := os.Stat(s.path)
	exists := err == nil
	switch {
	case exists && !force:
		return fmt.Errorf("%s: %w", s.path, ErrExists)
	case exists:
		err = s.settle(ctx)
	case errors.Is(err, os.ErrNotExist):
		err = nil
	}
	if err != nil {
		return err
	}
	if err := s.inherit(backup.path, exists); err != nil {
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

// inherit gives a file to the owner of the database, if it exists, or else of its directory, so
// that a console can read what root has restored.
func (s sqlite) inherit(file string, exists bool) error {
	if exists {
		return giveToOwner(file, s.path)
	}

	// A process that may write to the directory of another user makes files of its own there.
	err := giveToOwner(file, s.directory())
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}

// followLinks returns the path of the file to which the links at a path lead. The file may be
// missing.
func followLinks(path string) (string, error) {
	full, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, os.ErrNotExist) {
		return full, err
	}
	target, err := os.Readlink(path)
	if err != nil {
		return path, nil // it is missing itself, and no link
	}

	// A target is relative to the directory in which the link really is.
	if !filepath.IsAbs(target) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		target = filepath.Join(dir, target)
	}
	return followLinks(target)
}

// settle returns an error unless it is sure that no other program uses the database. A file that is
// not an SQLite, or a damaged one, is in no use.
func (s sqlite) settle(ctx context.Context) error {
	db := s.db("_txlock=deferred", sqliteWriteWait)
	defer db.Close()

	// The database leaves its log only to the last one that uses it.
	var mode string
	err := db.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&mode)
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
