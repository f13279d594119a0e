package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// filled is how many rows fillTables puts into each table: more than one statement of a copy has.
const filled = maxBatch + 50

// fillTables adds rows to every table. The text of each is what the rows refer to.
func fillTables(t testing.TB, db *DB) {
	t.Helper()
	conn, err := db.write.Conn(t.Context())
	must(t, err)
	defer conn.Close()

	if db.engine.name() == "mysql" {
		_, err = conn.ExecContext(t.Context(), "SET foreign_key_checks = 0")
		must(t, err)
		defer conn.ExecContext(context.WithoutCancel(t.Context()), "SET foreign_key_checks = 1")
	}
	tx, err := conn.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	if db.engine.name() == "sqlite" {
		_, err = tx.ExecContext(t.Context(), "PRAGMA defer_foreign_keys = 1")
		must(t, err)
	}

	for _, table := range tablesOfNewest(t) {
		b := batch{ctx: t.Context(), table: table, to: tx}
		for i := range filled {
			row := table.row()
			for _, v := range row {
				switch v := v.(type) {
				case *int64:
					*v = int64(i % 2)
				case *string:
					*v = fmt.Sprintf(`x%d '"\ é😀?`, i)
				case *[]byte:
					*v = []byte{0, '\'', '\\', 255, byte(i)}
				}
			}
			for j, c := range table.columns { // keys that are numbers
				if c == "`id`" || c == "`at`" || c == "`version`" || c == "`series`" {
					if n, ok := row[j].(*int64); ok {
						*n = int64(i) + 1
					}
				}
			}
			must(t, b.add(row))
		}
		must(t, b.flush())
	}
	must(t, tx.Commit())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tablesOfNewest returns the tables of the newest version.
func tablesOfNewest(t testing.TB) []table {
	t.Helper()
	list, err := tablesOf(t.Context(), len(migrationsOf(sqlite{})))
	must(t, err)
	return list
}

// content returns the rows of every table as text, in the order of all columns, but for the
// identity of the database.
func content(t testing.TB, db *DB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range tablesOfNewest(t) {
		columns := strings.Join(table.columns, ", ")
		rows, err := db.read.QueryContext(t.Context(), "SELECT "+columns+" FROM "+table.name+" ORDER BY "+columns)
		must(t, err)
		for rows.Next() {
			row := table.row()
			must(t, rows.Scan(row...))
			var text []string
			for _, v := range row {
				text = append(text, fmt.Sprintf("%q", reflect.ValueOf(v).Elem().Interface()))
			}
			all[table.name] = append(all[table.name], strings.Join(text, " "))
		}
		must(t, errors.Join(rows.Err(), rows.Close()))
	}

	// Each database has an identity of its own, whose places it knows itself.
	all["settings"] = slices.DeleteFunc(all["settings"], func(row string) bool {
		return strings.HasPrefix(row, strconv.Quote(identityName))
	})
	return all
}

// sameContent fails unless two databases have the same rows.
func sameContent(t testing.TB, got, want map[string][]string) {
	t.Helper()
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s has %d rows, want %d; the first ones are\n%.300s\n%.300s", name, len(got[name]),
				len(want[name]), fmt.Sprint(got[name]), fmt.Sprint(want[name]))
		}
	}
}

func TestBackupOfEachEngineRestoresOnEach(t *testing.T) {
	everyEngine(t, func(t *testing.T, from string) {
		db := open(t, from)
		fillTables(t, db)
		want := content(t, db)
		if len(want) != len(tablesOfNewest(t)) || len(want["apps"]) != filled {
			t.Fatalf("%d tables have rows, and apps %d", len(want), len(want["apps"]))
		}

		// The database stays open, as that of a console which runs, and the latest rows of an
		// SQLite are not in its main file.
		file := filepath.Join(t.TempDir(), "backup")
		must(t, Backup(t.Context(), from, file))
		if got := mode(t, file); got != "-rw-------" {
			t.Errorf("the mode of the file is %s", got)
		}
		if rest, _ := filepath.Glob(file + "?*"); rest != nil {
			t.Errorf("beside the file there is %v", rest)
		}

		everyEngine(t, func(t *testing.T, to string) {
			must(t, Restore(t.Context(), to, file, false))
			sameContent(t, content(t, open(t, to)), want)

			// What has rows is replaced by force alone.
			if err := Restore(t.Context(), to, file, false); !errors.Is(err, ErrExists) {
				t.Errorf("again: %v", err)
			}
		})
	})
}

