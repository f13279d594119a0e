package api

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

const noCounts = "the console was started without Redis, so there are no counts"

// countView is the decision that a request of one unit would get.
type countView struct {
	Allowed    bool  `json:"allowed"`
	Banned     bool  `json:"banned"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_ms"` // -1 is never
	ResetAfter int64 `json:"reset_after_ms"`

	Limit string `json:"limit"` // that the key has, apart from plans
	Own   bool   `json:"own"`   // it is a limit of the key's own

	Credit  int64        `json:"credit"` // of Remaining, what is left of grants
	Credits []creditView `json:"credits"`
}

func countOf(d core.Decision, credits []redisstore.Credit, p policy.Policy, key string) countView {
	now := time.Now()
	_, own := p.OverrideOf(key, now)
	v := countView{d.Allowed, d.Banned, d.Remaining, d.RetryAfter.Milliseconds(), d.ResetAfter.Milliseconds(),
		p.LimitOf(key, now).String(), own, d.Credit, mapped(credits, creditOf)}
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
		return away(noCounts)
	}

	// The service looks the policy up again, and records the look-up of a key, which may be a
	// person's.
	var d core.Decision
	var credits []redisstore.Credit
	err = c.o.Service.LookUp(c.ctx(), c.actor, p.Name, key,
		func(ctx context.Context, applied policy.Policy, key string) (err error) {
			p = applied
			if d, err = c.o.Peek(ctx, p, key); err == nil && d.Credit > 0 {
				credits, err = c.o.Credits(ctx, p, key)
			}
			return c.ofKey(err)
		})
	if err != nil {
		return err
	}

	return c.send(http.StatusOK, countOf(d, credits, p, key))
}

// resetKey makes a key fresh, for an actor who may edit the policy.
func (c *call) resetKey() error { return c.changeKey(c.o.Reset, noCounts, c.o.Service.ResetKey) }

// liftBan ends the ban of a key, for an actor who may edit the policy.
func (c *call) liftBan() error { return c.changeKey(c.o.Lift, noBans, c.o.Service.LiftBan) }

// onKey changes the state of a key in Redis.
type onKey = func(ctx context.Context, p policy.Policy, key string) error

// changeKey has the service change the key of the body. missing is said if there is no Redis.
func (c *call) changeKey(
	change onKey, missing string,
	serve func(context.Context, service.Actor, string, string, onKey) error,
) error {
	p, key, err := c.key()
	if err != nil {
		return err
	}

	if change == nil {
		return away(missing)
	}

	return c.nothing(serve(c.ctx(), c.actor, p.Name, key, func(ctx context.Context, p policy.Policy, key string) error {
		return c.ofKey(change(ctx, p, key))
	}))
}

// ofKey returns the error for the client of one that Redis has given about a key, or nil.
func (c *call) ofKey(err error) error {
	if err == nil || isInvalid(err) {
		return err
	}
	return c.redisAway("key", err)
}
