package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

type sessionView struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	SeenAt    time.Time `json:"seen_at"`
	Expires   time.Time `json:"expires"`
	Address   string    `json:"address"`
	Agent     string    `json:"agent"`
	Current   bool      `json:"current"`
}

func (c *call) listSessions() error {
	sessions, err := c.o.Service.Sessions(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, struct {
		Sessions []sessionView `json:"sessions"`
	}{mapped(sessions, func(s service.OpenSession) sessionView { return sessionView(s) })})
}

func (c *call) revokeSession() error {
	return c.nothing(c.o.Service.RevokeSession(c.ctx(), c.actor, c.path("id")))
}