func TestRestoreByForceReplacesEverything(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		file := filepath.Join(t.TempDir(), "backup")
		db, err := Open(t.Context(), Options{URL: url, Timeout: patience})
		must(t, err)
		update(t, db, func(tx *Tx) error { return tx.InsertUser(User{Name: "before"}) })
		want := content(t, db)
		must(t, db.Backup(t.Context(), file))
		fillTables(t, db)

		// An SQLite that a console uses stays as it is.
		if db.engine.name() == "sqlite" {
			err := Restore(t.Context(), url, file, true)
			if err == nil || !strings.Contains(err.Error(), "end it first") {
				t.Errorf("beside a console: %v", err)
			}
			if n := count(t, db, "SELECT COUNT(*) FROM users"); n != filled+1 {
				t.Errorf("there are %d users", n)
			}
		}
		must(t, db.Close())

		must(t, Restore(t.Context(), url, file, true))
		sameContent(t, content(t, open(t, url)), want)
	})
}

func TestBackupHasOneInstant(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		dir := t.TempDir()

		// Each transaction adds an application and raises a counter.
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			for i := 0; ; i++ {
				if ctx.Err() != nil {
					ended <- nil
					return
				}
				err := db.Update(t.Context(), func(tx *Tx) error {
					if err := tx.InsertApp(App{Name: fmt.Sprint("app", i)}); err != nil {
						return err
					}
					return tx.RaiseCounter(CounterUsers, 0)
				})
				if err != nil {
					ended <- err
					return
				}
			}
		}()

		for i := range 5 {
			file := filepath.Join(dir, fmt.Sprint("backup", i))
			if err := db.Backup(t.Context(), file); err != nil {
				t.Error(err)
				break
			}
			copied := open(t, "sqlite://"+file)
			apps := count(t, copied, "SELECT COUNT(*) FROM apps")
			if n := count(t, copied, "SELECT value FROM counters WHERE name = 'users'"); n != apps {
				t.Errorf("the backup has %d applications and the count %d", apps, n)
			}
		}
		stop()
		must(t, <-ended)
	})
}

func TestRestoreOfAnOlderVersion(t *testing.T) {
	addMigration(t)
	everyEngine(t, func(t *testing.T, url string) {
		old := sqlite{path: filepath.Join(t.TempDir(), "old.db")}
		must(t, old.written(t.Context(), func(db *sql.DB) error {
			if err := migrateAlone(t.Context(), old, db, 1); err != nil {
				return err
			}
			_, err := db.ExecContext(t.Context(), "INSERT INTO users VALUES ('x', '', 1, 0, 0, 0, '', 0)")
			return err
		}))

		must(t, Restore(t.Context(), url, old.path, false))
		db := open(t, url)
		if n := count(t, db, "SELECT COUNT(*) FROM users JOIN later ON later.name = users.name"); n != 1 {
			t.Errorf("the last migration has %d users", n)
		}
	})
}

