package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

// waiting is a rule whose requests wait up to a span.
func waiting(t *testing.T, name, text string, maxWait time.Duration) limiter.Rule {
	t.Helper()
	return withOnLimit(rule(t, name, text), limiter.Wait(maxWait))
}

// arrival is the outcome of one request, and its instant.
type arrival struct {
	outcome limiter.Outcome
	after   time.Duration
}

// admitAtOnce makes n requests arrive at once and returns their outcomes, ordered by
// time.
func admitAtOnce(l *limiter.Limiter, n int, r core.Request) []arrival {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		list []arrival
	)

	start := time.Now()
	for range n {
		wg.Go(func() {
			a := l.Admit(r)
			defer a.Done(200)
			mu.Lock()
			defer mu.Unlock()
			list = append(list, arrival{a.Outcome(), time.Since(start)})
		})
	}

	wg.Wait()
	return list
}

// tally counts arrivals.
func tally(list []arrival) map[arrival]int {
	n := map[arrival]int{}
	for _, a := range list {
		n[a]++
	}
	return n
}

func wantTally(t *testing.T, got []arrival, want map[arrival]int) {
	t.Helper()
	have := tally(got)
	// Both ways: each number that is wanted, and no kind of arrival beside those.
	for a, n := range want {
		if have[a] != n {
			t.Errorf("%s after %s: %d, want %d", a.outcome, a.after, have[a], n)
		}
	}
	if len(have) != len(want) {
		t.Errorf("got %v", have)
	}
}

func TestWaitEndsAtTheBookedInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), waiting(t, "a", "10/1s burst=2", 300*time.Millisecond))
		// Two pass by the burst. Three book an instant each, 100 ms apart, up to the longest wait;
		// the sixth would wait 400 ms.
		wantTally(t, admitAtOnce(l, 8, get()), map[arrival]int{
			{limiter.Pass, 0}:                      2,
			{limiter.Pass, 100 * time.Millisecond}: 1,
			{limiter.Pass, 200 * time.Millisecond}: 1,
			{limiter.Pass, 300 * time.Millisecond}: 1,
			{limiter.Refused, 0}:                   3,
		})
	})
}

func TestWaitAsksAgainWithoutBooking(t *testing.T) {
	for _, text := range []string{"2/1s fixed-window", "2/1s sliding-log", "2/1s token-bucket"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newTicking(), waiting(t, "a", text, 2*time.Second))
				got := admitAtOnce(l, 8, get())
				wantTally(t, got, map[arrival]int{
					{limiter.Pass, 0}:               2,
					{limiter.Pass, 1 * time.Second}: 2,
					{limiter.Pass, 2 * time.Second}: 2,
					{limiter.Refused, 0}:            2, // their turn would come after 3 s
				})
			})
		})
	}
}

func TestWaitQueueHoldsExactlyItsMaximum(t *testing.T) {
	rows := []struct {
		name         string
		all, per     int
		keys         []string
		first, later int // requests per key that pass at once, and that wait
	}{
		// In all, three of the ten wait. Per key two do, for each of the two keys.
		{"in all", 3, 100, []string{"a"}, 1, 3},
		{"per key", 100, 2, []string{"a", "b"}, 1, 2},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := waiting(t, "a", "1/1s fixed-window", time.Minute)
				r.Key = byHeader
				l := configured(t, limiter.Config{Store: newTicking(),
					Rules: []limiter.Rule{r}, MaxWaiters: row.all, MaxWaitersPerKey: row.per})

				// The keys come at one time: those that wait for one take no place from the other.
				got := map[string][]arrival{}
				var mu sync.Mutex
				var wg sync.WaitGroup
				for _, key := range row.keys {
					wg.Go(func() {
						list := admitAtOnce(l, 10, keyed(key))
						mu.Lock()
						defer mu.Unlock()
						got[key] = list
					})
				}
				wg.Wait()

				// A second after the last turn the window is fresh and the queue empty: ten more
				// fare the same.
				time.Sleep(time.Second)
				want := map[arrival]int{{limiter.Pass, 0}: row.first,
					{limiter.QueueFull, 0}: 10 - row.first - row.later}
				for i := range row.later {
					want[arrival{limiter.Pass, time.Duration(i+1) * time.Second}] = 1
				}
				wantTally(t, admitAtOnce(l, 10, keyed("a")), want) // there is room again
				for _, key := range row.keys {
					wantTally(t, got[key], want)
				}
			})
		})
	}
}

