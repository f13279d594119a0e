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

func countOf(u service.KeyUse) keyCount {
	now := time.Now()
	_, own := u.Policy.OverrideOf(u.Key, now)
	until := func(c redisstore.Credit) credit { return credit{c.Units, time.UnixMicro(c.Until).UTC()} }
	v := keyCount{
		u.Allowed, u.Banned, u.Remaining, u.RetryAfter.Milliseconds(), u.ResetAfter.Milliseconds(),
		u.Policy.LimitOf(u.Key, now).String(), own, u.Credit, mapped(u.Credits, until),
	}
	if u.RetryAfter == core.Never {
		v.RetryAfter = -1
	}
	return v
}

func (c *call) peekKey(in *callerKey) (keyCount, error) {
	u, err := c.o.Service.LookUp(c.ctx(), c.actor, c.name(), in.Key)
	return countOf(u), c.fleetErr("keys", err)
}

func (c *call) resetKey(in *callerKey) (none, error) {
	return c.changeKey(in.Key, c.o.Service.ResetKey)
}

func (c *call) liftBan(in *callerKey) (none, error) {
	return c.changeKey(in.Key, c.o.Service.LiftBan)
}

func (c *call) revokeKey(in *callerKey) (none, error) {
	return c.changeKey(in.Key, c.o.Service.RevokeKey)
}

// changeKey has the service change a key.
func (c *call) changeKey(
	key string, change func(ctx context.Context, a service.Actor, name, key string) error,
) (none, error) {
	return none{}, c.fleetErr("keys", change(c.ctx(), c.actor, c.name(), key))
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
	err = c.o.Service.GrantKey(c.ctx(), c.actor, c.name(), in.Key, in.Units, until)
	return none{}, c.fleetErr("keys", err)
}

type debit struct {
	callerKey
	Units int64 `json:"units" doc:"From 1 to what the limit of the key and its debt hold." example:"20"`
}

type charge struct {
	Charged int64 `json:"charged" doc:"Fewer than were asked for if the debt of the key is full."`
}

func (c *call) debitKey(in *debit) (v charge, err error) {
	v.Charged, err = c.o.Service.DebitKey(c.ctx(), c.actor, c.name(), in.Key, in.Units)
	return v, c.fleetErr("keys", err)
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
	err = c.o.Service.ImposeBan(c.ctx(), c.actor.Saying(in.Comment), c.name(), in.Key, span)
	return none{}, c.fleetErr("keys", err)
}

type banList struct {
	Bans []banned `json:"bans"`
}

type banned struct {
	Key   string    `json:"key" doc:"As the policy counts it. Bytes that are not UTF-8 are U+FFFD."`
	Until time.Time `json:"until"`
	By    string    `json:"by,omitempty" doc:"Who imposed it, to those who saw the policy then."`
}

func (c *call) bans(*none) (v banList, err error) {
	// The policy is looked up first: who may not see it does not learn whether there is a Redis.
	if _, err := c.o.Service.Policy(c.ctx(), c.actor, c.name()); err != nil {
		return v, err
	}
	if c.o.Fleet == nil {
		return v, c.fleetErr("bans", service.ErrNoFleet)
	}
	list, err := c.o.Fleet.Bans(c.ctx(), []string{c.name()})
	if err != nil {
		return v, c.redisAway("bans", err)
	}
	bans := mapped(list, func(b core.Banned) service.KeyBan {
		return service.KeyBan{Policy: b.Rule, Key: b.Key, Until: time.UnixMicro(b.Until).UTC()}
	})
	beside, err := c.o.Service.BansBeside(c.ctx(), c.actor, []string{c.name()})
	if err != nil {
		return v, err
	}
	bans = append(bans, beside...)

	pointers := make([]*service.KeyBan, len(bans))
	for i := range bans {
		pointers[i] = &bans[i]
	}
	err = c.o.Service.ExplainBans(c.ctx(), c.actor, pointers)
	v.Bans = mapped(bans, func(b service.KeyBan) banned { return banned{b.Key, b.Until, b.By} })
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
