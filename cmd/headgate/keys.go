// This file has the actions on a key of a running system.

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
)

// keyAction is one of the actions on a key. It returns what it has done, or found.
type keyAction struct {
	name, does string
	do         func(context.Context, *keyCall) (keyResult, error)
}

// keyActions are all actions, in the order of the help.
var keyActions = []keyAction{
	{"peek", "says what is left for the key, and writes nothing", peekKey},
	{"reset", "makes the key fresh", resetKey},
	{"ban", "turns the key away, for the time of -for", banKey},
	{"lift", "ends the ban of the key", liftKey},
	{"grant", "gives the key -units beside its limit, -for a time or -until an instant", grantKey},
	{"revoke", "takes all granted units from the key", revokeKey},
	{"debit", "charges the key -units that were used, if need be beyond its limit", debitKey},
}

// actionNames returns the names of the actions.
func actionNames() (names []string) {
	for _, a := range keyActions {
		names = append(names, a.name)
	}
	return names
}

var keysCommand = command{
	name: "keys", args: strings.Join(actionNames(), "|") + " KEY",
	does: "looks a key up in Redis, resets or bans it, lifts its ban, or grants or charges it units",
	examples: []string{
		"headgate keys peek -policy api 192.0.2.7",
		"headgate keys reset -app shop -policy api alice",
		"headgate keys ban -policy login -for 2h 192.0.2.7",
		"headgate keys lift -policy login 192.0.2.7",
		"headgate keys grant -policy api -units 500 -until 2026-12-04T17:00:00Z alice",
		"headgate keys debit -policy api -units 20 alice",
		"headgate keys peek -limit 100/1m -rule per-key -prefix shop: alice",
		"headgate keys peek -policy api -credential - < key.txt",
	},
	words: actionNames(),
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		var k keysFlags
		k.define(f)
		f.StringVar(&k.app, "app", "", "the `name` of an application, which the policy has to name")
		f.StringVar(&k.policy, "policy", "", "the `name` of a policy that is published in Redis")
		f.StringVar(&k.plan, "plan", "", "the `name` of the plan of the key, under a policy with plans")
		f.StringVar(&k.limit, "limit", "", "the `limit` of a rule, instead of a policy")
		f.StringVar(&k.rule, "rule", "", "the `name` of the rule of -limit, as the service has it")

		f.DurationVar(&k.span, "for", 0, "how long a ban or a grant lasts")
		f.Int64Var(&k.units, "units", 0, "how many units are granted or charged")
		f.TextVar(&k.until, "until", time.Time{}, "the `instant` at which a grant ends, such as 2026-12-04T17:00:00Z")
		f.BoolVar(&k.credential, "credential", false, "KEY is a credential, which is counted by its digest")
		return func(e *env, args []string) int { return keysAction(e, args, &k) }
	},
}

type keysFlags struct {
	redisFlags
	app, policy, plan, limit, rule string
	span                           time.Duration
	units                          int64
	until                          time.Time
	credential                     bool
}

// keyCall is an action that is to be carried out.
type keyCall struct {
	*subject
	flags *keysFlags
	store *redisstore.Store
}

// keyResult is what is printed about an action.
type keyResult struct {
	Action string `json:"action"`
	Rule   string `json:"rule"`
	Key    string `json:"key"`
	Limit  string `json:"limit"`

	// Note is what the reader has to know, or "".
	Note string `json:"note,omitempty"`

	Peek  *peeked    `json:"peek,omitempty"`
	Until *time.Time `json:"until,omitempty"` // the end of a ban or a grant
	Units int64      `json:"units,omitempty"` // of a grant, or those that a debit has charged

	// Grants are what is left of grants, by their ends.
	Grants []granted `json:"grants,omitempty"`
}

// granted are the units that are left of grants with one end.
type granted struct {
	Units int64     `json:"units"`
	Until time.Time `json:"until"`
}

func keysAction(e *env, args []string, f *keysFlags) int {
	if len(args) == 0 {
		return e.fail("keys: no action is named: %s", strings.Join(actionNames(), ", "))
	}

	i := slices.Index(actionNames(), args[0])
	if i < 0 {
		return e.fail("keys: there is no action %q, only %s", safe(textform.Clip(args[0])),
			strings.Join(actionNames(), ", "))
	}
	if err := f.check(args[0], args[1:]); err != nil {
		return e.failed("keys", err)
	}

	// The key is read before Redis is asked: a person may type it.
	key, err := f.readKey(e, args[1:])
	if err != nil {
		return e.failed("keys", err)
	}

	ctx, end := e.context()
	defer end()
	client, err := f.connect(ctx)
	if err != nil {
		return e.failed("keys", err)
	}
	defer client.Close()

	result, err := f.act(ctx, client, keyActions[i], key)
	if err != nil {
		return e.failed("keys", err)
	}
	return result.print(e, f.json)
}