func TestWaitQueueFullBooksNothing(t *testing.T) {
	for _, c := range []limiter.Config{{MaxWaiters: 2}, {MaxWaitersPerKey: 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := newTicking()
			c.Store, c.Rules = s, []limiter.Rule{waiting(t, "a", "1/1s burst=1", time.Minute)}
			l := configured(t, c)
			var wg sync.WaitGroup
			for range 3 { // one passes, two wait
				wg.Go(func() { admit(l) })
				synctest.Wait()
			}

			// A request that finds the queue full asks once and books nothing: all five hear of the
			// same slot, that at 3 s.
			before := s.asked()
			for range 5 {
				a := l.Admit(get())
				if a.Outcome() != limiter.QueueFull || a.RetryAfter() != 3 {
					t.Errorf("%s, retry after %d", a.Outcome(), a.RetryAfter())
				}
				a.Done(429)
			}

			if s.asked() != before+5 {
				t.Errorf("%d calls for 5 refusals", s.asked()-before)
			}

			wg.Wait()
		})
	}
}

func TestWaitQueueFullAfterBookingGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		far := storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			defer time.Sleep(10 * time.Millisecond) // so that both book before one waits
			return s.Apply(ctx, ops, out)
		})
		l := configured(t, limiter.Config{Store: far, MaxWaiters: 1, Rules: []limiter.Rule{
			waiting(t, "smooth", "1/1s burst=1", time.Minute), rule(t, "day", "9/1d fixed-window")}})
		// The first takes the burst, so that both others have to book.
		admit(l)
		passed := 0

		// The queue holds one of the two. The other gives back its slot and its unit of the day,
		// which has 9 less those of the first and of the one that passed.
		for _, a := range admitAtOnce(l, 2, get()) {
			if a.outcome == limiter.Pass {
				passed++
			}
		}
		if passed != 1 || left(t, l, "k")[1] != 7 {
			t.Errorf("%d passed, %d left", passed, left(t, l, "k")[1])
		}
	})
}

func TestWaitHoldsNothingBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), waiting(t, "a", "1/1s burst=1", time.Minute),
			rule(t, "day", "9/1d fixed-window"))
		admit(l)

		// The request books the slot at 1 s, and its client leaves after 400 ms.
		ctx, leave := context.WithCancel(t.Context())
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			a := l.Admit(&test.Request{Ctx: ctx})
			defer a.Done(200)
			if a.Outcome() != limiter.Refused || time.Since(start) != 400*time.Millisecond {
				t.Errorf("%s after %s", a.Outcome(), time.Since(start))
			}
		})
		synctest.Wait()

		// Of the day only the unit of the first is gone: a request that waits is charged at its
		// turn.
		wantLeft(t, l, "k", 0, 8)
		time.Sleep(400 * time.Millisecond)
		leave()
		wg.Wait()
		wantLeft(t, l, "k", 0, 8)

		// The slot at 1 s was given back, or the next would pass at 2 s.
		a := l.Admit(get())
		defer a.Done(200)
		if a.Outcome() != limiter.Pass || time.Since(start) != time.Second {
			t.Errorf("%s after %s", a.Outcome(), time.Since(start))
		}
		wantLeft(t, l, "k", 0, 7)
	})
}

