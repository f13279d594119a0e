// This file finds the rule, the limit and the form of a key, as services have them.

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// subject is a key under a rule.
type subject struct {
	rule  limiter.Rule
	key   string     // as it is counted
	limit core.Limit // of the key
	ban   *core.Ban  // that a peek heeds, nil for none

	banned time.Time // the end of the ban by an override, or the zero time

	policy *policy.Policy // nil for a rule that was given as text
	note   string         // what is not known here, or ""
}

// subject finds the rule that the flags name, and the key under it.
func (k *keysFlags) subject(ctx context.Context, client redis.UniversalClient, key string) (*subject, error) {
	if k.policy == "" {
		return k.textSubject(key)
	}
	set, err := published(ctx, client, k.prefix)
	if err != nil {
		return nil, err
	}
	p, err := pick(set, k.app, k.policy)
	if err != nil {
		return nil, err
	}
	return k.policySubject(ctx, client, p, key)
}

// textSubject is the subject of a rule that was given as text.
func (k *keysFlags) textSubject(key string) (*subject, error) {
	limit, err := core.ParseLimit(k.limit)
	if err != nil {
		return nil, fmt.Errorf("-limit: %w", err)
	}
	s := &subject{rule: limiter.Rule{Name: k.rule, Limit: limit}, key: key, limit: limit}

	// The limiter itself says what is wrong with a rule.
	l, err := limiter.New(limiter.Config{Rules: []limiter.Rule{s.rule}})
	if err != nil {
		return nil, fmt.Errorf("-rule: %w", err)
	}
	l.Close()
	if key == "" {
		return nil, errNoKey
	}

	// The ban of the rule is not known, and one that allows the longest shortens none.
	if !limit.Leased() {
		const longest = core.MaxPeriod
		s.ban = &core.Ban{Strikes: 1, Within: longest, For: longest, Max: longest}
	}
	return s, nil
}

var errNoKey = errors.New("no KEY is given")

// published returns the policies that are published under the prefix.
func published(ctx context.Context, client redis.UniversalClient, prefix string) (policy.Set, error) {
	source, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: callTime})
	if err != nil {
		return nil, err
	}
	snapshot, err := source.Load(ctx, "")
	if errors.Is(err, policy.ErrMissing) {
		return nil, fmt.Errorf("%w published in Redis under the prefix %q", policy.ErrMissing, prefix)
	}
	if err != nil {
		return nil, explained(err)
	}
	return snapshot.Policies, nil
}

// pick returns a policy of the set. The error names those that there are.
func pick(set policy.Set, app, name string) (*policy.Policy, error) {
	if apps := appsOf(set); app != "" && !slices.Contains(apps, app) {
		return nil, fmt.Errorf("no policy names the application %q; the applications are: %s", textform.Clip(app),
			among(apps))
	}

	// The names that are gone through are those of the error.
	var names []string
	for i := range set {
		if app != "" && !slices.Contains(set[i].Apps, app) {
			continue
		}
		if names = append(names, set[i].Name); set[i].Name != name {
			continue
		}
		if set[i].Mode == policy.Off {
			return nil, fmt.Errorf("the policy %q is switched off, so no key is counted under it", name)
		}
		return &set[i], nil
	}

	slices.Sort(names)
	of := ""
	if app != "" {
		of = " of the application " + app
	}
	return nil, fmt.Errorf("there is no policy %q%s; the policies are: %s", textform.Clip(name), of, among(names))
}

// appsOf returns the applications that policies name.
func appsOf(set policy.Set) []string {
	apps := map[string]bool{}
	for i := range set {
		for _, app := range set[i].Apps {
			apps[app] = true
		}
	}
	return slices.Sorted(maps.Keys(apps))
}

