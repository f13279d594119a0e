package web

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// gauge shows how much of a limit a key has used. Remaining is of the limit alone, without credit.
type gauge struct {
	Used, Remaining, Capacity int64
	Percent                   int64
	Credits                   []credit
	Passes                    bool // a request would pass now
	Never                     bool // or at no time
	After                     time.Duration
	ResetAfter                time.Duration
}

// credit is what a key has left of grants with one end.
type credit struct {
	Units int64
	Until time.Time
}

func newGauge(l core.Limit, d core.Decision) *gauge {
	g := &gauge{
		Remaining: max(0, d.Remaining-d.Credit), Capacity: l.Capacity(), Passes: d.Allowed,
		Never: d.RetryAfter == core.Never, After: readableTime(d.RetryAfter), ResetAfter: readableTime(d.ResetAfter),
	}
	g.Used = max(0, g.Capacity-g.Remaining)
	g.Percent = int64(min(100, float64(g.Used)/float64(max(1, g.Capacity))*100))
	return g
}

// readableTime rounds a time up: to seconds, or to milliseconds if it is less than one second.
func readableTime(d time.Duration) time.Duration {
	unit := time.Second
	if d < unit {
		unit = time.Millisecond
	}
	if d == core.Never || d%unit == 0 {
		return d
	}
	return d.Truncate(unit) + unit
}

// maxOthers is how many policies a key is looked up under at most.
const maxOthers = 50

// lookUp adds a row for the key under the policy that is chosen, and then under each other one that
// counts keys of its kind: those that ban it first, and then those of which most is used.
func (r *request) lookUp(k *keys) error {
	key, on, first := strings.TrimSpace(keyOf(k.Key)), (*target)(nil), 0
	// The policy that is chosen comes first, and has a row of its own in the audit log.
	if k.Policy != "" {
		var err error
		if on, err = r.targetOf(k.Policy, k.Key); err != nil {
			return err
		}
		key, first = on.Counted, 1
		u, err := r.Service.LookUp(r.req.Context(), r.actor, on.Policy, key)
		if err != nil {
			return err
		}
		k.Rows = append(k.Rows, r.looked(k, u))
	}

	list, more, err := r.Service.LookUpEach(r.req.Context(), r.actor, key, maxOthers,
		func(p policy.Policy) bool { return meets(on, p, keyOf(k.Key)) },
		func(p policy.Policy) string { return counted(r.req.Context(), p, keyOf(k.Key)) })
	if err != nil {
		return err
	}
	for _, u := range list {
		k.Rows = append(k.Rows, r.looked(k, u))
	}

	// Of those with the same share of their limit used, the order is that of the names.
	k.Further = more
	slices.SortStableFunc(k.Rows[first:], func(a, b keyRow) int {
		return cmp.Or(b.Ban.Until.Compare(a.Ban.Until), cmp.Compare(b.Share, a.Share))
	})
	return nil
}

// looked returns the row of a key that was looked up.
func (r *request) looked(k *keys, u service.KeyUse) keyRow {
	row := k.row(r, u.Policy.Name, u.Key)
	row.Found, row.CanEdit = &u.Policy, r.access.CanEdit(u.Policy.Apps)
	row.under(&u.Policy)
	row.Gauge, row.Granted = newGauge(u.Policy.LimitOf(u.Key, r.Clock()), u.Decision), u.Credit
	row.Share = row.Gauge.Percent
	if u.Banned {
		row.Banned = true
		row.Ban = service.KeyBan{Policy: u.Policy.Name, Key: u.Key, Until: u.BannedUntil}
	}
	for _, c := range u.Credits {
		row.Gauge.Credits = append(row.Gauge.Credits, credit{c.Units, time.UnixMicro(c.Until)})
	}
	return row
}

// errNoPolicy is what is said of a policy that the actor sees none of.
const errNoPolicy = "the policy does not exist, or you may not see it"

// targetOf finds a policy, and the key as it counts it. The error is a mistake if the actor sees no
// such policy.
func (r *request) targetOf(name, text string) (*target, error) {
	if r.Fleet == nil {
		return nil, mistake("policy", errNoFleet.Error())
	}
	p, err := r.Service.Policy(r.req.Context(), r.actor, name)
	if errors.Is(err, service.ErrNotFound) {
		return nil, mistake("policy", errNoPolicy)
	}
	if err != nil {
		return nil, err
	}

	on := &target{Policy: name, Counted: counted(r.req.Context(), p, keyOf(text)), CanEdit: r.access.CanEdit(p.Apps)}
	on.Of, err = r.Service.KeyPolicy(r.req.Context(), r.actor, name, on.Counted)
	on.Found = &on.Of.Applied
	return on, err
}

// counted returns the key of an address as the policy counts it, and any other key
// unchanged.
func counted(ctx context.Context, p policy.Policy, key string) string {
	a, err := netip.ParseAddr(strings.TrimSpace(key))
	if err != nil || !isAddress(p.Key) {
		return key
	}

	// The policy itself says what it counts an address as. It is compiled without all that does not
	// matter for the key, and might fail here: the program's own functions are not known.
	p.Match, p.Mode, p.Plans, p.PlanBy = policy.Match{}, policy.Enforce, nil, ""
	compiled, err := policy.Compile(p.Apps[0], []policy.Policy{p}, policy.Bindings{})
	if err != nil {
		return key
	}
	rules := compiled.Rules()
	if len(rules) != 1 {
		return key
	}

	text, ok := rules[0].Key(&sample{ctx: ctx, remote: netip.AddrPortFrom(a, 40000).String()})
	if !ok {
		return key
	}
	return text
}

// meets reports whether the policy counts requests by keys of the same kind as the one that was
// looked up: by the same recipe, or by addresses. If no policy was asked for, any kind will do but
// that of addresses for a key that is none, and that of others for an address.
func meets(on *target, p policy.Policy, key string) bool {
	if on == nil {
		return p.Key != "global" && isAddress(p.Key) == looksLikeAddress(key)
	}
	shared := slices.ContainsFunc(p.Apps, func(app string) bool { return slices.Contains(on.Found.Apps, app) })
	return shared && p.Name != on.Policy && (p.Key == on.Found.Key || isAddress(p.Key) && isAddress(on.Found.Key))
}

// isAddress reports whether a recipe counts by the address alone.
func isAddress(recipe string) bool {
	return (recipe == "ip" || strings.HasPrefix(recipe, "ip/")) && !strings.Contains(recipe, "+")
}

func looksLikeAddress(key string) bool {
	_, err := netip.ParseAddr(strings.TrimSpace(key))
	_, err2 := netip.ParsePrefix(strings.TrimSpace(key))
	return err == nil || err2 == nil
}
