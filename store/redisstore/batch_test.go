package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
)

// twins are two stores with the same keys under different prefixes: one gets
// steps together, the other one after the other.
type twins struct {
	t        testing.TB
	c        *redis.Client
	together *Store
	apart    *Store
	clock    *storetest.Clock
	r        *rand.Rand
	limits   [][]core.Limit // of each rule, those that it changes between
	bans     []*core.Ban    // of each rule
	takes    []taken
	named    []int64
	late     time.Duration // how much later than one store the other may have written a key
}

type taken struct {
	op core.Op
	d  core.Decision
}

func newTwins(t testing.TB, c *redis.Client, seed, n uint64) *twins {
	w := &twins{t: t, c: c, clock: storetest.NewClock(), r: rand.New(rand.NewPCG(seed, n))}

	o := Options{Timeout: patient, Clock: w.clock.Now}
	o.Prefix = redistest.Prefix(t)
	w.together = MustNew(c, o)
	o.Prefix = redistest.Prefix(t)
	w.apart = MustNew(c, o)

	// Limits of one algorithm, with different numbers: steps of a row may differ in them.
	families := [][]string{
		{"4/8s", "6/3s burst=9", "3/5s"}, {"3/7s burst=5", "7/1s", "3/5s burst=5"}, {"60/1s", "60/1s burst=7"},
		{"2/3s fixed-window", "5/7s fixed-window aligned"},
		{"5/7s sliding-log", "8/3s sliding-log"}, {"4/4s sliding-window segments=4", "9/4s sliding-window segments=8"},
		{"4/10s token-bucket burst=9", "7/1s token-bucket burst=3"}, {"2 concurrent ttl=3s", "5 concurrent ttl=30s"},
		{"5/day", "7/week", "3/day tz=Asia/Kolkata"}, // the clock starts at midnight in UTC
	}

	for i := range 1 + w.r.IntN(4) {
		texts := pick(w.r, families)
		if i < 2 && n%2 == 0 { // most limits are of this kind, and only its takes are in rows
			texts = families[0]
		}
		var family []core.Limit
		for _, text := range texts {
			family = append(family, limit(t, text))
		}
		w.limits = append(w.limits, family)

		// Strikes after each refusal and after each second one, both forgotten within the clock's
		// moves.
		bans := []*core.Ban{nil}
		if !family[0].Leased() {
			bans = append(bans, &core.Ban{Strikes: 1, Within: time.Second, For: 2 * time.Second, Max: 7 * time.Second},
				&core.Ban{Strikes: 2, Within: 3 * time.Second, For: time.Second, Max: time.Minute})
		}
		w.bans = append(w.bans, pick(w.r, bans))
	}
	return w
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// move sets the clock to the same instant, a later one, one that a decision
// has named, or an earlier one.
func (w *twins) move() {
	switch n := w.r.IntN(10); {
	case n < 4 && len(w.named) > 0:
		w.clock.Set(pick(w.r, w.named) + int64(w.r.IntN(3)-1))
	case n < 7:
		w.clock.Add(time.Duration(w.r.IntN(3_000_000)) * time.Microsecond)
	case n == 9:
		w.clock.Add(-pick(w.r, []time.Duration{time.Microsecond, time.Second, time.Minute}))
	}
}

// steps makes up a batch: steps of all kinds, or most of one kind for several callers.
func (w *twins) steps() []*step {
	of := w.chosen()
	if w.r.IntN(2) == 0 {
		return w.alike(of)
	}
	var steps []*step
	for range 2 + w.r.IntN(8) {
		steps = append(steps, w.step(of))
		of = w.chosen()
	}
	return steps
}

// chosen returns one of the limits of each rule.
func (w *twins) chosen() []core.Limit {
	of := make([]core.Limit, len(w.limits))
	for i := range of {
		of[i] = pick(w.r, w.limits[i])
	}
	return of
}

func (w *twins) step(of []core.Limit) *step {
	var ops []core.Op
	for range pick(w.r, []int{1, 1, 1, 2, 3, 4}) {
		ops = append(ops, w.op(of))
	}
	if w.r.IntN(5) == 0 {
		test.ShareUnits(ops)
	}
	return newStep(ops)
}

func newStep(ops []core.Op) *step { return &step{ops: ops, out: make([]core.Decision, len(ops))} }

// alike makes up steps that take 1 under the same rules, for one caller each, and
// now and then another in between.
func (w *twins) alike(of []core.Limit) []*step {
	rules := w.r.Perm(len(of))[:1+w.r.IntN(len(of))]
	var steps []*step
	for _, caller := range w.r.Perm(7) {
		var ops []core.Op
		for _, i := range rules {
			ops = append(ops, core.Op{Rule: fmt.Sprintf("r%d", i), Key: string(rune('a' + caller)),
				Limit: of[i], Windows: of[i].Windows(w.clock.Now()), Cost: 1, Lease: "u", Ban: w.bans[i]})
		}
		steps = append(steps, newStep(ops))

		// A step of another kind breaks the row.
		if w.r.IntN(8) == 0 {
			steps = append(steps, w.step(of))
		}
	}
	return steps
}

// op makes up an operation under one of the limits, of which there is one for
// each rule.
func (w *twins) op(of []core.Limit) core.Op {
	i := w.r.IntN(len(of))

	l := of[i]
	op := core.Op{
		Rule: fmt.Sprintf("r%d", i), Key: pick(w.r, []string{"a", "a", "b", "c"}), Limit: l,
		Lease: pick(w.r, []string{"u", "v", "w"}),
		Cost:  pick(w.r, []int64{0, 1, 1, 1, 1, 1, 2, l.Capacity(), l.Capacity() + 1}), Soft: w.r.IntN(5) == 0,
	}

	op.Windows = l.Windows(w.clock.Now())

	// Now and then a rule of a ban is asked without it.
	if w.r.IntN(6) > 0 {
		op.Ban = w.bans[i]
	}

	switch n := w.r.IntN(20); {
	case n < 14:
		op.MaxWait = pick(w.r, []time.Duration{0, 0, 0, time.Second, core.MaxBooking})
	case n < 16:
		op.Verb, op.MaxWait = core.Peek, pick(w.r, []time.Duration{0, time.Second})
	case n < 19:
		op.Verb = core.Refund
		w.undo(&op)
	default:
		// Without a ban there is nothing to lift or impose.
		op.Verb = pick(w.r, []core.Verb{core.Reset, core.Lift, core.Impose})
		if op.Ban == nil {
			op.Verb = core.Reset
		}
	}
	return op
}

// undo has most refunds name a take of the same rule.
func (w *twins) undo(op *core.Op) {
	for range 5 {
		if len(w.takes) == 0 {
			return
		}
		last := w.takes[max(0, len(w.takes)-1-w.r.IntN(8))]
		if last.op.Rule == op.Rule && last.op.Limit.Algorithm == op.Limit.Algorithm {
			op.Key, op.Lease, op.Cost = last.op.Key, last.op.Lease, last.op.Cost
			op.At, op.ResetAfter = last.d.At, last.d.ResetAfter
			return
		}
	}
}

// spoil makes a key of both unreadable, or readable again.
func (w *twins) spoil() {
	ctx, i := context.Background(), w.r.IntN(len(w.limits))
	op := w.op([]core.Limit{w.limits[i][0]})

	op.Rule = fmt.Sprintf("r%d", i)

	// A text that is no state, a list, or nothing.
	how := w.r.IntN(3)

	for _, s := range []*Store{w.together, w.apart} {
		key := keyOf(s, &op)
		w.c.Del(ctx, key)
		switch how {
		case 0:
			w.c.Set(ctx, key, "-1 inf 0x10", 0)
		case 1:
			w.c.RPush(ctx, key, "x")
		}
	}
}

// play has both stores carry out a batch and returns how they differ, or "".
func (w *twins) play(steps []*step) string {
	ctx, begun := context.Background(), time.Now()

	// Apart, the steps go first, one at a time.
	apart := make([]*step, len(steps))
	for i, each := range steps {
		apart[i] = newStep(each.ops)
		if err := w.apart.dispatcher.decideTogether(ctx, apart[i:i+1]); err != nil {
			w.t.Fatal(err)
		}
		w.learn(apart[i])
	}

	if err := w.together.dispatcher.decideTogether(ctx, steps); err != nil {
		return err.Error()
	}

	// Each step has to fail or succeed alike, with the same answers.
	for i, each := range steps {
		if errors.Is(each.err, ErrUnreadable) != errors.Is(apart[i].err, ErrUnreadable) {
			return fmt.Sprintf("step %d: %v, not %v", i, each.err, apart[i].err)
		}
		if each.err == nil && !slices.Equal(each.out, apart[i].out) {
			return fmt.Sprintf("step %d: %+v\nanswered %+v\nnot      %+v", i, each.ops, each.out, apart[i].out)
		}
	}

	w.late = max(w.late, time.Since(begun))
	return w.stored(steps)
}

// moved bounds by how much a key's time to live may differ because only one store
// has written the key again, unchanged, after the clock of the test had moved.
const moved = 10 * time.Second

// stored compares what both stores keep of the keys of the steps.
func (w *twins) stored(steps []*step) string {
	ctx := context.Background()

	type kept struct {
		key  string
		text *redis.StringCmd
		left *redis.DurationCmd
	}

	seen, all, pipe := map[string]bool{}, []kept(nil), w.c.Pipeline()
	for _, each := range steps {
		for i := range each.ops {
			for _, s := range []*Store{w.together, w.apart} {
				if key := keyOf(s, &each.ops[i]); !seen[key] {
					seen[key] = true
					all = append(all, kept{key, pipe.Get(ctx, key), pipe.PTTL(ctx, key)})
				}
			}
		}
	}

	// The times to live are compared as of one instant, up to the time that the calls took.
	asked := time.Now()
	_, _ = pipe.Exec(ctx) // each command has its error
	late := w.late + time.Since(asked)

	for ; len(all) != 0; all = all[2:] {
		a, b := all[0], all[1]
		if x, y := a.text, b.text; x.Val() != y.Val() || (x.Err() == nil) != (y.Err() == nil) {
			return fmt.Sprintf("%s is %q, %v, not %q, %v", a.key, x.Val(), x.Err(), y.Val(), y.Err())
		}
		x, y := a.left.Val(), b.left.Val()
		if strings.HasPrefix(a.text.Val(), "b") {
			x = min(x, y) // a key with strikes may live longer where steps are together
		}

		if (x-y).Abs() > late+moved || x == -1 {
			return fmt.Sprintf("%s lives for %v, not %v, %v later", a.key, x, y, late)
		}
	}
	return ""
}

func (w *twins) learn(s *step) {
	if s.err != nil {
		return
	}
	for i, d := range s.out {
		if s.ops[i].Verb == core.Take && d.Allowed {
			w.takes = append(w.takes, taken{s.ops[i], d})
		}

		// Instants that decisions name are where something changes, so the clock goes there.
		for _, span := range []time.Duration{d.RetryAfter, d.ResetAfter, d.Wait} {
			if span > 0 && span < time.Hour {
				w.named = append(w.named, d.At+span.Microseconds())
			}
		}
	}
	w.named = w.named[max(0, len(w.named)-12):]
}

func keyOf(s *Store, op *core.Op) string {
	return string(s.wire.key(nil, op.Key, op.Rule, op.Limit.Algorithm.Letter()))
}

// difference plays the histories of batches with the numbers from first to last-1, and
// returns how the stores differ, or "". change, if not nil, may alter the store that gets
// steps together.
func difference(t testing.TB, c *redis.Client, first, last int, change func(*Store)) string {
	for n := first; n < last; n++ {
		// Each history is made by its number alone, so that one that fails can be played again.
		w := newTwins(t, c, storetest.Seed, uint64(n))
		if change != nil {
			change(w.together)
		}

		for range 12 {
			w.move()
			if w.r.IntN(8) == 0 {
				w.spoil()
			}
			if found := w.play(w.steps()); found != "" {
				return fmt.Sprintf("history %d: %s", n, found)
			}
		}
	}
	return ""
}

// batches wants no [difference] over a fifth of the histories, or a fiftieth under go
// test -short, and over the others too if HEADGATE_LONG is 1.
func batches(t *testing.T, c *redis.Client, histories int, change func(*Store)) {
	t.Helper()

	// Some histories run each time, and all of them on demand.
	some := histories / 5
	if testing.Short() {
		some = max(1, histories/50)
	}

	if found := difference(t, c, 0, some, change); found != "" {
		t.Error(found)
	}
	t.Run("the other histories", func(t *testing.T) {
		test.Long(t, fmt.Sprint("it plays ", histories, " histories of batches"))
		if found := difference(t, c, some, histories, change); found != "" {
			t.Error(found)
		}
	})
}

func TestBatchDecidesStepsInSequence(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		batches(t, connect(t, mini(t).Addr()), 30, nil)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		batches(t, connect(t, redistest.Addr(t)), 150, nil)
	})
}

