package store

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// staleAfter is how long a folder of a backup is left alone. One that is in use is written to all
// the time.
const staleAfter = time.Hour

// sweep removes the folders of backups and of restores that a process has left in a directory when
// it was killed. They may be as large as the database. The directory "" has none.
func sweep(dir string, now time.Time) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() && scratch.MatchString(e.Name()) && isStale(path, now) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// scratch matches a folder with a name as os.MkdirTemp makes it for a backup or a restore. The
// directory may be one in which people keep folders of similar names.
var scratch = regexp.MustCompile(`^\.(backup|restore)-[0-9]+$`)

// isStale reports whether nothing in a folder was written for staleAfter, and whether it has
// nothing but the files of one backup.
func isStale(path string, now time.Time) bool {
	files, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "backup.db") || !isOlder(filepath.Join(path, f.Name()), now) {
			return false
		}
	}
	return isOlder(path, now)
}

func isOlder(path string, now time.Time) bool {
	info, err := os.Lstat(path)
	return err == nil && now.Sub(info.ModTime()) > staleAfter
}
