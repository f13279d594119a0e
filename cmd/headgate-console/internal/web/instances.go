package web

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// fleetView is what the instances report.
type fleetView struct {
	Away     bool   // Redis does not answer
	Label    string // of the published version
	Shown    []instance
	All      int
	Current  int // that run the published version
	Troubled int // that need attention

	WrongClocks, Alone, Asking, Leaving int // that are as these say

	leaving map[string]int // those that run the published version without a policy, by its name
}

// Further returns how many instances are not shown.
func (f fleetView) Further() int { return f.All - len(f.Shown) }

// maxTrouble is the largest number of instances that the line of all instances tells about.
const maxTrouble = 5

// Trouble returns the first instances that need attention.
func (f fleetView) Trouble() []instance { return f.Shown[:min(f.Troubled, len(f.Shown), maxTrouble)] }

// instance is a program that follows the policies.
type instance struct {
	policy.Instance
	Current bool // runs the published version
}

// wrongClock is how far a clock is off before the page warns of it.
const wrongClock = time.Second

// silent is the age from which on the page shows how old a report is.
const silent = 5 * time.Second

// LeavesOut says how many policies the instance leaves out, or "".
func (i instance) LeavesOut() string {
	n := len(i.LeftOut) + i.MoreLeftOut
	switch {
	case n == 0:
		return ""
	case len(i.LeftOut) == 1 && n == 1:
		return "leaves out " + i.LeftOut[0].Policy
	}
	return "leaves out " + digits(int64(n)) + " policies"
}

// Off says how far the clock of the instance is off, or "".
func (i instance) Off() string {
	switch d := i.ClockOffset.Round(100 * time.Millisecond); {
	case d >= wrongClock:
		return d.String() + " ahead"
	case d <= -wrongClock:
		return (-d).String() + " behind"
	}
	return ""
}

// Silent says for how long the instance has not reported, or "".
func (i instance) Silent() string {
	if i.Age < silent {
		return ""
	}
	return i.Age.Truncate(time.Second).String()
}

// Wrong says what is not as it should be with the instance.
func (i instance) Wrong() string {
	var list []string
	if i.Refused != "" {
		list = append(list, strings.TrimSpace("refuses version "+i.Refused+": "+i.Error))
	} else if !i.Current {
		list = append(list, "not yet up to date")
	}
	if off := i.Off(); off != "" {
		list = append(list, "its clock is "+off)
	}
	if i.Alone() {
		list = append(list, "decided by "+i.Decides())
	}
	if out := i.LeavesOut(); out != "" {
		list = append(list, out)
	}
	return strings.Join(list, "; ")
}

// Decides says what decides for the instance.
func (i instance) Decides() string {
	return cmp.Or(vocabulary.Decides[i.Store], vocabulary.Decides[""])
}

// Alone reports whether the instance decides without its store.
func (i instance) Alone() bool { return i.Store == "local" || i.Store == "open" || i.Store == "closed" }

// troubled reports whether the instance needs attention.
func (i instance) troubled() bool {
	return !i.Current || i.Off() != "" || i.Alone() || i.LeavesOut() != ""
}

// without counts the instances that leave out a policy as such in which it is not in force.
func (f *fleetView) without(name string) { f.Current -= f.leaving[name] }

// count adds an instance to the numbers of those that are as it is.
func (f *fleetView) count(i instance) {
	for _, c := range []struct {
		number *int
		is     bool
	}{
		{&f.Troubled, i.troubled()}, {&f.WrongClocks, i.Off() != ""}, {&f.Alone, i.Alone()},
		{&f.Asking, i.Store == "store"}, {&f.Leaving, i.LeavesOut() != ""},
	} {
		if c.is {
			*c.number++
		}
	}
}

// maxInstances is the largest number of instances that are shown.
const maxInstances = 50

