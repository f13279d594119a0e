//go:build !race

package redisstore

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store/storetest"
)

// scriptsBefore is an archive of the scripts as they were before the present ones, at the
// commit that its comment names. After a release it is made of that.
//
//go:generate git -C ../.. archive --format=zip -o store/redisstore/testdata/before.zip 3667cf4f9c969935d94ce3422f22e5a4a1db2e63 lua/*.lua
//go:embed testdata/before.zip
var scriptsBefore []byte

// before returns the scripts of the version before.
var before = sync.OnceValue(func() *lua.Scripts {
	archive, err := zip.NewReader(bytes.NewReader(scriptsBefore), int64(len(scriptsBefore)))
	if err != nil {
		panic(err)
	}
	files := fstest.MapFS{}
	for _, file := range archive.File {
		name, _ := strings.CutPrefix(file.Name, "lua/")
		if text, err := fs.ReadFile(archive, file.Name); err == nil {
			files[name] = &fstest.MapFile{Data: text}
		}
	}

	// The version before knows no credit, and no format but the first.
	if files["credit.lua"] == nil {
		files["credit.lua"] = &fstest.MapFile{Data: []byte(
			"-- @slow\nlocal FORMAT = 1\nlocal function lend(step)\nreturn step\nend\n")}
	}
	return &lua.Scripts{Files: files}
})

// versions are stores of several versions on the same keys, which decide in turns.
type versions struct {
	stores  []core.Store
	present core.Store // one of them
	turn    atomic.Int64
	lent    sync.Map // core.ID of a key that had a Grant
}

func (v *versions) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	n := v.turn.Add(1) - 1
	if v.haveCredit(ops) {
		return v.present.Apply(ctx, ops, out) // the version before has an error
	}
	return v.stores[n%int64(len(v.stores))].Apply(ctx, ops, out)
}

// haveCredit reports whether a key of the step may have credit, or gets some.
func (v *versions) haveCredit(ops []core.Op) (some bool) {
	for i := range ops {
		_, has := v.lent.Load(ops[i].ID())
		if some = some || has || ops[i].Verb >= core.Grant; ops[i].Verb == core.Grant {
			v.lent.Store(ops[i].ID(), true)
		}
	}
	return some
}

// The version before refuses to guess about a key with credit, and leaves it as it is.
func TestVersionBeforeLeavesCredit(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	old, present := sideBySide(t, connect(t, redistest.Addr(t)), clock)
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1/1h"), Cost: 1}
	grant := op
	grant.Verb, grant.CreditUntil = core.Grant, clock.Now()+3600e6
	apply(t, present, grant)
	apply(t, present, op)

	for _, ban := range []*core.Ban{nil, hour} {
		asked := op
		asked.Ban = ban
		for n := range 2 {
			err := old.Apply(t.Context(), slices.Repeat([]core.Op{asked}, n+1), make([]core.Decision, n+1))
			if !errors.Is(err, ErrFormat) {
				t.Errorf("%d operations, ban %v: %v", n+1, ban, err)
			}
		}
	}
	if d := apply(t, present, op)[0]; !d.Allowed || d.FromCredit != 1 {
		t.Errorf("%+v", d)
	}
	if d := apply(t, present, op)[0]; d.Allowed {
		t.Errorf("%+v", d)
	}
}

// sideBySide makes stores of the version before and of the present one.
func sideBySide(t testing.TB, c redis.UniversalClient, clock *storetest.Clock) (old, present *Store) {
	t.Helper()
	o := Options{Prefix: redistest.Prefix(t), Timeout: patient, Clock: clock.Now}
	old, present = MustNew(c, o), MustNew(c, o)
	old.wire.scripts = before()
	return old, present
}

func TestVersionBeforeHasOtherScripts(t *testing.T) {
	for a := range core.CalendarWindow + 1 {
		set := lua.Set(0).With(a) | lua.Bans
		if before().One(set).SHA1 == stock.One(set).SHA1 || before().Many(set).SHA1 == stock.Many(set).SHA1 {
			t.Errorf("%s: both versions have one script", a)
		}
	}
}

// Two versions that decide in turns decide as one store does, in every history, and of many
// callers at once they admit as many as one, whichever begins.
func TestVersionSharesEveryCountWithTheOneBefore(t *testing.T) {
	t.Parallel()

	// miniredis is slow, so a few histories have to do.
	for _, row := range []struct {
		name, addr string
		histories  int
	}{{"redis", redistest.Addr(t), 300}, {"miniredis", mini(t).Addr(), 10}} {
		c := connect(t, row.addr)

		// An upgrade begins with the old version and a rollback with the present one.
		upgrade := func(t testing.TB, clock *storetest.Clock) core.Store {
			old, present := sideBySide(t, c, clock)
			return &versions{stores: []core.Store{old, present}, present: present}
		}
		rollback := func(t testing.TB, clock *storetest.Clock) core.Store {
			old, present := sideBySide(t, c, clock)
			return &versions{stores: []core.Store{present, old}, present: present}
		}

		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			storetest.Contention(t, upgrade)
			storetest.Diff(t, row.histories, storetest.Seed+2, storetest.NewModel, upgrade, rollback)
			storetest.DiffEach(t, row.histories, storetest.Seed+2, storetest.NewModel, upgrade, rollback)
		})
	}
}

// shared is a rule of two versions under which both make the same steps, many at once.
type shared struct {
	*testing.T
	stores []*Store
	op     core.Op
}

