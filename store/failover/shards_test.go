package failover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// parted is a primary of several shards. A key is on the shard that its text names
// before a colon, unless it has moved.
type parted struct {
	*fake
	unnamed bool // errors of steps on several shards do not name one

	mu    sync.Mutex
	moved map[string]string
	away  map[string]func(context.Context) error
}

func newParted() *parted {
	return &parted{fake: newFake(), moved: map[string]string{}, away: map[string]func(context.Context) error{}}
}

func (p *parted) Shards() func(key string) string { return p.shard }

func (p *parted) shard(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	shard, _, _ := strings.Cut(key, ":")
	if to, ok := p.moved[key]; ok {
		return to
	}
	return shard
}

// named is the error of a shard.
type named struct {
	error
	shard string
}

func (n named) Shard() string { return n.shard }
func (n named) Unwrap() error { return n.error }

func (p *parted) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	// A step fails as a whole if one of its shards is away, and the error names that shard if
	// several are concerned.
	several := slices.ContainsFunc(ops, func(op core.Op) bool { return p.shard(op.Key) != p.shard(ops[0].Key) })
	for i := range ops {
		shard := p.shard(ops[i].Key)
		p.mu.Lock()
		health := p.away[shard]
		p.mu.Unlock()
		if health == nil {
			continue
		}

		if err := health(ctx); err != nil {
			p.fake.mu.Lock()
			p.calls = append(p.calls, call{time.Since(p.start), slices.Clone(ops)})
			p.fake.mu.Unlock()
			if several && !p.unnamed {
				return named{err, shard}
			}
			return err
		}
	}

	return p.fake.Apply(ctx, ops, out)
}

// lose makes shards fail as f does.
func (p *parted) lose(f func(context.Context) error, shards ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, shard := range shards {
		p.away[shard] = f
	}
}

func (p *parted) find(shards ...string) { p.lose(nil, shards...) }

// move takes a key to another shard.
func (p *parted) move(key, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved[key] = to
}

func downNow(context.Context) error { return errDown }

// bypass opens the breakers of shards at once.
func bypass(t testing.TB, s *Store, p *parted, shards ...string) {
	t.Helper()
	p.lose(downNow, shards...)
	for _, shard := range shards {
		for range DefaultFailures {
			_, _ = try(s, take(t, shard+":opener", "1000/1s", 1))
		}
	}
	wantAway(t, s, shards...)
	p.seen()
}

func wantAway(t testing.TB, s *Store, shards ...string) {
	t.Helper()
	state := Closed
	if len(shards) > 0 {
		state = Open
	}
	if got := s.Stats(); !slices.Equal(got.Away, shards) || got.State != state || s.State() != state {
		t.Errorf("%q are away, and the state is %s, want %q", got.Away, got.State, shards)
	}
}

// The primary decides every request of the other shards: none is decided by the
// fallback, and each unit is counted once.
func TestShardAwayLeavesTheOthersToThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()

		a, b := take(t, "a:k", "2000/1h fixed-window", 1), take(t, "b:k", "2000/1h fixed-window", 1)

		// One of two shards is away for a thousand requests to each.
		p.lose(downNow, "a")
		for i := range 1000 {
			if d := one(t, s, a); !d.Fallback || d.Remaining != int64(1999-i) {
				t.Fatalf("a: %+v", d)
			}
			if d := one(t, s, b); d.Fallback || d.Remaining != int64(1999-i) {
				t.Fatalf("b: %+v", d)
			}
		}

		want := Stats{State: Open, Away: []string{"a"}, Opened: 1, Local: 1000}
		if got := s.Stats(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v", got)
		}

		// The lost shard was asked until its breaker opened, and never after.
		if got := len(p.seen()); got != 1000+DefaultFailures {
			t.Errorf("%d calls", got)
		}

		if got := s.Cause(); !errors.Is(got, core.ErrFallback) || !errors.Is(got, errDown) ||
			got.Error() != "the fallback of the store decides at a: down" {
			t.Errorf("%v", got)
		}
	})
}

func TestShardIsInUseAfterFourProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()

		a := take(t, "a:k", "2000/1h fixed-window", 1)

		// The breaker of the shard opens, and the shard is back at once.
		p.lose(downNow, "a")
		for range DefaultFailures {
			one(t, s, a)
		}

		p.seen()
		p.find("a")

		// The fourth probe is answered at 400 ms.
		time.Sleep(400*ms - 1)
		wantAway(t, s, "a")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAway(t, s)

		if d := one(t, s, a); d.Fallback || d.Remaining != 1999 {
			t.Errorf("after the return: %+v", d)
		}

		// The probes were sent to the shard, and nowhere else.
		for _, c := range p.seen()[:4] {
			if len(c.ops) != 1 || c.ops[0].Key != "a:k" || c.ops[0].Rule != probeRule {
				t.Errorf("a probe is %+v", c.ops)
			}
		}
	})
}

func TestShardIsNamedInReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		var reported []string
		p := newParted()
		s := over(t, p, Options{
			Logger:   slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
			OnChange: func(shard string, state State) { reported = append(reported, shard+" "+state.String()) },
		})
		defer s.Close()

		// Errors, lines and OnChange name the shard.
		bypass(t, s, p, "a")
		_, err := try(s, take(t, "a:k", "5/1s", 1))
		if !errors.Is(err, ErrOpen) || err.Error() != "failover: the primary store is bypassed at a: down" ||
			errors.Is(err, errDown) {
			t.Errorf("%v", err)
		}

		p.find("a")
		time.Sleep(time.Second)
		synctest.Wait()

		want := `level=WARN msg="headgate: a shard of the primary store fails and is bypassed: OnStoreError decides about requests until it answers again" shard=a fallback=false error=down` + "\n" +
			`level=INFO msg="headgate: a shard of the primary store decides again" shard=a` + "\n"
		if text.String() != want {
			t.Errorf("got\n%swant\n%s", text.String(), want)
		}

		if got := fmt.Sprint(reported); got != "[a open a closed]" {
			t.Errorf("OnChange was called with %s", got)
		}
	})
}

// The cause is that of the shard for which the fallback decided last.
func TestCauseIsOfTheShardThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()

		// Both shards are away, and the latest decision is about b.
		bypass(t, s, p, "a")
		p.lose(downNow, "b")
		one(t, s, take(t, "b:k", "5/1s", 1))
		if got := s.Cause().Error(); !strings.Contains(got, " at b: ") {
			t.Error(got)
		}

		one(t, s, take(t, "a:k", "5/1s", 1))
		if got := s.Cause().Error(); !strings.Contains(got, " at a: ") {
			t.Error(got)
		}
	})
}

// A key that moves, or whose shard is replaced, is decided by the primary at once, and
// the breaker of its old shard closes with the next probe, which is not sent.
func TestShardThatMovedIsNotBypassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()

		// The key by which a was found to be away now lies with c.
		bypass(t, s, p, "a")
		p.move("a:opener", "c")
		if d := one(t, s, take(t, "a:opener", "1000/1s", 1)); d.Fallback {
			t.Error("the fallback decided")
		}

		// Other keys of a are still bypassed.
		if d := one(t, s, take(t, "a:k", "1000/1s", 1)); !d.Fallback {
			t.Error("the primary decided")
		}
		wantAway(t, s, "a")

		// The next probe would go to the wrong shard, so it is not sent and the breaker closes.
		time.Sleep(100 * ms)
		synctest.Wait()
		wantAway(t, s)

		if got := s.Stats().Probes; got != 0 {
			t.Errorf("%d probes", got)
		}

		// The shard is still away, and a key that did not move finds that out with one failure.
		one(t, s, take(t, "a:k", "1000/1s", 1)) // whose shard is still away
		wantAway(t, s, "a")

		time.Sleep(time.Second)
		synctest.Wait()

		if got := s.Stats().Probes; got != 10 {
			t.Errorf("%d probes", got)
		}
	})
}