func TestRestoreRefusesWhatIsNoBackup(t *testing.T) {
	addMigration(t)
	source := "sqlite://" + filepath.Join(t.TempDir(), "console.db")
	db := open(t, source)
	fillTables(t, db)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	must(t, db.Backup(t.Context(), good))
	whole, err := os.ReadFile(good)
	must(t, err)

	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, b, 0o600))
		return path
	}
	edited := func(name, statement string) string {
		s := sqlite{path: write(name, whole)}
		must(t, s.written(t.Context(), func(db *sql.DB) error {
			for _, q := range []string{"PRAGMA foreign_keys = 0", statement} {
				if _, err := db.ExecContext(t.Context(), q); err != nil {
					return err
				}
			}
			return nil
		}))
		return s.path
	}

	raw, err := os.ReadFile(strings.TrimPrefix(source, "sqlite://"))
	must(t, err)
	damaged := append([]byte(nil), whole...)
	for i := len(damaged) / 2; i < len(damaged)/2+8192; i++ {
		damaged[i] ^= 0x5a
	}

	for want, file := range map[string]string{
		"no such file":                    filepath.Join(dir, "none"),
		"it is not a backup of a console": write("text", []byte("policies: []\n")),
		"not a backup of a console":       write("empty", nil),
		"may lack the latest changes":     write("raw", raw),
		"lacks the table of migrations":   edited("other", "DROP TABLE migrations"),
		"use a newer program":             edited("newer", "INSERT INTO migrations VALUES (1000, 0)"),
		"version -5, which is none": edited("negative",
			"DELETE FROM migrations; INSERT INTO migrations VALUES (-5, 0)"),
		`lacks the table "users"`: edited("less", "DROP TABLE users"),
		`has the table "orders"`:  edited("more", "CREATE TABLE orders (n)"),
		`has the view "a\nb"`:     edited("view", "CREATE VIEW `a\nb` AS SELECT 1"),
		`has the index "by_hash"`: edited("index", "CREATE INDEX by_hash ON sessions (hash)"),
		`has the trigger "promote"`: edited("trigger", "CREATE TRIGGER promote AFTER UPDATE ON users "+
			"BEGIN UPDATE users SET administrator = 1; END"),
		`its trigger "audit_keep" is not`: edited("replaced", "DROP TRIGGER audit_keep; "+
			"CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT 1; END"),
		`its table "apps" is not`:       edited("column", "ALTER TABLE apps ADD COLUMN more TEXT"),
		`has the table "later"`:         edited("early", "DELETE FROM migrations WHERE version = 2"),
		"refers to one that is missing": edited("torn", "DELETE FROM users"),
		"damaged":                       write("damaged", damaged),
		"disk image is malformed":       write("cut", whole[:len(whole)/2]),
	} {
		to := filepath.Join(t.TempDir(), "data", "console.db")
		err := Restore(t.Context(), "sqlite://"+to, file, true)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", file, err, want)
		}
		if left, _ := os.ReadDir(filepath.Dir(to)); len(left) > 0 {
			t.Errorf("%s leaves %v", file, left)
		}
	}
}

// A program that has a table of migrations too is not a console.
func TestRestoreKeepsTheDatabaseFromAnotherProgram(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		other := sqlite{path: filepath.Join(t.TempDir(), "other.db")}
		must(t, other.written(t.Context(), func(db *sql.DB) error {
			_, err := db.ExecContext(t.Context(), "CREATE TABLE migrations (version BIGINT NOT NULL PRIMARY KEY, "+
				"at BIGINT NOT NULL); INSERT INTO migrations VALUES (1, 0)")
			return err
		}))
		db, err := Open(t.Context(), Options{URL: url, Timeout: patience})
		must(t, err)
		update(t, db, func(tx *Tx) error { return tx.InsertUser(User{Name: "before"}) })
		must(t, db.Close())

		err = Restore(t.Context(), url, other.path, true)
		if !errors.Is(err, ErrNoBackup) || !strings.Contains(err.Error(), `lacks the table "alerts"`) {
			t.Errorf("the error is %v", err)
		}
		if n := count(t, open(t, url), "SELECT COUNT(*) FROM users WHERE name = 'before'"); n != 1 {
			t.Errorf("%d users are left", n)
		}
	})
}

