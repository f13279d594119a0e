package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
)

// patient is a timeout that a busy test machine does not reach.
const patient = 30 * time.Second

// mini starts a miniredis. Its integers are those of the platform, and 32 bits
// hold no instant.
func mini(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	if strconv.IntSize < 64 {
		test.Skip(t, "miniredis has integers of 32 bits on this platform")
	}
	return miniredis.RunT(t)
}

// inBubble runs f in fake time, with clients whose callers may wait for a connection. go-redis
// keeps the timers of such waits for the whole process. One of real time would keep the time of the
// bubble from passing, and one of the bubble ends a process that uses it outside: so none may be
// left, before and after. A collection frees what was not used since the one before.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	forget := func() {
		runtime.GC()
		runtime.GC()
	}
	forget()
	defer forget()
	synctest.Test(t, f)
}

func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: patient})
	t.Cleanup(func() { c.Close() })
	return c
}

// fresh returns a store on a real Redis with a prefix of its own.
func fresh(t testing.TB, addr string, o Options) (*Store, *redis.Client) {
	t.Helper()

	c := connect(t, addr)

	// The prefix keeps tests apart that share a server.
	o.Prefix, o.Timeout = redistest.Prefix(t), patient
	s, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}

	// Keys that tests leave behind would fill the server.
	t.Cleanup(func() {
		ctx := context.Background()
		for it := c.Scan(ctx, 0, o.Prefix+"*", 1000).Iterator(); it.Next(ctx); {
			c.Del(ctx, it.Val())
		}
	})
	return s, c
}

