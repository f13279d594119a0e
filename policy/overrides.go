// This file has the limits of single keys.

package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
	"unique"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
)

const (
	// MaxOverrides is the maximum number of entries of Policy.Overrides.
	MaxOverrides = 64

	// MaxOverridesBeside is the maximum number of overrides that an [OverrideSource] has of one
	// policy.
	MaxOverridesBeside = 100_000

	// maxOverriddenKey is the maximum length in bytes of a key, or of a prefix with its "*".
	maxOverriddenKey = 512
)

// checkOverrides reports what is wrong with the limits of single keys.
func checkOverrides(p *Policy, mistake func(field string, err error)) {
	switch {
	case p.Overrides == nil:
		return
	case len(p.Overrides) == 0:
		mistake("overrides", errors.New("the table is empty"))
		return
	case len(p.Overrides) > MaxOverrides:
		mistake("overrides", fmt.Errorf("%d keys are more than %d; give callers plans instead, or keep the keys "+
			"beside the policies", len(p.Overrides), MaxOverrides))
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
		o := p.Overrides[key]
		if err := o.Validate(); err != nil {
			mistake(field, err)
			continue
		}
		if o.hasLimit() {
			mistake(field, p.checkBeside(&o.Limit))
		}
	}
}

var (
	errGlobalKey = errors.New("all callers are counted together, so no key can have a limit of its own")
	errEmptyKey  = errors.New("the key is empty")
)

// CheckOverriddenKey returns an error if no override of the policy can have the key, which may be a
// prefix. The error does not repeat a key that may be a secret.
func (p *Policy) CheckOverriddenKey(key string) error {
	parts, err := parseRecipe(p.Key)
	switch {
	case err == nil && parts[0].kind == "global":
		return errGlobalKey
	case key == "":
		return errEmptyKey
	case len(key) > maxOverriddenKey:
		return fmt.Errorf("the key has %d bytes, more than %d", len(key), maxOverriddenKey)
	case !utf8.ValidString(key):
		return errors.New("the key is not UTF-8, so no policy can hold it")
	case err != nil:
		return nil
	}

	if prefix, ok := OverriddenPrefix(key); ok {
		return checkPrefix(parts, prefix)
	}
	if len(parts) == 1 {
		return parts[0].checkKey(key)
	}
	return nil
}

// CheckKey returns an error if no request that p counts can have the key. It knows nothing
// of the parts of joined keys. The error does not repeat a key that may be a secret.
func CheckKey(p *Policy, key string) error {
	parts, err := parseRecipe(p.Key)
	switch {
	case key == "":
		return errEmptyKey
	case err != nil || len(parts) > 1:
		return nil
	}
	return parts[0].checkKey(key)
}

// CheckOverride returns an error if a valid policy cannot have the override of the key beside it.
func (p *Policy) CheckOverride(key string, o Override) error {
	if err := errors.Join(p.CheckOverriddenKey(key), o.Validate()); err != nil {
		return err
	}

	// Of joined recipes Validate only doubts the parts of a key. What is written one at a time can
	// be refused at once.
	parts, err := parseRecipe(p.Key)
	if _, isPrefix := OverriddenPrefix(key); err == nil && !isPrefix {
		err = doubtJoinedKey(parts, key)
	}
	if err != nil || !o.hasLimit() {
		return err
	}
	if cost := p.Cost.first(); cost > o.Limit.Capacity() {
		return fmt.Errorf("the cost %d is more than the limit %s ever has", cost, o.Limit)
	}
	return p.checkBeside(&o.Limit)
}

// UsableOverride returns what p applies of the override of a key beside it. With the error of
// [Policy.CheckOverride] that is the ban alone, which needs no limit: a key that is kept out must
// not come in with a mistake in one. Without a ban to apply it is the zero Override, which has
// ended.
func UsableOverride(p *Policy, key string, o Override) (Override, error) {
	err := p.CheckOverride(key, o)
	if err == nil {
		return o, nil
	}

	ban := Override{BannedUntil: o.BannedUntil}
	if ban.BannedUntil.IsZero() || p.CheckOverride(key, ban) != nil {
		return Override{}, err
	}
	return ban, err
}

