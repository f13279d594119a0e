package store

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// idOf opens a database, and returns its id after it is closed.
func idOf(t *testing.T, url string) (id string) {
	t.Helper()
	db, err := Open(t.Context(), Options{URL: url, Timeout: patience})
	must(t, err)
	err = db.View(t.Context(), func(tx *Tx) (err error) {
		id, err = tx.ID()
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	return id
}

func TestADatabaseHasOneID(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		first, second := idOf(t, url), idOf(t, url)
		if first != second || !regexp.MustCompile(`^[a-z0-9]{26}$`).MatchString(first) {
			t.Errorf("the id is %q, and %q the next time", first, second)
		}

		var renewed, former string
		update(t, open(t, url), func(tx *Tx) (err error) {
			if renewed, err = tx.RenewID(); err != nil {
				return err
			}
			former, err = tx.FormerID()
			return err
		})
		if former != first {
			t.Errorf("the former id is %q, not %q", former, first)
		}
		if again := idOf(t, url); again != renewed || renewed == first {
			t.Errorf("the id was renewed to %q and is %q, after %q", renewed, again, first)
		}
	})
}

// overwrite copies a file over another, as cp does.
func overwrite(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, data, 0o600))
}

// A copy beside the file has an id of its own. The file keeps its id when it is renamed, and when
// a copy is written over it or put in its place.
func TestACopyOfAFileHasAnotherID(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	url := func(name string) string { return "sqlite://" + path(name) }

	first := idOf(t, url("first"))
	overwrite(t, path("first"), path("second"))
	second := idOf(t, url("second"))
	if second == first || second != idOf(t, url("second")) || first != idOf(t, url("first")) {
		t.Errorf("the copy has the id %q of %q, or one of them changes", second, first)
	}

	overwrite(t, path("first"), path("backup"))
	overwrite(t, path("backup"), path("first"))
	if id := idOf(t, url("first")); id != first {
		t.Errorf("after a copy was written over it the id is %q, not %q", id, first)
	}

	// A rename is a move, whichever file is put in the place of which.
	for step, move := range []struct{ from, to string }{{"backup", "first"}, {"first", "moved"}} {
		must(t, os.Rename(path(move.from), path(move.to)))
		if id := idOf(t, url(move.to)); id != first {
			t.Errorf("step %d: %s was renamed to %s, and its id is %q, not %q", step, move.from, move.to, id, first)
		}
	}
}

// A file on another disk, or of another host, that has the same number is another file.
func TestACopyOnAnotherDiskHasAnotherID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.db")
	url := "sqlite://" + path
	first := idOf(t, url)
	here := inode(path)
	if here == "" {
		t.Skip("a file is known by its path alone here")
	}
	parts := regexp.MustCompile(`^([0-9]+):([0-9]+)@(.+)$`).FindStringSubmatch(here)
	if parts == nil {
		t.Fatalf("the file is %q", here)
	}

	// The path is another one each time, so the number alone counts.
	for place, same := range map[string]bool{
		here: true, parts[2]: false, "0" + here: false, here + "x": false,
		parts[1] + ":" + parts[2] + "@": false,
	} {
		moved := func(tx *Tx) error {
			return writeIdentity(tx.ctx, tx.tx, identity{ID: first, Former: "before",
				Places: []string{"path:/elsewhere/console.db", "file:" + place}})
		}
		db := open(t, url)
		update(t, db, moved)
		must(t, db.Close())

		if id := idOf(t, url); (id == first) != same {
			t.Errorf("a file that was at %q before, and is at %q, has the id %q of %q", place, here, id, first)
		}

		// What the original had before is of the original.
		var former string
		update(t, open(t, url), func(tx *Tx) (err error) {
			former, err = tx.FormerID()
			return err
		})
		if (former == "before") != same {
			t.Errorf("from %q to %q: the former id is %q", place, here, former)
		}
	}
}

// A dump that is read into another database is a copy, whatever the server.
func TestACopyOfADatabaseHasAnotherID(t *testing.T) {
	server := maria.Server(t)
	from, to := server.Database(t), server.Database(t)
	first := idOf(t, from)
	second := idOf(t, to)

	name := regexp.MustCompile(`/([^/?]+)(\?|$)`).FindStringSubmatch(strings.TrimPrefix(from, "mysql://"))
	if name == nil {
		t.Fatalf("%s names no database", from)
	}
	update(t, open(t, to), func(tx *Tx) error {
		if err := tx.exec("DELETE FROM settings"); err != nil {
			return err
		}
		return tx.exec(fmt.Sprintf("INSERT INTO settings SELECT * FROM `%s`.settings", name[1]))
	})

	if third := idOf(t, to); third == first || third == second {
		t.Errorf("the ids are %q, %q and after the copy %q", first, second, third)
	}
}
