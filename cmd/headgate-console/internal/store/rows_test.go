package store

import (
	"slices"
	"testing"
)

func TestRowsNeedATagForEachField(t *testing.T) {
	defer func() {
		if got, want := recover(), "store: a row of t has a field without a tag"; got != want {
			t.Errorf("%v, want %q", got, want)
		}
	}()
	newRows[struct {
		A string `db:"a"`
		B string
	}]("t")
}

// An update leaves what is written once, and expressions are only read. Rows of more than one
// statement are all written, and read by keys of more than one.
func TestRowsAreWrittenByTheirTags(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		first := User{Name: "x", Password: "a", Administrator: true, CreatedAt: 1, CreatedBy: "y", PasswordAt: 2}
		update(t, db, func(tx *Tx) error { return tx.InsertUser(first) })

		want := User{Name: "x", Password: "b", Disabled: true, MustChange: true, CreatedAt: 1, CreatedBy: "y"}
		changed := want
		changed.CreatedAt, changed.CreatedBy = 8, "z"
		update(t, db, func(tx *Tx) error {
			if err := tx.UpdateUser(changed); err != nil {
				return err
			}
			got, err := tx.User("x")
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			return err
		})

		// The number of policies and the id are of the database, whatever a row says.
		update(t, db, func(tx *Tx) error {
			must(t, tx.InsertApp(App{Name: "a", Policies: 7}))
			must(t, tx.AddAudit(Audit{ID: 1000, Action: "x"}))
			app, err := tx.App("a")
			must(t, err)
			rows, err := tx.FindAudit(AuditQuery{Limit: 1})
			if app.Policies != 0 || len(rows) != 1 || rows[0].ID == 1000 {
				t.Errorf("%+v and %+v", app, rows)
			}
			return err
		})

		var list []Override
		var keys []string
		for i := range maxKeys + maxBatch {
			keys = append(keys, string(rune('一'+i)))
			list = append(list, Override{Policy: "p", Key: keys[i], Text: "1/1s", Revision: int64(i)})
		}
		update(t, db, func(tx *Tx) error {
			must(t, tx.InsertOverrides(list))
			got, err := tx.OverridesOf("p", keys)
			slices.SortFunc(got, func(a, b Override) int { return int(a.Revision - b.Revision) })
			if !slices.Equal(got, list) {
				t.Errorf("%d overrides, want %d", len(got), len(list))
			}
			return err
		})
	})
}
