package store

// Role is what a user may do with the policies of an application.
type Role struct {
	User string `db:"user_name"`
	App  string `db:"app"`
	Role string `db:"role"`
}

var roleRows = newRows[Role]("roles")

// Roles returns all roles by user and application.
func (t *Tx) Roles() ([]Role, error) { return roleRows.all(t, "ORDER BY user_name, app") }

// RolesOf returns the roles of a user by application.
func (t *Tx) RolesOf(user string) ([]Role, error) {
	return roleRows.all(t, "WHERE user_name = ? ORDER BY app", user)
}

// SetRole gives a user a role in an application, or returns ErrReferenced if one of
// them does not exist. The role "" removes the user's role.
func (t *Tx) SetRole(r Role) error {
	if r.Role == "" {
		return t.exec("DELETE FROM roles WHERE user_name = ? AND app = ?", r.User, r.App)
	}
	return roleRows.replace(t, r)
}
