package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// MaxKey is the largest number of bytes of a key to look up or to change.
const MaxKey = 1000

// lookUp is the action of a look-up in the audit log.
const lookUp = "key.look-up"

// checkLength returns an error for a key that is too long.
func checkLength(key string) error {
	if len(key) > MaxKey {
		return invalid("key", fmt.Sprintf("%d bytes are more than %d", len(key), MaxKey))
	}
	return nil
}

// KeyUse is what a key has used under a policy.
type KeyUse struct {
	Policy policy.Policy // KeyPolicy.Applied
	Key    string

	// Decision is the one that a request of one unit would get.
	core.Decision

	// BannedUntil is the end of its ban, after which the limit may refuse it longer.
	BannedUntil time.Time

	// Credits is what the key has left of its grants, in the order of their ends.
	Credits []redisstore.Credit
}

// LookUp returns what a key has used under a policy that the actor sees. The key may be the address
// or the name of a person, so LookUp writes a row to the audit log before it asks Redis; if the row
// cannot be written, it does not ask. The error is ErrNoFleet or wraps it if Redis does not answer.
func (s *Service) LookUp(ctx context.Context, a Actor, name, key string) (KeyUse, error) {
	op := core.Op{Verb: core.Peek, Key: key}
	p, err := s.noteKey(ctx, a, lookUp, name, &op, (*action).policy, keyEntry)
	if err != nil {
		return KeyUse{}, err
	}
	uses := []KeyUse{{Policy: p, Key: key}}
	err = s.peek(ctx, uses)
	return uses[0], err
}

// peek asks Redis at once what keys have used, each under its policy.
func (s *Service) peek(ctx context.Context, uses []KeyUse) error {
	ops, out := make([]core.Op, len(uses)), make([]core.Decision, len(uses))
	for i, u := range uses {
		ops[i] = core.Op{Verb: core.Peek, Key: u.Key, Ban: u.Policy.Ban.OrNil(), Cost: 1, Lease: "console"}
		s.aim(&ops[i], u.Policy)
	}
	if err := s.fleet.Apply(ctx, ops, out); err != nil {
		return keyErr(err)
	}
	for i := range uses {
		uses[i].Decision = out[i]
	}

	now := s.clock()
	if err := s.banEnds(ctx, uses, now); err != nil {
		return err
	}
	for i := range uses {
		u := &uses[i]

		// The store does not know of a ban beside the policy.
		if end := u.Policy.BanOf(u.Key, now); !end.IsZero() && u.Policy.Mode == policy.Enforce {
			u.Allowed, u.Banned, u.RetryAfter = false, true, max(u.RetryAfter, end.Sub(now))
			if end.After(u.BannedUntil) {
				u.BannedUntil = end
			}
		}

		// What the credit consists of is a question of its own.
		if u.Credit != 0 {
			var err error
			if u.Credits, err = s.fleet.Credits(ctx, ops[i].ID()); err != nil {
				return keyErr(err)
			}
		}
	}
	return nil
}

// banEnds asks Redis for the ends of the bans of keys. An end is the latest possible one if Redis
// does not list the ban: because it began just now, has ended meanwhile, or comes after as many as
// are read.
func (s *Service) banEnds(ctx context.Context, uses []KeyUse, now time.Time) error {
	var names []string
	for _, u := range uses {
		if u.Banned {
			names = append(names, u.Policy.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}

	list, err := s.fleet.Bans(ctx, names)
	if err != nil {
		return errors.Join(ErrNoFleet, err)
	}

	for i := range uses {
		u := &uses[i]
		if !u.Banned {
			continue
		}
		u.BannedUntil = now.Add(u.RetryAfter)
		at := slices.IndexFunc(list, func(b core.Banned) bool { return b.Rule == u.Policy.Name && b.Key == u.Key })
		if at >= 0 {
			u.BannedUntil = time.UnixMicro(list[at].Until)
		}
	}
	return nil
}

// apply has Redis carry out an operation on a key.
func (s *Service) apply(ctx context.Context, p policy.Policy, op *core.Op) (core.Decision, error) {
	s.aim(op, p)
	var out [1]core.Decision
	err := s.fleet.Apply(ctx, []core.Op{*op}, out[:])
	return out[0], keyErr(err)
}

// aim makes an operation one on its key under the limit that instances have for the key.
func (s *Service) aim(op *core.Op, p policy.Policy) {
	now := s.clock()
	op.Rule, op.Limit = p.Name, p.LimitOf(op.Key, now)
	op.Windows = op.Limit.Windows(now.UnixMicro())
}

// keyErr returns an error about the value of a key as one that people can read, and any other as
// one of Redis.
func keyErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redisstore.ErrFormat):
		return invalid("key", "a newer version of headgate has written what Redis holds of it, in a format that this "+
			"console cannot read, so it is left as it is: upgrade the console, or finish the roll-back")
	case errors.Is(err, redisstore.ErrUnreadable):
		return invalid("key", "what Redis holds of it is no count, and expires within a minute")
	}
	return errors.Join(ErrNoFleet, err)
}