// policySubject is the subject of a policy.
func (k *keysFlags) policySubject(
	ctx context.Context, client redis.UniversalClient, p *policy.Policy, typed string,
) (*subject, error) {
	if _, ok := p.Plans[k.plan]; k.plan != "" && !ok {
		return nil, fmt.Errorf("-plan: the policy %s has no plan %q; its plans are: %s", p.Name,
			textform.Clip(k.plan), among(slices.Sorted(maps.Keys(p.Plans))))
	}
	rule, err := ruleOf(*p, k.plan)
	if err != nil {
		return nil, err
	}

	s := &subject{rule: rule, policy: p, ban: rule.Ban.OrNil()}
	if s.key, err = keyOf(p, rule, typed); err != nil {
		return nil, fmt.Errorf("KEY: the policy %s counts by %s: %w", p.Name, p.Key, err)
	}

	if err := s.override(ctx, client, k); err != nil {
		return nil, err
	}

	// The notes say what the decision alone does not.
	if _, own := s.policy.OverrideOf(s.key, time.Now()); p.Plans != nil && k.plan == "" && !own {
		s.note = joinNotes(s.note, "which plan the key has is not known here: -plan says it")
	}
	verdict, err := rule.Access.Of(addressed(typed), s.key)
	if err != nil {
		return nil, err
	}
	switch verdict {
	case keyfuncs.Allowed:
		s.note = joinNotes(s.note, "the policy lists the key as one that it does not limit")
	case keyfuncs.Denied:
		s.note = joinNotes(s.note, "the policy lists the key as one that it refuses")
	}
	if p.Mode == policy.Shadow {
		s.note = joinNotes(s.note, "the policy is in shadow, and refuses no request")
	}
	return s, nil
}

// override finds what the overrides of the policy, and those beside it in Redis, say of the key.
func (s *subject) override(ctx context.Context, client redis.UniversalClient, k *keysFlags) error {
	now := time.Now()
	own, err := overridesOf(ctx, client, k.prefix, s.policy, s.key, now)
	switch {
	case rediscall.Forbids(err):
		s.note = "the user may not read the overrides beside the policy, one of which may limit or ban the key"
	case err != nil:
		return explained(err)
	}

	// The rule knows the limit of a key, by its own one and its plan.
	p := *s.policy
	if p.Overrides = nil; len(own) > 0 {
		p.Overrides = own
	}
	if s.rule, err = ruleOf(p, k.plan); err != nil {
		return err
	}
	s.policy, s.limit = &p, s.rule.Limit
	if p.Mode == policy.Enforce {
		s.banned = p.BanOf(s.key, now)
	}
	if !s.banned.IsZero() {
		s.note = joinNotes(s.note, s.bannedWords())
	}
	if s.rule.Override == nil {
		return nil
	}

	// The error of a ban comes with the limit that the key has without it.
	limit, ok, err := s.rule.Override(ctx, s.key)
	if ok {
		s.limit = limit
	}
	if !p.BanOf(s.key, now).IsZero() {
		return nil
	}
	return err
}

// bannedWords says that an override bans the key, and where such a ban is lifted.
func (s *subject) bannedWords() string {
	return fmt.Sprintf("an override of the policy %s bans the key until %s UTC: lift it in the console, "+
		"or take banned_until out of the override", s.policy.Name, when(s.banned))
}

// overridesOf returns the overrides of a policy that a key may have, with those beside the policy.
// After an error they are those of the policy alone.
func overridesOf(
	ctx context.Context, client redis.UniversalClient, redisPrefix string, p *policy.Policy, key string, now time.Time,
) (map[string]policy.Override, error) {
	all := map[string]policy.Override{}
	matches := func(name string) bool {
		prefix, isPrefix := policy.OverriddenPrefix(name)
		return name == key && !isPrefix || isPrefix && strings.HasPrefix(key, prefix)
	}
	for name, o := range p.Overrides {
		if matches(name) {
			all[name] = o
		}
	}

	source, err := redissource.New(client, redissource.Options{Prefix: redisPrefix, Timeout: callTime})
	if err != nil {
		return all, err
	}
	err = source.ReadOverrides(ctx, p.Name, func(list []policy.OverrideChange) {
		for _, c := range list {
			if !matches(c.Key) {
				continue
			}

			// Of one that cannot be read, or that the policy cannot have, the ban is in force.
			o, _ := policy.ParseOverride(c.Text)
			if o, _ = policy.UsableOverride(p, c.Key, o); o.Ended(now) {
				continue
			}
			if !o.Limits(now) {
				o.Limit, o.Until = all[c.Key].Limit, all[c.Key].Until
			}
			all[c.Key] = o
		}
	})
	return all, err
}