// fleetView reads the instances from Redis: of applications, or without any of all in which the
// actor has a role. Those that need attention come first.
func (r *request) fleetView(apps ...string) (f fleetView, err error) {
	if r.Fleet == nil {
		return f, nil
	}

	ctx := r.req.Context()
	list, err := r.Service.Instances(ctx, r.actor, "")
	if err != nil && !errors.Is(err, service.ErrNoFleet) {
		return f, err
	}
	label, err2 := r.Fleet.Version(ctx)

	// A page without the instances says more than an error: all else on it comes from the database.
	if err := cmp.Or(err, err2); err != nil {
		r.Logger.WarnContext(ctx, "the instances cannot be read", "error", err)
		return fleetView{Away: true}, nil
	}

	f.Label, f.leaving = label, map[string]int{}
	for _, i := range list {
		if len(apps) > 0 && !slices.Contains(apps, i.App) {
			continue
		}

		seen := instance{i, i.Version == label && i.Refused == ""}
		f.Shown = append(f.Shown, seen)

		if seen.Current {
			f.Current++
			for _, l := range i.LeftOut {
				f.leaving[l.Policy]++
			}
		}
		f.count(seen)
	}

	// Those that need attention come first, so that none of them is cut off for one that needs
	// none.
	f.All = len(f.Shown)
	slices.SortStableFunc(f.Shown, func(a, b instance) int {
		rank := map[bool]int{true: 0, false: 1}
		return cmp.Compare(rank[a.troubled()], rank[b.troubled()])
	})

	f.Shown = f.Shown[:min(maxInstances, f.All)]
	return f, nil
}

// Fleet gives access to the state of the running instances. Its methods are safe
// for concurrent use. The error of a key whose state this version cannot read is a
// [service.InvalidError].
type Fleet interface {
	// Peek returns the decision that a request of one unit would get, and changes
	// nothing.
	Peek(ctx context.Context, p policy.Policy, key string) (core.Decision, error)

	// Reset makes a key fresh.
	Reset(ctx context.Context, p policy.Policy, key string) error

	// Bans returns the keys that policies have banned, those whose bans last longest
	// first.
	Bans(ctx context.Context, policies []string) ([]core.Banned, error)

	// Lift ends the ban of a key.
	Lift(ctx context.Context, p policy.Policy, key string) error

	// Impose bans a key for a time from now on, under a policy that bans.
	Impose(ctx context.Context, p policy.Policy, key string, span time.Duration) error

	// Credits returns what a key has left of its grants, in the order of their ends.
	Credits(ctx context.Context, p policy.Policy, key string) ([]redisstore.Credit, error)

	// Grant gives a key units beside its limit, until an instant, unless the decision says that
	// such a grant cannot be.
	Grant(ctx context.Context, p policy.Policy, key string, units int64, until time.Time) (core.Decision, error)

	// Revoke takes all units of grants from a key.
	Revoke(ctx context.Context, p policy.Policy, key string) error

	// Debit charges a key units, if need be beyond its limit. Decision.Taken is how many.
	Debit(ctx context.Context, p policy.Policy, key string, units int64) (core.Decision, error)

	// Published returns the label of the published version.
	Published(ctx context.Context) (string, error)
}

// keyTimeout bounds the look-up of a key. It is longer than the default of a store,
// because no request waits for it.
const keyTimeout = 5 * time.Second

// redisFleet is a Fleet in Redis.
type redisFleet struct {
	reports Reports
	store   *redisstore.Store
}

// Reports is what the instances report. Its methods are safe for concurrent use.
type Reports interface {
	// Version returns the label of the published version.
	Version(ctx context.Context) (string, error)
}

// RedisFleet returns a Fleet of the instances that report and that use a Redis with the
// prefix; "" means the default. It does not close the client. It cannot find
// keys that instances hide with a secret.
func RedisFleet(client redis.UniversalClient, reports Reports, prefix string) (Fleet, error) {
	store, err := redisstore.New(client, redisstore.Options{Prefix: prefix, Timeout: keyTimeout})
	if err != nil {
		return nil, err
	}
	return &redisFleet{reports, store}, nil
}