// scripts returns the files of the scripts, to be altered.
func scripts(t testing.TB) fstest.MapFS {
	t.Helper()

	paths, err := filepath.Glob("../../lua/*.lua")
	if err != nil {
		t.Fatal(err)
	}

	all := fstest.MapFS{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = &fstest.MapFile{Data: text}
	}
	return all
}

func TestBatchUnreadableKeyFailsOnlyItsStep(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})

	good := core.Op{Rule: "r", Key: "good", Limit: limit(t, "10/1h fixed-window"), Cost: 1}
	bad := good
	bad.Key = "bad"
	c.RPush(context.Background(), keyOf(s, &bad), "x")

	// The list is alone, beside good keys, and in one step with a good one.
	steps := make([]*step, 5)
	for i, ops := range [][]core.Op{{good}, {bad}, {good, bad}, {good}, {bad}} {
		steps[i] = &step{ops: ops, out: make([]core.Decision, len(ops))}
	}

	if err := s.dispatcher.decideTogether(context.Background(), steps); err != nil {
		t.Fatal(err)
	}
	for i, wantErr := range []bool{false, true, true, false, true} {
		if errors.Is(steps[i].err, ErrUnreadable) != wantErr {
			t.Errorf("step %d: %v", i, steps[i].err)
		}
	}

	// The step that failed took nothing of the good key: two of 10 are used.
	if d := steps[3].out[0]; !d.Allowed || d.Remaining != 8 {
		t.Errorf("beside an unreadable key: %+v", d)
	}
}

