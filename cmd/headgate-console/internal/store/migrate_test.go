package store

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func TestMigrationRunsOnceOfManyPrograms(t *testing.T) {
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
		if n := count(t, db, "SELECT COUNT(*) FROM migrations"); n != 16 {
			t.Errorf("%d migrations were noted, want 16", n)
		}
		if n := count(t, db, "SELECT COUNT(*) FROM counters"); n != 9 {
			t.Errorf("%d counters, want 9", n)
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
			t.Errorf("the counter became %d, want 8", n)
		}
	})
}

// Changes that wait become pauses if they have that shape, and the audit log has the others.
func TestMigrationOfScheduledChanges(t *testing.T) {
	const (
		enforce = `{"name":"p","limit":"5/1m"}`
		shadow  = `{"name":"p","limit":"5/1m","mode":"shadow"}`
		off     = `{"name":"p","limit":"5/1m","mode":"off"}`
		tighter = `{"name":"p","limit":"4/1m","mode":"off"}`
		looser  = `{"name":"p","limit":"6/1m"}`
	)
	everyEngine(t, func(t *testing.T, url string) {
		e, err := engineOf(url)
		must(t, err)
		read, db, err := e.open()
		must(t, err)
		defer read.Close()
		defer db.Close()
		must(t, migrateAlone(t.Context(), e, db, 13))
		run := func(q string, args ...any) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), q, args...)
			must(t, err)
		}

		run("INSERT INTO users VALUES ('x', '', 1, 0, 0, 0, '', 0)")
		for name, mode := range map[string]string{
			"kept": "shadow", "moved": "enforce", "again": "off", "later": "enforce"} {
			run("INSERT INTO policies VALUES (?, 2, ?, 0, 1, '', '{}', 0, '', 0, '')", name, mode)
		}
		run("INSERT INTO revisions VALUES ('again', 3, 0, 'x', 'delete', ?, '', '', '')", off)

		for _, c := range []struct {
			id, policy, before, after, state string
			due                              int64
		}{
			{"a", "kept", shadow, enforce, "waiting", 2_000_000},
			{"b", "kept", shadow, off, "waiting", 3_000_000},     // after the first
			{"c", "kept", off, tighter, "waiting", 1_000_000},    // more than the mode
			{"d", "kept", shadow, enforce, "done", 1_000_000},    // waits no more
			{"e", "moved", shadow, enforce, "waiting", 60 * 1e6}, // is in force already
			{"f", "gone", shadow, enforce, "waiting", 1},         // was deleted
			{"g", "again", off, enforce, "waiting", 1},           // was deleted, and restored
			{"h", "later", enforce, off, "waiting", 1},           // does not go back
			{"i", "kept", shadow, looser, "waiting", 2_000_000},  // more than the mode, with the first
		} {
			run("INSERT INTO scheduled VALUES (?, ?, 2, ?, ?, ?, 'x', 'session', 0, '', ?, 0, '')",
				c.id, c.policy, c.before, c.after, c.due, c.state)
		}

		// A program that ended between two statements runs all of them again.
		now := open(t, url)
		for range 2 {
			if n := count(t, now, "SELECT COUNT(*) FROM pauses"); n != 1 {
				t.Errorf("%d pauses, want 1", n)
			}
			update(t, now, func(tx *Tx) error {
				got, err := tx.Pause("kept")
				if want := (Pause{"kept", "enforce", 2_000_000, "x", "session", ""}); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
				return err
			})
			for _, id := range []string{"b", "c", "e", "f", "g", "h", "i"} {
				const q = "SELECT COUNT(*) FROM audit WHERE request_id = ? AND action = 'policy.unschedule' AND actor = 'x'"
				if n := count(t, now, q, id); n != 1 {
					t.Errorf("%d rows in the audit log about %s", n, id)
				}
			}
			const q = "SELECT COUNT(*) FROM audit WHERE note = ? AND object = 'policy:moved' AND body_after = ?"
			note := "dropped with the upgrade, was scheduled for 1970-01-01 00:01 UTC"
			if n := count(t, now, q, note, enforce); n != 1 {
				t.Errorf("the audit log does not say when the change was due")
			}
			if n := count(t, now, "SELECT COUNT(*) FROM audit WHERE action = 'policy.unschedule'"); n != 7 {
				t.Errorf("%d rows in the audit log, want 7", n)
			}

			exec(t, now, "DELETE FROM migrations WHERE version > 4")
			now = open(t, url)
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

// TestMigrationOfAlertConditions has webhooks with the conditions of an earlier version.
func TestMigrationOfAlertConditions(t *testing.T) {
	const refused = `{"kind":"refused","over":20,"at_least":100,"minutes":5,"policy":"near"}`
	cases := []struct {
		id, before, after string
		on                bool
	}{
		{"all", `[` + refused + `,{"kind":"failed-open","at_least":1,"minutes":1},` +
			`{"kind":"banned","at_least":1,"minutes":1},{"kind":"near","minutes":0},{"kind":"bypassed","minutes":1},` +
			`{"kind":"behind","minutes":5},{"kind":"lost","minutes":2},{"kind":"redis","minutes":1},` +
			`{"kind":"full","over":90,"minutes":1}]`,
			`[{"kind":"refused","over":20,"count":21,"minutes":5,"policy":"near"},{"kind":"bypassed","minutes":1},` +
				`{"kind":"policies","minutes":5},{"kind":"redis","minutes":1}]`, true},

		// Any refusal of 7 requests is one, and 33 % of 7 are more than two. What is last may go.
		{"any", `[{"kind":"refused","at_least":7,"minutes":1},{"kind":"full","over":90,"minutes":1}]`,
			`[{"kind":"refused","count":1,"minutes":1}]`, true},
		{"some", `[{"kind":"lost","minutes":1},{"kind":"redis","minutes":0}]`, `[{"kind":"redis","minutes":0}]`, true},
		{"third", `[{"kind":"refused","over":33,"at_least":7,"minutes":1}]`,
			`[{"kind":"refused","over":33,"count":3,"minutes":1}]`, true},
		{"none", `[{"kind":"near","minutes":0},{"kind":"lost","minutes":2}]`, `[]`, false},
	}

	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		update(t, db, func(tx *Tx) error {
			var errs []error
			for _, c := range cases {
				w := hookRow
				w.ID, w.Conditions, w.Enabled = c.id, c.before, true
				errs = append(errs, tx.InsertWebhook(w))
			}
			for _, kind := range []string{"behind", "near", "lost"} {
				errs = append(errs, tx.SetAlert(Alert{Webhook: "all", Kind: kind, App: "a", Detail: "{}"}))
			}

			// What a webhook that is turned off has to say is not said.
			errs = append(errs, tx.SetAlert(Alert{Webhook: "none", Kind: "lost", App: "a", Detail: "{}"}))
			for id, state := range map[string]string{"all": StateWaiting, "none": StateWaiting, "done": StateDone} {
				hook := strings.Replace(id, "done", "none", 1)
				errs = append(errs, tx.InsertDelivery(Delivery{ID: id, Webhook: hook, State: state}))
			}
			return errors.Join(errs...)
		})

		// A program that is killed in between runs the migration again.
		for range 2 {
			exec(t, db, "DELETE FROM migrations WHERE version >= 15")
			db = open(t, url)
		}

		update(t, db, func(tx *Tx) error {
			for _, c := range cases {
				w, err := tx.Webhook(c.id)
				if err != nil {
					return err
				}

				// The engines write the members in another order and with other spaces.
				var got, want []map[string]any
				err = errors.Join(json.Unmarshal([]byte(w.Conditions), &got), json.Unmarshal([]byte(c.after), &want))
				if err != nil || !reflect.DeepEqual(got, want) || w.Enabled != c.on {
					t.Errorf("%s: %s, on: %v, %v; want %s, %v", c.id, w.Conditions, w.Enabled, err, c.after, c.on)
				}
			}

			// The alert of the kind that is gone ends by a message, which the next check writes.
			alerts, err := tx.Alerts()
			if len(alerts) != 2 || alerts[0].Kind != "lost" || alerts[1].Kind != "policies" {
				t.Errorf("the alerts are %+v", alerts)
			}

			return errors.Join(err, wantDeliveries(t, tx))
		})
	})
}

// wantDeliveries checks that of the messages only the one failed whose webhook was turned off.
func wantDeliveries(t *testing.T, tx *Tx) error {
	t.Helper()
	var errs []error
	for id, want := range map[string]string{"all": StateWaiting, "none": StateFailed, "done": StateDone} {
		d, err := tx.Delivery(id)
		failed := want == StateFailed
		if d.State != want || (d.Error != "") != failed || (d.TriedAt > 0) != failed {
			t.Errorf("%s: %+v, want %s", id, d, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
