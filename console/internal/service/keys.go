package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/console/internal/auth"
	"github.com/headgate/headgate/console/internal/store"
	"github.com/headgate/headgate/policy"
)

// MaxKey is the largest number of bytes of a key to reset.
const MaxKey = 1000

// ResetKey calls reset to make a key of a policy fresh. The actor has to own every
// application that the policy lists. ResetKey writes a row to the audit log before
// it calls reset; if the row cannot be written, it does not call reset. If reset
// fails, ResetKey writes a second row and returns the error.
func (s *Service) ResetKey(ctx context.Context, a Actor, name, key string, reset func(context.Context, policy.Policy, string) error) error {
	if len(key) > MaxKey {
		return invalid("key", fmt.Sprintf("%d bytes are more than %d", len(key), MaxKey))
	}
	var p policy.Policy
	err := s.act(ctx, a, store.CounterUsers, "key.reset", policyObject(name), func(d *action) (err error) {
		if p, err = d.editable(name); err != nil {
			return err
		}
		return d.done("", keyText(p, key))
	})
	if err != nil {
		return err
	}
	if err := reset(ctx, p, key); err != nil {
		s.noteRefusal(ctx, a, "key.reset", policyObject(name), "the reset failed: the key may be as it was")
		return err
	}
	return nil
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
