package api

import (
	"context"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

const notMoment = "it is not a time with its zone as of RFC 3339, such as 2030-01-31T09:00:00Z"

// callerKey is the body of a request about a key. The key is in the body and not in the path,
// because it may be the address of a person.
type callerKey struct {
	Key string `json:"key" doc:"As the policy counts it." example:"192.0.2.1"`
}

// onKey changes the state of a key in Redis.
type onKey = func(ctx context.Context, p policy.Policy, key string) error

// redis returns an error if the policy of the path is not seen, or there is no Redis.
func (c *call) redis(there bool) error {
	// The policy is looked up first: who may not see it does not learn whether there is a Redis.
	_, err := c.o.Service.Policy(c.ctx(), c.actor, c.name())
	if err == nil && !there {
		err = away("the console was started without Redis")
	}
	return err
}

// ofKey returns the error for the client of one that Redis has given about a key, or nil.
func (c *call) ofKey(err error) error {
	if err == nil || faultsOf(err) != nil {
		return err
	}
	return c.redisAway("key", err)
}

// credit is what a key has left of grants with one end.
type credit struct {
	Units int64     `json:"units"`
	Until time.Time `json:"until"`
}

// keyCount is the decision that a request of one unit would get.
type keyCount struct {
	Allowed    bool  `json:"allowed"`
	Banned     bool  `json:"banned"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_ms" doc:"-1 is never."`
	ResetAfter int64 `json:"reset_after_ms"`

	Limit string `json:"limit" doc:"That the key has, apart from plans."`
	Own   bool   `json:"own" doc:"It is a limit of the key's own."`

	Credit  int64    `json:"credit" doc:"What is left of grants, as a part of remaining."`
	Credits []credit `json:"credits"`
}

func countOf(d core.Decision, credits []redisstore.Credit, p policy.Policy, key string) keyCount {
	now := time.Now()
	_, own := p.OverrideOf(key, now)
	until := func(c redisstore.Credit) credit { return credit{c.Units, time.UnixMicro(c.Until).UTC()} }
	v := keyCount{
		d.Allowed, d.Banned, d.Remaining, d.RetryAfter.Milliseconds(), d.ResetAfter.Milliseconds(),
		p.LimitOf(key, now).String(), own, d.Credit, mapped(credits, until),
	}
	if d.RetryAfter == core.Never {
		v.RetryAfter = -1
	}
	return v
}

func (c *call) peekKey(in *callerKey) (v keyCount, err error) {
	if err := c.redis(c.o.Peek != nil); err != nil {
		return v, err
	}

	// The service records the look-up of a key, which may be a person's.
	err = c.o.Service.LookUp(c.ctx(), c.actor, c.name(), in.Key,
		func(ctx context.Context, p policy.Policy, key string) error {
			d, err := c.o.Peek(ctx, p, key)
			var credits []redisstore.Credit
			if err == nil && d.Credit > 0 {
				credits, err = c.o.Credits(ctx, p, key)
			}
			v = countOf(d, credits, p, key)
			return c.ofKey(err)
		})
	return v, err
}

func (c *call) resetKey(in *callerKey) (none, error) {
	return c.changeKey(in.Key, c.o.Reset, c.o.Service.ResetKey)
}

func (c *call) liftBan(in *callerKey) (none, error) {
	return c.changeKey(in.Key, c.o.Lift, c.o.Service.LiftBan)
}

func (c *call) revokeKey(in *callerKey) (none, error) {
	return c.changeKey(in.Key, c.o.Revoke, c.o.Service.RevokeKey)
}

// changeKey has the service change a key.
func (c *call) changeKey(
	key string, change onKey, serve func(context.Context, service.Actor, string, string, onKey) error,
) (none, error) {
	if err := c.redis(change != nil); err != nil {
		return none{}, err
	}
	do := func(ctx context.Context, p policy.Policy, key string) error { return c.ofKey(change(ctx, p, key)) }
	return none{}, serve(c.ctx(), c.actor, c.name(), key, do)
}

type grant struct {
	callerKey
	Units int64  `json:"units" doc:"From 1 to 2^53 - 1." example:"10000"`
	Until string `json:"until" doc:"When they end, within ten years." example:"2030-02-01T00:00:00Z"`
}

func (c *call) grantKey(in *grant) (none, error) {
	until, err := time.Parse(time.RFC3339, in.Until)
	if err != nil {
		return none{}, mistake("until", notMoment)
	}
	if err := c.redis(c.o.Grant != nil); err != nil {
		return none{}, err
	}
	return none{}, c.o.Service.GrantKey(c.ctx(), c.actor, c.name(), in.Key, in.Units, until,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := c.o.Grant(ctx, p, key, in.Units, until)
			return d, c.ofKey(err)
		})
}

