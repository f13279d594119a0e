// This file leaves out single policies that the program cannot carry out.

package policy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

const (
	// maxLeftOut is how many policies a report names that are left out, and maxReason the bytes of
	// each reason.
	maxLeftOut = 20
	maxReason  = 256

	// maxAbilities is how many functions of plans a report names.
	maxAbilities = 64
)

// LeftOut is a policy that an instance does not carry out as it was published, because its
// program cannot.
type LeftOut struct {
	Policy  string `json:"policy"`
	Version int64  `json:"version,omitempty"` // that is not carried out
	Reason  string `json:"reason"`            // in one line of at most 256 bytes

	// Kept means that an earlier version of the policy stays in force, which is InForce. Otherwise
	// the instance applies no version of it.
	Kept    bool  `json:"kept,omitempty"`
	InForce int64 `json:"in_force,omitempty"`
}

// String says what is left out and why, in one line.
func (l LeftOut) String() string {
	text := fmt.Sprintf("policy %q, version %d: %s; ", textform.Clip(l.Policy), l.Version, l.Reason)
	if l.Kept {
		return text + fmt.Sprintf("version %d of it stays in force", l.InForce)
	}
	return text + "it does not apply"
}

// Abilities say what a program lets policies use by its [Bindings].
type Abilities struct {
	User     bool     `json:"user,omitempty"`     // keys of "user"
	Prefixes bool     `json:"prefixes,omitempty"` // keys of "ip/56" and the like, and networks
	Proxies  bool     `json:"proxies,omitempty"`  // a cost that a trusted proxy names
	Claims   bool     `json:"claims,omitempty"`   // matches of claims
	Plans    []string `json:"plans,omitempty"`    // the names of functions of plans
}

// Abilities returns what policies may use.
func (b *Bindings) Abilities() Abilities {
	return Abilities{b.User != nil, b.IPPrefix != nil || b.IP == nil, b.Trusted != nil, b.Claims != nil,
		slices.Sorted(maps.Keys(b.Plans))}
}

// Check returns why a program with the abilities cannot carry out a valid policy, or nil.
func (a Abilities) Check(p *Policy) error {
	none := func(core.Request) (string, bool) { return "", false }

	// The same code decides as in the program. The sizes of networks by which it counts are not
	// known here.
	b := Bindings{IP: none, Plans: map[string]PlanFunc{}}
	if a.User {
		b.User = none
	}
	if a.Prefixes {
		b.IPPrefix = keyfuncs.RemoteIPPrefix
	}
	if a.Proxies {
		b.Trusted = func(core.Request) bool { return false }
	}
	if a.Claims {
		b.Claims = claimsOf
	}
	for _, name := range a.Plans {
		b.Plans[name] = func(context.Context, string) (string, error) { return "", nil }
	}

	_, err := p.compile(&b)
	return err
}

// choice finds for each policy of a set the version that can be carried out.
type choice struct {
	follower *Follower

	// rejected has the mistakes that the limiter found in rules, of a new version or of the one
	// before it.
	rejected map[rejection]error
}

type rejection struct {
	name   string
	before bool
}

// compile makes rules of those policies that can be carried out. Those before which cannot be,
// the versions in force stay.
func (c *choice) compile(mine Set) (*Compiled, []LeftOut) {
	out := &Compiled{index: newIndex(c.follower.bindings.Claims)}
	var left []LeftOut
	for i := range mine {
		p := &mine[i]
		err := c.add(out, p, false)
		if err == nil {
			continue
		}

		l := LeftOut{Policy: p.Name, Version: p.Version, Reason: clippedTo(reason(ofField(err)), maxReason)}
		if old, ok := c.before()[p.Name]; ok && c.add(out, &old, true) == nil {
			l.Kept, l.InForce = true, old.Version
		}
		left = append(left, l)
	}
	return out, left
}

// ofField returns a mistake without the name of its policy.
func ofField(err error) error {
	var f *FieldError
	if errors.As(err, &f) {
		return fmt.Errorf("%s: %w", f.Field, f.Err)
	}
	return err
}

