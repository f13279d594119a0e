package store

import "time"

// App is a row of an application that policies list.
type App struct {
	Name        string    `db:"name" json:"name"`
	Description string    `db:"description" json:"description"`
	CreatedAt   time.Time `db:"created_at" json:"created_at"`
	CreatedBy   string    `db:"created_by" json:"created_by"`

	// Policies is the number of policies that list it.
	Policies int64 `json:"policies" sql:"(SELECT COUNT(*) FROM policy_apps p WHERE p.app = apps.name)"`
}

var appRows = newRows[App]("apps")

// Apps returns all applications by name.
func (t *Tx) Apps() ([]App, error) { return appRows.all(t, "ORDER BY name") }

// AppNames returns the names of all applications, in their order. It counts no policies.
func (t *Tx) AppNames() ([]string, error) {
	return readAll[string](t, "SELECT name FROM apps ORDER BY name")
}

// App returns one application, or ErrNotFound.
func (t *Tx) App(name string) (App, error) { return appRows.one(t, "WHERE name = ?", name) }

// InsertApp adds an application, or returns ErrExists.
func (t *Tx) InsertApp(a App) error { return appRows.insert(t, a) }

// DescribeApp changes the description of an application, or returns ErrNotFound.
func (t *Tx) DescribeApp(name, description string) error {
	return t.execOne(ErrNotFound, "UPDATE apps SET description = ? WHERE name = ?", description, name)
}

// DeleteApp removes an application and the roles in it, or returns ErrReferenced
// while a policy lists it.
func (t *Tx) DeleteApp(name string) error {
	if err := t.exec("DELETE FROM roles WHERE app = ?", name); err != nil {
		return err
	}
	return t.execOne(ErrNotFound, "DELETE FROM apps WHERE name = ?", name)
}