func limit(t testing.TB, text string) core.Limit {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// inWindows returns ops with the windows of their calendars, by the clock of s.
func inWindows(s core.Store, ops ...core.Op) []core.Op {
	ops = slices.Clone(ops)
	for i := range ops {
		now := time.Now().UnixMicro()
		if s, ok := s.(*Store); ok && s.wire.clock != nil {
			now = s.wire.clock()
		}
		ops[i].Windows = ops[i].Limit.Windows(now)
	}
	return ops
}

func apply(t testing.TB, s core.Store, ops ...core.Op) []core.Decision {
	t.Helper()
	out := make([]core.Decision, len(ops))
	if err := s.Apply(context.Background(), inWindows(s, ops...), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func keysOf(t testing.TB, s *Store, c *redis.Client) []string {
	t.Helper()
	keys, err := c.Keys(context.Background(), s.wire.prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// everyAlgorithm has a limit of ten units for each.
var everyAlgorithm = []string{
	"10/1h", "10/1h fixed-window", "10/1h fixed-window aligned", "10/1h sliding-log", "10/1h sliding-window",
	"10/1h token-bucket", "10 concurrent ttl=1h", "10/year",
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := New(nil, Options{Prefix: "a{b", Timeout: -1, Secret: []byte("short"), Batch: -2,
		CacheRefusals: -3, Instances: -4, MemoryKeys: -5})
	for _, want := range []string{"client is nil", `prefix "a{b" holds a brace`, "timeout -1ns",
		"5 bytes is shorter than 16", "batch of -2", "-3 refusals", "-4 instances", "memory of -5"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}

	// MustNew panics where New fails.
	defer func() {
		if recover() == nil {
			t.Error("MustNew went on without a client")
		}
	}()
	MustNew(nil, Options{})
}

func TestApplyRefusesWhatNoStoreCanDo(t *testing.T) {
	s := keyStore(t, Options{})
	for _, op := range []core.Op{{}, {Limit: core.Limit{Quota: 1, Period: time.Second}, Cost: -1}} {
		if err := s.Apply(context.Background(), []core.Op{op}, make([]core.Decision, 1)); !errors.Is(err, core.ErrOp) {
			t.Errorf("%+v: %v", op, err)
		}
	}
	if err := s.Apply(context.Background(), nil, nil); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
}

// A key never outlives its meaning, also after it was made persistent.
func TestKeysHaveATimeToLive(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	ctx := context.Background()
	for _, text := range everyAlgorithm {
		take := core.Op{Rule: "r", Key: "k", Limit: limit(t, text), Cost: 10, Lease: "a"}
		reset := apply(t, s, take)[0].ResetAfter

		keys := keysOf(t, s, c)
		if len(keys) != 1 {
			t.Fatalf("%s: keys %q", text, keys)
		}
		if ttl := c.PTTL(ctx, keys[0]).Val(); ttl <= 0 || ttl > reset+time.Millisecond {
			t.Errorf("%s: %v to live, fresh after %v", text, ttl, reset)
		}

		c.Persist(ctx, keys[0])
		take.Lease = "b"
		if d := apply(t, s, take)[0]; d.Allowed {
			t.Errorf("%s: twice the quota was admitted", text)
		}
		if ttl := c.PTTL(ctx, keys[0]).Val(); ttl <= 0 || ttl > reset+time.Millisecond {
			t.Errorf("%s: %v to live after it was persisted", text, ttl)
		}

		apply(t, s, core.Op{Verb: core.Reset, Rule: "r", Key: "k", Limit: limit(t, text)})
		if take.Limit.Leased() {
			if keys := keysOf(t, s, c); len(keys) != 0 {
				t.Errorf("%s: %q is left of a fresh key", text, keys)
			}
			continue
		}

		// What is left says which takes are void.
		text, ttl := c.Get(ctx, keys[0]).Val(), c.PTTL(ctx, keys[0]).Val()
		if text[0] != 'v' || ttl <= 0 || ttl > reset+time.Millisecond {
			t.Errorf("%s: %q is left for %v after a reset", take.Limit, text, ttl)
		}
		c.Del(ctx, keys[0])
	}
}

// A peek or a refusal writes nothing, also under another limit than that of the state. The
// server counts all changes of its data.
func TestPeeksAndRefusalsWriteNothing(t *testing.T) {
	t.Parallel()
	var now int64
	s, c := fresh(t, redistest.Start(t, "--save", "").Addr, Options{Clock: func() int64 { return now }})
	changes := func() string {
		return c.InfoMap(t.Context(), "persistence").Item("Persistence", "rdb_changes_since_last_save")
	}

	for _, text := range everyAlgorithm {
		// The first take of the quota writes, as the counter of changes has to show.
		now = 1_700_000_000_000_000
		take := core.Op{Rule: "r", Key: "k" + text, Limit: limit(t, text), Cost: 10, Lease: "a"}
		start := changes()
		if d := apply(t, s, take)[0]; !d.Allowed || changes() == start {
			t.Fatalf("%s: %+v, and %s changes", text, d, changes())
		}

		// A smaller limit than that of the state refuses too, and would write if it adapted the
		// state.
		other := limit(t, strings.Replace(text, "10", "5", 1))
		before := changes()

		for range 3 {
			now += 1e6
			for _, l := range []core.Limit{take.Limit, other} {
				op := take
				op.Limit, op.Lease, op.Cost = l, "b", 1+l.Quota/2
				for _, op.Verb = range []core.Verb{core.Take, core.Peek} {
					// With a key that is fresh, in one step.
					fresh := core.Op{Verb: op.Verb, Rule: "r", Key: "fresh", Limit: l, Cost: 1, Lease: "c"}
					if d := apply(t, s, op); d[0].Allowed {
						t.Errorf("%s under %s: %+v", text, l, d)
					}
					apply(t, s, op, fresh)
				}
			}
		}

		if got := changes(); got != before {
			t.Errorf("%s: %s changes, %s before", text, got, before)
		}
	}
}

// An unreadable state is an error, harms no other key, and expires.
func TestUnreadableStateIsAnErrorAndExpires(t *testing.T) {
	addr := redistest.Addr(t)

	// Keys of every type, and texts that look like numbers and are none.
	ctx := context.Background()
	garbage := map[string]func(c *redis.Client, key string) error{
		"a list": func(c *redis.Client, key string) error { return c.RPush(ctx, key, "x").Err() },
		"a hash": func(c *redis.Client, key string) error { return c.HSet(ctx, key, "a", "b").Err() },
		"a zset": func(c *redis.Client, key string) error { return c.ZAdd(ctx, key, redis.Z{Member: "m"}).Err() },
		"nan":    func(c *redis.Client, key string) error { return c.Set(ctx, key, "nan", 0).Err() },
		"-1 inf": func(c *redis.Client, key string) error { return c.Set(ctx, key, "-1 inf 0x10 1e308", 0).Err() },
		"zeros":  func(c *redis.Client, key string) error { return c.Set(ctx, key, "0 2 0 0 0", 0).Err() },
		"a stream": func(c *redis.Client, key string) error {
			return c.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
		},
	}

	for what, put := range garbage {
		for _, text := range everyAlgorithm {
			// The key's name is found by a good take, and then it gets the garbage.
			s, c := fresh(t, addr, Options{})
			bad := core.Op{Rule: "bad", Key: "k", Limit: limit(t, text), Cost: 1, Lease: "a"}
			good := core.Op{Rule: "good", Key: "k", Limit: limit(t, "10/1h fixed-window"), Cost: 1}
			apply(t, s, bad)
			key := keysOf(t, s, c)[0]
			c.Del(ctx, key)

			if err := put(c, key); err != nil {
				t.Fatal(err)
			}

			// Alone, and after an operation that could be granted.
			for _, ops := range [][]core.Op{{bad}, {good, bad}} {
				if err := s.Apply(ctx, inWindows(s, ops...), make([]core.Decision, 2)); !errors.Is(err, ErrUnreadable) {
					t.Errorf("%s under %s, %d operations: %v", what, text, len(ops), err)
				}
			}

			if ttl := c.PTTL(ctx, key).Val(); ttl <= 0 || ttl > time.Minute {
				t.Errorf("%s under %s stays for %v", what, text, ttl)
			}

			if d := apply(t, s, core.Op{Verb: core.Peek, Rule: "good", Key: "k",
				Limit: good.Limit})[0]; d.Remaining != 10 {
				t.Errorf("%s under %s: the other rule has %d left", what, text, d.Remaining)
			}
		}
	}
}

// A step in which one key cannot be read changes no other, whatever it does to it, and in
// whichever order.
func TestStepWithAnUnreadableKeyChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, now := context.Background(), storetest.Epoch
	s, c := fresh(t, redistest.Addr(t), Options{Clock: func() int64 { return now }})
	ban := &core.Ban{Strikes: 1, Within: time.Hour, For: time.Hour, Max: time.Hour}
	op := func(verb core.Verb, key string, cost int64) core.Op {
		return core.Op{Verb: verb, Rule: "r", Key: key, Limit: limit(t, "5/1h fixed-window"), Cost: cost, Ban: ban}
	}

	// The good key has units in use and credit, and each of these would change what it holds.
	grant := op(core.Grant, "good", 3)
	grant.CreditUntil = now + 3600e6
	apply(t, s, grant, op(core.Take, "good", 4))
	earlier := []core.Op{op(core.Debit, "good", 1), op(core.Refund, "good", 1), op(core.Reset, "good", 0),
		op(core.Impose, "good", 0), grant, op(core.Revoke, "good", 0), op(core.Take, "good", 1),
		op(core.Take, "good", 9), op(core.Take, "good", 5)}
	good, bad := op(core.Take, "good", 1), op(core.Take, "bad", 1)
	before := c.Get(ctx, keyOf(s, &good)).Val()

	for value, want := range map[string]error{"of another program": ErrUnreadable, "\xfe\x03": ErrFormat} {
		for _, each := range earlier {
			for _, ops := range [][]core.Op{{each, bad}, {bad, each}, {each, each, bad}, {bad, each, bad, each}} {
				c.Set(ctx, keyOf(s, &bad), value, time.Hour)

				// The steps before and after it in the call are not concerned.
				steps := []*step{{ops: []core.Op{op(core.Peek, "good", 1)}}, {ops: ops},
					{ops: []core.Op{op(core.Debit, "other", 1), op(core.Peek, "good", 1)}}}
				for _, each := range steps {
					each.out = make([]core.Decision, len(each.ops))
				}
				if err := s.dispatcher.decideTogether(ctx, steps); err != nil {
					t.Fatal(err)
				}

				if !errors.Is(steps[1].err, want) || errors.Join(steps[0].err, steps[2].err) != nil {
					t.Errorf("%v %d: %v, %v, %v", each.Verb, each.Cost, steps[0].err, steps[1].err, steps[2].err)
				}
				if d := steps[2].out[1]; d.Remaining != 4 || d.Banned || d.Credit != 3 {
					t.Errorf("%v %d: in the next step the other key is %+v", each.Verb, each.Cost, d)
				}
				if got := c.Get(ctx, keyOf(s, &good)).Val(); got != before {
					t.Fatalf("%v %d: the other key holds %q, and held %q", each.Verb, each.Cost, got, before)
				}
			}
		}
	}
}

// packed is a state of GCRA.
func packed(used, mark float64, text string) string {
	head := binary.BigEndian.AppendUint64(nil, math.Float64bits(used))
	return string(binary.BigEndian.AppendUint64(head, math.Float64bits(mark))) + text
}

// maxNumber is the highest number that a state holds.
const maxNumber = 1<<53 - 1

func TestPackedNumbersThatAreNoUnitsAreUnreadable(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	ctx := context.Background()
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "10/1h"), Cost: 1}
	apply(t, s, op)

	key := keysOf(t, s, c)[0]

	// Terms that are missing or cut off, and numbers that no count can be, in either place.
	states := []string{packed(1, 1, ""), packed(1, 1, "360000000 1"), packed(1, 1, "")[:15]}
	for _, n := range []float64{-1, 0.5, maxNumber + 1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		states = append(states, packed(n, 1, "360000000 1 9"), packed(1, n, "360000000 1 9"))
	}

	for _, state := range states {
		// One script reads a key alone, and another in a step.
		for _, ops := range [][]core.Op{{op}, {op, {Rule: "other", Key: "k", Limit: op.Limit, Cost: 1}}} {
			if err := c.Set(ctx, key, state, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			if err := s.Apply(ctx, ops, make([]core.Decision, len(ops))); !errors.Is(err, ErrUnreadable) {
				t.Errorf("%q, %d operations: %v", state, len(ops), err)
			}
		}
	}
}

// Numbers that no step wrote must not lock a key for longer than a full use.
func TestAbsurdNumbersDoNotLockAKey(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	ctx := context.Background()

	huge := strings.Repeat("9", 400)

	// Each state has the form of its algorithm, with numbers as large as it can hold.
	for text, states := range map[string][]string{
		"10/1h": {
			packed(5, maxNumber, "360000000 1 10"), packed(maxNumber, 1, "360000000 1 10"),
			packed(maxNumber, 1, "360000000 1 9"),
			packed(maxNumber, maxNumber, huge+" "+huge+" "+huge), packed(maxNumber, 1, "1 1 1 "+huge),
		},
		"10/1h fixed-window": {"10 " + huge, huge + " " + huge},
		"10/1h token-bucket": {huge + " " + huge + " 3600000000 10", huge + " " + huge + " 3600000000 10 " + huge,
			"10 1 " + huge + " 10 10 " + huge,
			"10 " + huge + " " + huge + " " + huge, huge + " " + huge + " " + huge + " " + huge + " " + huge},
		"10/1h sliding-window": {"360000000/10 " + huge + " " + huge,
			"360000000/9 " + huge + " 5;180000000/20 1 " + huge},
		"10/1h sliding-log": {seven(3600e6) + strings.Repeat("\xff", 70)},
	} {
		op := core.Op{Rule: "r", Key: "k", Limit: limit(t, text), Cost: 1}
		for _, state := range states {
			apply(t, s, core.Op{Verb: core.Reset, Rule: "r", Key: "k", Limit: op.Limit})
			apply(t, s, op)

			if err := c.Set(ctx, keyOf(s, &op), state, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}

			// Two periods and a unit more are the longest that a full use could refuse.
			d := apply(t, s, op)[0]
			if d.RetryAfter < 0 || d.RetryAfter > 2*time.Hour+6*time.Minute || d.Remaining < 0 || d.Remaining > 10 {
				t.Errorf("%s with %.40q: %+v", text, state, d)
			}
		}
	}
}

func TestScriptFlushedIsSentAgain(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})

	// Before every call the scripts are gone.
	for _, text := range everyAlgorithm {
		admitted := 0
		for i := range 20 {
			if err := c.ScriptFlush(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}

			op := core.Op{Rule: text[3:5], Key: text, Limit: limit(t, text), Cost: 1, Lease: string(rune('a' + i))}
			if apply(t, s, op)[0].Allowed {
				admitted++
			}
		}

		if admitted != 10 {
			t.Errorf("%s: %d admitted", text, admitted)
		}
	}
}

// The bytes of a state after as many takes as the quota, evenly over half of the period:
// 7 for each unit of a log, 23 for each lease and 7 once for both, and a number for each segment of
// a sliding window that holds units. The server adds the key and its own bookkeeping, which
// differs by version and so is not tested: with a key of 30 bytes, used_memory grows by
// some 175 bytes for a short state in Redis 7.0, and MEMORY USAGE says 120 of them.
func TestStatesAreSmall(t *testing.T) {
	var now int64
	s, c := fresh(t, redistest.Addr(t), Options{Clock: func() int64 { return now }})

	// A short state has a few numbers in text or bytes, of known lengths.
	for text, want := range map[string]int64{
		"100/1m": 28, "100/1m fixed-window": 31, "100/1m sliding-window": 34, "100/1m token-bucket": 37,
		"1000/1h sliding-log": 7 + 7*1000, "20 concurrent ttl=1m": 7 + 23*20,
		"720/1h sliding-window segments=60": 112,
	} {
		now = 1_700_000_000_000_000
		l := limit(t, text)

		op := core.Op{Rule: "per-ip", Key: text, Limit: l, Cost: 1}

		// Even takes over half of the period leave every record in force.
		for i := range l.Quota {
			op.Lease = fmt.Sprint("lease", i)
			apply(t, s, op)
			now += l.Period.Microseconds() / l.Quota / 2
		}

		key := string(s.wire.key(nil, op.Key, op.Rule, l.Algorithm.Letter()))
		if n, err := c.StrLen(context.Background(), key).Result(); n != want || err != nil {
			t.Errorf("%s: %d bytes, want %d, %v", text, n, want, err)
		}
	}
}

// More limits than are remembered, and many that share a place.
func TestTermsDifferByLimit(t *testing.T) {
	var k limits

	// In the second round most limits are remembered, and those beyond the bound are made again.
	for range 2 {
		for quota := range int64(maxLimits + 100) {
			op := core.Op{Limit: core.Limit{Algorithm: core.FixedWindow, Quota: quota + 1, Period: time.Second}}

			got, err := k.termsOf(&op)
			if want := fmt.Sprintf("1000000 %d 0", quota+1); err != nil || got.text != want {
				t.Fatalf("%s: %v, %v, want %s", op.Limit, got, err, want)
			}
		}
	}

	if n := k.size.Load(); n != maxLimits {
		t.Errorf("%d limits are remembered", n)
	}

	if _, err := k.termsOf(&core.Op{Limit: core.Limit{Quota: 1}}); !errors.Is(err, core.ErrOp) {
		t.Errorf("a limit without a period: %v", err)
	}
}

// States as older versions of the scripts have written them count on.
func TestStateOfAnOlderVersionIsRead(t *testing.T) {
	t.Parallel()
	const now = 1_700_000_000_000_000
	s, c := fresh(t, redistest.Addr(t), Options{Clock: func() int64 { return now }})

	// Instants of seven bytes, as logs and leases have them, and two numbers, as GCRA has.
	seven := func(n int64) string {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		return string(b[1:])
	}
	pair := func(used, mark float64) string {
		b := binary.BigEndian.AppendUint64(nil, math.Float64bits(used))
		return string(binary.BigEndian.AppendUint64(b, math.Float64bits(mark)))
	}

	for _, row := range []struct {
		limit, text string
		remaining   int64
		reset       time.Duration
	}{
		// The same numbers under the limit that wrote them, and under another that has more room or
		// a longer period.
		{"5/5s", pair(3, now-1) + "1000000 1 5", 2, 3*time.Second - time.Microsecond},
		{"5/10s burst=7", pair(3, now) + "1000000 1 5", 4, 3 * time.Second},
		{"5/10s fixed-window", fmt.Sprintf("3 %d", int64(now+4_000_000)), 2, 4 * time.Second},
		{"5/10s fixed-window aligned", fmt.Sprintf("3 %d", int64(now+40_000_000)), 2, 10 * time.Second},
		{"5/10s token-bucket", fmt.Sprintf("3 %d 10000000 5", int64(now-1_000_000)), 2, 9 * time.Second},
		{"5/10s sliding-log", seven(now-9_000_000) + seven(now-1_000_000), 3, 9 * time.Second},
		{"5/10s sliding-window", fmt.Sprintf("1000000 %d 2 1", int64(now/1_000_000)), 2, 11 * time.Second},
		{"5/day", fmt.Sprintf("3 %d %d", int64(now-9_000_000), int64(now+4_000_000)), 2, 4 * time.Second},
		{"5 concurrent ttl=10s", seven(now+3_000_000) + string(leaseID("a")), 4, 3 * time.Second},
	} {
		op := core.Op{Verb: core.Peek, Rule: "r", Key: row.limit, Limit: limit(t, row.limit)}
		if err := c.Set(t.Context(), keyOf(s, &op), row.text, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}

		var out [1]core.Decision
		if err := s.Apply(t.Context(), inWindows(s, op), out[:]); err != nil ||
			out[0].Remaining != row.remaining || out[0].ResetAfter != row.reset {
			t.Errorf("%s: %q is read as %+v, %v; want %d remaining, fresh in %v", row.limit, row.text, out[0],
				err, row.remaining, row.reset)
		}
	}
}