// A step on several shards is decided by the fallback if one of them is away. Its errors
// count against the one that they name, and its probe leaves out the others.
func TestStepOnSeveralShards(t *testing.T) {
	for _, unnamed := range []bool{false, true} {
		t.Run(fmt.Sprint(unnamed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newParted()
				p.unnamed = unnamed
				s := over(t, p, Options{Fallback: memory()})
				defer s.Close()

				// Two keys of the step are of the shard that will fail.
				step := []core.Op{take(t, "b:k", "100/1h", 1), take(t, "a:k", "100/1h", 1),
					take(t, "c:k", "100/1h", 1), take(t, "a:q", "100/1h", 1)}
				p.lose(downNow, "a")

				// The step is decided as a whole, each time.
				for range 6 {
					wantTogether(t, s, step, true)
				}

				if got := len(p.seen()); got != DefaultFailures {
					t.Errorf("%d calls", got)
				}

				// An error without a name counts against all three; those that are well are back
				// after four probes.
				if unnamed {
					wantAway(t, s, "a", "b", "c")
					time.Sleep(400 * ms)
					synctest.Wait()
				}
				wantAway(t, s, "a")

				if d := one(t, s, step[0]); d.Fallback || d.Remaining != 99 {
					t.Errorf("b: %+v", d)
				}

				// The probe for a has the two keys of a and not those of the others.
				time.Sleep(100 * ms)
				p.find("a")
				p.seen()
				time.Sleep(400 * ms)
				synctest.Wait()
				wantProbes(t, p, "a:k", "a:q")
				wantAway(t, s)
				wantTogether(t, s, step, false)

				if got := remaining(t, p.fake, step[0]); got != 100-2-6 { // and those of the fallback are paid
					t.Errorf("%d remain of b", got)
				}
			})
		})
	}
}

// wantTogether carries out a step and fails unless all of it is decided by the fallback,
// or by the primary.
func wantTogether(t testing.TB, s *Store, step []core.Op, fallback bool) {
	t.Helper()
	out := make([]core.Decision, len(step))
	if err := s.Apply(context.Background(), step, out); err != nil {
		t.Fatal(err)
	}
	for i, d := range out {
		if d.Fallback != fallback || !d.Allowed {
			t.Errorf("%s: %+v", step[i].Key, d)
		}
	}
}

// wantProbes fails unless all calls were probes with two keys.
func wantProbes(t testing.TB, p *parted, keys ...string) {
	t.Helper()
	for _, c := range p.seen() {
		if len(c.ops) != 2 || c.ops[0].Key != keys[0] || c.ops[1].Key != keys[1] || c.ops[0].Rule != probeRule {
			t.Errorf("a probe is %+v", c.ops)
		}
	}
}

// It is not known which shard of a step was slow.
func TestSlowStepOnSeveralShardsCountsAgainstNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{})
		defer s.Close()

		// One of two shards is slow, and ten steps on both show nothing about either.
		p.lose(after(101*ms, nil), "a")
		step := []core.Op{take(t, "a:k", "100/1h", 1), take(t, "b:k", "100/1h", 1)}
		for range 10 {
			if err := s.Apply(t.Context(), step, make([]core.Decision, 2)); err != nil {
				t.Fatal(err)
			}
		}
		wantAway(t, s)

		// Steps on a alone show it.
		for range 1 + DefaultFailures { // the first slow call is not counted
			wantAway(t, s)
			one(t, s, step[0])
		}

		wantAway(t, s, "a")
	})
}

// The successes of a step count for each of its shards.
func TestStepOnSeveralShardsSucceedsForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{})
		defer s.Close()
		a, b := take(t, "a:k", "100/1h", 1), take(t, "b:k", "100/1h", 1)

		// Four failures of each are one less than opens a breaker, and four steps on both make up
		// for them, twice over.
		for range 2 {
			p.lose(downNow, "a", "b")
			for range DefaultFailures - 1 {
				_, _ = try(s, a)
				_, _ = try(s, b)
			}

			p.find("a", "b")
			for range DefaultFailures - 1 {
				if err := s.Apply(t.Context(), []core.Op{a, b}, make([]core.Decision, 2)); err != nil {
					t.Fatal(err)
				}
			}
		}

		if got := s.Stats().Opened; got != 0 {
			t.Errorf("opened %d times", got)
		}
	})
}

