package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
)

// banned is a store with a fake clock, and takes under a ban of ten minutes after two strikes.
type banned struct {
	t     *testing.T
	c     *redis.Client
	s     *Store
	clock *storetest.Clock
	calls *calls
	op    core.Op
}

func newBanned(t *testing.T, addr, text string, o Options) *banned {
	c := connect(t, addr)
	if err := c.Ping(context.Background()).Err(); err != nil { // so that it is connected
		t.Fatal(err)
	}
	b := &banned{t: t, c: c, clock: storetest.NewClock(), calls: new(calls)}
	o.Prefix, o.Timeout, o.Clock = redistest.Prefix(t), patient, b.clock.Now
	b.s = MustNew(c, o)
	b.op = core.Op{Rule: "r", Key: "k", Limit: limit(t, text), Cost: 1,
		Ban: &core.Ban{Strikes: 2, Within: time.Minute, For: 10 * time.Minute, Max: time.Hour}}
	c.AddHook(b.calls)
	return b
}

func (b *banned) do(change func(*core.Op)) core.Decision {
	b.t.Helper()
	return b.doAll(change)[0]
}

// doAll carries out a step of an op for each change.
func (b *banned) doAll(changes ...func(*core.Op)) []core.Decision {
	b.t.Helper()
	ops, out := make([]core.Op, len(changes)), make([]core.Decision, len(changes))
	for i, change := range changes {
		ops[i] = b.op
		if change != nil {
			change(&ops[i])
		}
	}
	if err := b.s.Apply(context.Background(), inWindows(b.s, ops...), out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// text returns the state of the key.
func (b *banned) text() string {
	return b.c.Get(context.Background(), keyOf(b.s, &b.op)).Val()
}

func free(op *core.Op) { op.Ban = nil }

func lift(op *core.Op) { op.Verb = core.Lift }

// A key that was never refused has the bytes that it has without a ban, and a key with
// strikes 29 more, until these are forgotten or lifted.
func TestBanIsInTheStateAfterTheFirstRefusal(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)

	for _, text := range []string{"2/1h", "2/1h fixed-window", "2/1h sliding-log", "2/1h sliding-window",
		"2/1h token-bucket", "2/year"} {
		b, plain := newBanned(t, addr, text, Options{}), newBanned(t, addr, text, Options{})

		// The limit is 2, so the first two takes are granted and make no strike.
		for n := range 2 {
			b.do(nil)
			plain.do(free)
			if b.text() != plain.text() || b.text() == "" {
				t.Errorf("%s: %q after %d takes, and %q without a ban", text, b.text(), n+1, plain.text())
			}
		}

		// Refused three times, the key has the 29 bytes of the ban before the bytes of its units.
		for range 3 {
			b.do(nil)
			if got := b.text(); len(got) != 29+len(plain.text()) || got[:1] != "b" ||
				!strings.HasSuffix(got, plain.text()) {
				t.Errorf("%s: %q of a key with strikes, %q of its units", text, got, plain.text())
			}
		}

		if b.do(lift); b.text() != plain.text() {
			t.Errorf("%s: %q after a lift, want %q", text, b.text(), plain.text())
		}
	}
}

// Each first call of a script takes the text of the script, and no other call more than one
// round trip.
func TestBanTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	b := newBanned(t, addr, "1/1h", Options{})
	for n, want := range []core.Decision{{Allowed: true}, {}, {Banned: true}, {Banned: true}} {
		if d := b.do(nil); d.Allowed != want.Allowed || d.Banned != want.Banned || int(b.calls.Load()) != n+1 {
			t.Errorf("take %d: %+v, %d calls", n+1, d, b.calls.Load())
		}
	}
}

// The time to live of a key is that of its ban, and of its units if that is longer.
func TestBanHasATimeToLive(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	b := newBanned(t, addr, "1/1s fixed-window", Options{})

	ttl := func(want time.Duration) {
		t.Helper()
		began := time.Now()
		got := b.c.PTTL(context.Background(), keyOf(b.s, &b.op)).Val()
		if most := want + time.Hour; got > most || got < most-time.Since(began)-patient { // see lua/prelude.lua
			t.Errorf("lives for %v, want %v", got, most)
		}
	}

	// The units live for a second.
	b.do(nil)
	ttl(time.Second)

	// Refused once: the strike is remembered for a minute.
	b.do(nil)
	ttl(time.Minute)

	// Banned: for ten minutes, and for as long after that as the ban's length is remembered.
	b.do(nil)
	ttl(70 * time.Minute)

	// Neither an operation without a ban shortens it, nor is it kept after a lift.
	b.do(free)
	ttl(70 * time.Minute)
	b.do(lift)
	ttl(time.Second)
}