// add appends the rule of a policy, unless it cannot be carried out.
func (c *choice) add(to *Compiled, p *Policy, before bool) error {
	if err := c.rejected[rejection{p.Name, before}]; err != nil {
		return err
	}
	rule, err := p.compile(&c.follower.bindings)
	if err != nil {
		return err
	}
	if err := errors.Join(to.index.add(len(to.policies), p)...); err != nil {
		return err
	}
	to.policies, to.rules = append(to.policies, *p), append(to.rules, rule)
	return nil
}

// before returns the policies in force, by name. At a start they are those of Options.LastGood,
// which were in force in the process before: a restart opens no limit.
func (c *choice) before() map[string]Policy {
	f := c.follower
	if f.before != nil || f.options.LastGood == "" {
		return f.before
	}

	set, err := c.recall()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.log(slog.LevelWarn, "headgate: the last good policies cannot be used in place of policies that are left out",
			slog.String("error", reason(err)))
	}
	f.before = byName(set)
	return f.before
}

// recall reads the policies of Options.LastGood, and returns those that Options.Adapt leaves.
func (c *choice) recall() (Set, error) {
	s, err := readLastGood(c.follower.options.LastGood, c.follower.app)
	if err != nil {
		return nil, err
	}
	return c.follower.adapt(s.Policies.For(c.follower.app))
}

// reject notes the mistakes that the limiter found in rules, and reports whether there is a new
// one. left are the policies of which the rules are of an earlier version.
func (c *choice) reject(err error, left []LeftOut) (more bool) {
	for _, e := range ruleErrors(err) {
		kept := slices.ContainsFunc(left, func(l LeftOut) bool { return l.Policy == e.Rule && l.Kept })
		at := rejection{e.Rule, kept}
		more = more || c.rejected[at] == nil
		c.rejected[at] = e.Err
	}
	return more
}

// ruleErrors returns those that are joined in an error.
func ruleErrors(err error) (list []*limiter.RuleError) {
	var one *limiter.RuleError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, ruleErrors(e)...)
		}
	} else if errors.As(err, &one) {
		list = append(list, one)
	}
	return list
}

// setUsable puts the policies in force that can be carried out.
func (f *Follower) setUsable(mine Set) (*Compiled, []LeftOut, error) {
	if err := mine.Validate(); err != nil {
		return nil, nil, err
	}

	c := choice{f, map[rejection]error{}}
	for {
		compiled, left := c.compile(mine)
		err := f.setRules(compiled)
		if err == nil || !c.reject(err, left) {
			return compiled, left, err
		}
	}
}

// byName returns policies by their names, and never nil.
func byName(policies []Policy) map[string]Policy {
	m := make(map[string]Policy, len(policies))
	for _, p := range policies {
		m[p.Name] = p
	}
	return m
}

// setAll puts all policies in force, or none.
func (f *Follower) setAll(mine Set) (*Compiled, []LeftOut, error) {
	compiled, err := Compile(f.app, mine, f.bindings)
	if err == nil {
		err = f.setRules(compiled)
	}
	return compiled, nil, err
}

func (f *Follower) setRules(c *Compiled) error {
	rules, selection := c.Selected()
	return f.limiter.SetSelectedRules(rules, selection)
}

// tellLeftOut logs the policies that are left out, if they are others than before.
func (f *Follower) tellLeftOut(version string, policies int, left, before []LeftOut) {
	if len(left) == 0 || slices.Equal(left, before) {
		return
	}

	var texts []string
	for _, l := range left[:min(len(left), maxLeftOut)] {
		texts = append(texts, l.String())
	}
	err := errors.New(strings.Join(texts, "; "))

	f.log(slog.LevelError, "headgate: policies are left out that cannot be carried out here, and all others are in force",
		slog.String("version", version), slog.Int("left_out", len(left)), slog.String("error", reason(err)))
	f.callHook(events.Policy{Change: events.PolicyRefused, Version: version, Policies: policies, Err: err})
}

// reported returns what a report says of the program, or nil if that is too much for a report.
func reported(b *Bindings) *Abilities {
	a := b.Abilities()
	if len(a.Plans) > maxAbilities {
		return nil
	}
	return &a
}
