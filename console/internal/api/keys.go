package api

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// countView is the decision that a request of one unit would get.
type countView struct {
	Allowed    bool  `json:"allowed"`
	Banned     bool  `json:"banned"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_ms"` // -1 is never
	ResetAfter int64 `json:"reset_after_ms"`
}

func countOf(d core.Decision) countView {
	v := countView{d.Allowed, d.Banned, d.Remaining, d.RetryAfter.Milliseconds(), d.ResetAfter.Milliseconds()}
	if d.RetryAfter == core.Never {
		v.RetryAfter = -1
	}
	return v
}

// key reads the policy of the path and a key in its stored form. The key is in the
// body and not in the path, because it may be the address of a person.
func (c *call) key() (p policy.Policy, key string, err error) {
	var in struct {
		Key string `json:"key"`
	}
	if err := c.decode(&in); err != nil {
		return p, "", err
	}
	if len(in.Key) > service.MaxKey {
		return p, "", invalid(fault{Field: "key", Message: "it is too long"})
	}
	p, err = c.o.Service.Policy(c.ctx(), c.actor, c.path("name"))
	return p, in.Key, err
}

func (c *call) peekKey() error {
	p, key, err := c.key()
	if err != nil {
		return err
	}
	if c.o.Peek == nil {
		return away("the console was started without Redis, so there are no counts")
	}
	d, err := c.o.Peek(c.ctx(), p, key)
	if err != nil {
		return c.redisAway("key", err)
	}
	return c.send(http.StatusOK, countOf(d))
}

// resetKey makes a key fresh, for an actor who may edit the policy.
func (c *call) resetKey() error {
	p, key, err := c.key()
	if err != nil {
		return err
	}
	if c.o.Reset == nil {
		return away("the console was started without Redis, so there are no counts")
	}
	return c.nothing(c.o.Service.ResetKey(c.ctx(), c.actor, p.Name, key, c.reset))
}

func (c *call) reset(ctx context.Context, p policy.Policy, key string) error {
	if err := c.o.Reset(ctx, p, key); err != nil {
		return c.redisAway("key", err)
	}
	return nil
}