// noteKey writes the text that entry returns of an operation on a key to the audit log, and returns
// the policy that find finds as instances apply it to the key. An error of entry refuses the
// action.
func (s *Service) noteKey(
	ctx context.Context, a Actor, verb, name string, op *core.Op, find func(*action, string) (policy.Policy, error),
	entry func(policy.Policy, *core.Op) (string, error),
) (p policy.Policy, err error) {
	if err := checkLength(op.Key); err != nil {
		return p, err
	}
	err = s.act(ctx, a, store.CounterUsers, verb, policyObject(name), func(d *action) (err error) {
		// Those who may not see the policy do not learn whether there is a Redis.
		if p, err = find(d, name); err == nil && s.fleet == nil {
			err = ErrNoFleet
		}
		if err != nil {
			return err
		}
		k, err := d.keyPolicy(p, op.Key)
		if err != nil {
			return err
		}
		p = k.Applied

		after, err := entry(p, op)
		if err := errors.Join(checkComment(a.comment), err); err != nil {
			return err
		}
		return d.noted("", after, a.comment)
	})
	return p, err
}

// LookUpEach is [Service.LookUp] under each policy that the actor sees and that counts selects,
// in the order of their names, by the key that counted returns. One row of the audit log has the
// names of all of them. It asks for no more than most policies, and reports whether there are more.
// If counts selects no policy, there is no row.
func (s *Service) LookUpEach(
	ctx context.Context, a Actor, key string, most int,
	counts func(policy.Policy) bool, counted func(policy.Policy) string,
) (uses []KeyUse, more bool, err error) {
	if err := checkLength(key); err != nil {
		return nil, false, err
	}
	var list []KeyPolicy
	err = s.act(ctx, a, store.CounterUsers, lookUp, "policies", func(d *action) error {
		list = nil
		of, err := d.selected(counts)
		if err != nil {
			return err
		}
		if s.fleet == nil {
			return ErrNoFleet
		}
		more = len(of) > most
		if of = of[:min(len(of), most)]; len(of) == 0 {
			return errUnchanged
		}

		names := make([]string, len(of))
		for i, p := range of {
			k, err := d.keyPolicy(p, counted(p))
			if err != nil {
				return err
			}
			names[i], list = p.Name, append(list, k)
		}
		return d.done("", with(keyText(key, of...), "policies", names))
	})

	if err != nil || len(list) == 0 {
		return nil, more, err
	}

	uses = make([]KeyUse, len(list))
	for i, k := range list {
		uses[i] = KeyUse{Policy: k.Applied, Key: k.key}
	}
	return uses, more, s.peek(ctx, uses)
}

// ResetKey makes a key of a policy fresh. The actor has to own every application that the policy
// lists. ResetKey writes a row to the audit log before it asks Redis; if the row cannot be written,
// it does not ask. If Redis fails, ResetKey writes a second row. The error is then as of LookUp.
func (s *Service) ResetKey(ctx context.Context, a Actor, name, key string) error {
	_, err := s.changeKey(ctx, a, "key.reset", name, core.Op{Verb: core.Reset, Key: key}, keyEntry)
	return err
}

// keyEntry returns what the audit log has of an operation on a key.
func keyEntry(p policy.Policy, op *core.Op) (string, error) { return keyText(op.Key, p), nil }

// changeKey has Redis carry out an operation on a key after the audit log has the text that entry
// returns. entry may complete the operation, and an error of it refuses the change.
func (s *Service) changeKey(
	ctx context.Context, a Actor, verb, name string, op core.Op, entry func(policy.Policy, *core.Op) (string, error),
) (core.Decision, error) {
	p, err := s.noteKey(ctx, a, verb, name, &op, (*action).editable, entry)
	if err != nil {
		return core.Decision{}, err
	}

	d, err := s.apply(ctx, p, &op)
	if err == nil && op.Verb == core.Grant && !d.Allowed {
		err = refusedGrant(d, op)
	}

	// The audit log has the change already. A second row says that it failed.
	var refused *InvalidError
	switch {
	case errors.As(err, &refused):
		s.auditRefusal(ctx, a, verb, policyObject(name), "it was refused, and the key is as it was: "+refused.Error())
	case err != nil:
		s.auditRefusal(ctx, a, verb, policyObject(name), "it failed: the key may be as it was")
	}
	return d, err
}

// keyText returns the form of a key in the audit log: its digest if the key may be a secret
// under one of the policies.
func keyText(key string, of ...policy.Policy) string {
	if slices.ContainsFunc(of, func(p policy.Policy) bool { return holdsSecret(p.Key) }) {
		return text(map[string]string{"key_sha256": auth.Digest(key)})
	}
	return text(map[string]string{"key": key})
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