// check returns every mistake in the flags.
func (k *keysFlags) check(action string, rest []string) error {
	var errs []error
	mistake := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New(text))
		}
	}

	mistake(len(rest) > 1, "more than one KEY is given; -- stands before one that begins with a dash")
	mistake(k.policy == "" && k.limit == "", "no policy is named: give -policy, or -limit and -rule")
	mistake(k.policy != "" && k.limit != "", "-policy and -limit are not for one call")
	mistake(k.limit != "" && k.rule == "", "-limit needs -rule, the name of the rule")
	mistake(k.limit == "" && k.rule != "", "-rule is for -limit")
	mistake(k.limit != "" && k.app+k.plan != "", "-app and -plan are for -policy")
	mistake(action == "ban" && k.span <= 0, "-for has to say how long the ban lasts, as in -for 10m")
	mistake(action != "ban" && action != "grant" && k.span != 0, "-for is for bans and grants")

	return errors.Join(append(errs, k.checkUnits(action)...)...)
}

// checkUnits returns every mistake in the flags of grants and debits.
func (k *keysFlags) checkUnits(action string) (errs []error) {
	mistake := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New(text))
		}
	}

	// The end of a grant is an instant, or a time from now by the clock of the server.
	mistake(action == "grant" && k.units <= 0, "-units has to say how many units are granted")
	mistake(action == "grant" && (k.span <= 0) == k.until.IsZero(),
		"a grant needs -for or -until, as in -for 48h or -until 2026-12-04T17:00:00Z")
	mistake(action == "debit" && k.units <= 0, "-units has to say how many units are charged")
	mistake(action != "grant" && action != "debit" && k.units != 0, "-units is for grants and debits")
	mistake(action != "grant" && !k.until.IsZero(), "-until is for grants")
	return errs
}

// maxKeyText is the length of the longest key that is read from the standard input, in bytes.
const maxKeyText = 64 << 10

// readKey returns the KEY of the call, or the first line of the standard input for "-". A call
// for a policy that counts all callers together needs none.
func (k *keysFlags) readKey(e *env, rest []string) (key string, err error) {
	if len(rest) > 0 {
		key = rest[0]
	}
	if key == "-" {
		lines := bufio.NewScanner(e.in)
		lines.Buffer(nil, maxKeyText)
		if !lines.Scan() {
			return "", errors.Join(errors.New("the standard input has no KEY"), lines.Err())
		}
		key = lines.Text()
	}

	if k.credential {
		key = keyfuncs.Digest(key)
	}
	return key, nil
}

// act carries the action out.
func (k *keysFlags) act(
	ctx context.Context, client redis.UniversalClient, a keyAction, key string,
) (result keyResult, err error) {
	s, err := k.subject(ctx, client, key)
	if err != nil {
		return result, err
	}
	store, err := redisstore.New(client, redisstore.Options{Prefix: k.prefix, Timeout: callTime})
	if err != nil {
		return result, err
	}

	result, err = a.do(ctx, &keyCall{s, k, store})
	if err != nil {
		return result, err
	}
	result.Action, result.Rule, result.Key, result.Limit = a.name, s.rule.Name, s.key, s.limit.String()
	result.Note = joinNotes(s.note, result.Note)
	return result, nil
}

func joinNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

// apply has the store carry out one operation on the key.
func (k *keyCall) apply(ctx context.Context, verb core.Verb, ban *core.Ban) (core.Decision, error) {
	op := core.Op{Verb: verb, Rule: k.rule.Name, Key: k.key, Limit: k.limit, Ban: ban,
		Windows: k.limit.Windows(time.Now().UnixMicro())}
	if verb == core.Peek {
		op.Cost, op.Lease = k.cost(), "headgate"
	}

	var out [1]core.Decision
	if err := k.store.Apply(ctx, []core.Op{op}, out[:]); err != nil {
		return out[0], fmt.Errorf("rule %s: %w", k.rule.Name, explained(err))
	}
	return out[0], nil
}

