package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/console/internal/auth"
	"github.com/headgate/headgate/console/internal/store"
	"github.com/headgate/headgate/policy"
)

// MaxKey is the largest number of bytes of a key to reset, or whose ban to lift.
const MaxKey = 1000

// ResetKey calls reset to make a key of a policy fresh. The actor has to own every
// application that the policy lists. ResetKey writes a row to the audit log before
// it calls reset; if the row cannot be written, it does not call reset. If reset
// fails, ResetKey writes a second row and returns the error.
func (s *Service) ResetKey(ctx context.Context, a Actor, name, key string, reset func(context.Context, policy.Policy, string) error) error {
	return s.changeKey(ctx, a, "key.reset", name, key, reset)
}

// LiftBan is [Service.ResetKey] for lift, which ends the ban of a key.
func (s *Service) LiftBan(ctx context.Context, a Actor, name, key string, lift func(context.Context, policy.Policy, string) error) error {
	return s.changeKey(ctx, a, "ban.lift", name, key, lift)
}

func (s *Service) changeKey(ctx context.Context, a Actor, verb, name, key string, change func(context.Context, policy.Policy, string) error) error {
	if len(key) > MaxKey {
		return invalid("key", fmt.Sprintf("%d bytes are more than %d", len(key), MaxKey))
	}
	var p policy.Policy
	err := s.act(ctx, a, store.CounterUsers, verb, policyObject(name), func(d *action) (err error) {
		if p, err = d.editable(name); err != nil {
			return err
		}
		return d.done("", keyText(p, key))
	})
	if err != nil {
		return err
	}
	if err := change(ctx, p, key); err != nil {
		s.noteRefusal(ctx, a, verb, policyObject(name), "it failed: the key may be as it was")
		return err
	}
	return nil
}

// Banning returns the policies that the actor sees and that ban keys, by name.
func (s *Service) Banning(ctx context.Context, a Actor) (list []policy.Policy, err error) {
	err = s.ask(ctx, a, "policy.list", "policies", func(d *action) error {
		rows, err := d.Tx.Policies()
		if err != nil {
			return err
		}
		all, err := policiesOf(rows)
		list = slices.DeleteFunc(all, func(p policy.Policy) bool {
			return p.Ban == (policy.Ban{}) || !d.access.CanSee(p.Apps)
		})
		return err
	})
	return list, err
}

// keyText returns the form of a key in the audit log: its digest if the key may be
// a secret.
func keyText(p policy.Policy, key string) string {
	if holdsSecret(p.Key) {
		return text(struct {
			Digest string `json:"key_sha256"`
		}{auth.Digest(key)})
	}
	return text(struct {
		Key string `json:"key"`
	}{key})
}

// holdsSecret reports whether a recipe counts by values that may be credentials.
func holdsSecret(recipe string) bool {
	for part := range strings.SplitSeq(recipe, "+") {
		kind, _, _ := strings.Cut(part, ":")
		switch kind {
		case "api-key", "basic-auth", "header", "cookie":
			return true
		}
	}
	return false
}