func TestWaitBeyondItsMaximumIsRefusedAtOnce(t *testing.T) {
	rows := []struct {
		name     string
		limit    string
		deadline time.Duration
		want     arrival
	}{
		// A turn at the very deadline would come too late for an answer. The longest wait itself is
		// still waited for.
		{"booked before the deadline", "1/1s", 1001 * time.Millisecond, arrival{limiter.Pass, time.Second}},
		{"booked at the deadline", "1/1s", time.Second, arrival{limiter.Refused, 0}},
		{"window before the deadline", "1/1s fixed-window", 1001 * time.Millisecond,
			arrival{limiter.Pass, time.Second}},
		{"window at the deadline", "1/1s fixed-window", time.Second, arrival{limiter.Refused, 0}},
		{"longest wait", "1/5s", time.Hour, arrival{limiter.Pass, 5 * time.Second}},
		{"beyond the longest wait", "1/5001ms", time.Hour, arrival{limiter.Refused, 0}},
		{"window beyond the longest wait", "1/5001ms fixed-window", time.Hour, arrival{limiter.Refused, 0}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newTicking(), waiting(t, "a", row.limit, 5*time.Second))
				// The first unit is spent, so that the next request has to wait for one period.
				admit(l)
				ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
				defer cancel()
				if got := admitAtOnce(l, 1, &test.Request{Ctx: ctx}); got[0] != row.want {
					t.Errorf("got %+v, want %+v", got[0], row.want)
				}
			})
		})
	}
}

func TestWaitDoesNotBeginIfAnotherRuleRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		l := newLimiter(t, s, waiting(t, "slow", "1/1s fixed-window", time.Minute),
			waiting(t, "smooth", "1/1s", time.Minute),
			rule(t, "hard", "1/1m fixed-window"))
		// The first uses up all three rules, of which two would let the next wait.
		admit(l)
		before := s.asked()
		// The hard rule refuses it, so that it neither waits nor asks again, nor books a slot of
		// smooth.
		got := admitAtOnce(l, 1, get())
		if got[0] != (arrival{limiter.Refused, 0}) || s.asked() != before+1 {
			t.Errorf("%+v after %d calls", got[0], s.asked()-before)
		}
		wantLeft(t, l, "k", 0, 0, 0)
	})
}

func TestCloseEndsAllWaitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), waiting(t, "a", "1/1h burst=5", time.Hour))
		for range 5 {
			admit(l)
		}

		done := make(chan []arrival, 1)
		go func() { done <- admitAtOnce(l, 1, get()) }()
		synctest.Wait()
		time.Sleep(time.Second)
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}

		// Those that come later are refused at once, as no wait begins after Close.
		wantTally(t, <-done, map[arrival]int{{limiter.Refused, time.Second}: 1})
		wantTally(t, admitAtOnce(l, 3, get()), map[arrival]int{{limiter.Refused, 0}: 3})
	})
}

// beginWaits has n requests wait under 10/1s burst=1, of which the first passes at once
// and each other one 100 ms after the one before.
func beginWaits(t *testing.T, l *limiter.Limiter, n int) <-chan []arrival {
	t.Helper()
	done := make(chan []arrival, 1)
	go func() { done <- admitAtOnce(l, n, get()) }()
	synctest.Wait()
	return done
}

func TestShutdownLetsWaitsEnd(t *testing.T) {
	for _, text := range []string{"10/1s burst=1", "1/100ms fixed-window"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newTicking(), waiting(t, "a", text, 4*time.Second))
				// The last of forty has its turn 3.9 s after the first. Shutdown without a deadline
				// waits for it.
				done := beginWaits(t, l, 40)
				start := time.Now()
				if err := l.Shutdown(t.Context()); err != nil || time.Since(start) != 3900*time.Millisecond {
					t.Errorf("%v after %s", err, time.Since(start))
				}

				want := map[arrival]int{}
				for i := range 40 {
					want[arrival{limiter.Pass, time.Duration(i) * 100 * time.Millisecond}] = 1
				}
				wantTally(t, <-done, want)

				if err := l.Shutdown(t.Context()); err != nil {
					t.Errorf("the second call: %v", err)
				}
			})
		})
	}
}

// The requests that would not end before the deadline are refused when Shutdown begins.
func TestShutdownRefusesWaitsBeyondItsDeadlineAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), waiting(t, "a", "10/1s burst=1", 4*time.Second))
		done := beginWaits(t, l, 5)
		// The drain begins at 50 ms and ends at 200 ms: only the turn at 100 ms is before its end.
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil {
			t.Error(err)
		}

		wantTally(t, <-done, map[arrival]int{
			{limiter.Pass, 0}: 1, {limiter.Pass, 100 * time.Millisecond}: 1,
			{limiter.Refused, 50 * time.Millisecond}: 3, // of which one has its turn at the deadline
		})
	})
}

func TestShutdownLetsNoRequestBeginToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), waiting(t, "a", "10/1s burst=1", time.Second))
		done := beginWaits(t, l, 2)
		// One request waits until 100 ms, so that Shutdown is under way at what follows.
		ended := make(chan error, 1)
		go func() { ended <- l.Shutdown(t.Context()) }()
		synctest.Wait()

		wantTally(t, admitAtOnce(l, 3, get()), map[arrival]int{{limiter.Refused, 0}: 3})
		// A request that passes need not wait, and passes as before.
		if res, err := l.Take(t.Context(), "other", 1); err != nil || !res.Allowed() {
			t.Errorf("a request that need not wait: allowed %t, %v", res.Allowed(), err)
		}

		var refused *limiter.WaitError
		if err := l.Wait(t.Context(), "k", 1); !errors.As(err, &refused) || !errors.Is(err, limiter.ErrClosed) {
			t.Errorf("Wait: %v", err)
		}

		wantTally(t, <-done, map[arrival]int{{limiter.Pass, 0}: 1, {limiter.Pass, 100 * time.Millisecond}: 1})
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), waiting(t, "a", "10/1s burst=1", time.Second))
		done := beginWaits(t, l, 3)
		// The context has no deadline, so Shutdown cannot know beforehand that the turn at 200 ms
		// comes too late.
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(150*time.Millisecond, func() { cancel(errDown) })
		if err := l.Shutdown(ctx); err != errDown {
			t.Error(err)
		}

		wantTally(t, <-done, map[arrival]int{
			{limiter.Pass, 0}: 1, {limiter.Pass, 100 * time.Millisecond}: 1,
			{limiter.Refused, 150 * time.Millisecond}: 1,
		})
	})
}

func TestTakeWithinWaitsForEveryRuleThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "window", "1/2s fixed-window"), rule(t, "smooth", "1/3s"),
			withOnLimit(rule(t, "dark", "1/30s"), limiter.Shadow))

		ctx := t.Context()
		start := time.Now()
		// Each turn waits for the rule that takes longer: smooth, with 3 s. One in shadow delays
		// none.
		for i, want := range []time.Duration{0, 3 * time.Second, 6 * time.Second} {
			res, err := l.TakeWithin(ctx, "k", 1, time.Minute)
			if err != nil || !res.Allowed() || time.Since(start) != want {
				t.Errorf("turn %d: allowed %t, %v after %s, want %s", i, res.Allowed(), err, time.Since(start), want)
			}
		}

		// The next turn is at 9 s: 1 ms more than the request may wait, so it is refused without a
		// wait.
		res, err := l.TakeWithin(ctx, "k", 1, 2999*time.Millisecond)
		if err != nil || res.Allowed() || time.Since(start) != 6*time.Second {
			t.Errorf("allowed %t, %v after %s", res.Allowed(), err, time.Since(start))
		}
	})
}

func TestWaitDecisionIsThatOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := configured(t, limiter.Config{Store: newTicking(), Headers: limiter.XRateLimitDelta | limiter.Draft8,
			Rules: []limiter.Rule{waiting(t, "smooth", "1/10s burst=1", time.Minute),
				rule(t, "window", "9/1m fixed-window")}})

		admit(l)
		// The request waits 10 s for its slot. The numbers are those of the end of the wait: the
		// window has 50 s to go, not 60.
		start := time.Now()
		a := l.Admit(get())
		defer a.Done(200)

		d := a.Result().Decisions()[0].Decision
		if d.Wait != 0 || d.ResetAfter != 10*time.Second || d.At != start.Add(10*time.Second).UnixMicro() {
			t.Errorf("%+v", d)
		}
		if a.Result().Waited() != 10*time.Second {
			t.Errorf("waited %s", a.Result().Waited())
		}

		want := "X-Ratelimit-Limit: 1\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 10\n" +
			"Ratelimit-Policy: \"smooth\";q=1;w=10, \"window\";q=9;w=60\nRatelimit: \"smooth\";r=0;t=10, \"window\";r=7;t=50\n"
		if got := lines(a); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestTakeWithinSaysWhyItEndedBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "a", "1/1m"))
		gone := errors.New("gone")
		if _, err := l.Take(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}

		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { leave(gone) })
		res, err := l.TakeWithin(ctx, "k", 1, time.Hour)
		if !errors.Is(err, gone) || res.Allowed() || res.Violated()[0] != "a" {
			t.Errorf("allowed %t, %v", res.Allowed(), err)
		}

		time.AfterFunc(time.Second, func() { _ = l.Close() })
		res, err = l.TakeWithin(t.Context(), "k", 1, time.Hour)
		if !errors.Is(err, limiter.ErrClosed) || res.Allowed() {
			t.Errorf("allowed %t, %v", res.Allowed(), err)
		}
	})
}

func TestTakeWithinRefusesInvalidSpans(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "1/1m"))
	for _, maxWait := range []time.Duration{0, -1, time.Hour + 1} {
		if res, err := l.TakeWithin(context.Background(), "k", 1, maxWait); !errors.Is(err, core.ErrOp) ||
			res.Allowed() {
			t.Errorf("%s: %v", maxWait, err)
		}
	}
	wantLeft(t, l, "k", 1)
}

func TestWaitFailsIfTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := newTicking()
		// The third call is the question after the wait for the window.
		l := configured(t, limiter.Config{OnStoreError: limiter.FailClosed,
			Rules: []limiter.Rule{waiting(t, "a", "1/1s fixed-window", time.Minute)},
			Store: storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
				if calls++; calls > 2 {
					return errDown
				}
				return s.Apply(ctx, ops, out)
			})})

		admit(l)
		wantTally(t, admitAtOnce(l, 1, get()), map[arrival]int{{limiter.Failed, time.Second}: 1})
	})
}

type storeFunc func(context.Context, []core.Op, []core.Decision) error

func (f storeFunc) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return f(ctx, ops, out)
}

// fullRow is a full queue and the answer to the request that finds it so.
type fullRow struct {
	name, limit string
	config      limiter.Config
	status      int
	retryAfter  int64
	body        string
}

// A full queue is not a limit: another outcome, another answer, no rate limit headers.
func TestQueueFullAnswer(t *testing.T) {
	const problem = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":%d,` +
		`"detail":"Too many requests wait already. Retry after %d second%s.","violated-policies":["a"]}`
	for _, row := range []fullRow{
		// The one that waits for a slot or a window has its turn at 10 s, and a next one would have
		// it at 20 s. Of a lease none knows when it ends: then it is 1 s.
		{"leases", "1 concurrent ttl=30s", limiter.Config{}, 503, 1, fmt.Sprintf(problem, 503, 1, "")},
		{"slots", "1/10s burst=1", limiter.Config{}, 503, 20, fmt.Sprintf(problem, 503, 20, "s")},
		{"a window", "1/10s fixed-window", limiter.Config{QueueFullStatus: 503}, 503, 20,
			fmt.Sprintf(problem, 503, 20, "s")},
		{"429", "1 concurrent ttl=30s", limiter.Config{QueueFullStatus: 429}, 429, 1, fmt.Sprintf(problem, 429, 1, "")},
		{"text", "1 concurrent ttl=30s", limiter.Config{Failed: limiter.PlainText, Refused: limiter.JSON}, 503, 1,
			"Too many requests wait already. Retry after 1 second.\n"},
		{"JSON", "1 concurrent ttl=30s", limiter.Config{QueueFullStatus: 429,
			Failed: limiter.PlainText, Refused: limiter.JSON}, 429, 1,
			`{"error":"queue_full","retry_after":1,"rules":["a"]}`},
		{"fixed", "1 concurrent ttl=30s",
			limiter.Config{QueueFullStatus: 429, Refused: limiter.Fixed(limiter.Answer{})}, 429, 1, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wantFull(t, row) })
		})
	}
}