// Places of keys take more than one byte.
func TestBatchMayHoldMoreThan256Keys(t *testing.T) {
	s, _ := fresh(t, redistest.Addr(t), Options{})
	var steps []*step

	// Two steps for each of 350 keys, so that a place in the call is not that of a key.
	for i := range 700 {
		l := limit(t, fmt.Sprintf("%d/1h fixed-window", 10+i/2))
		op := core.Op{Rule: "r", Key: fmt.Sprint(i / 2), Limit: l, Cost: 1}
		steps = append(steps, &step{ops: []core.Op{op}, out: make([]core.Decision, 1)})
	}

	if err := s.dispatcher.decideTogether(context.Background(), steps); err != nil {
		t.Fatal(err)
	}

	// The second step of each key follows the first.
	for i, each := range steps {
		if want := int64(10 + i/2 - 1 - i%2); each.err != nil || each.out[0].Remaining != want {
			t.Fatalf("step %d: %+v, %v, want %d left", i, each.out[0], each.err, want)
		}
	}
}

func TestBatchDecidesNothingAfterTheEnd(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "10/1h"), Cost: 1}
	steps := []*step{{ops: []core.Op{op}, out: make([]core.Decision, 1)},
		{ops: []core.Op{op}, out: make([]core.Decision, 1)}}
	if err := s.dispatcher.decideTogether(ctx, steps); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if keys := keysOf(t, s, c); len(keys) != 0 {
		t.Errorf("%s was written", strings.Join(keys, ", "))
	}
}