// peeked is what the store knows about a key.
type peeked struct {
	Left     int64 `json:"left"`
	Capacity int64 `json:"capacity"`
	Cost     int64 `json:"cost"`    // of a request
	Allowed  bool  `json:"allowed"` // a request would pass now
	Banned   bool  `json:"banned"`
	Granted  int64 `json:"granted,omitempty"` // of those left

	// Next is when a request passes again, and Full when nothing is in use. Both are of the
	// server's clock.
	Now  time.Time  `json:"now"`
	Next *time.Time `json:"next,omitempty"` // nil if none ever passes
	Full time.Time  `json:"full"`
}

func peekKey(ctx context.Context, k *keyCall) (result keyResult, err error) {
	d, err := k.apply(ctx, core.Peek, k.ban)
	if err != nil {
		return result, err
	}

	now := time.UnixMicro(d.At).UTC()
	p := &peeked{Left: max(0, d.Remaining), Capacity: k.limit.Capacity(), Cost: k.cost(), Allowed: d.Allowed,
		Banned: d.Banned, Granted: d.Credit, Now: now, Full: now.Add(d.ResetAfter)}
	if d.RetryAfter != core.Never {
		next := now.Add(d.RetryAfter)
		p.Next = &next
	}

	// An override bans a key without the store.
	if k.banned.After(now) {
		p.Allowed, p.Banned = false, true
		if p.Next != nil && p.Next.Before(k.banned) {
			p.Next = &k.banned
		}
	}
	if result.Peek = p; d.Credit == 0 {
		return result, nil
	}

	credits, err := k.store.Credits(ctx, core.ID{Rule: k.rule.Name, Key: k.key, Algorithm: k.limit.Algorithm})
	if err != nil {
		return result, explained(err)
	}
	for _, c := range credits {
		result.Grants = append(result.Grants, granted{c.Units, time.UnixMicro(c.Until).UTC()})
	}
	return result, nil
}

func resetKey(ctx context.Context, k *keyCall) (keyResult, error) {
	_, err := k.apply(ctx, core.Reset, nil)
	return keyResult{}, err
}

func liftKey(ctx context.Context, k *keyCall) (keyResult, error) {
	if k.limit.Leased() {
		return keyResult{}, errLeased
	}
	if !k.banned.IsZero() {
		return keyResult{}, errors.New(k.bannedWords())
	}
	_, err := k.apply(ctx, core.Lift, nil)
	return keyResult{}, err
}

var errLeased = errors.New("a concurrency limit has no bans")

func banKey(ctx context.Context, k *keyCall) (result keyResult, err error) {
	span := k.flags.span
	if err := k.checkBan(span); err != nil {
		return result, err
	}

	ban := *k.ban
	ban.For, ban.Max = span, max(span, cmp.Or(k.rule.Ban.Max, span))
	d, err := k.apply(ctx, core.Impose, &ban)
	if err != nil {
		return result, err
	}

	// A ban that ends later stays, so the list is asked for the end.
	end, listed := k.listed(ctx)
	if !listed {
		end = d.At + span.Microseconds()
		result.Note = "lists of bans do not show it until it has refused a request"
	}
	until := time.UnixMicro(end).UTC()
	result.Until = &until
	return result, nil
}

// grantKey grants units as a service does, so that the mistakes are the same.
func grantKey(ctx context.Context, k *keyCall) (result keyResult, err error) {
	until := k.flags.until
	if until.IsZero() {
		d, err := k.apply(ctx, core.Peek, nil)
		if err != nil {
			return result, err
		}
		until = time.UnixMicro(d.At).Add(k.flags.span)
	}

	l, err := k.limiter()
	if err != nil {
		return result, err
	}
	defer l.Close()

	if err := l.Grant(ctx, k.rule.Name, k.key, k.flags.units, until); err != nil {
		return result, explained(err)
	}
	until = until.UTC()
	return keyResult{Units: k.flags.units, Until: &until}, nil
}

func revokeKey(ctx context.Context, k *keyCall) (keyResult, error) {
	l, err := k.limiter()
	if err != nil {
		return keyResult{}, err
	}
	defer l.Close()
	if err := l.Revoke(ctx, k.rule.Name, k.key); err != nil {
		return keyResult{}, explained(err)
	}
	return keyResult{}, nil
}