// Shards that hang are probed side by side, so all are back as soon as one would be.
func TestShardsAreProbedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()
		shards := []string{"a", "b", "c", "d", "e"}

		// All five shards are away and then hang.
		bypass(t, s, p, shards...)

		p.lose(after(time.Hour, nil), shards...)
		time.Sleep(100 * ms)
		synctest.Wait()

		// They are well from here on, with probes as slow as they may be.
		p.lose(after(99*ms, nil), shards...) // a probe may take 100 ms
		time.Sleep(896*ms - 1)
		wantAway(t, s, shards...)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAway(t, s)
	})
}

// A refund waits for its own shard, wherever that goes.
func TestRefundWaitsForItsShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()

		// Each of five keys has four of ten units charged.
		var undone []core.Op
		for _, key := range []string{"a:1", "a:2", "b:1", "b:2", "c:1"} {
			op := take(t, key, "10/1h fixed-window", 4)
			undone = append(undone, undo(op, one(t, s, op)))
		}

		bypass(t, s, p, "a", "c")

		// want is what remains of each at the primary, and how many refunds wait.
		want := func(what string, waits int, remain ...int64) {
			t.Helper()
			var got []int64
			for _, op := range undone {
				got = append(got, remaining(t, p.fake, op))
			}
			if n := s.Stats(); n.Waits != waits || n.Lost != 0 || !slices.Equal(got, remain) {
				t.Errorf("%s: %v remain, %d wait, %d lost", what, got, n.Waits, n.Lost)
			}
		}

		// The shard b is there, so its refund is made at once.
		one(t, s, undone[2])
		want("of a shard that is there", 0, 6, 6, 10, 6, 6)

		if err := s.Apply(t.Context(), undone[:2], make([]core.Decision, 2)); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(t.Context(), undone[3:], make([]core.Decision, 2)); err != nil {
			t.Fatal(err)
		}
		want("of shards that are away", 4, 6, 6, 10, 6, 6)

		// A step on two shards is split: the part for the shard that is there does not wait for
		// long.
		time.Sleep(100 * ms)
		synctest.Wait()
		want("of both", 3, 6, 6, 10, 10, 6)

		// One of the two keys of a moves to c, which is still away, so its refund waits for c.
		p.move("a:1", "c")
		p.find("a")
		time.Sleep(400 * ms)
		synctest.Wait()
		want("after the return", 2, 6, 10, 10, 10, 6)

		p.find("c")
		time.Sleep(400 * ms)
		synctest.Wait()
		want("after the return of c", 0, 10, 10, 10, 10, 10)
	})
}

// A lease that the fallback granted in the outage of one shard, and the primary in
// another, is released in both: the outages of shards are told apart.
func TestLeaseThatMovesBetweenOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()
		op := lease(t, "mine", "1 concurrent ttl=1h")
		op.Key = "a:k"

		bypass(t, s, p, "a")

		// The fallback grants the lease while a is away, and the primary renews it at b.
		d := one(t, s, op)
		p.move("a:k", "b")
		one(t, s, op) // a renewal takes it from the primary

		// Now b goes away too.
		bypassed := take(t, "b:opener", "1000/1s", 1)
		p.lose(downNow, "b")
		for range DefaultFailures {
			_, _ = try(s, bypassed)
		}
		wantAway(t, s, "a", "b")

		// The release has to reach both stores, although each grant was made while some shard was
		// away.
		one(t, s, undo(op, d))
		p.find("a", "b")
		time.Sleep(time.Second)
		synctest.Wait()

		if got := remaining(t, p.fake, op); got != 1 {
			t.Errorf("%d remain at the primary", got)
		}
	})
}

