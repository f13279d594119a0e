package store

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// addMigration adds a file to the migrations of each engine until the end of the test, as a later
// program has it.
func addMigration(t *testing.T) {
	t.Helper()
	first, all := migrations, fstest.MapFS{}
	t.Cleanup(func() { migrations = first })

	// MySQL cannot be told to leave out an index that exists.
	for engine, text := range map[string]string{
		"sqlite": "CREATE TABLE IF NOT EXISTS later (name TEXT NOT NULL PRIMARY KEY) STRICT;\n\n" +
			"CREATE INDEX IF NOT EXISTS users_by_time ON users (created_at);\n\n",
		"mysql": "CREATE TABLE IF NOT EXISTS later (name VARCHAR(64) NOT NULL PRIMARY KEY) COLLATE utf8mb4_bin;\n\n" +
			"CREATE INDEX users_by_time ON users (created_at);\n\n",
	} {
		name := "migrations/" + engine + "/0001_initial.sql"
		data, err := fs.ReadFile(first, name)
		must(t, err)
		all[name] = &fstest.MapFile{Data: data}
		text += "INSERT INTO later (name) SELECT name FROM users WHERE name NOT IN (SELECT name FROM later);\n"
		all["migrations/"+engine+"/0002_later.sql"] = &fstest.MapFile{Data: []byte(text)}
	}
	migrations = all
}

func TestMigrationRunsOnceOfManyPrograms(t *testing.T) {
	addMigration(t)
	everyEngine(t, func(t *testing.T, url string) {
		const programs = 8
		errs := make([]error, programs)

		// All open an empty database at once, and only one may run each migration.
		var group sync.WaitGroup
		for i := range programs {
			group.Go(func() {
				db, err := Open(t.Context(), Options{URL: url})
				if err == nil {
					err = db.Close()
				}
				errs[i] = err
			})
		}
		group.Wait()

		must(t, errors.Join(errs...))

		db := open(t, url)
		if n := count(t, db, "SELECT COUNT(*) FROM migrations"); n != 2 {
			t.Errorf("%d migrations were noted, want 2", n)
		}
		if n := count(t, db, "SELECT COUNT(*) FROM counters"); n != 9 {
			t.Errorf("%d counters, want 9", n)
		}
	})
}

// A later program finds the rows of an earlier one, and runs a migration again that was
// interrupted before it was noted.
func TestMigrationOfALaterProgram(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		before := open(t, url)
		update(t, before, func(tx *Tx) error { return tx.InsertUser(User{Name: "x"}) })

		addMigration(t)
		for range 2 {
			db := open(t, url)
			if n := count(t, db, "SELECT COUNT(*) FROM later WHERE name = 'x'"); n != 1 {
				t.Errorf("the migration has found the user %d times", n)
			}
			exec(t, db, "DELETE FROM migrations WHERE version = 2")
		}
	})
}

func TestMigrationInterruptedRunsAgain(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)

		// The tables are there, but nothing says which migrations have run: this is a program
		// that ended in between.
		exec(t, db, "DELETE FROM migrations")
		exec(t, db, "UPDATE counters SET value = 7 WHERE name = 'policies'")
		exec(t, db, "DROP TABLE settings")

		again := open(t, url)
		if n := count(t, again, "SELECT COUNT(*) FROM settings"); n != 1 {
			t.Errorf("%d settings, want that of the id", n)
		}
		if n := count(t, again, "SELECT value FROM counters WHERE name = 'policies'"); n != 7 {
			t.Errorf("the counter became %d, want 7", n)
		}
	})
}

func TestOpenRefusesVersionsThatItDoesNotKnow(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		old := open(t, url)
		for version, want := range map[int]string{1000: "use a newer program", -5: "version -5, which is none"} {
			exec(t, old, "DELETE FROM migrations")
			exec(t, old, "INSERT INTO migrations (version, at) VALUES (?, 0)", version)
			db, err := Open(t.Context(), Options{URL: url})
			if err == nil {
				db.Close()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %q", err, want)
			}
		}
	})
}

func TestOpenErrorsHideThePassword(t *testing.T) {
	// Each is wrong in another part of the URL, before or behind the password.
	for _, url := range []string{
		"", "x", "sqlite://", "postgres://u:s3cret@h/d", "mysql://u:s3cret@h", "mysql://u:s3cret@/d",
		"mysql://u:s3cret@h/d?multiStatements=true", "mysql://u:s3cret@h/d?tls=perhaps", "mysql://u:s3cret%zz@h/d",
	} {
		db, err := Open(t.Context(), Options{URL: url})
		if err == nil {
			db.Close()
			t.Errorf("%q: no error", url)
			continue
		}

		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error has the password: %v", url, err)
		}
	}
}

func TestOpenUnreachableIsUnavailable(t *testing.T) {
	for _, url := range []string{
		"mysql://u:s3cret@127.0.0.1:1/d",
		"sqlite:///proc/nothing/here.db",
	} {
		db, err := Open(t.Context(), Options{URL: url})
		if err == nil {
			db.Close()
			t.Errorf("%s: no error", url)
		}
	}

	_, err := Open(t.Context(), Options{URL: "mysql://u:s3cret@127.0.0.1:1/d"})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("opening a port without a server: %v, want ErrUnavailable", err)
	}
}

func TestSQLiteFileIsForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	open(t, "sqlite://"+filepath.Join(dir, "console.db"))
	for path, want := range map[string]string{dir: "drwx------", filepath.Join(dir, "console.db"): "-rw-------"} {
		if got := mode(t, path); got != want {
			t.Errorf("%s has mode %s, want %s", path, got, want)
		}
	}
}