type debit struct {
	callerKey
	Units int64 `json:"units" doc:"From 1 to what the limit of the key and its debt hold." example:"20"`
}

type charge struct {
	Charged int64 `json:"charged" doc:"Fewer than were asked for if the debt of the key is full."`
}

func (c *call) debitKey(in *debit) (v charge, err error) {
	if err := c.redis(c.o.Debit != nil); err != nil {
		return v, err
	}
	v.Charged, err = c.o.Service.DebitKey(c.ctx(), c.actor, c.name(), in.Key, in.Units,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := c.o.Debit(ctx, p, key, in.Units)
			return d, c.ofKey(err)
		})
	return v, err
}

type ban struct {
	callerKey
	For string `json:"for" doc:"From 1s to ten years, or to what a policy with a ban bans for at most." example:"2h"`
	comment
}

func (c *call) imposeBan(in *ban) (none, error) {
	span, err := time.ParseDuration(in.For)
	if err != nil {
		return none{}, mistake("for", "it is not a time such as 10m or 24h")
	}
	if err := c.redis(c.o.Impose != nil); err != nil {
		return none{}, err
	}
	return none{}, c.o.Service.ImposeBan(c.ctx(), c.actor.Saying(in.Comment), c.name(), in.Key, span,
		func(ctx context.Context, p policy.Policy, key string, span time.Duration) error {
			return c.ofKey(c.o.Impose(ctx, p, key, span))
		})
}

type banList struct {
	Bans []banned `json:"bans"`
}

type banned struct {
	Key   string    `json:"key" doc:"As the policy counts it. Bytes that are not UTF-8 are U+FFFD."`
	Until time.Time `json:"until"`
	By    string    `json:"by,omitempty" doc:"Who imposed it, under a policy without a ban."`
}

func (c *call) bans(*none) (v banList, err error) {
	if err := c.redis(c.o.Bans != nil); err != nil {
		return v, err
	}
	list, err := c.o.Bans(c.ctx(), []string{c.name()})
	if err != nil {
		return v, c.redisAway("bans", err)
	}
	v.Bans = mapped(list, func(b core.Banned) banned { return banned{b.Key, time.UnixMicro(b.Until).UTC(), ""} })
	beside, err := c.o.Service.BansBeside(c.ctx(), c.actor, []string{c.name()})
	for _, b := range beside {
		v.Bans = append(v.Bans, banned{b.Key, b.Until, b.By})
	}
	return v, err
}

type allowance struct {
	callerKey
	based
}

func (c *call) allowKey(in *allowance) (saved, error) {
	return c.change(in.based, func(a service.Actor, version int64) (policy.Policy, error) {
		return c.o.Service.AllowKey(c.ctx(), a, c.name(), in.Key, version)
	})
}

// noLimit is the limit of its own of a key that has none.
const noLimit = "none"

type ownLimit struct {
	callerKey
	Limit string `json:"limit" doc:"A limit of the policy's algorithm, or none." example:"50/1m"`
	based
}

func (c *call) limitKey(in *ownLimit) (saved, error) {
	return c.change(in.based, func(a service.Actor, version int64) (policy.Policy, error) {
		var own *policy.Override
		if in.Limit != noLimit {
			l, err := policy.ParseOverride(in.Limit)
			if err != nil {
				return policy.Policy{}, mistake("limit", err.Error())
			}
			own = &l
		}
		return c.o.Service.LimitKey(c.ctx(), a, c.name(), in.Key, own, version)
	})
}
