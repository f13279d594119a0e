package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
)

// ErrNotConfigured is wrapped by errors about policies that do not exist or do not
// name the application.
var ErrNotConfigured = errors.New("not configured")

// ErrOff is wrapped by errors about policies that are switched off.
var ErrOff = errors.New("switched off")

var errSameName = errors.New("another policy has the same name")

// MaxPolicies is the maximum number of policies of a set.
const MaxPolicies = 10_000

// Set is a list of policies with different names, in any order.
type Set []Policy

// Validate returns everything that is wrong with the policies, joined, each
// mistake as a [*FieldError], or nil.
func (s Set) Validate() error {
	if len(s) > MaxPolicies {
		return fmt.Errorf("policy: %d policies are more than %d", len(s), MaxPolicies)
	}

	var errs []error
	seen := make(map[string]bool, len(s))
	for i := range s {
		if err := s[i].Validate(); err != nil {
			errs = append(errs, err)
		}
		if seen[s[i].Name] {
			errs = append(errs, &FieldError{s[i].Name, "name", errSameName})
		}
		seen[s[i].Name] = true
	}
	return errors.Join(errs...)
}

// For returns the policies that name the application and are not Off, in the
// order in which they become rules: by Priority, the highest first, and then by
// name.
func (s Set) For(app string) Set {
	var mine Set
	for i := range s {
		if s[i].Mode != Off && slices.Contains(s[i].Apps, app) {
			mine = append(mine, s[i])
		}
	}

	slices.SortStableFunc(mine, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	return mine
}

// Rule returns the rule of one policy, for an application that asks for it by
// name. The error wraps [ErrNotConfigured] if there is no such policy or it does
// not name the application, and [ErrOff] if it is Off.
func (s Set) Rule(app, name string, bindings Bindings) (limiter.Rule, error) {
	i := slices.IndexFunc(s, func(p Policy) bool { return p.Name == name })
	switch {
	case i < 0:
		return limiter.Rule{}, fmt.Errorf("policy %q of application %q: %w: there is no such policy",
			textform.Clip(name), textform.Clip(app), ErrNotConfigured)
	case !slices.Contains(s[i].Apps, app):
		return limiter.Rule{}, fmt.Errorf("policy %q of application %q: %w: the policy does not name the application",
			textform.Clip(name), textform.Clip(app), ErrNotConfigured)
	case s[i].Mode == Off:
		return limiter.Rule{}, fmt.Errorf("policy %q of application %q: %w", textform.Clip(name), textform.Clip(app),
			ErrOff)
	}

	compiled, err := Compile(app, s[i:i+1], bindings)
	if err != nil {
		return limiter.Rule{}, err
	}
	return compiled.Rules()[0], nil
}

// entries returns the written form of the policies, ordered by name.
func (s Set) entries() ([]Written, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	entries := make([]Written, len(s))
	for i := range s {
		entries[i] = WrittenOf(&s[i])
	}
	slices.SortFunc(entries, func(a, b Written) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}
