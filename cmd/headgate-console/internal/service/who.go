// This file has who is refused and admitted most, and what may be done about a key.

package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// Top returns the keys that the policies of an application refuse and admit most often. The
// actor needs a role in the application. The error is ErrNoFleet or wraps it if Redis does not
// answer.
func (s *Service) Top(ctx context.Context, a Actor, app string) (stats.Top, error) {
	if app == "" {
		return stats.Top{}, ErrNotFound
	}
	err := s.ask(ctx, a, "top.read", appObject(app), func(d *action) error { return d.seesApp(app) })
	if err != nil {
		return stats.Top{}, err
	}

	if s.fleet == nil {
		return stats.Top{}, ErrNoFleet
	}

	top, err := s.fleet.Top(ctx, app)
	if err != nil {
		return stats.Top{}, errors.Join(ErrNoFleet, err)
	}
	return top, nil
}

// checkKey returns an error for a key that no request is counted by.
func checkKey(key string) error {
	if IsShortened(key) {
		return invalid("key", "it is the beginning of a longer key and a digest, "+
			"which the page of top keys shows in its place")
	}
	return checkLength(key)
}

// IsShortened reports whether a key of [Service.Top] stands for a longer one, which is not
// known.
func IsShortened(key string) bool { return topkeys.Shorten(key) != key && len(key) <= 80 }

// with adds a field to the form of a key in the audit log.
func with(key, field string, value any) string {
	return key[:len(key)-1] + "," + text(field) + ":" + text(value) + "}"
}

// AllowKey puts a key on the list of those that a policy does not limit, and takes it from
// the list of those that it denies. It is a change of the policy, with a version in its
// history. The actor has to own every application that the policy lists. If version is not
// the current one, the error is a ConflictError. A key that is listed already changes nothing.
func (s *Service) AllowKey(
	ctx context.Context, a Actor, name, key string, version int64,
) (saved policy.Policy, err error) {
	return s.changeForKey(ctx, a, name, key, version, "a key is allowed", func(p policy.Policy) (policy.Policy, error) {
		// The lists are shared with the policy as it was, and are cloned before a change.
		if !slices.Contains(p.Access.Allow.Keys, key) {
			p.Access.Allow.Keys = append(slices.Clone(p.Access.Allow.Keys), key)
		}

		same := func(k string) bool { return k == key }
		p.Access.Deny.Keys = slices.DeleteFunc(slices.Clone(p.Access.Deny.Keys), same)
		if len(p.Access.Deny.Keys) == 0 {
			p.Access.Deny.Keys = nil
			if len(p.Access.Deny.Networks) == 0 && !p.Access.DenyOthers {
				p.Access.DenyStatus = 0 // no caller would get it
			}
		}
		return p, nil
	})
}

// LimitKey is [Service.AllowKey] for a limit of its own that the key gets under the policy, in
// place of the one that it had. A nil limit takes the key's own limit away. If the key has an
// override beside the policy, that one is changed, as it comes before what is in the policy, which
// has no new version then.
func (s *Service) LimitKey(
	ctx context.Context, a Actor, name, key string, limit *policy.Override, version int64,
) (saved policy.Policy, err error) {
	if err := checkKey(key); err != nil {
		return saved, err
	}
	err = s.act(ctx, a, store.CounterOverrides, "policy."+updated, policyObject(name), func(d *action) error {
		p, err := d.owned(name, version)
		if err != nil {
			return err
		}
		k, err := d.keyPolicy(p, key)
		if err != nil {
			return err
		}

		saved = p
		if k.Beside != nil {
			if err := d.limitBeside(p, key, limit, version); err != nil {
				return err
			}
			// An entry in the policy would come into force in the place of what is taken away.
			if _, both := p.Overrides[key]; limit != nil || !both {
				return nil
			}
		}

		// The version of the set was locked before anything was read.
		if err := d.RaiseCounter(store.CounterPolicies, d.now); err != nil {
			return err
		}
		note := "a key has a limit of its own"
		if limit == nil {
			note = "a key has no limit of its own any longer"
		}
		saved, err = d.updateForKey(p, version, note, func(p policy.Policy) (policy.Policy, error) {
			return WithKeyLimit(p, key, limit)
		})
		return err
	})
	return saved, err
}

// limitBeside changes the override that a key has beside a policy, or removes it.
func (a *action) limitBeside(p policy.Policy, key string, limit *policy.Override, version int64) error {
	if p.Version != version {
		return &ConflictError{Mine: policy.Policy{Name: p.Name, Version: version}, Theirs: p}
	}
	if err := checkComment(a.actor.comment); err != nil {
		return err
	}

	o, err := readKeyLimit(&p, key, limit, a.now)
	if err != nil {
		return err
	}
	_, err = a.putOverride(&p, a.overrideRow(p.Name, key, o))
	return err
}

// readKeyLimit returns the override that a key gets beside a policy. Its errors name the fields
// "key" and "limit".
func readKeyLimit(p *policy.Policy, key string, limit *policy.Override, now int64) (policy.Override, error) {
	c := OverrideChange{Key: key}
	if limit != nil {
		c.Limit = limit.Limit.String()
		if !limit.Until.IsZero() {
			c.Until = limit.Until.Format(time.RFC3339Nano)
		}
	}

	var f faults
	o := readOverride(p, c, now, "", &f)
	for i := range f {
		if f[i].Field == "until" {
			f[i].Field = "limit" // which the end is a part of
		}
	}
	return o, f.err()
}

// WithKeyLimit returns a valid policy as [Service.LimitKey] would make it. It does not change
// the one that it is given. Its errors name the fields "key" and "limit".
func WithKeyLimit(p policy.Policy, key string, limit *policy.Override) (policy.Policy, error) {
	own := maps.Clone(p.Overrides)
	if limit == nil {
		delete(own, key)
		if len(own) == 0 {
			own = nil
		}
		p.Overrides = own
		return p, nil
	}

	// A caller may be named so that the entry would be about others.
	if _, ok := policy.OverriddenPrefix(key); ok {
		return p, invalid("key", "it ends in *, and stands for all keys that begin with the rest; "+
			"a single key that ends so cannot have a limit of its own")
	}
	if err := p.CheckOverriddenKey(key); err != nil {
		return p, invalid("key", err.Error())
	}

	if own == nil {
		own = map[string]policy.Override{}
	}
	own[key] = *limit
	p.Overrides = own

	// A limit may be wrong only together with the others of the policy.
	var f faults
	for _, fault := range FaultsOf(p.Validate()) {
		f.add("limit", errors.New(fault.Message))
	}
	return p, f.err()
}

// changeForKey saves a policy with a change that is about a key. The note is for its history.
func (s *Service) changeForKey(ctx context.Context, a Actor, name, key string, version int64, note string,
	change func(policy.Policy) (policy.Policy, error)) (policy.Policy, error) {
	if err := checkKey(key); err != nil {
		return policy.Policy{}, err
	}

	return s.change(ctx, a, updated, name, func(d *action) (policy.Policy, error) {
		p, err := d.owned(name, version)
		if err != nil {
			return p, err
		}
		return d.updateForKey(p, version, note, change)
	})
}

// updateForKey is changeForKey for a policy that was read.
func (a *action) updateForKey(
	p policy.Policy, version int64, note string, change func(policy.Policy) (policy.Policy, error),
) (policy.Policy, error) {
	p.Version = version
	p, err := change(p)
	if err != nil {
		return p, err
	}
	if err := a.valid(p); err != nil {
		return p, err
	}
	return a.update(p, updated, note)
}
