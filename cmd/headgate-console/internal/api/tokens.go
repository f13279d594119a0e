package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
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
	return c.sendTokens(tokens, err)
}

func (c *call) listTokensOf() error {
	tokens, err := c.o.Service.TokensOf(c.ctx(), c.actor, c.path("user"))
	return c.sendTokens(tokens, err)
}

func (c *call) sendTokens(tokens []service.Token, err error) error {
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Tokens []tokenView `json:"tokens"`
	}{mapped(tokens, tokenOf)}, "")
}

func (c *call) endTokens() error { return c.changeUser(c.o.Service.EndTokens) }

// createToken answers with the secret, which no later answer contains.
func (c *call) createToken() error {
	var in struct {
		Label   string   `json:"label"`
		Scope   string   `json:"scope"`
		Apps    []string `json:"apps"`
		Days    int64    `json:"days"`
		Expires string   `json:"expires"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}

	const day = 24 * time.Hour
	draft := service.TokenDraft{
		Label: in.Label, Scope: service.Scope(in.Scope), Apps: in.Apps, Life: time.Duration(in.Days) * day,
	}

	// A life in days and an end exclude each other. field is the one that the service's mistakes
	// are about.
	field := "days"
	if in.Expires != "" {
		field = "expires"
		at, err := time.Parse(time.RFC3339, in.Expires)
		if err != nil || in.Days != 0 {
			return invalid(fault{Field: field, Message: "it is not a time such as 2026-01-31T12:00:00Z, without days"})
		}
		draft.Expires = at
	} else if in.Days < 1 || in.Days > int64(service.MaxTokenLife/day) {
		return invalid(fault{Field: field, Message: "it is not a number from 1 to 366"})
	}

	t, secret, err := c.o.Service.CreateToken(c.ctx(), c.actor, draft)
	if err != nil {
		return renamed(err, "life", field)
	}

	return c.send(http.StatusCreated, struct {
		Token  tokenView `json:"token"`
		Secret string    `json:"secret"`
	}{tokenOf(t), secret})
}

func (c *call) revokeToken() error {
	return c.nothing(c.o.Service.RevokeToken(c.ctx(), c.actor, c.path("id")))
}
