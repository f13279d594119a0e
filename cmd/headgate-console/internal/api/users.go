package api

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

type userView struct {
	Name               string     `json:"name"`
	Administrator      bool       `json:"administrator"`
	Disabled           bool       `json:"disabled"`
	MustChangePassword bool       `json:"must_change_password"`
	CreatedAt          time.Time  `json:"created_at"`
	CreatedBy          string     `json:"created_by"`
	PasswordAt         time.Time  `json:"password_at"`
	SecondFactor       bool       `json:"second_factor"`
	Roles              []roleView `json:"roles"`
}

type roleView struct {
	App  string `json:"app"`
	Role string `json:"role"`
}

func userOf(u service.User) userView {
	v := userView{
		Name: u.Name, Administrator: u.Administrator, Disabled: u.Disabled, MustChangePassword: u.MustChangePassword,
		CreatedAt: u.CreatedAt, CreatedBy: u.CreatedBy, PasswordAt: u.PasswordAt, SecondFactor: u.SecondFactor,
		Roles: []roleView{},
	}

	for _, app := range sortedKeys(u.Roles) {
		v.Roles = append(v.Roles, roleView{app, string(u.Roles[app])})
	}

	return v
}

func (c *call) listUsers() error {
	users, err := c.o.Service.Users(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Users []userView `json:"users"`
	}{mapped(users, userOf)}, "")
}

func (c *call) readUser() error {
	u, err := c.o.Service.User(c.ctx(), c.actor, c.path("user"))
	if err != nil {
		return err
	}
	return c.sendTagged(userOf(u), "")
}

// credentials are a user's name and one-time password.
type credentials struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

func (c *call) createUser() error {
	var in struct {
		Name string `json:"name"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	password, err := c.o.Service.CreateUser(c.ctx(), c.actor, in.Name)
	if err != nil {
		return err
	}
	return c.send(http.StatusCreated, credentials{in.Name, password})
}

func (c *call) resetPassword() error {
	name := c.path("user")
	password, err := c.o.Service.ResetPassword(c.ctx(), c.actor, name)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, credentials{name, password})
}

func (c *call) disableUser() error { return c.changeUser(c.o.Service.DisableUser) }

func (c *call) enableUser() error { return c.changeUser(c.o.Service.EnableUser) }

func (c *call) promoteUser() error { return c.changeUser(c.o.Service.Promote) }

func (c *call) demoteUser() error { return c.changeUser(c.o.Service.Demote) }

func (c *call) changeUser(change func(context.Context, service.Actor, string) error) error {
	return c.nothing(change(c.ctx(), c.actor, c.path("user")))
}