// ruleOf returns the rule of a policy, for a caller of the plan. The functions that only programs
// have make no difference to what is counted for a key.
func ruleOf(p policy.Policy, plan string) (limiter.Rule, error) {
	p.Match = policy.Match{}
	none := func(core.Request) (string, bool) { return "", true }
	planned := func(context.Context, string) (string, error) { return plan, nil }
	c, err := policy.Compile(p.Apps[0], []policy.Policy{p},
		policy.Bindings{User: none, Plans: map[string]policy.PlanFunc{p.PlanBy: planned}})
	if err != nil {
		return limiter.Rule{}, err
	}
	return c.Rules()[0], nil
}

// keyOf returns a key as the policy counts it, of one that a person has typed.
func keyOf(p *policy.Policy, rule limiter.Rule, typed string) (string, error) {
	if p.Key == "global" {
		key, _ := rule.Key(nil)
		if typed == "" || typed == key {
			return key, nil
		}
		return "", fmt.Errorf("all callers count under %q, and under no other key", key)
	}
	if typed == "" {
		return "", errNoKey
	}

	// An address counts as the network that the policy says.
	key := typed
	single := !strings.Contains(p.Key, "+")
	if peer := addressed(typed); peer != nil && single && (p.Key == "ip" || strings.HasPrefix(p.Key, "ip/")) {
		key, _ = rule.Key(peer)
	}

	// The policy checks its own limits of single keys, and so this one among them.
	if err := p.CheckOverriddenKey(key); err != nil {
		if strings.Contains(err.Error(), "digest") {
			err = fmt.Errorf("%w; -credential makes it of a credential", err)
		}
		return "", err
	}
	with := *p
	with.Overrides = map[string]policy.Override{key: {Limit: p.Limit}}
	for _, doubt := range with.Doubts() {
		if strings.HasPrefix(doubt.Field, "overrides") {
			return "", doubt.Err
		}
	}
	return key, nil
}

// peer is a request of which only the address is known.
type peer struct {
	core.Request
	addr netip.Addr
}

func (p *peer) RemoteAddr() string { return netip.AddrPortFrom(p.addr, 1).String() }

// addressed returns a request from the address that a person has typed, or nil for another text.
func addressed(text string) core.Request {
	addr, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil {
		return nil
	}
	return &peer{addr: addr}
}

// cost returns how many units a request takes.
func (s *subject) cost() int64 {
	if s.rule.Cost == nil {
		return 1
	}
	return s.rule.Cost(nil)
}

// checkBan returns why the key cannot be banned for the time.
func (s *subject) checkBan(span time.Duration) error {
	longest := s.rule.Ban.Max
	switch {
	case s.limit.Leased():
		return errLeased
	case s.policy == nil:
		longest = core.MaxPeriod
		s.note = joinNotes(s.note, "only services whose rule has a Ban heed it, and for no longer than that allows")
	case longest == 0:
		return fmt.Errorf("the policy %s bans no keys by itself, and this command bans under no other: "+
			"ban the key in the console, or by banned_until in an override", s.policy.Name)
	case s.policy.Mode != policy.Enforce:
		return fmt.Errorf("the policy %s bans no keys in the mode %s", s.policy.Name, s.policy.Mode)
	}
	if span < time.Second || span > longest || span%time.Millisecond != 0 {
		return fmt.Errorf("-for: %s is not a time from 1s to %s", span, textform.Duration(longest))
	}
	return nil
}
