package store

// User is a row of a user.
type User struct {
	Name          string
	Password      string // the text form of its hash
	Administrator bool
	Disabled      bool
	MustChange    bool  // the user must change the password first
	CreatedAt     int64 // µs
	CreatedBy     string
	PasswordAt    int64 // µs
}

const userColumns = "SELECT name, password, administrator, disabled, must_change, " +
	"created_at, created_by, password_at FROM users"

func scanUser(s scanner) (u User, err error) {
	return u, s.Scan(&u.Name, &u.Password, &u.Administrator, &u.Disabled, &u.MustChange,
		&u.CreatedAt, &u.CreatedBy, &u.PasswordAt)
}

// Users returns all users by name.
func (t *Tx) Users() ([]User, error) { return readAll(t, scanUser, userColumns+" ORDER BY name") }

// User returns one user, or ErrNotFound.
func (t *Tx) User(name string) (User, error) {
	return readOne(t, scanUser, userColumns+" WHERE name = ?", name)
}

// InsertUser adds a user, or returns ErrExists.
func (t *Tx) InsertUser(u User) error {
	const q = "INSERT INTO users " +
		"(name, password, administrator, disabled, must_change, created_at, created_by, password_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, u.Name, u.Password, u.Administrator, u.Disabled, u.MustChange,
		u.CreatedAt, u.CreatedBy, u.PasswordAt)
	return err
}

// UpdateUser writes all fields of a user but Name, CreatedAt and CreatedBy, or
// returns ErrNotFound.
func (t *Tx) UpdateUser(u User) error {
	const q = "UPDATE users SET " +
		"password = ?, administrator = ?, disabled = ?, must_change = ?, password_at = ? WHERE name = ?"
	return t.execOne(ErrNotFound, q, u.Password, u.Administrator, u.Disabled, u.MustChange, u.PasswordAt, u.Name)
}

// Administrators returns the number of administrators who are not disabled.
func (t *Tx) Administrators() (int64, error) {
	return readOne(t, scanCount, "SELECT COUNT(*) FROM users WHERE administrator = 1 AND disabled = 0")
}