// debitKey charges units as a service does, and says what is left then.
func debitKey(ctx context.Context, k *keyCall) (result keyResult, err error) {
	switch most := k.limit.Capacity() + k.limit.MaxDebt(); {
	case k.limit.MaxDebt() == 0:
		return result, fmt.Errorf("the limit %s has no debt, so nothing can be charged beyond it", k.limit)
	case k.flags.units > most:
		return result, fmt.Errorf("-units: %d is more than the %d that %s and its debt hold", k.flags.units, most,
			k.limit)
	}
	l, err := k.limiter()
	if err != nil {
		return result, err
	}
	defer l.Close()

	charged, err := l.Debit(ctx, k.key, k.flags.units)
	if err != nil {
		return result, explained(err)
	}
	if result, err = peekKey(ctx, k); err != nil {
		return result, err
	}

	// What was used cannot be refused, so it is said how much of it the limit has no room for.
	result.Units = charged[0].Decision.Taken
	if over := k.flags.units - result.Units; over > 0 {
		result.Note = count(over) + " of the " + counted(k.flags.units, "unit") + " were not charged: its debt is full"
	}
	return result, nil
}

// limiter returns a limiter with the rule and the limit of the key alone.
func (k *keyCall) limiter() (*limiter.Limiter, error) {
	return limiter.New(limiter.Config{Store: k.store, Logger: slog.New(slog.DiscardHandler),
		Rules: []limiter.Rule{{Name: k.rule.Name, Limit: k.limit}}})
}

// maxListed is the length of the longest key that lists of bans show, and listWait for how long
// the store may take to add one.
const (
	maxListed = 1024
	listWait  = 2 * time.Second
)

// listed waits until the list of bans has the key, which the store adds in the background, and
// returns when the ban ends.
func (k *keyCall) listed(ctx context.Context) (until int64, ok bool) {
	if len(k.key) > maxListed {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()

	for {
		list, err := k.store.Report().Bans(ctx, []string{k.rule.Name}, maxBans)
		if i := slices.IndexFunc(list, func(b core.Banned) bool { return b.Key == k.key }); i >= 0 {
			return list[i].Until, true
		}
		if err != nil {
			return 0, false
		}

		// The store adds it as soon as it has been imposed.
		select {
		case <-ctx.Done():
			return 0, false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// maxBans is how many bans the store is asked for, which lists no more.
const maxBans = 10_000

// print prints the result.
func (k *keyResult) print(e *env, asJSON bool) int {
	if asJSON {
		return e.printJSON(k)
	}

	// What was found or done stands below the key and its limit.
	fmt.Fprintf(e.out, "%s under %s, limit %s\n", shown(k.Key), k.Rule, k.Limit)
	switch {
	case k.Peek != nil:
		if k.Action == "debit" {
			fmt.Fprintf(e.out, "  charged     %s\n", count(k.Units))
		}
		k.Peek.print(e)
		for _, g := range k.Grants {
			fmt.Fprintf(e.out, "  granted     %s until %s UTC\n", count(g.Units), when(g.Until))
		}
	case k.Units > 0:
		fmt.Fprintf(e.out, "  granted %s until %s UTC\n", count(k.Units), when(*k.Until))
	case k.Action == "revoke":
		fmt.Fprintln(e.out, "  revoked: no granted units are left")
	case k.Until != nil:
		fmt.Fprintf(e.out, "  %s until %s UTC\n", e.paint(red, "banned"), when(*k.Until))
	case k.Action == "reset":
		fmt.Fprintln(e.out, "  reset: the key is fresh")
	default:
		fmt.Fprintln(e.out, "  lifted: no ban holds, and the refusals before are forgotten")
	}
	if k.Note != "" {
		fmt.Fprintf(e.out, "  note: %s\n", safe(k.Note))
	}
	return fine
}

func (p *peeked) print(e *env) {
	next := e.paint(green, "now")
	switch {
	case p.Next == nil:
		next = e.paint(red, fmt.Sprintf("never: a request costs %d", p.Cost))
	case p.Banned:
		next = e.paint(red, "banned") + ", " + instant(*p.Next, p.Now)
	case !p.Allowed:
		next = e.paint(red, "over the limit") + ", " + instant(*p.Next, p.Now)
	}

	full := "nothing is in use"
	if p.Full.After(p.Now) {
		full = instant(p.Full, p.Now)
	}

	granted := ""
	if p.Granted > 0 {
		granted = ", " + count(p.Granted) + " of them granted"
	}
	fmt.Fprintf(e.out, "  left        %s of %s%s\n  next        %s\n  full again  %s\n", count(p.Left),
		count(p.Capacity), granted, next, full)
}

// instant writes an instant of the server's clock, and how far off it is.
func instant(at, now time.Time) string {
	return fmt.Sprintf("in %s, at %s UTC", textform.Duration(at.Sub(now).Round(time.Millisecond)), when(at))
}
