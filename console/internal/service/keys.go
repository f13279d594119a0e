package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/console/internal/auth"
	"github.com/headgate/headgate/console/internal/store"
	"github.com/headgate/headgate/policy"
)

// MaxKey is the most bytes of a key that is reset.
const MaxKey = 1000

// ResetKey lets reset make a key of a policy as good as new. The actor has to own
// every application that the policy lists. The audit log has a row of it before
// reset is called, which is not called if that cannot be written, and a second one
// if reset fails. Then the error is that of reset.
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

// keyText is a key in the audit log: its digest where somebody may have taken a
// secret for it.
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

// holdsSecret reports whether a recipe counts by what may let somebody in.
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