// wantFull has one request wait, so that the next finds no room.
func wantFull(t *testing.T, row fullRow) {
	seen := &recorder{}
	c := row.config
	c.Store, c.MaxWaiters, c.Observer = newTicking(), 1, seen
	c.Rules = []limiter.Rule{waiting(t, "a", row.limit, time.Minute), rule(t, "b", "9/1m fixed-window")}
	c.CustomHeaders = func([]limiter.RuleDecision) []limiter.Header {
		return []limiter.Header{{Name: "X-Left", Value: "0"}}
	}
	l := configured(t, c)

	// The first spends what the limit has, or the lease is held; the second waits and fills the
	// queue.
	q := newQueue(t)
	q.send("first", l, get(), 0)
	held, err := l.Take(t.Context(), "k", 1) // the lease, if there is one
	if err != nil {
		t.Fatal(err)
	}
	q.send("second", l, get(), 0)
	// Only what the third request is told counts.
	seen.take()

	a := l.Admit(get())
	answer, ok := a.Answer()
	want := fmt.Sprintf("Retry-After: %d\nCache-Control: no-store\n", row.retryAfter)
	if a.Outcome() != limiter.QueueFull || a.Status() != row.status ||
		a.RetryAfter() != row.retryAfter || lines(a) != want {
		t.Errorf("%s, %d, retry after %d\n%s", a.Outcome(), a.Status(), a.RetryAfter(), lines(a))
	}

	if !ok || answer.Status != row.status || string(answer.Body) != row.body {
		t.Errorf("%d %s", answer.Status, answer.Body)
	}
	if got, want := seen.verdicts(), []string{"queue_full: a queue_full, b overruled"}; !slices.Equal(got, want) {
		t.Errorf("observed %q, want %q", got, want)
	}

	// The lease comes back, so that the second ends.
	a.Done(answer.Status)
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	q.wg.Wait()
}

// A request that a limit refuses is refused, however full the queue is.
func TestQueueFullIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := configured(t, limiter.Config{Store: newTicking(), MaxWaiters: 1, Rules: []limiter.Rule{
			waiting(t, "a", "1 concurrent ttl=30s", time.Minute), rule(t, "hard", "2/1m fixed-window")}})
		q := newQueue(t)
		// At 0 s the queue is full for c. At 10 ms the hard limit of two is used up, so that d is
		// refused, not turned away.
		q.send("a", l, get(), 10*ms)
		q.send("b", l, get(), 10*ms)
		q.send("c", l, get(), 0)
		q.at(10 * ms)
		q.send("d", l, get(), 0)

		q.want("a pass at 0s", "b pass at 10ms", "c queue_full at 0s", "d refused at 10ms")
	})
}

// A request behind others is refused although there is room for it.
func TestQueueFullBehindABigRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := configured(t, limiter.Config{Store: newTicking(), MaxWaiters: 1,
			Rules: []limiter.Rule{leased(t, "a", "3 concurrent ttl=30s", time.Minute)}})

		q := newQueue(t)
		// Two units are free, but b waits for three of them and comes first.
		q.send("a", l, get(), 10*ms)
		q.send("b", l, costing("3", ""), 10*ms)
		res, err := l.TakeWithin(t.Context(), "k", 1, time.Minute)
		if err != nil || res.Allowed() || res.RetryAfter() != ms || !slices.Equal(res.Violated(), []string{"a"}) ||
			res.Decisions()[0].Decision.Remaining != 2 {
			t.Errorf("allowed %t, %v, retry after %s, %+v", res.Allowed(), err, res.RetryAfter(), res.Decisions())
		}

		q.want("a pass at 0s", "b pass at 10ms")
	})
}

// The error names the rule and its limit.
func TestReserveUnderALimitWithoutBookings(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "r", "5/1h fixed-window"))
	_, err := l.Reserve(t.Context(), "k", 1)
	if want := `rule "r": a fixed-window limit books nothing`; !errors.Is(err, core.ErrOp) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
