package api

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

const noCredit = "the console was started without Redis, so keys cannot be granted or charged units"

const notMoment = "it is not a time with its zone as of RFC 3339, such as 2030-01-31T09:00:00Z"

// creditView is what a key has left of grants with one end.
type creditView struct {
	Units int64     `json:"units"`
	Until time.Time `json:"until"`
}

func creditOf(c redisstore.Credit) creditView {
	return creditView{c.Units, time.UnixMicro(c.Until).UTC()}
}

// grantKey gives a key units beside its limit, for an actor who may edit the policy.
func (c *call) grantKey() error {
	var in struct {
		Key   string `json:"key"`
		Units int64  `json:"units"`
		Until string `json:"until"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	until, err := time.Parse(time.RFC3339, in.Until)
	if err != nil {
		return invalid(fault{Field: "until", Message: notMoment})
	}
	if err := c.canCharge(c.o.Grant != nil); err != nil {
		return err
	}

	return c.nothing(c.o.Service.GrantKey(c.ctx(), c.actor, c.path("name"), in.Key, in.Units, until,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := c.o.Grant(ctx, p, key, in.Units, until)
			return d, c.ofKey(err)
		}))
}

// revokeKey takes what a key was granted, for an actor who may edit the policy.
func (c *call) revokeKey() error { return c.changeKey(c.o.Revoke, noCredit, c.o.Service.RevokeKey) }

// debitKey charges a key units that were used, for an actor who may edit the policy.
func (c *call) debitKey() error {
	var in struct {
		Key   string `json:"key"`
		Units int64  `json:"units"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	if err := c.canCharge(c.o.Debit != nil); err != nil {
		return err
	}

	charged, err := c.o.Service.DebitKey(c.ctx(), c.actor, c.path("name"), in.Key, in.Units,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := c.o.Debit(ctx, p, key, in.Units)
			return d, c.ofKey(err)
		})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, struct {
		Charged int64 `json:"charged"`
	}{charged})
}

// canCharge returns an error if the policy of the path is not seen, or there is no Redis.
func (c *call) canCharge(redis bool) error {
	// The policy is looked up first: who may not see it does not learn whether there is a Redis.
	if _, err := c.o.Service.Policy(c.ctx(), c.actor, c.path("name")); err != nil {
		return err
	}
	if !redis {
		return away(noCredit)
	}
	return nil
}
