// This file has which limit a key has under a policy.

package service

import (
	"context"

	"github.com/headgate/headgate/cmd/headgate-console/internal/keylimit"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// KeyPolicy is a policy with what is in force for one key.
type KeyPolicy struct {
	// Policy is as it was saved.
	Policy policy.Policy

	// Applied is as instances apply it to the key: its LimitOf and OverrideOf of the key take the
	// overrides beside the policy into account. It is not to be saved.
	Applied policy.Policy

	// Beside is the override with a limit that the key itself, and not a prefix of it, has beside
	// the policy, or nil. The instances may leave it out, as when it has ended.
	Beside *policy.Override

	key    string
	beside keylimit.Beside
	now    int64 // µs
}

// KeyPolicy returns a policy that the actor sees, with what is in force for a key. It writes
// nothing to the audit log, as it tells nothing of what the key has used.
func (s *Service) KeyPolicy(ctx context.Context, a Actor, name, key string) (KeyPolicy, error) {
	if err := checkLength(key); err != nil {
		return KeyPolicy{}, err
	}
	return readPolicy(ctx, s, a, name, func(d *action, p policy.Policy) (KeyPolicy, error) {
		return d.keyPolicy(p, key)
	})
}

// WithLimit returns the policy as instances would apply it after [Service.LimitKey]. The errors are
// those of LimitKey.
func (k *KeyPolicy) WithLimit(limit *policy.Override) (policy.Policy, error) {
	p, beside := k.Policy, k.beside
	if k.Beside != nil && limit != nil {
		o, err := readKeyLimit(&p, k.key, limit, k.now)
		if err != nil {
			return p, err
		}
		beside = beside.With(k.key, o)
	} else {
		var err error
		if p, err = WithKeyLimit(p, k.key, limit); err != nil {
			return p, err
		}
		if k.Beside != nil {
			beside = beside.Without(k.key)
		}
	}
	return beside.Apply(p, k.key, instant(k.now)), nil
}

// keyPolicy returns what is in force for a key under a policy.
func (a *action) keyPolicy(p policy.Policy, key string) (KeyPolicy, error) {
	k := KeyPolicy{Policy: p, key: key, now: a.now}
	rows, err := a.OverridesOf(p.Name, keylimit.Patterns(key))
	if err != nil {
		return k, err
	}

	k.beside = besideOf(rows)
	if _, isPrefix := policy.OverriddenPrefix(key); !isPrefix {
		if o, ok := k.beside[key]; ok && o.Limit != (core.Limit{}) {
			k.Beside = &o
		}
	}
	k.Applied = k.beside.Apply(p, key, instant(a.now))
	return k, nil
}

// besideOf returns the overrides of rows. Of one that cannot be read there is the ban, as in
// instances, or the zero Override.
func besideOf(rows []store.Override) keylimit.Beside {
	beside := make(keylimit.Beside, len(rows))
	texts := map[string]policy.Override{} // few are different
	for _, row := range rows {
		o, ok := texts[row.Text]
		if !ok {
			o, _ = policy.ParseOverride(row.Text)
			texts[row.Text] = o
		}
		beside[row.Key] = o
	}
	return beside
}
