package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
)

func TestNamesAreNotFolded(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)

		// Pairs that a collation for people takes for the same: case, accents, a sharp s, and
		// signs beyond 16 bits.
		names := []string{"a", "A", "é", "e", "ß", "ss", "😀", "😁"}

		update(t, db, func(tx *Tx) error {
			for _, name := range names {
				if err := tx.InsertApp(App{Name: name, Description: name}); err != nil {
					return err
				}
			}
			return nil
		})

		for _, name := range names {
			update(t, db, func(tx *Tx) error {
				a, err := tx.App(name)
				if a.Description != name {
					t.Errorf("%q found %q", name, a.Description)
				}
				return err
			})
		}
	})
}

func TestErrorsAreTheSameOnEveryEngine(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)

		update(t, db, func(tx *Tx) error { return tx.InsertApp(App{Name: "a"}) })
		update(t, db, func(tx *Tx) error {
			return tx.InsertPolicy(Policy{Name: "p", Version: 1, Apps: []string{"a"}})
		})

		// A caller decides by these errors, so no engine may have its own.
		for _, row := range []struct {
			name string
			f    func(*Tx) error
			want error
		}{
			{"an app twice", func(tx *Tx) error { return tx.InsertApp(App{Name: "a"}) }, ErrExists},
			{"a policy twice", func(tx *Tx) error { return tx.InsertPolicy(Policy{Name: "p"}) }, ErrExists},
			{"a policy of no app",
				func(tx *Tx) error { return tx.InsertPolicy(Policy{Name: "q", Apps: []string{"x"}}) }, ErrReferenced},
			{"an app in use", func(tx *Tx) error { return tx.DeleteApp("a") }, ErrReferenced},
			{"no app", func(tx *Tx) error { return tx.DeleteApp("x") }, ErrNotFound},
			{"a role of an unknown user",
				func(tx *Tx) error { return tx.SetRole(Role{"x", "a", "owner"}) }, ErrReferenced},
			{"no user", func(tx *Tx) error { _, err := tx.User("x"); return err }, ErrNotFound},
			{"a stale update",
				func(tx *Tx) error { return tx.UpdatePolicy(Policy{Name: "p", Version: 3}, 2) }, ErrStale},
			{"a stale deletion", func(tx *Tx) error { return tx.DeletePolicy("p", 2) }, ErrStale},
		} {
			if err := db.Update(t.Context(), row.f); !errors.Is(err, row.want) {
				t.Errorf("%s: %v, want %v", row.name, err, row.want)
			}
		}
	})
}

func TestUpdateFailedLeavesNothing(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)

		fault := errors.New("a fault")
		// The row was inserted when the fault comes, and has to go with it.
		err := db.Update(t.Context(), func(tx *Tx) error {
			return errors.Join(tx.InsertApp(App{Name: "a"}), fault)
		})
		if !errors.Is(err, fault) {
			t.Errorf("%v, want %v", err, fault)
		}

		if n := count(t, db, "SELECT COUNT(*) FROM apps"); n != 0 {
			t.Errorf("%d apps stayed", n)
		}
	})
}

func TestRaiseCounterShowsTheLastChange(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)

		exec(t, db, "INSERT INTO settings (name, value) VALUES ('n', '0')")
		const writers, rounds = 8, 10

		// The counter is raised first, which makes the others wait, so each reads what the last
		// one wrote.
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range rounds {
					err := db.Update(t.Context(), func(tx *Tx) error {
						if err := tx.RaiseCounter(CounterUsers, 1); err != nil {
							return err
						}
						s, err := tx.Setting("n")
						if err != nil {
							return err
						}
						return tx.SetSetting("n", s+"x")
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}

		group.Wait()
		update(t, db, func(tx *Tx) error {
			s, err := tx.Setting("n")
			if want := "0" + strings.Repeat("x", writers*rounds); s != want {
				t.Errorf("%d changes stayed of %d", len(s)-1, writers*rounds)
			}
			return err
		})
	})
}

// MariaDB from 11.6 on refuses to write a row that was changed after the transaction's first read,
// which earlier ones do only if they are told to.
func TestUpdateRunsAgainAfterARowHasChanged(t *testing.T) {
	url := mariadbtest.Start(t).Database(t)
	db := open(t, url)

	update(t, db, func(tx *Tx) error {
		err := tx.exec("SET GLOBAL innodb_snapshot_isolation = ON")
		return errors.Join(err, tx.SetSetting("n", "0"))
	})

	first, second := open(t, url), open(t, url) // whose connections begin after that
	runs := 0

	// In its first run another writer comes in between; the second run reads what that wrote.
	update(t, first, func(tx *Tx) error {
		runs++
		s, err := tx.Setting("n")
		if err == nil && runs == 1 {
			update(t, second, func(tx *Tx) error { return tx.SetSetting("n", s+"x") })
		}
		return errors.Join(err, tx.SetSetting("n", s+"y"))
	})

	update(t, db, func(tx *Tx) error {
		s, err := tx.Setting("n")
		if s != "0xy" || runs != 2 {
			t.Errorf("after %d runs it is %q", runs, s)
		}
		return err
	})
}