func TestBatchAdmitsExactlyTheQuota(t *testing.T) {
	s, _ := fresh(t, redistest.Addr(t), Options{})

	// 1000 callers of 37 units.
	for _, text := range everyAlgorithm {
		l := limit(t, strings.Replace(text, "10", "37", 1))
		var admitted atomic.Int64
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				out := make([]core.Decision, 1)
				op := core.Op{Rule: "r", Key: text, Limit: l, Cost: 1, Lease: fmt.Sprint(i)}
				if err := s.Apply(context.Background(), inWindows(s, op), out); err != nil {
					t.Error(err)
				}
				if out[0].Allowed {
					admitted.Add(1)
				}
			})
		}

		all.Wait()
		if admitted.Load() != 37 {
			t.Errorf("%s: %d admitted", l, admitted.Load())
		}
	}
}

// Two calls are under way when the server freezes. Callers that come then, too few
// to fill another, have left when the calls end, and their steps are never sent.
func TestBatchSendsNothingForCallersThatLeft(t *testing.T) {
	server := redistest.Start(t)
	c := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, ReadTimeout: patient})
	defer c.Close()
	s := MustNew(c, Options{Timeout: patient})

	hour := limit(t, "1000/1h fixed-window")
	take := func(ctx context.Context, key string) error {
		return s.Apply(ctx, []core.Op{{Rule: "r", Key: key, Limit: hour, Cost: 1}}, make([]core.Decision, 1))
	}
	ctx := context.Background()

	// One call before the freeze makes the connection and loads the scripts.
	if err := take(ctx, "warm"); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	defer server.Thaw()

	var underWay, late sync.WaitGroup

	// As many calls as may be under way.
	for range maxBatches {
		underWay.Go(func() {
			if err := take(ctx, "under way"); err != nil {
				t.Error(err)
			}
		})
	}
	awaitBatches(t, s)

	// One too few for another full call.
	for i := range DefaultBatch - 1 {
		late.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
			if err := take(ctx, fmt.Sprint("late ", i)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}

	late.Wait()
	server.Thaw()
	underWay.Wait()

	// None of those that left was charged, and each of the others once.
	if keys := c.Keys(ctx, "hg:{late*").Val(); len(keys) != 0 {
		t.Errorf("%d callers that had left were charged", len(keys))
	}

	op := core.Op{Verb: core.Peek, Rule: "r", Key: "under way", Limit: hour}
	if d := apply(t, s, op)[0]; d.Remaining != 1000-maxBatches {
		t.Errorf("%d remain of 1000 after %d calls", d.Remaining, maxBatches)
	}
}

