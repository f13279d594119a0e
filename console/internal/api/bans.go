package api

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/policy"
)

// banView is a key that is banned. Bytes of it that are not UTF-8 are shown as U+FFFD.
type banView struct {
	Key   string    `json:"key"`
	Until time.Time `json:"until"`
}

const noBans = "the console was started without Redis, so there are no bans"

// bans lists the keys that a policy has banned.
func (c *call) bans() error {
	p, err := c.o.Service.Policy(c.ctx(), c.actor, c.path("name"))
	if err != nil {
		return err
	}
	if c.o.Bans == nil {
		return away(noBans)
	}
	list, err := c.o.Bans(c.ctx(), []string{p.Name})
	if err != nil {
		return c.redisAway("bans", err)
	}
	views := make([]banView, len(list))
	for i, b := range list {
		views[i] = banView{b.Key, time.UnixMicro(b.Until).UTC()}
	}
	return c.send(http.StatusOK, struct {
		Bans []banView `json:"bans"`
	}{views})
}

// liftBan ends the ban of a key, for an actor who may edit the policy.
func (c *call) liftBan() error {
	p, key, err := c.key()
	if err != nil {
		return err
	}
	if c.o.Lift == nil {
		return away(noBans)
	}
	return c.nothing(c.o.Service.LiftBan(c.ctx(), c.actor, p.Name, key, c.lift))
}

func (c *call) lift(ctx context.Context, p policy.Policy, key string) error {
	if err := c.o.Lift(ctx, p, key); err != nil {
		return c.redisAway("key", err)
	}
	return nil
}