func (r *redisFleet) Peek(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
	op := opOn(p, core.Peek, key)
	op.Ban, op.Windows, op.Cost, op.Lease = p.Ban.OrNil(), op.Limit.Windows(time.Now().UnixMicro()), 1, "console"
	d, err := r.apply(ctx, op)

	// The store does not know of a ban beside the policy.
	now := time.Now()
	if end := p.BanOf(key, now); err == nil && !end.IsZero() && p.Mode == policy.Enforce {
		d.Allowed, d.Banned, d.RetryAfter = false, true, max(d.RetryAfter, end.Sub(now))
	}
	return d, err
}

func (r *redisFleet) Reset(ctx context.Context, p policy.Policy, key string) error {
	_, err := r.apply(ctx, opOn(p, core.Reset, key))
	return err
}

// maxListed is how many bans a store is asked for at most.
const maxListed = 10_000

func (r *redisFleet) Bans(ctx context.Context, policies []string) ([]core.Banned, error) {
	return r.store.Report().Bans(ctx, policies, maxListed)
}

func (r *redisFleet) Lift(ctx context.Context, p policy.Policy, key string) error {
	_, err := r.apply(ctx, opOn(p, core.Lift, key))
	return err
}

// Impose bans a key for a time from now on, whatever ban it was under.
func (r *redisFleet) Impose(ctx context.Context, p policy.Policy, key string, span time.Duration) error {
	op := opOn(p, core.Impose, key)
	if op.Ban = p.Ban.OrNil(); op.Ban == nil {
		return errors.New("the policy bans no keys")
	}
	op.Ban.For, op.Ban.Max = span, span
	_, err := r.apply(ctx, op)
	return err
}

func (r *redisFleet) Credits(ctx context.Context, p policy.Policy, key string) ([]redisstore.Credit, error) {
	op := opOn(p, core.Peek, key)
	list, err := r.store.Credits(ctx, op.ID())
	return list, readableErr(err)
}

func (r *redisFleet) Grant(
	ctx context.Context, p policy.Policy, key string, units int64, until time.Time,
) (core.Decision, error) {
	op := opOn(p, core.Grant, key)
	op.Cost, op.CreditUntil = units, until.UnixMicro()
	return r.apply(ctx, op)
}

func (r *redisFleet) Revoke(ctx context.Context, p policy.Policy, key string) error {
	_, err := r.apply(ctx, opOn(p, core.Revoke, key))
	return err
}

func (r *redisFleet) Debit(ctx context.Context, p policy.Policy, key string, units int64) (core.Decision, error) {
	op := opOn(p, core.Debit, key)
	op.Cost, op.Windows = units, op.Limit.Windows(time.Now().UnixMicro())
	return r.apply(ctx, op)
}

// opOn returns an operation on a key, with the limit that instances have for the key.
func opOn(p policy.Policy, verb core.Verb, key string) core.Op {
	return core.Op{Verb: verb, Rule: p.Name, Key: key, Limit: p.LimitOf(key, time.Now())}
}

func (r *redisFleet) apply(ctx context.Context, op core.Op) (core.Decision, error) {
	var out [1]core.Decision
	err := r.store.Apply(ctx, []core.Op{op}, out[:])
	return out[0], readableErr(err)
}

// readableErr returns an error about the value of a key as one that people can read, and every
// other error as it is.
func readableErr(err error) error {
	switch {
	case errors.Is(err, redisstore.ErrFormat):
		return mistake("key", "a newer version of headgate has written what Redis holds of it, in a format that this "+
			"console cannot read, so it is left as it is: upgrade the console, or finish the roll-back")
	case errors.Is(err, redisstore.ErrUnreadable):
		return mistake("key", "what Redis holds of it is no count, and expires within a minute")
	}
	return err
}

func (r *redisFleet) Published(ctx context.Context) (string, error) { return r.reports.Version(ctx) }
