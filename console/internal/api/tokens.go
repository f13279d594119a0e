package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/console/internal/service"
)

type tokenView struct {
	ID        string    `json:"id"`
	Label     string    `json:"label"`
	Scope     string    `json:"scope"`
	Apps      []string  `json:"apps"`
	CreatedAt time.Time `json:"created_at"`
	Expires   time.Time `json:"expires"`
	UsedAt    time.Time `json:"used_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

func tokenOf(t service.Token) tokenView {
	return tokenView{t.ID, t.Label, string(t.Scope), list(t.Apps), t.CreatedAt, t.Expires, t.UsedAt, t.RevokedAt}
}

func (c *call) listTokens() error {
	tokens, err := c.o.Service.Tokens(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Tokens []tokenView `json:"tokens"`
	}{mapped(tokens, tokenOf)}, "")
}

// createToken answers with the secret, which no later answer contains.
func (c *call) createToken() error {
	var in struct {
		Label string   `json:"label"`
		Scope string   `json:"scope"`
		Apps  []string `json:"apps"`
		Days  int64    `json:"days"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	const day = 24 * time.Hour
	if in.Days < 1 || in.Days > int64(service.MaxTokenLife/day) {
		return invalid(fault{Field: "days", Message: "it is not a number from 1 to 366"})
	}
	t, secret, err := c.o.Service.CreateToken(c.ctx(), c.actor, service.TokenDraft{
		Label: in.Label, Scope: service.Scope(in.Scope), Apps: in.Apps, Life: time.Duration(in.Days) * day,
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusCreated, struct {
		Token  tokenView `json:"token"`
		Secret string    `json:"secret"`
	}{tokenOf(t), secret})
}

func (c *call) revokeToken() error {
	return c.nothing(c.o.Service.RevokeToken(c.ctx(), c.actor, c.path("id")))
}