// The names of tables in a file are no part of a statement, also if the check has missed them.
func TestRestoreOnMariaDBKeepsOtherDatabases(t *testing.T) {
	server := maria.Server(t)
	other := server.Database(t)
	must(t, open(t, other).Update(t.Context(), func(tx *Tx) error { return tx.InsertApp(App{Name: "mine"}) }))
	name := other[strings.LastIndex(other, "/")+1:]

	file := sqlite{path: filepath.Join(t.TempDir(), "hostile.db")}
	must(t, file.written(t.Context(), func(db *sql.DB) error {
		if err := migrateAlone(t.Context(), file, db, 1); err != nil {
			return err
		}
		_, err := db.ExecContext(t.Context(), "CREATE TABLE `"+name+".apps` (name TEXT)")
		return err
	}))

	// The engine is given the file without a check.
	url := server.Database(t)
	e, err := engineOf(url)
	must(t, err)
	must(t, e.restore(t.Context(), file, true))
	if n := count(t, open(t, other), "SELECT COUNT(*) FROM apps WHERE name = 'mine'"); n != 1 {
		t.Errorf("the other database has %d applications", n)
	}

	// The whole command names it.
	err = Restore(t.Context(), url, file.path, true)
	if err == nil || !strings.Contains(err.Error(), name+".apps") {
		t.Errorf("the error is %v", err)
	}
}

func TestRestoreOnMariaDBInUseKeepsItsTables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup")
	must(t, open(t, "sqlite://"+filepath.Join(t.TempDir(), "console.db")).Backup(t.Context(), file))

	// The consoles of the database are of an older version.
	addMigration(t)
	url := maria.Server(t).Database(t)
	e, err := engineOf(url)
	must(t, err)
	db, _, err := e.open()
	must(t, err)
	defer db.Close()
	must(t, migrateAlone(t.Context(), e, db, 1))
	_, err = db.ExecContext(t.Context(), "INSERT INTO users VALUES ('x', '', 1, 0, 0, 0, '', 0)")
	must(t, err)

	if err := Restore(t.Context(), url, file, false); !errors.Is(err, ErrExists) {
		t.Errorf("without force: %v", err)
	}
	if version, err := versionOf(t.Context(), db); version != 1 || err != nil {
		t.Errorf("the tables have version %d, %v", version, err)
	}

	// By force they become those of this program.
	must(t, Restore(t.Context(), url, file, true))
	if version, err := versionOf(t.Context(), db); version != len(migrationsOf(e)) || err != nil {
		t.Errorf("by force the tables have version %d, %v", version, err)
	}
}

// backupOf returns a backup of a new database with a user of a name, in a directory of its own.
func backupOf(t *testing.T, user string) sqlite {
	t.Helper()
	file := sqlite{path: filepath.Join(t.TempDir(), "backup")}
	db := open(t, "sqlite://"+filepath.Join(t.TempDir(), "console.db"))
	update(t, db, func(tx *Tx) error { return tx.InsertUser(User{Name: user}) })
	must(t, db.Backup(t.Context(), file.path))
	return file
}

// Unless it is sure that no console uses the old database, neither it nor its log is touched.
func TestRestoreKeepsWhatItCannotRead(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	for name, row := range map[string]struct {
		ctx  context.Context
		make func(path string) error
	}{
		"the context has ended": {ended, func(path string) error { return os.WriteFile(path, nil, 0o600) }},
		"a directory":           {t.Context(), func(path string) error { return os.Mkdir(path, 0o700) }},
		"no memory to share": {t.Context(), func(path string) error {
			must(t, os.Rename(backupOf(t, "old").path, path))
			return os.Mkdir(path+"-shm", 0o700)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := sqlite{path: filepath.Join(t.TempDir(), "console.db")}
			must(t, row.make(s.path))
			must(t, os.WriteFile(s.path+"-wal", []byte("changes"), 0o600))
			before, err := os.Stat(s.path)
			must(t, err)

			err = s.restore(row.ctx, backupOf(t, "new"), true)
			if err == nil || !strings.Contains(err.Error(), "cannot be told") {
				t.Errorf("the error is %v", err)
			}

			// The file is the same one.
			if after, err := os.Stat(s.path); err != nil || !os.SameFile(before, after) {
				t.Errorf("the database was replaced: %v", err)
			}
			if b, err := os.ReadFile(s.path + "-wal"); string(b) != "changes" {
				t.Errorf("the log has %q, %v", b, err)
			}
		})
	}
}

