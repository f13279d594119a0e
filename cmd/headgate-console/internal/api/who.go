package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
)

// topKeyView is a key of a list. Bytes has a key that is not UTF-8, in base64, and Key is
// then empty.
type topKeyView struct {
	Key       string    `json:"key"`
	Bytes     string    `json:"bytes"`
	Shortened bool      `json:"shortened"`
	Count     int64     `json:"count"`
	Least     int64     `json:"least"`
	Since     time.Time `json:"since"`
}

type topListView struct {
	Total int64        `json:"total"`
	Floor int64        `json:"floor"`
	From  *time.Time   `json:"from"` // null if no request was counted
	To    *time.Time   `json:"to"`
	Keys  []topKeyView `json:"keys"`
}

type topRuleView struct {
	Policy   string      `json:"policy"`
	Refused  topListView `json:"refused"`
	Admitted topListView `json:"admitted"`
}

func topKeyOf(k topkeys.Key) topKeyView {
	v := topKeyView{Key: k.Key, Shortened: service.IsShortened(k.Key), Count: k.Count, Least: k.Least(), Since: k.Since}
	if !utf8.ValidString(k.Key) {
		v.Key, v.Bytes = "", base64.StdEncoding.EncodeToString([]byte(k.Key))
	}
	return v
}

func topListOf(s topkeys.Summary) topListView {
	v := topListView{Total: s.Total, Floor: s.Floor, Keys: mapped(s.Keys, topKeyOf)}
	if !s.From.IsZero() {
		v.From, v.To = &s.From, &s.To
	}
	return v
}

func topRuleOf(t topkeys.Rule) topRuleView {
	return topRuleView{t.Rule, topListOf(t.Refused), topListOf(t.Admitted)}
}

// top answers with the keys that an application refuses and admits most.
func (c *call) top() error {
	t, err := c.o.Service.Top(c.ctx(), c.actor, c.path("app"))
	if err != nil {
		return c.fleetErr("top keys", err)
	}
	return c.send(http.StatusOK, struct {
		Instances int           `json:"instances"`
		Unread    int           `json:"unread"`
		Policies  []topRuleView `json:"policies"`
	}{t.Instances, t.Unread, mapped(t.Rules, topRuleOf)})
}

// imposeBan bans a key for a time, for an actor who may edit the policy.
func (c *call) imposeBan() error {
	var in struct {
		Key string `json:"key"`
		For string `json:"for"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}

	span, err := time.ParseDuration(in.For)
	if err != nil {
		return invalid(fault{Field: "for", Message: "it is not a time such as 10m or 24h"})
	}

	// The policy is looked up first: who may not see it does not learn whether there is a Redis.
	if _, err := c.o.Service.Policy(c.ctx(), c.actor, c.path("name")); err != nil {
		return err
	}
	if c.o.Impose == nil {
		return away(noBans)
	}

	return c.nothing(c.o.Service.ImposeBan(c.ctx(), c.actor, c.path("name"), in.Key, span, c.impose))
}

func (c *call) impose(ctx context.Context, p policy.Policy, key string, span time.Duration) error {
	return c.ofKey(c.o.Impose(ctx, p, key, span))
}

// allowKey puts a key on the list of those that a policy does not limit.
func (c *call) allowKey() error {
	var in struct {
		Key     string `json:"key"`
		Version int64  `json:"version"`
		Comment string `json:"comment"`
	}
	return c.change(&in, &in.Version, &in.Comment, func(a service.Actor, version int64) (policy.Policy, error) {
		return c.o.Service.AllowKey(c.ctx(), a, c.path("name"), in.Key, version)
	})
}

// noLimit is the limit of its own of a key that has none.
const noLimit = "none"

// limitKey gives a key a limit of its own, or takes it away.
func (c *call) limitKey() error {
	var in struct {
		Key     string `json:"key"`
		Limit   string `json:"limit"`
		Version int64  `json:"version"`
		Comment string `json:"comment"`
	}

	return c.change(&in, &in.Version, &in.Comment, func(a service.Actor, version int64) (policy.Policy, error) {
		var own *policy.Override
		if in.Limit != noLimit {
			l, err := policy.ParseOverride(in.Limit)
			if err != nil {
				return policy.Policy{}, invalid(fault{Field: "limit", Message: err.Error()})
			}

			own = &l
		}
		return c.o.Service.LimitKey(c.ctx(), a, c.path("name"), in.Key, own, version)
	})
}
