package service

import (
	"errors"
	"maps"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// Role is what a user may do with the policies of an application.
type Role string

// The roles.
const (
	NoRole Role = ""
	Viewer Role = "viewer" // sees them
	Owner  Role = "owner"  // sees, edits and deletes them
)

// Access holds the permissions of an actor at one time. Pages use it to leave out
// buttons for forbidden actions; every method of Service checks again.
type Access struct {
	User               string
	Administrator      bool // manages users and applications, and owns every application
	MustChangePassword bool // before any other action

	// MustSetUpSecondFactor reports that the user has to set up a second factor before any
	// other action but a change of the password.
	MustSetUpSecondFactor bool

	ReadOnly bool // a token that may only read
	Token    bool // a token, which manages neither users nor applications nor tokens
	Backups  bool // a token that downloads backups, and does nothing else

	roles map[string]Role
	only  []string // the applications that a token is for; nil means all
}

// Role returns the actor's role in an application.
func (a Access) Role(app string) Role {
	if a.only != nil && !slices.Contains(a.only, app) {
		return NoRole
	}
	if a.Administrator {
		return Owner
	}
	return a.roles[app]
}

// CanSee reports whether the actor sees policies that list these applications. A
// role in one of them is enough.
func (a Access) CanSee(apps []string) bool {
	if a.seesAll() {
		return true
	}
	return slices.ContainsFunc(apps, func(app string) bool { return a.Role(app) != NoRole })
}

// CanEdit reports whether the actor may write policies that list these
// applications. The actor has to own all of them, and there must be at least one.
func (a Access) CanEdit(apps []string) bool {
	if a.ReadOnly || len(apps) == 0 {
		return false
	}
	return !slices.ContainsFunc(apps, func(app string) bool { return a.Role(app) != Owner })
}

// editsAny reports whether there may be policies that the actor may write.
func (a Access) editsAny() bool {
	if a.ReadOnly {
		return false
	}
	return a.Administrator || slices.ContainsFunc(a.visible(), func(app string) bool { return a.Role(app) == Owner })
}

// seesAny reports whether there may be policies that the actor sees.
func (a Access) seesAny() bool { return a.seesAll() || len(a.visible()) > 0 }

// CanManage reports whether the actor may manage users and applications, change the
// settings and read the audit log.
func (a Access) CanManage() bool { return a.Administrator && !a.Token }

// seesAll reports whether the actor sees the policies of all applications.
func (a Access) seesAll() bool { return a.Administrator && a.only == nil }

// visible returns the applications whose policies the actor sees; nil means all.
func (a Access) visible() []string {
	switch {
	case a.seesAll():
		return nil
	case a.Administrator:
		return a.only
	}

	// A token sees no more than its user does: Role looks at both.
	apps := []string{}
	for _, app := range slices.Sorted(maps.Keys(a.roles)) {
		if a.Role(app) != NoRole {
			apps = append(apps, app)
		}
	}
	return apps
}

// accessOf looks up the permissions of an actor. The error is ErrNotLoggedIn if it
// has none.
func accessOf(t *store.Tx, a Actor) (Access, error) {
	// The user and the roles are read in each transaction, so that what was taken from a user has
	// effect at once.
	u, err := t.User(a.user)
	if errors.Is(err, store.ErrNotFound) {
		return Access{}, ErrNotLoggedIn
	}
	if err != nil {
		return Access{}, err
	}

	// The zero Actor has no way in which it was authenticated.
	if u.Disabled || a.via == "" {
		return Access{}, ErrNotLoggedIn
	}

	roles, err := t.RolesOf(u.Name)
	if err != nil {
		return Access{}, err
	}

	access := Access{
		User: u.Name, Administrator: u.Administrator, roles: map[string]Role{},
		MustChangePassword: u.MustChange && a.via != viaProxy,
	}
	for _, r := range roles {
		access.roles[r.App] = Role(r.Role)
	}

	if access.MustSetUpSecondFactor, err = mustSetUp(t, a, access); err != nil {
		return Access{}, err
	}

	// A token narrows what its user may do, and never widens it.
	if a.token != nil {
		access.Token, access.ReadOnly, access.only = true, a.token.readOnly, a.token.apps
		if a.token.backups {
			access.Backups, access.only = true, []string{} // it sees none
		}
	}

	return access, nil
}