// A journal that an old database has left would undo changes of the new one, also if the old
// database is gone.
func TestRestoreLeavesNothingOfTheOldDatabase(t *testing.T) {
	for _, old := range [][]string{{"-wal", "-shm", "-journal"}, {"", "-wal", "-shm", "-journal"}} {
		s := sqlite{path: filepath.Join(t.TempDir(), "console.db")}
		for _, name := range old {
			must(t, os.WriteFile(s.path+name, []byte("no database of the kind that SQLite makes"), 0o600))
		}
		must(t, s.restore(t.Context(), backupOf(t, "new"), true))
		if rest, err := filepath.Glob(s.path + "?*"); rest != nil || err != nil {
			t.Errorf("there is %v, %v", rest, err)
		}

		if n := count(t, open(t, "sqlite://"+s.path), "SELECT COUNT(*) FROM users WHERE name = 'new'"); n != 1 {
			t.Errorf("%d users are restored", n)
		}
	}
}

func TestCopyRowsQuotesNames(t *testing.T) {
	var ends [2]*sql.Tx
	var tables []table

	// Each has one row, with its number.
	for i := range ends {
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "db"))
		must(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), "CREATE TABLE `a``.b` (`c``, d` TEXT); INSERT INTO `a``.b` VALUES (?)", i)
		must(t, err)
		tables, err = listTables(t.Context(), db)
		must(t, err)
		ends[i], err = db.BeginTx(t.Context(), nil)
		must(t, err)
		defer ends[i].Rollback()
	}

	must(t, tables[0].copyRows(t.Context(), ends[0], ends[1]))
	var got string
	must(t, ends[1].QueryRowContext(t.Context(), "SELECT group_concat(`c``, d`) FROM `a``.b`").Scan(&got))
	if got != "0" {
		t.Errorf("the rows are %s, want that of the first", got)
	}
}

func TestRestoreOfADatabaseThatWasAnalyzed(t *testing.T) {
	from := "sqlite://" + filepath.Join(t.TempDir(), "console.db")
	db := open(t, from)
	fillTables(t, db)
	exec(t, db, "ANALYZE")
	file := filepath.Join(t.TempDir(), "backup")
	must(t, db.Backup(t.Context(), file))
	must(t, Restore(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "console.db"), file, false))
}

func TestBackupRefusesToOverwriteOrInvent(t *testing.T) {
	dir := t.TempDir()
	if err := Backup(t.Context(), "sqlite://"+filepath.Join(dir, "none.db"), filepath.Join(dir, "b")); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("a backup of nothing: %v", err)
	}

	db := open(t, "sqlite://"+filepath.Join(dir, "console.db"))
	file := filepath.Join(dir, "mine")
	must(t, os.WriteFile(file, []byte("mine"), 0o600))
	if err := db.Backup(t.Context(), file); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if b, err := os.ReadFile(file); string(b) != "mine" {
		t.Errorf("the file has %q, %v", b, err)
	}

	// One that is broken off leaves nothing.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Backup(ended, filepath.Join(dir, "part")); err == nil {
		t.Error("a backup for nobody")
	}
	if _, err := os.Stat(filepath.Join(dir, "part")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part is left: %v", err)
	}
}
