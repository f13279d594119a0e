// This file has the limits of single keys.

package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

const (
	// MaxOverrides is the maximum number of keys of a policy that have a limit of their own.
	// For more callers there are plans.
	MaxOverrides = 64

	// maxOverriddenKey is the maximum length in bytes of such a key.
	maxOverriddenKey = 512
)

// checkOverrides reports what is wrong with the limits of single keys.
func (p *Policy) checkOverrides(mistake func(field string, err error)) {
	switch {
	case p.Overrides == nil:
		return
	case len(p.Overrides) == 0:
		mistake("overrides", errors.New("the table is empty"))
		return
	case len(p.Overrides) > MaxOverrides:
		mistake("overrides", fmt.Errorf("%d keys are more than %d; give callers plans instead", len(p.Overrides),
			MaxOverrides))
		return
	}

	parts, err := parseRecipe(p.Key)
	if err == nil && parts[0].kind == "global" {
		mistake("overrides", errGlobalKey)
		return
	}

	// A limit that is not valid is not compared: the comparison would repeat its mistakes.
	for i, key := range slices.Sorted(maps.Keys(p.Overrides)) {
		field := OverrideField(p.Key, key, i)
		mistake(field, p.CheckOverriddenKey(key))
		l := p.Overrides[key]
		if err := l.Validate(); err != nil {
			mistake(field, err)
			continue
		}
		mistake(field, p.checkBeside(&l))
	}
}

var errGlobalKey = errors.New("all callers are counted together, so no key can have a limit of its own")

// CheckOverriddenKey returns an error if Overrides cannot have the key. The error does not
// repeat the key, which may be a secret.
func (p *Policy) CheckOverriddenKey(key string) error {
	parts, err := parseRecipe(p.Key)
	switch {
	case err == nil && parts[0].kind == "global":
		return errGlobalKey
	case key == "":
		return errors.New("the key is empty")
	case len(key) > maxOverriddenKey:
		return fmt.Errorf("the key has %d bytes, more than %d", len(key), maxOverriddenKey)
	case !utf8.ValidString(key):
		return errors.New("the key is not UTF-8, so no policy can hold it")
	case err == nil && len(parts) == 1:
		return parts[0].checkKey(key)
	}
	return nil
}

// LimitOf returns the limit of a key: its own one, or Limit. It knows nothing of plans, which
// come between the two.
func (p *Policy) LimitOf(key string) core.Limit {
	if own, ok := p.Overrides[key]; ok {
		return own
	}
	return p.Limit
}

// OverrideField returns the name in a [FieldError] of the limit of a key, which is the i-th of
// Policy.Overrides in alphabetic order, from 0. It does not repeat a key that may be a secret.
func OverrideField(recipe, key string, i int) string {
	parts, err := parseRecipe(recipe)
	if err != nil || slices.ContainsFunc(parts, recipePart.isDigest) {
		return fmt.Sprintf("overrides[%d]", i)
	}
	return "overrides." + textform.Clip(key)
}

// limitFunc is the function of limiter.Rule.Override.
type limitFunc = func(ctx context.Context, key string) (core.Limit, bool, error)

// withOverrides returns the function that finds the limit of a caller: that of the key before
// that of the plan.
func (p *Policy) withOverrides(planned limitFunc) limitFunc {
	if p.Overrides == nil {
		return planned
	}

	// The rule must not change when the policy does.
	own := maps.Clone(p.Overrides)
	return func(ctx context.Context, key string) (core.Limit, bool, error) {
		if limit, ok := own[key]; ok || planned == nil {
			return limit, ok, nil
		}
		return planned(ctx, key)
	}
}
