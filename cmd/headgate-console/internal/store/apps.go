package store

// App is a row of an application.
type App struct {
	Name        string
	Description string
	CreatedAt   int64 // µs
	CreatedBy   string
	Policies    int64 // the number of policies that list it; not written
}

const appColumns = "SELECT name, description, created_at, created_by, " +
	"(SELECT COUNT(*) FROM policy_apps p WHERE p.app = apps.name) FROM apps"

func scanApp(s scanner) (a App, err error) {
	return a, s.Scan(&a.Name, &a.Description, &a.CreatedAt, &a.CreatedBy, &a.Policies)
}

// Apps returns all applications by name.
func (t *Tx) Apps() ([]App, error) { return readAll(t, scanApp, appColumns+" ORDER BY name") }

// App returns one application, or ErrNotFound.
func (t *Tx) App(name string) (App, error) {
	return readOne(t, scanApp, appColumns+" WHERE name = ?", name)
}

// InsertApp adds an application, or returns ErrExists.
func (t *Tx) InsertApp(a App) error {
	const q = "INSERT INTO apps (name, description, created_at, created_by) VALUES (?, ?, ?, ?)"
	_, err := t.exec(q, a.Name, a.Description, a.CreatedAt, a.CreatedBy)
	return err
}

// DescribeApp changes the description of an application, or returns ErrNotFound.
func (t *Tx) DescribeApp(name, description string) error {
	return t.execOne(ErrNotFound, "UPDATE apps SET description = ? WHERE name = ?", description, name)
}

// DeleteApp removes an application and the roles in it, or returns ErrReferenced
// while a policy lists it.
func (t *Tx) DeleteApp(name string) error {
	if _, err := t.exec("DELETE FROM roles WHERE app = ?", name); err != nil {
		return err
	}
	return t.execOne(ErrNotFound, "DELETE FROM apps WHERE name = ?", name)
}
