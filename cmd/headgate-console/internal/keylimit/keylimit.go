// Package keylimit says which limit a key has under a policy with overrides beside it. It is what
// the instances decide with, apart from plans, which only they know.
package keylimit

import (
	"maps"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// Beside has overrides beside one policy, by their keys and prefixes: all of them, or those of
// Patterns for a key. A nil Beside is empty.
type Beside map[string]policy.Override

// Patterns returns the keys of overrides that may be about a key: the key itself, and each prefix
// of it with "*".
func Patterns(key string) []string {
	var list []string
	if _, isPrefix := policy.OverriddenPrefix(key); !isPrefix && utf8.ValidString(key) {
		list = append(list, key)
	}

	// No override has a prefix that is not UTF-8.
	for end := 0; end < len(key); {
		r, n := utf8.DecodeRuneInString(key[end:])
		if r == utf8.RuneError && n == 1 {
			break
		}

		end += n
		list = append(list, key[:end]+"*")
	}

	return list
}

// Apply returns the policy as instances apply it to a key at an instant: LimitOf and OverrideOf of
// the result are right for this key, and for no other. The result may have more Overrides than a
// policy can be saved with. Apply does not change p.
func (b Beside) Apply(p policy.Policy, key string, at time.Time) policy.Policy {
	pattern, o, ok := b.find(&p, key, at)
	if !ok {
		return p
	}

	// The entry of a key comes before that of a prefix, a longer prefix before a shorter one, and
	// of the same what is beside the policy.
	p.Overrides = maps.Clone(p.Overrides)
	if p.Overrides == nil {
		p.Overrides = map[string]policy.Override{}
	}
	p.Overrides[pattern] = o
	return p
}

// With returns the overrides with another one of a key, and Without without that of a key. Neither
// changes b.
func (b Beside) With(key string, o policy.Override) Beside {
	b = b.Without(key)
	b[key] = o
	return b
}

// Without is described at With.
func (b Beside) Without(key string) Beside {
	rest := Beside{}
	maps.Copy(rest, b)
	delete(rest, key)
	return rest
}

// find returns which override is in force for a key, of those that the policy can have: that of the
// key, or that of the longest prefix. Of one that the policy cannot have, the ban is in force.
func (b Beside) find(p *policy.Policy, key string, at time.Time) (pattern string, o policy.Override, ok bool) {
	// The key itself comes first, and then the prefixes by their length. A key that ends in * is
	// spelled as a prefix, which is not the longest that it has.
	_, isPrefix := policy.OverriddenPrefix(key)
	for i, other := range Patterns(key) {
		written, is := b[other]
		if !is {
			continue
		}
		usable, _ := policy.UsableOverride(p, other, written)
		if usable.Ended(at) {
			continue
		}

		if pattern, o, ok = other, usable, true; i == 0 && other == key && !isPrefix {
			break
		}
	}
	return pattern, o, ok
}

// Limits returns the limits that keys have by the overrides, each once.
func (b Beside) Limits() []core.Limit {
	seen := map[core.Limit]bool{}
	var list []core.Limit
	for _, o := range b {
		if o.Limit != (core.Limit{}) && !seen[o.Limit] {
			seen[o.Limit] = true
			list = append(list, o.Limit)
		}
	}
	return list
}
