package api

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// background is the context of the template, which outlives each test.
var background = context.Background()

// builder makes the template, and stops at the first error.
type builder struct {
	s     *service.Service
	admin service.Actor
	cast  cast
	err   error
}

func (b *builder) do(err error) { b.err = errors.Join(b.err, err) }

// build makes the applications a, b and c, the policy p, and all users.
func (b *builder) build() {
	first, err := b.s.Bootstrap(background)
	b.do(err)
	b.admin = b.logIn("administrator", service.FirstUser, first)
	for _, app := range []string{"a", "b", "c"} {
		b.do(b.s.CreateApp(background, b.admin, app, ""))
	}

	// The viewer of a is an owner of b, so that a role does not reach beyond its application.
	owner := b.person("owner", map[string]service.Role{"a": service.Owner})
	b.person("viewer", map[string]service.Role{"a": service.Viewer, "b": service.Owner})
	b.person("stranger", map[string]service.Role{"b": service.Owner})
	b.person("spare", nil)

	// Tokens of the owner differ by scope, and those of the administrator by application.
	b.token("write token", owner, service.Write)
	b.token("read token", owner, service.Read)
	b.token("token for c", b.admin, service.Write, "c")
	b.token("administrator's token", b.admin, service.Write)
	b.token("backup token", b.admin, service.Backups)
	b.newcomer()

	// The token of a user must end with the user.
	gone := b.person("disabled", map[string]service.Role{"a": service.Owner})
	b.token("disabled's token", gone, service.Write)
	b.do(b.s.DisableUser(background, b.admin, "disabled"))

	_, err = b.s.CreatePolicy(background, b.admin, policy.Policy{
		Name: "p", Apps: []string{"a"}, Limit: core.Limit{Quota: 100, Period: time.Minute}, Key: "ip",
	})
	b.do(err)
}

// person adds a user with roles and logs in.
func (b *builder) person(name string, roles map[string]service.Role) service.Actor {
	oneTime, err := b.s.CreateUser(background, b.admin, name)
	b.do(err)
	for app, role := range roles {
		b.do(b.s.SetRole(background, b.admin, name, app, role))
	}
	return b.logIn(name, name, oneTime)
}

// logIn logs in a user who has a one-time password.
func (b *builder) logIn(as, name, oneTime string) service.Actor {
	session, err := b.s.Login(background, name, oneTime, service.Meta{})
	b.do(err)
	actor, err := b.s.Authenticate(background, session.Token, service.Meta{})
	b.do(err)
	session, err = b.s.ChangePassword(background, actor, oneTime, password)
	b.do(err)
	actor, err = b.s.Authenticate(background, session.Token, service.Meta{})
	b.do(err)
	b.cast[as] = credential{as, "Cookie", cookieName + "=" + session.Token}
	return actor
}

// newcomer adds a user who must change the password.
func (b *builder) newcomer() {
	oneTime, err := b.s.CreateUser(background, b.admin, "newcomer")
	b.do(err)
	session, err := b.s.Login(background, "newcomer", oneTime, service.Meta{})
	b.do(err)
	b.cast["newcomer"] = credential{"newcomer", "Cookie", cookieName + "=" + session.Token}
}

func (b *builder) token(as string, actor service.Actor, scope service.Scope, apps ...string) {
	_, secret, err := b.s.CreateToken(background, actor,
		service.TokenDraft{Label: as, Scope: scope, Apps: apps, Life: 24 * time.Hour, Password: password})
	b.do(err)
	b.cast[as] = credential{as, "Authorization", "Bearer " + secret}
}
