package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// people is a page of the users.
type people struct {
	Users    []service.User
	Search   string // in their names
	Name     string // of the user to be added
	Mistakes mistakes
	paging
}

func usersPage(r *request) error { return r.showUsers(people{}) }

func (r *request) showUsers(p people) error {
	list, err := r.Service.Users(r.req.Context(), r.actor)
	if err != nil {
		return err
	}

	p.Search = r.query("search")
	list = slices.DeleteFunc(list, func(u service.User) bool {
		return !strings.Contains(strings.ToLower(u.Name), strings.ToLower(p.Search))
	})

	p.Users, p.paging = pageOf(r, list)
	return r.show(statusOf(p.Mistakes), "users", "Users", p)
}

func createUser(r *request) error {
	p := people{Name: r.field("name")}
	password, err := r.Service.CreateUser(r.req.Context(), r.actor, p.Name)
	again := func(m mistakes) error {
		p.Mistakes = m
		return r.showUsers(p)
	}
	return after(err, again, func() error {
		return r.show(http.StatusOK, "once", "A new user", once{User: p.Name, Secret: password, Back: userPath(p.Name)})
	})
}

// once is the page of a secret that is shown only once.
type once struct {
	User   string // the owner of the one-time password, or "" for a token
	Secret string
	Back   string
}

func userPath(name string) string { return "/users/" + url.PathEscape(name) }

// person is the page of one user.
type person struct {
	service.User
	Self     bool
	Roles    []appRole
	Tokens   []token // that have not ended
	Mistakes mistakes
}

// appRole is the role of a user in an application.
type appRole struct {
	App  string
	Role service.Role
}

func userPage(r *request) error { return r.showUser(nil) }

func (r *request) showUser(m mistakes) error {
	u, err := r.Service.User(r.req.Context(), r.actor, r.req.PathValue("name"))
	if err != nil {
		return err
	}

	// The service shows everyone the own user, whose page is that of the account.
	if !r.access.CanManage() {
		return r.seeOther("/account", "")
	}

	apps, err := r.Service.Apps(r.req.Context(), r.actor)
	if err != nil {
		return err
	}

	p := person{User: u, Self: u.Name == r.actor.User(), Mistakes: m}
	for _, a := range apps {
		p.Roles = append(p.Roles, appRole{a.Name, u.Roles[a.Name]})
	}
	tokens, err := r.Service.TokensOf(r.req.Context(), r.actor, u.Name)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if t := r.tokenOf(t); t.State == "" {
			p.Tokens = append(p.Tokens, t)
		}
	}
	return r.show(statusOf(m), "user", u.Name, p)
}

// changed answers after a change of a user.
func (r *request) changed(err error, done string) error {
	return after(err, r.showUser, r.to(userPath(r.req.PathValue("name")), done))
}

func setRole(r *request) error {
	err := r.Service.SetRole(r.req.Context(), r.actor, r.req.PathValue("name"), r.field("app"),
		service.Role(r.field("role")))
	return r.changed(err, "role")
}

// setStatus promotes, demotes, disables or enables a user. It asks for a confirmation where the
// change cannot simply be taken back.
func setStatus(r *request) error {
	name := r.req.PathValue("name")
	if r.access.CanManage() && !r.confirmed() {
		asked := "user " + r.field("do")
		if name == r.actor.User() && asked != "user promote" {
			asked += " yourself"
		}
		if c := confirmationOf(asked, name); c.Title != "" {
			// A user who does not exist is not asked about.
			if _, err := r.Service.User(r.req.Context(), r.actor, name); err != nil {
				return err
			}
			c.Action, c.Back = userPath(name)+"/status", userPath(name)
			c.Fields = []hidden{{"do", r.field("do")}}
			return r.confirm(c)
		}
	}

	act := r.Service.EnableUser
	switch r.field("do") {
	case "promote":
		act = r.Service.Promote
	case "demote":
		act = r.Service.Demote
	case "disable":
		act = r.Service.DisableUser
	case "enable":
	default:
		return errBadForm
	}

	return r.changed(act(r.req.Context(), r.actor, name), "status")
}

// resetPassword gives a user another one-time password.
func resetPassword(r *request) error {
	name := r.req.PathValue("name")
	if r.access.CanManage() && !r.confirmed() {
		u, err := r.Service.User(r.req.Context(), r.actor, name)
		if err != nil {
			return err
		}

		c := confirmationOf("password", u.Name)
		c.Action, c.Back = userPath(name)+"/password", userPath(name)
		return r.confirm(c)
	}

	password, err := r.Service.ResetPassword(r.req.Context(), r.actor, name)
	return after(err, r.showUser, func() error {
		return r.show(http.StatusOK, "once", "A new password", once{User: name, Secret: password, Back: userPath(name)})
	})
}

// endTokensOf ends one token of a user, or all of them.
func endTokensOf(r *request) error {
	name, id := r.req.PathValue("name"), r.field("id")
	tokens, err := r.Service.TokensOf(r.req.Context(), r.actor, name)
	if err != nil {
		return err
	}

	question, which := "tokens", "all tokens"
	if id != "" {
		i := slices.IndexFunc(tokens, func(t service.Token) bool { return t.ID == id })
		if i < 0 {
			return service.ErrNotFound
		}
		question, which = "token", "the token "+tokens[i].Label
	}

	if !r.confirmed() {
		c := confirmationOf(question, which+" of "+name)
		c.Action, c.Back, c.Fields = userPath(name)+"/tokens", userPath(name), []hidden{{"id", id}}
		return r.confirm(c)
	}

	if id == "" {
		return r.changed(r.Service.EndTokens(r.req.Context(), r.actor, name), "tokens")
	}
	return r.changed(r.Service.RevokeToken(r.req.Context(), r.actor, id), "revoked")
}
