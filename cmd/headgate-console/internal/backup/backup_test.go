package backup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// call runs a command and returns its exit code and all that it printed.
func call(t *testing.T, env map[string]string, args ...string) (code int, out, bad string) {
	t.Helper()
	var o, b bytes.Buffer
	code = Main(t.Context(), args, func(name string) string { return env[name] }, &o, &b)
	return code, o.String(), b.String()
}

// filled makes a database with an application in a directory, and leaves it open.
func filled(t *testing.T, dir, app string) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: "sqlite://" + filepath.Join(dir, "console.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	err = db.Update(t.Context(), func(tx *store.Tx) error { return tx.InsertApp(store.App{Name: app}) })
	if err != nil {
		t.Fatal(err)
	}
}

// apps returns the names of the applications in a database.
func apps(t *testing.T, dir string) (names []string) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: "sqlite://" + filepath.Join(dir, "console.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(t.Context(), func(tx *store.Tx) error {
		list, err := tx.Apps()
		for _, a := range list {
			names = append(names, a.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestBackupAndRestore(t *testing.T) {
	dir := t.TempDir()
	one, two, file := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "file")
	filled(t, one, "shop") // a console that runs

	code, out, bad := call(t, nil, backup, "-data", one, file)
	if code != 0 || !strings.Contains(out, file) || bad != "" {
		t.Fatalf("the backup ended with %d, %q, %q", code, out, bad)
	}

	// It has secrets, so others may not read it.
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}

	if code, _, bad := call(t, nil, restore, "-data", two, file); code != 0 || bad != "" {
		t.Fatalf("the restore ended with %d, %q", code, bad)
	}

	if got := apps(t, two); len(got) != 1 || got[0] != "shop" {
		t.Errorf("the applications are %v", got)
	}
}

func TestBackupAndRestoreReplaceByForceAlone(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "file")
	filled(t, filepath.Join(dir, "running"), "shop")
	call(t, nil, backup, "-data", filepath.Join(dir, "running"), file)
	call(t, nil, restore, "-data", data, file)

	for _, args := range [][]string{{backup, "-data", data, file}, {restore, "-data", data, file}} {
		if code, _, bad := call(t, nil, args...); code != 2 || !strings.Contains(bad, "-force") {
			t.Errorf("%v ended with %d, %q", args, code, bad)
		}
		forced := append([]string{args[0], "-force"}, args[1:]...)
		if code, _, bad := call(t, nil, forced...); code != 0 {
			t.Errorf("%v ended with %d, %q", forced, code, bad)
		}
	}

	// The directories of what was begun are gone.
	if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("the directory has %v, %v", list, err)
	}
}

func TestCommandLine(t *testing.T) {
	// A backup of nothing fails, and so does a command line that is not understood.
	for _, row := range []struct {
		env  map[string]string
		args []string
		code int
		want string
	}{
		{nil, []string{backup}, 2, "name one file"},
		{nil, []string{backup, "a", "b"}, 2, "name one file"},
		{nil, []string{backup, "-data", "", "a"}, 2, "-data: it is empty"},
		{nil, []string{backup, "-data", "/nowhere/at/all", filepath.Join(t.TempDir(), "a")}, 2, "no such file"},
		{map[string]string{config.EnvDB: "x://x"}, []string{backup, "a"}, 2, "-db: it does not begin with mysql://"},
		{nil, []string{restore, "-h"}, 0, "End all consoles"},
		{nil, []string{backup, "-h"}, 0, "which may run meanwhile"},
	} {
		if code, _, bad := call(t, row.env, row.args...); code != row.code || !strings.Contains(bad, row.want) {
			t.Errorf("%v ended with %d, %q, want %d, %q", row.args, code, bad, row.code, row.want)
		}
	}

	// To look for a database makes none.
	if _, err := os.Stat("headgate-data"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a backup of nothing made a directory: %v", err)
	}

	if !IsCommand("backup") || !IsCommand("restore") || IsCommand("-h") {
		t.Error("the commands are others")
	}
}
