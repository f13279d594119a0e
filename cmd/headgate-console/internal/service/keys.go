package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
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

// LookUp calls peek to learn what a key has used under a policy that the actor sees, which is
// KeyPolicy.Applied. The key may be the address or the name of a person, so LookUp writes a row to
// the audit log before it calls peek; if the row cannot be written, it does not call peek.
func (s *Service) LookUp(
	ctx context.Context, a Actor, name, key string, peek func(context.Context, policy.Policy, string) error,
) error {
	p, err := s.noteKey(ctx, a, lookUp, name, key, (*action).policy, keyEntry)
	if err != nil {
		return err
	}
	return peek(ctx, p, key)
}

// noteKey writes the text that entry returns of a key to the audit log, and returns the policy that
// find finds as instances apply it to the key. An error of entry refuses the action.
func (s *Service) noteKey(
	ctx context.Context, a Actor, verb, name, key string, find func(*action, string) (policy.Policy, error),
	entry func(policy.Policy, string) (string, error),
) (p policy.Policy, err error) {
	if err := checkLength(key); err != nil {
		return p, err
	}
	err = s.act(ctx, a, store.CounterUsers, verb, policyObject(name), func(d *action) (err error) {
		if p, err = find(d, name); err != nil {
			return err
		}
		k, err := d.keyPolicy(p, key)
		if err != nil {
			return err
		}
		p = k.Applied

		after, err := entry(p, key)
		if err != nil {
			return err
		}
		return d.done("", after)
	})
	return p, err
}

// LookUpEach is [Service.LookUp] under each policy that the actor sees and that counts selects,
// in the order of their names, by the key that counted returns. One row of the audit log has the
// names of all of them. The service calls peek for no more than most policies, and reports whether
// there are more. If counts selects no policy, there is no row.
func (s *Service) LookUpEach(
	ctx context.Context, a Actor, key string, most int,
	counts func(policy.Policy) bool, counted func(policy.Policy) string,
	peek func(context.Context, policy.Policy, string) error,
) (more bool, err error) {
	if err := checkLength(key); err != nil {
		return false, err
	}
	var list []KeyPolicy
	err = s.act(ctx, a, store.CounterUsers, lookUp, "policies", func(d *action) error {
		of, err := d.selected(counts)
		if err != nil {
			return err
		}
		more = len(of) > most
		if of = of[:min(len(of), most)]; len(of) == 0 {
			return errUnchanged
		}

		list = make([]KeyPolicy, len(of))
		names := make([]string, len(of))
		for i, p := range of {
			names[i] = p.Name
			if list[i], err = d.keyPolicy(p, counted(p)); err != nil {
				return err
			}
		}
		return d.done("", with(keyText(key, of...), "policies", names))
	})
	if err != nil {
		return false, err
	}

	for _, k := range list {
		if err := peek(ctx, k.Applied, k.key); err != nil {
			return more, err
		}
	}
	return more, nil
}

// ResetKey calls reset to make a key of a policy, which is KeyPolicy.Applied, fresh. The actor has
// to own every application that the policy lists. ResetKey writes a row to the audit log before
// it calls reset; if the row cannot be written, it does not call reset. If reset
// fails, ResetKey writes a second row and returns the error.
func (s *Service) ResetKey(
	ctx context.Context, a Actor, name, key string, reset func(context.Context, policy.Policy, string) error,
) error {
	return s.changeKey(ctx, a, "key.reset", name, key, keyEntry, reset)
}

// keyEntry returns what the audit log has of the change of a key.
func keyEntry(p policy.Policy, key string) (string, error) { return keyText(key, p), nil }

// changeKey calls change after the audit log has the text that entry returns. An error of entry
// refuses the change.
func (s *Service) changeKey(
	ctx context.Context, a Actor, verb, name, key string, entry func(policy.Policy, string) (string, error),
	change func(context.Context, policy.Policy, string) error,
) error {
	p, err := s.noteKey(ctx, a, verb, name, key, (*action).editable, entry)
	if err != nil {
		return err
	}

	// The audit log has the change already. A second row says that it failed.
	err = change(ctx, p, key)
	var refused *InvalidError
	switch {
	case errors.As(err, &refused):
		s.auditRefusal(ctx, a, verb, policyObject(name), "it was refused, and the key is as it was: "+refused.Error())
	case err != nil:
		s.auditRefusal(ctx, a, verb, policyObject(name), "it failed: the key may be as it was")
	}
	return err
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
