package web

import (
	"context"
	"fmt"
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

	p := person{User: u, Self: u.Name == r.actor.User(), Mistakes: m}
	for _, a := range r.apps {
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

// changeUser changes a user with confirmation, unless words.json has no such question. A user who
// does not exist is not asked about, and neither are those who may not change users.
func (r *request) changeUser(question string, fields []hidden, act, then func() error) error {
	name := r.req.PathValue("name")
	if !r.access.CanManage() || r.confirmed() || vocabulary.Questions[question].Title == "" {
		return after(act(), r.showUser, then)
	}
	if _, err := r.Service.User(r.req.Context(), r.actor, name); err != nil {
		return err
	}
	return r.confirm(r.asks(question, name, userPath(name), fields...))
}

func setRole(r *request) error {
	err := r.Service.SetRole(r.req.Context(), r.actor, r.req.PathValue("name"), r.field("app"),
		service.Role(r.field("role")))
	return r.changed(err, "role")
}

// setStatus promotes, demotes, disables or enables a user. It asks for a confirmation where the
// change cannot simply be taken back.
func setStatus(r *request) error {
	name, do := r.req.PathValue("name"), r.field("do")
	act := map[string]func(context.Context, service.Actor, string) error{
		"promote": r.Service.Promote, "demote": r.Service.Demote,
		"enable": r.Service.EnableUser, "disable": r.Service.DisableUser,
	}[do]
	if act == nil {
		return errBadForm
	}

	question := "user " + do
	if name == r.actor.User() && do != "promote" {
		question += " yourself"
	}
	return r.changeUser(question, []hidden{{"do", do}},
		func() error { return act(r.req.Context(), r.actor, name) }, r.to(userPath(name), "status"))
}

// resetPassword gives a user another one-time password.
func resetPassword(r *request) error {
	name, password := r.req.PathValue("name"), ""
	return r.changeUser("password", nil,
		func() (err error) {
			password, err = r.Service.ResetPassword(r.req.Context(), r.actor, name)
			return err
		},
		func() error {
			return r.show(http.StatusOK, "once", "A new password",
				once{User: name, Secret: password, Back: userPath(name)})
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
		return r.confirm(r.asks(question, which+" of "+name, userPath(name), hidden{"id", id}))
	}

	if id == "" {
		return r.changed(r.Service.EndTokens(r.req.Context(), r.actor, name), "tokens")
	}
	return r.changed(r.Service.RevokeToken(r.req.Context(), r.actor, id), "revoked")
}

// applications is a page of the applications in which the actor has a role.
type applications struct {
	Apps     []service.App
	Manager  bool
	Name     string // of the application to be added
	About    string
	Mistakes mistakes
	paging
}

func appsPage(r *request) error { return r.showApps(applications{}) }

// showApps shows the applications, with what was wrong with a form.
func (r *request) showApps(a applications) error {
	a.Manager = r.access.CanManage()
	a.Apps, a.paging = pageOf(r, r.apps)
	return r.show(statusOf(a.Mistakes), "apps", "Applications", a)
}

func createApp(r *request) error {
	a := applications{Name: r.field("name"), About: r.field("description")}
	err := r.Service.CreateApp(r.req.Context(), r.actor, a.Name, a.About)
	again := func(m mistakes) error {
		a.Mistakes = m
		return r.showApps(a)
	}
	return after(err, again, r.to("/apps", "app"))
}

func describeApp(r *request) error {
	err := r.Service.DescribeApp(r.req.Context(), r.actor, r.field("name"), r.field("description"))
	return after(err, nil, r.to("/apps", "appsaved"))
}

func deleteAppPage(r *request) error {
	c, err := r.askAppDeletion(r.query("name"))
	if err != nil {
		return err
	}
	return r.confirm(c)
}

// askAppDeletion returns the question before an application goes, which says what goes with it.
func (r *request) askAppDeletion(name string) (c confirmation, err error) {
	if !r.access.CanManage() {
		return c, r.Service.Refuse(r.req.Context(), r.actor, "app.delete", "app:"+name, "it takes an administrator")
	}

	at := slices.IndexFunc(r.apps, func(a service.App) bool { return a.Name == name })
	if at < 0 {
		return c, service.ErrNotFound
	}

	// The service refuses to delete an application that is in use. The page says so before it is
	// asked.
	c = r.asks("app", name, "/apps", hidden{"name", name})
	if n := r.apps[at].Policies; n > 0 {
		c.Consequences = []string{fmt.Sprintf("Policies that list it, %s of them, have to go first.", digits(int64(n)))}
	}
	return c, nil
}

func deleteApp(r *request) error {
	name := r.field("name")
	return r.decide(func() (confirmation, error) { return r.askAppDeletion(name) },
		func() error { return r.Service.DeleteApp(r.req.Context(), r.actor, name) },
		r.to("/apps", "appdeleted"))
}