// Breakers of shards that were seen once do not stay for ever.
func TestShardsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()
		bypass(t, s, p, "a")

		// A breaker that has something to do must stay: that of a is open, and that of b has a
		// release that waits.
		held := lease(t, "mine", "1 concurrent ttl=1h")
		held.Key = "b:k"
		d := one(t, s, held)
		p.lose(downNow, "b")
		one(t, s, undo(held, d)) // waits, and its breaker stays

		// Twice as many shards come and go, and are forgotten.
		for i := range 2 * maxShards {
			one(t, s, take(t, fmt.Sprint(i, ":k"), "10/1h", 1))
			if got := len(s.primary.shards.list()); got > maxShards {
				t.Fatalf("%d breakers", got)
			}
		}

		// The two are still known.
		wantAway(t, s, "a")
		if got := s.Stats().Waits; got != 1 {
			t.Errorf("%d wait", got)
		}
		if d := one(t, s, take(t, "a:k", "10/1h", 1)); !d.Fallback {
			t.Error("the primary decided")
		}

		// With every place taken by a shard that is away, further ones share one breaker.
		var all []string
		for i := range maxShards {
			all = append(all, fmt.Sprint("x", i))
		}

		p.lose(downNow, all...)
		for _, shard := range all {
			for range DefaultFailures {
				one(t, s, take(t, shard+":k", "10/1h", 1))
			}
		}

		// There is no room for the last two, whose failures count against the rest.
		if got := len(s.Stats().Away); got != maxShards || s.Stats().Away[0] != "" {
			t.Errorf("%d are away", got)
		}
	})
}

// A call to a shard whose breaker was forgotten meanwhile counts for nothing.
func TestShardForgottenDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{})
		defer s.Close()

		// The calls are on their way while as many other shards are seen as there are places.
		p.lose(after(time.Second, errDown), "a")
		var calls sync.WaitGroup
		for range DefaultFailures {
			calls.Go(func() { _, _ = try(s, take(t, "a:k", "10/1h", 1)) })
		}

		synctest.Wait()
		for i := range maxShards {
			one(t, s, take(t, fmt.Sprint(i, ":k"), "10/1h", 1))
		}
		calls.Wait()

		if got := s.Stats().Opened; got != 0 {
			t.Errorf("opened %d times", got)
		}
	})
}

func TestCloseEndsTheProbesOfShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParted()
		s := over(t, p, Options{})
		op := take(t, "a:k", "10/1h", 1)

		// A refund waits for a when the store is closed.
		d := one(t, s, op)
		bypass(t, s, p, "a", "b")
		one(t, s, undo(op, d))
		s.Close()

		// After Close no shard is given a breaker that would probe.
		for range DefaultFailures {
			p.lose(downNow, "late")
			_, _ = try(s, take(t, "late:k", "10/1h", 1))
		}

		p.seen()
		time.Sleep(time.Minute)
		if got := s.Stats(); len(p.seen()) != 0 || got.Lost != 1 || got.Waits != 0 {
			t.Errorf("called after Close, or %+v", got)
		}
	})
}

// A Store tells the shards of its primary.
func TestShardIsThatOfThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := over(t, newParted(), Options{})
		if got := over(t, inner, Options{Fallback: memory()}).Shards()("a:k"); got != "a" {
			t.Errorf("%q", got)
		}
		if over(t, memory(), Options{}).Shards() != nil {
			t.Error("a memory has shards")
		}
	})
}

// twoShards admits everything at once, on two shards.
type twoShards struct{ instant }

func (twoShards) Shards() func(key string) string { return firstByte }

func firstByte(key string) string { return key[:1] }

func TestShardsAllocateNothing(t *testing.T) {
	if racing {
		test.Skip(t, "pools forget under the race detector")
	}
	s := over(t, twoShards{}, Options{Fallback: memory()})

	// Two shards, with a refusal and an admission each.
	for _, key := range []string{"a", "b"} {
		ops := []core.Op{take(t, key, "5/1h", 1), take(t, key+"'s friend", "1000000000/1s", 1)}
		out := make([]core.Decision, 2)

		if got := testing.AllocsPerRun(1000, func() {
			if err := s.Apply(context.Background(), ops, out); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%v allocations", got)
		}
	}
}