// An operation without a Ban acts on the units of a banned key, and the store finds out by
// itself that it needs the scripts for bans. It charges nothing twice.
func TestBanIsKeptByOperationsWithoutOne(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	for name, several := range map[string]bool{"one op": false, "several ops": true} {
		t.Run(name, func(t *testing.T) {
			// Five takes of three: the second refusal begins a ban.
			b := newBanned(t, addr, "3/1h fixed-window", Options{})
			for range 5 {
				b.do(nil)
			}

			// The other store has never seen a ban under this limit, and acts on the same key.
			other := newBanned(t, addr, "3/1h fixed-window", Options{})
			other.s.wire.prefix, other.op.Key = b.s.wire.prefix, b.op.Key
			other.clock.Set(b.clock.Now())

			refund := func(op *core.Op) { op.Verb, op.Ban = core.Refund, nil }
			steps := []func(*core.Op){refund}
			if several {
				steps = append(steps, func(op *core.Op) { op.Key, op.Ban = "other", nil })
			}

			// Each step is sent, and the first once more, with the scripts for bans.
			for n := range 2 {
				d := other.doAll(steps...)
				if d[0].Remaining != int64(n+1) || several && d[1].Remaining != int64(2-n) {
					t.Errorf("refund %d: %+v", n+1, d)
				}
			}

			if other.calls.Load() != 3 {
				t.Errorf("%d calls for two steps, want one more", other.calls.Load())
			}

			// The ban has lasted through the refunds.
			if d := b.do(nil); !d.Banned || d.RetryAfter != 10*time.Minute {
				t.Errorf("%+v", d)
			}
		})
	}
}

// What begins as the state of a banned key and is none is unreadable, for every script, and
// expires within a minute.
func TestBanThatIsUnreadable(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	ctx := context.Background()

	// Too short for a ban, and long enough with numbers and units that are none.
	for _, text := range []string{"b", "b too short to be a state...",
		"b" + strings.Repeat("\xff", 28) + "what is no state"} {
		for name, change := range map[string]func(*core.Op){"with a ban": nil, "without a ban": free} {
			b := newBanned(t, addr, "1/1h", Options{})
			b.c.Set(ctx, keyOf(b.s, &b.op), text, 0)

			op := []core.Op{b.op}
			if change != nil {
				change(&op[0])
			}

			err := b.s.Apply(ctx, op, make([]core.Decision, 1))
			left := b.c.PTTL(ctx, keyOf(b.s, &b.op)).Val()
			if err == nil || !strings.Contains(err.Error(), ErrUnreadable.Error()) || left <= 0 || left > time.Minute {
				t.Errorf("%q, %s: %v, lives for %v", text, name, err, left)
			}
		}
	}
}

// Numbers that no script has written are within the bounds of the ban.
func TestBanOfHostileNumbers(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	b := newBanned(t, addr, "1/1h fixed-window", Options{})
	for text, want := range map[string]time.Duration{
		// The three numbers, each of seven bytes, are the largest in turn.
		"b" + strings.Repeat("\xff", 28):                                                         0,
		"b" + strings.Repeat("\x00", 7) + strings.Repeat("\xff", 21):                             time.Hour,
		"b" + strings.Repeat("\x00", 14) + strings.Repeat("\xff", 14):                            0,
		"b" + strings.Repeat("\x00", 7) + strings.Repeat("\xff", 7) + strings.Repeat("\x00", 14): 0,
	} {
		b.c.Set(context.Background(), keyOf(b.s, &b.op), text, 0)
		if d := b.do(nil); d.RetryAfter != want || d.Allowed == d.Banned {
			t.Errorf("%q: %+v, want a ban of %v", text, d, want)
		}
	}
}

// Cached refusals of a ban are those of Redis. Those that Redis has to count are not cached.
func TestBanInTheRefusalCache(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	b := newBanned(t, addr, "1/1s fixed-window", Options{CacheRefusals: 100})

	at := func(later time.Duration, call bool, want core.Decision) {
		t.Helper()
		before := b.calls.Load()
		b.clock.Add(later)
		want.At = b.clock.Now()
		if d := b.do(nil); d != want || (b.calls.Load() > before) != call {
			t.Errorf("%+v, %d calls, want %+v", d, b.calls.Load()-before, want)
		}
	}

	// Allowed, refused and banned, each by a call.
	at(0, true, core.Decision{Allowed: true, Taken: 1, ResetAfter: time.Second})
	at(0, true, core.Decision{RetryAfter: time.Second, ResetAfter: time.Second})
	at(0, true, core.Decision{Banned: true, RetryAfter: 10 * time.Minute, ResetAfter: time.Second})

	// Then the cache answers, for a second: the ban's end comes nearer, and the units are back.
	at(time.Millisecond, false, core.Decision{Banned: true, RetryAfter: 10*time.Minute - time.Millisecond,
		ResetAfter: 999 * time.Millisecond})
	at(time.Minute, true, core.Decision{Banned: true, RetryAfter: 9*time.Minute - time.Millisecond})

	// A step without the ban takes the unit of which the ban says nothing.
	if d := b.do(free); !d.Allowed {
		t.Errorf("without a ban: %+v", d)
	}

	at(0, true, core.Decision{Banned: true, RetryAfter: 9*time.Minute - time.Millisecond, ResetAfter: time.Second})
	at(0, false, core.Decision{Banned: true, RetryAfter: 9*time.Minute - time.Millisecond, ResetAfter: time.Second})

	// A lift by this store ends its cached refusals too.
	b.do(lift)
	at(time.Second, true, core.Decision{Allowed: true, Taken: 1, ResetAfter: time.Second})

	// Other rules for the ban are other bans: what was cached under the former says nothing.
	longer := *b.op.Ban
	longer.Strikes, longer.Max = 1, 2*time.Hour
	b.op.Ban = &longer
	at(0, true, core.Decision{Banned: true, RetryAfter: 10 * time.Minute, ResetAfter: time.Second})

	shorter := longer
	shorter.Max = 10 * time.Minute
	b.op.Ban = &shorter
	at(0, true, core.Decision{Banned: true, RetryAfter: 10 * time.Minute, ResetAfter: time.Second})
	at(0, false, core.Decision{Banned: true, RetryAfter: 10 * time.Minute, ResetAfter: time.Second})
}
