package store

// User is a row of a user.
type User struct {
	Name          string `db:"name" set:"once"`
	Password      string `db:"password"` // the text form of its hash
	Administrator bool   `db:"administrator"`
	Disabled      bool   `db:"disabled"`
	MustChange    bool   `db:"must_change"`           // the user must change the password first
	CreatedAt     int64  `db:"created_at" set:"once"` // µs
	CreatedBy     string `db:"created_by" set:"once"`
	PasswordAt    int64  `db:"password_at"` // µs
}

var userRows = newRows[User]("users")

// Users returns all users by name.
func (t *Tx) Users() ([]User, error) { return userRows.all(t, "ORDER BY name") }

// User returns one user, or ErrNotFound.
func (t *Tx) User(name string) (User, error) { return userRows.one(t, "WHERE name = ?", name) }

// InsertUser adds a user, or returns ErrExists.
func (t *Tx) InsertUser(u User) error { return userRows.insert(t, u) }

// UpdateUser writes all fields of a user but Name, CreatedAt and CreatedBy, or
// returns ErrNotFound.
func (t *Tx) UpdateUser(u User) error {
	return userRows.update(t, ErrNotFound, u, "WHERE name = ?", u.Name)
}

// Administrators returns the number of administrators who are not disabled.
func (t *Tx) Administrators() (int64, error) {
	return readOne[int64](t, "SELECT COUNT(*) FROM users WHERE administrator = 1 AND disabled = 0")
}