// each has both stores carry out n steps at once, the i-th of all with op(i), and returns the
// decisions.
func (s *shared) each(n int, op func(i int) core.Op) []core.Decision {
	s.Helper()
	out := make([]core.Decision, n*len(s.stores))

	var all sync.WaitGroup

	// The stores take turns, and all steps are under way together.
	for i := range out {
		all.Go(func() {
			if err := s.stores[i%len(s.stores)].Apply(s.Context(), inWindows(s.stores[0], op(i)),
				out[i:i+1]); err != nil {
				s.Error(err)
			}
		})
	}

	all.Wait()
	return out
}

// of returns the operation with a change.
func (s *shared) of(change func(op *core.Op, i int)) func(int) core.Op {
	return func(i int) core.Op {
		op := s.op
		change(&op, i)
		return op
	}
}

func count(out []core.Decision, what func(d *core.Decision) bool) (n int) {
	for i := range out {
		if what(&out[i]) {
			n++
		}
	}
	return n
}

func allowed(d *core.Decision) bool { return d.Allowed }

func bannedNow(d *core.Decision) bool { return d.Banned }

// beside returns two versions on one rule.
func beside(t *testing.T, c *redis.Client, text string, b *core.Ban) *shared {
	old, present := sideBySide(t, c, storetest.NewClock())
	return &shared{t, []*Store{old, present}, core.Op{Rule: "r", Key: "k", Limit: limit(t, text), Cost: 1, Ban: b}}
}

// Of requests of both versions at once, as many are admitted as the limit says, exactly the
// refusal that completes a ban begins it, and both know of it and of its end.
func TestVersionSharesBansWithTheOneBefore(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.Addr(t))
	take := func(*core.Op, int) {}

	for _, text := range everyAlgorithm {
		// Leases cannot ban.
		if limit(t, text).Leased() {
			continue
		}
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s := beside(t, c, text, &core.Ban{Strikes: 7, Within: time.Hour, For: time.Hour, Max: time.Hour})

			// Of 100 takes 10 are granted, 6 refusals are strikes, and the seventh refusal begins
			// the ban.
			out := s.each(50, s.of(take))
			if a, b := count(out, allowed), count(out, bannedNow); a != 10 || b != 100-10-6 {
				t.Errorf("%d admitted and %d banned, want 10 and 84", a, b)
			}

			// Without the ban the units refuse, which are used up.
			if n := count(s.each(20, s.of(func(op *core.Op, _ int) { op.Ban = nil })), allowed); n != 0 {
				t.Errorf("%d admitted by programs without the ban", n)
			}

			for i, store := range s.stores {
				op := s.op
				op.Verb = core.Lift
				apply(t, store, op)

				// Six refusals after a lift are no ban yet.
				if n := count(s.each(3, s.of(take)), bannedNow); n != 0 {
					t.Errorf("version %d lifted the ban, and %d are banned", i, n)
				}
				op.Verb = core.Impose
				apply(t, store, op)
				if n := count(s.each(3, s.of(take)), bannedNow); n != 6 {
					t.Errorf("version %d imposed a ban, and %d of 6 are banned", i, n)
				}
			}
		})
	}
}

// A version renews and releases what the other leased.
func TestVersionSharesLeasesWithTheOneBefore(t *testing.T) {
	t.Parallel()

	s := beside(t, connect(t, redistest.Addr(t)), "10 concurrent ttl=1h", nil)
	named := func(op *core.Op, i int) { op.Lease = fmt.Sprint("lease ", i) }
	out := s.each(25, s.of(named))
	if n := count(out, allowed); n != 10 {
		t.Fatalf("%d of 50 hold a lease, want 10", n)
	}

	// Each operation now comes from the other version.
	s.stores[0], s.stores[1] = s.stores[1], s.stores[0]
	again := s.each(25, s.of(named))
	for i := range out {
		if out[i].Allowed != again[i].Allowed {
			s.Errorf("lease %d: %+v, and its renewal %+v", i, out[i], again[i])
		}
	}

	// Each version gives back leases of the other, and none is left.
	s.each(25, s.of(func(op *core.Op, i int) { named(op, i); op.Verb = core.Refund }))
	if d := apply(t, s.stores[0], core.Op{Verb: core.Peek, Rule: "r", Key: "k",
		Limit: s.op.Limit})[0]; d.Remaining != 10 {
		t.Errorf("%d of 10 remain after all leases were released", d.Remaining)
	}
}

// Debits of both versions at once charge as many units as the debt holds, and the refunds of
// both give back what was taken.
func TestVersionSettlesWhatTheOneBeforeHasTaken(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.Addr(t))

	for _, text := range []string{
		"10/1h debt=15", "10/1h fixed-window debt=15", "10/1h sliding-window debt=15",
		"10/1h token-bucket debt=15", "10/year debt=15",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s := beside(t, c, text, nil)

			// 40 takes of 10, then 10 debits of 2 with a debt of 15.
			if n := count(s.each(20, s.of(func(*core.Op, int) {})), allowed); n != 10 {
				t.Errorf("%d admitted, want 10", n)
			}

			var taken int64
			for _, d := range s.each(5, s.of(func(op *core.Op, _ int) { op.Verb, op.Cost = core.Debit, 2 })) {
				taken += d.Taken
			}
			if taken != 15 {
				t.Errorf("debits charged %d, want 15", taken)
			}

			// Twenty refunds pay the debt of 15 and leave 5 of the 10 units.
			s.each(10, s.of(func(op *core.Op, _ int) { op.Verb = core.Refund }))
			peek := s.op
			peek.Verb = core.Peek

			for i, store := range s.stores {
				if d := apply(t, store, peek)[0]; d.Remaining != 5 {
					t.Errorf("version %d: %d remain, want 5", i, d.Remaining)
				}
			}
		})
	}
}
