package store

// Role is what a user may do with the policies of an application.
type Role struct {
	User string
	App  string
	Role string
}

func scanRole(s scanner) (r Role, err error) { return r, s.Scan(&r.User, &r.App, &r.Role) }

// Roles returns all roles by user and application.
func (t *Tx) Roles() ([]Role, error) {
	return readAll(t, scanRole, "SELECT user_name, app, role FROM roles ORDER BY user_name, app")
}

// RolesOf returns the roles of a user by application.
func (t *Tx) RolesOf(user string) ([]Role, error) {
	return readAll(t, scanRole, "SELECT user_name, app, role FROM roles WHERE user_name = ? ORDER BY app", user)
}

// SetRole gives a user a role in an application, or returns ErrReferenced if one of
// them does not exist. The role "" removes the user's role.
func (t *Tx) SetRole(r Role) error {
	_, err := t.exec("DELETE FROM roles WHERE user_name = ? AND app = ?", r.User, r.App)
	if err != nil || r.Role == "" {
		return err
	}

	_, err = t.exec("INSERT INTO roles (user_name, app, role) VALUES (?, ?, ?)", r.User, r.App, r.Role)
	return err
}
