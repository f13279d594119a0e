package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// What a killed process has left is removed at the start, and nothing that may be in use or that is
// of other programs.
func TestOpenRemovesWhatBackupsHaveLeft(t *testing.T) {
	// The first two are old, and the others lack one thing each.
	dir := t.TempDir()
	old := time.Now().Add(-staleAfter - time.Minute)
	for _, f := range []struct {
		path               string
		fileOld, folderOld bool
	}{
		{".backup-123/backup.db", true, true},
		{".restore-45/backup.db-journal", true, true},
		{".backup-1/backup.db", false, true}, // it is being written
		{".restore-2/backup.db", true, false},
		{".backup-3/mine", true, true},
		{".backup-/backup.db", true, true},
		{".backup-2026-11/backup.db", true, true},
		{"backup-4/backup.db", true, true},
	} {
		file := filepath.Join(dir, f.path)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, nil, 0o600))

		// The folder is last, as a new file makes it new.
		if f.fileOld {
			must(t, os.Chtimes(file, old, old))
		}
		if f.folderOld {
			must(t, os.Chtimes(filepath.Dir(file), old, old))
		}
	}

	db, err := Open(t.Context(), Options{URL: "sqlite://" + filepath.Join(dir, "console.db")})
	must(t, err)
	must(t, db.Close())

	// The database itself is a file, and no folder.
	entries, err := os.ReadDir(dir)
	must(t, err)
	var folders []string
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, e.Name())
		}
	}
	want := []string{".backup-", ".backup-1", ".backup-2026-11", ".backup-3", ".restore-2", "backup-4"}
	if !slices.Equal(folders, want) {
		t.Errorf("there are %q, want %q", folders, want)
	}
}