// awaitBatches waits until as many calls are under way as may be.
func awaitBatches(t *testing.T, s *Store) {
	t.Helper()

	deadline, tick := time.After(patient), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		// The store's own number of calls that are under way.
		s.dispatcher.queue.mu.Lock()
		n := s.dispatcher.queue.whole.batches
		s.dispatcher.queue.mu.Unlock()
		if n == maxBatches {
			return
		}

		select {
		case <-deadline:
			t.Fatalf("%d calls under way", n)
		case <-tick.C:
		}
	}
}

// Replies are lost while many wait: each of them was counted at most once.
func TestBatchLostRepliesCountOnce(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	r := newRelay(t, addr)

	s, _ := fresh(t, r.addr, Options{})
	direct := connect(t, addr)
	l := limit(t, "10/1h fixed-window")

	// The scripts are known and the connections open, so that only replies are lost.
	apply(t, s, core.Op{Rule: "r", Key: "warm", Limit: l, Cost: 1})
	r.mute.Store(true)

	var all sync.WaitGroup
	const callers = 300
	for i := range callers {
		all.Go(func() {
			op := core.Op{Rule: "r", Key: fmt.Sprint(i), Limit: l, Cost: 1}
			if err := s.Apply(context.Background(), []core.Op{op}, make([]core.Decision, 1)); err == nil {
				t.Error("a decision without a reply")
			}
		})
	}

	all.Wait()
	r.mute.Store(false)
	reader := MustNew(direct, Options{Prefix: s.wire.prefix, Timeout: patient})

	// Each is counted once or not at all. Some were counted, or the relay swallowed the calls.
	counted := 0
	for i := range callers {
		remaining := apply(t, reader, core.Op{Verb: core.Peek, Rule: "r", Key: fmt.Sprint(i), Limit: l})[0].Remaining
		if remaining < 9 {
			t.Errorf("caller %d was counted %d times", i, 10-remaining)
		}
		counted += int(10 - remaining)
	}

	if counted == 0 {
		t.Error("nothing was sent: no reply was lost")
	}
}

