package api

import "github.com/headgate/headgate/cmd/headgate-console/internal/service"

func (c *call) giveRole() error {
	var in struct {
		Role string `json:"role"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	if in.Role == "" {
		return invalid(fault{Field: "role", Message: "it is not viewer or owner"})
	}
	return c.nothing(c.o.Service.SetRole(c.ctx(), c.actor, c.path("user"), c.path("app"), service.Role(in.Role)))
}

func (c *call) takeRole() error {
	return c.nothing(c.o.Service.SetRole(c.ctx(), c.actor, c.path("user"), c.path("app"), service.NoRole))
}