// A server may have another isolation level by default. With READ COMMITTED a view would see what
// was written after its first read, and with SERIALIZABLE it would wait for the writer.
func TestViewSeesOneInstant(t *testing.T) {
	url := mariadbtest.Start(t).Database(t)
	db := open(t, url)
	for _, level := range []string{"READ COMMITTED", "SERIALIZABLE"} {
		exec(t, db, "SET GLOBAL TRANSACTION ISOLATION LEVEL "+level)
		update(t, db, func(tx *Tx) error { return tx.SetSetting("n", "0") })
		reader, writer := open(t, url), open(t, url) // whose connections begin after that

		must(t, reader.View(t.Context(), func(tx *Tx) error {
			before, err := tx.Setting("n")
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			must(t, writer.Update(ctx, func(tx *Tx) error { return tx.SetSetting("n", "1") }))

			after, err := tx.Setting("n")
			if before != "0" || after != "0" {
				t.Errorf("%s: a view saw %q and then %q", level, before, after)
			}
			return err
		}))
	}
}

// counting is SQLite, and calls refused each time another writer was in the way.
type counting struct {
	sqlite
	refused func()
}

func (c counting) kind(err error) kind {
	k := c.sqlite.kind(err)
	if k == kindContended {
		c.refused()
	}
	return k
}

func TestUpdateWaitsForOtherProgramsUntilContextEnds(t *testing.T) {
	url := "sqlite://" + filepath.Join(t.TempDir(), "x.db")

	db, other := open(t, url), open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	// The other program holds the lock, so each try is refused; the third refusal ends the
	// context.
	refusals := 0
	update(t, other, func(*Tx) error {
		engine := counting{refused: func() {
			if refusals++; refusals == 3 {
				cancel()
			}
		}}

		if tx, err := begin(ctx, engine, db.write, nil); err == nil || refusals != 3 {
			t.Errorf("%v after %d refusals, want an error after 3", err, refusals)
			if err == nil {
				tx.Rollback()
			}
		}
		return nil
	})

	// Without an end of the context the same wait ends when the lock is free.
	refused, begun := make(chan struct{}, 1), make(chan error, 1)
	update(t, other, func(*Tx) error {
		engine := counting{refused: func() {
			select {
			case refused <- struct{}{}:
			default:
			}
		}}

		go func() {
			tx, err := begin(t.Context(), engine, db.write, nil)
			if err == nil {
				err = tx.Rollback()
			}
			begun <- err
		}()

		select {
		case <-refused:
		case err := <-begun:
			begun <- fmt.Errorf("it waited for nothing: %w", err)
		}
		return nil
	})

	if err := <-begun; err != nil {
		t.Errorf("a writer that waited for another: %v", err)
	}
}

func TestHistoryOnSQLiteIsAppendOnly(t *testing.T) {
	db := open(t, "sqlite://"+filepath.Join(t.TempDir(), "x.db"))
	update(t, db, func(tx *Tx) error {
		return errors.Join(tx.AddAudit(Audit{Action: "a"}), tx.AddRevision(Revision{Policy: "p", Version: 1}))
	})
	for _, statement := range []string{
		"UPDATE audit SET actor = 'x'", "DELETE FROM audit", "UPDATE revisions SET actor = 'x'",
		"DELETE FROM revisions",
	} {
		err := db.Update(t.Context(), func(tx *Tx) error { err := tx.exec(statement); return err })
		if err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func TestSQLIsMadeOfConstantsAndPlaceholders(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 15 {
		t.Fatal(files, err)
	}

	format := regexp.MustCompile(`(?i)(Sprint|Appendf|Fprint|text/template).*\b(select|insert|update|delete|where)\b`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		must(t, err)

		// Statements are not put together from values, and the history is only ever added to.
		for _, bad := range []string{"fmt.Sprint", "fmt.Append", "UPDATE audit", "DELETE FROM audit",
			"UPDATE revisions", "DELETE FROM revisions", "auditRows.update", "auditRows.replace",
			"revisionRows.update", "revisionRows.replace"} {
			if strings.Contains(string(source), bad) {
				t.Errorf("%s holds %q", file, bad)
			}
		}
		if m := format.FindString(string(source)); m != "" {
			t.Errorf("%s formats SQL: %s", file, m)
		}
	}
}

// A connection that is still in use keeps no change out of the file.
func TestCloseLeavesEveryChangeInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.db")
	db := open(t, "sqlite://"+path)
	update(t, db, func(tx *Tx) error { return tx.SetSetting("name", "value") })

	// It ends after the file was copied, as one may whose transaction was cut off.
	busy, err := db.read.Conn(t.Context())
	must(t, err)
	defer busy.Close()
	rows, err := busy.QueryContext(t.Context(), "SELECT * FROM settings")
	must(t, err)
	defer rows.Close()
	must(t, db.Close())

	data, err := os.ReadFile(path)
	must(t, err)
	other := filepath.Join(t.TempDir(), "copy.db")
	must(t, os.WriteFile(other, data, 0o600))
	copied := open(t, "sqlite://"+other)
	if n := count(t, copied, "SELECT COUNT(*) FROM settings WHERE name = 'name'"); n != 1 {
		t.Errorf("the copy has %d of 1 changes", n)
	}
}