func TestBatchFlushedScriptsCostNoDecision(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	l := limit(t, "1000/1h fixed-window")

	// The scripts are flushed as fast as the server can.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				c.ScriptFlush(context.Background())
			}
		}
	}()

	var admitted atomic.Int64
	var all sync.WaitGroup

	// 2000 takes of 1000 units.
	for range 100 {
		all.Go(func() {
			out := make([]core.Decision, 1)
			for range 20 {
				if err := s.Apply(context.Background(), []core.Op{{Rule: "r", Key: "k", Limit: l, Cost: 1}},
					out); err != nil {
					t.Error(err)
				}
				if out[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}

	all.Wait()
	close(stop)
	<-stopped
	if admitted.Load() != 1000 {
		t.Errorf("%d admitted", admitted.Load())
	}
}

// Callers come and go in the middle of batches, under clients that heed
// deadlines and clients that do not. Callers that stay get the answers about
// their own keys, and the others reuse their memory at once.
func TestBatchCallersThatLeaveHarmNoOther(t *testing.T) {
	addr := redistest.Addr(t)
	for _, heeds := range []bool{true, false} {
		c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: heeds})
		s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient})
		var all sync.WaitGroup

		var gone atomic.Int64
		for i := range 200 {
			all.Go(func() {
				// Each caller has a quota of its own, by which its answers are known.
				quota := int64(10_000 + i)
				ops, out := make([]core.Op, 1), make([]core.Decision, 1)
				key := fmt.Appendf(nil, "caller %03d", i)
				taken := int64(0)

				// Every third caller has up to 1.5ms and leaves in between.
				for n := range 30 {
					ctx, cancel := context.WithTimeout(context.Background(), patient)
					if i%3 == 0 {
						ctx, cancel = context.WithTimeout(context.Background(), time.Duration(n)*50*time.Microsecond)
					}

					key[0] = 'c'
					ops[0] = core.Op{Rule: "r", Key: unsafe.String(&key[0], len(key)),
						Limit: core.Limit{Algorithm: core.FixedWindow, Quota: quota, Period: time.Hour}, Cost: 1}
					err := s.Apply(ctx, ops, out)

					cancel()
					key[0] = 'x' // as a framework does whose strings end with the request
					taken++
					// An answer for a caller that stays is exact. One that leaves may have been
					// counted without being answered.
					switch {
					case err != nil && i%3 != 0:
						t.Error(err)
					case err != nil:
						gone.Add(1)
						ops[0], out[0] = core.Op{}, core.Decision{}
					case i%3 != 0 && out[0].Remaining != quota-taken, out[0].Remaining < quota-taken,
						out[0].Remaining >= quota:
						t.Errorf("caller %d: %+v after %d", i, out[0], taken)
					}
				}
			})
		}

		all.Wait()
		if gone.Load() == 0 {
			t.Error("no caller left")
		}
		c.Close()
	}
}