// OverriddenPrefix returns the prefix that the key of an override stands for, and false if it is a
// key by itself. So is "*", which is the path of a request that asks about the whole server.
func OverriddenPrefix(key string) (prefix string, ok bool) {
	prefix, ok = strings.CutSuffix(key, "*")
	return prefix, ok && prefix != ""
}

// LimitOf returns the limit of a key at the instant: its own one, or Limit. It knows nothing of
// plans, which come between the two, and of what is beside the policy.
func (p *Policy) LimitOf(key string, at time.Time) core.Limit {
	if own, ok := p.OverrideOf(key, at); ok {
		return own.Limit
	}
	return p.Limit
}

// OverrideOf returns the entry of Overrides whose limit is in force for a key at the instant: that
// of the key, or else that of the longest prefix. It is false if there is none.
func (p *Policy) OverrideOf(key string, at time.Time) (o Override, ok bool) {
	return findOverride(p.Overrides, key, func(o Override) bool { return o.Limits(at) })
}

// BanOf returns the end of the ban that an entry of Overrides has in force for a key at the
// instant, or the zero time. It knows nothing of the bans of Policy.Ban, and of what is beside the
// policy.
func (p *Policy) BanOf(key string, at time.Time) time.Time {
	o, _ := findOverride(p.Overrides, key, func(o Override) bool { return !o.Ended(at) })
	if !o.Bans(at) {
		return time.Time{}
	}
	return o.BannedUntil
}

// findOverride returns the entry of the key, or else that of the longest prefix, of those that
// count.
func findOverride(all map[string]Override, key string, counts func(Override) bool) (o Override, ok bool) {
	// An entry that ends in "*" stands for the prefix also if a key is spelled so.
	own, exists := all[key]
	if _, isPrefix := OverriddenPrefix(key); exists && !isPrefix && counts(own) {
		return own, true
	}

	longest := 0
	for name, other := range all {
		prefix, is := OverriddenPrefix(name)
		if is && len(prefix) > longest && strings.HasPrefix(key, prefix) && counts(other) {
			o, longest = other, len(prefix)
		}
	}
	return o, longest > 0
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

// withOverrides returns the function that finds the limit of a caller: that of the key before that
// of the plan. beside is nil if there are no overrides beside the policy.
func withOverrides(p *Policy, beside *table, planned limitFunc) limitFunc {
	if p.Overrides == nil && beside == nil {
		return planned
	}

	// The rule must not change when the policy does.
	own, fits := newTable(p.Overrides), fitsBeside(p)
	return func(ctx context.Context, key string) (core.Limit, bool, error) {
		var at instant
		found, ok := firstOf(own, beside, key, &at, fits, false)

		// What a ban lets through counts under the limit that the key has without it.
		var banned error
		if ok && found.bans(&at) {
			banned = limiter.BannedUntil(time.UnixMicro(found.banned))
			found, ok = firstOf(own, beside, key, &at, fits, true)
		}

		switch {
		case ok:
			return found.limit.Value(), true, banned
		case planned == nil:
			return core.Limit{}, false, banned
		}

		limit, ok, err := planned(ctx, key)
		if banned != nil {
			return limit, ok && err == nil, banned
		}
		return limit, ok, err
	}
}

// firstOf returns the override of a key that comes first, as find says: of two that match alike it
// is the one beside the policy.
func firstOf(own, beside *table, key string, at *instant, fits func(unique.Handle[core.Limit]) bool, limits bool) (
	found ownLimit, ok bool) {

	found, matched := own.find(key, at, limits)
	other, n := beside.find(key, at, limits)
	if n > 0 && n >= matched && (!limits && other.bans(at) || fits(other.limit)) {
		return other, true
	}
	return found, matched > 0
}

// fitsBeside returns the function that reports whether a valid limit may stand beside that of the
// policy, as CheckOverride says with words. What is beside a policy changes apart from it.
func fitsBeside(p *Policy) func(unique.Handle[core.Limit]) bool {
	limit, cost := p.Limit, p.Cost.first()
	return func(of unique.Handle[core.Limit]) bool {
		l := of.Value()
		return l.Algorithm == limit.Algorithm && (l.Period == limit.Period || !l.Leased()) && cost <= l.Capacity()
	}
}
