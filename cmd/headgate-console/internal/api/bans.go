package api

import (
	"net/http"
	"time"
)

// banView is a key that is banned. Bytes of it that are not UTF-8 are shown as U+FFFD.
type banView struct {
	Key   string    `json:"key"`
	Until time.Time `json:"until"`
}

const noBans = "the console was started without Redis, so there are no bans"

// bans lists the keys that a policy has banned.
func (c *call) bans() error {
	// The permission comes first: who may not see the policy does not learn whether there is a
	// Redis.
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
