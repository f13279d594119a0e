package transport

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// at is an instant of these tests, in milliseconds.
func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// saysLeft is an answer with one quota.
func saysLeft(left int64, after time.Duration) *report {
	r := &report{n: 1}
	r.quotas[0] = statedQuota{"a", left, after}
	return r
}

// passes lets n requests pass and sends them.
func passes(t *testing.T, g *gate, now time.Time, n int) (all []pass) {
	t.Helper()
	for range n {
		p, passed, _, _ := g.enter(now, now)
		if !passed || !g.startSending(&p, now) {
			t.Fatalf("after %d no more pass", len(all))
		}
		all = append(all, p)
	}
	return all
}

// stays checks that the next request does not pass, and returns for how long at least.
func stays(t *testing.T, g *gate, now time.Time) time.Duration {
	t.Helper()
	p, passed, w, closed := g.enter(now, now)
	if passed {
		g.cancel(p)
		t.Fatal("a request passes")
	}
	if w != nil {
		_, _, closed = g.leave(w, now)
	}
	return closed
}

// Whatever the order of the answers is, no more requests pass than the server has left.
func TestGateCountsWhatIsOnItsWay(t *testing.T) {
	withJitter(t, 0)
	for name, order := range map[string][]int{"in order": {0, 1, 2, 3}, "the last first": {3, 2, 1, 0},
		"mixed": {2, 0, 3, 1}} {
		g := newGate("k", false)

		// The first answer says that four are left, and the four pass before any of them is
		// answered.
		first := passes(t, g, at(0), 1)
		g.answered(first[0], saysLeft(4, 10*time.Second), at(100))
		under := passes(t, g, at(100), 4)

		// Their answers arrive in the order of the row. An answer that was overtaken says more than
		// is left.
		for i, n := range order {
			// The server has counted them in the order in which they were sent.
			g.answered(under[n], saysLeft(int64(3-n), 10*time.Second), at(200+i))
			if closed := stays(t, g, at(200+i)); closed < 9*time.Second {
				t.Errorf("%s: after answer %d closed for %s", name, n, closed)
			}
		}
	}
}

// What is known when answers cross each other is exact when none is on its way.
func TestGateKnowsMoreWhenNothingIsOnItsWay(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(3, 10*time.Second), at(0))
	under := passes(t, g, at(10), 2)
	g.answered(under[1], saysLeft(1, 10*time.Second), at(20)) // the other may not be counted
	stays(t, g, at(20))
	g.answered(under[0], saysLeft(2, 10*time.Second), at(30)) // it was the first
	passes(t, g, at(30), 1)
	stays(t, g, at(30))
}

// A server that gives units back before the end of the window says so.
func TestGateBelievesThatUnitsAreBack(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(1, 10*time.Second), at(0))
	g.answered(passes(t, g, at(5000), 1)[0], saysLeft(5, 5*time.Second), at(5000))
	passes(t, g, at(5000), 5)
	if closed := stays(t, g, at(5000)); closed != 5*time.Second {
		t.Errorf("closed for %s", closed)
	}
}

// When a window is over, one request finds out what the next one has.
func TestGateSendsOneFirst(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	first := passes(t, g, at(0), 1)

	// Nothing is left, and the window ends a second after the answer at 100 ms.
	stays(t, g, at(0))
	g.answered(first[0], saysLeft(0, time.Second), at(100))
	if closed := stays(t, g, at(100)); closed != time.Second {
		t.Errorf("closed for %s", closed)
	}

	// In the new window one request passes, and the others wait for its answer, for which no time
	// is known.
	second := passes(t, g, at(1100), 1)
	if closed := stays(t, g, at(1100)); closed != 0 {
		t.Errorf("closed for %s, which is not known", closed)
	}

	// Seven are left, so seven pass and no eighth.
	g.answered(second[0], saysLeft(7, time.Second), at(1200))
	passes(t, g, at(1200), 7)
	stays(t, g, at(1200))
}

// One of two quotas is over: the other says nothing about it.
func TestGateSendsOneFirstWhenOneOfTwoQuotasIsOver(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	r := saysLeft(0, time.Second)
	r.quotas[1], r.n = statedQuota{"daily", 5000, time.Hour}, 2
	g.answered(passes(t, g, at(0), 1)[0], r, at(0))
	passes(t, g, at(1000), 1)
	stays(t, g, at(1000))
}

// A request that is answered late, such as a long poll, counts for two windows only.
func TestGateForgetsLongPolls(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(9, time.Second), at(0))
	passes(t, g, at(0), 9) // without an answer
	g.answered(passes(t, g, at(2000), 1)[0], saysLeft(19, time.Second), at(2000))
	passes(t, g, at(2000), 10)
	stays(t, g, at(2000))
	g.answered(passes(t, g, at(4000), 1)[0], saysLeft(19, time.Second), at(4000))
	passes(t, g, at(4000), 9)
	g.answered(passes(t, g, at(6000), 1)[0], saysLeft(19, time.Second), at(6000))
	passes(t, g, at(6000), 10)
}

// What is left at the end of a window is left in the next one.
func TestGateKeepsWhatIsLeft(t *testing.T) {
	withJitter(t, 0)
	for _, spread := range []bool{false, true} {
		g := newGate("k", spread)
		g.answered(passes(t, g, at(0), 1)[0], saysLeft(999, 12*time.Millisecond), at(0))
		for i := range 999 {
			passes(t, g, at(1000+i), 1) // at once, though no answer has come since
		}
		passes(t, g, at(3000), 1)
		stays(t, g, at(3000))
	}
}

// A wait of the program's own limits ends after the server has refused another request.
func TestGateTakesAPassBack(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(2, time.Hour), at(0))
	p, _, _, _ := g.enter(at(0), at(0))
	g.answered(passes(t, g, at(0), 1)[0], &report{refusal: limited, wait: time.Second}, at(0))
	if g.startSending(&p, at(500)) {
		t.Error("a request is sent while the gate is closed")
	}
	g.cancel(p)
	if closed := stays(t, g, at(500)); closed != 500*time.Millisecond {
		t.Errorf("closed for %s", closed)
	}
}

// A refusal says when the next request may be sent, and not when all units are back.
func TestGateBelievesRetryAfterMoreThanQuotas(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(1, 10*time.Second), at(0))
	r := saysLeft(0, 10*time.Second)
	r.refusal, r.wait = limited, 2*time.Second
	g.answered(passes(t, g, at(0), 1)[0], r, at(0))
	if closed := stays(t, g, at(0)); closed != 2*time.Second {
		t.Errorf("closed for %s", closed)
	}
	passes(t, g, at(2000), 1)
}

// Those at the end of a long line know at once that their turn comes too late.
func TestGateKnowsHowLongItsQueueIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, now := newGate("k", true), time.Now()
		g.answered(passes(t, g, now, 1)[0], saysLeft(9, 10*time.Second), now)
		for i := range 5 {
			_, _, w, closed := g.enter(now, now.Add(3*time.Second))
			if waits := i < 3; (w != nil) != waits || !waits && closed != 4*time.Second {
				t.Errorf("%d: %v, closed for %s", i, w, closed)
			}
		}
	})
}

// One that came while the gate was to open early is refused when it is to open too late after all,
// also if that is no later than it was once.
func TestGateRefusesWhoCameWhileItWasToOpenEarly(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(3, 10*time.Second), at(0))
	all := passes(t, g, at(0), 3)

	g.answered(all[0], saysLeft(0, 10*time.Second), at(0))
	g.answered(all[1], saysLeft(0, 5*time.Second), at(0))
	_, _, w, _ := g.enter(at(0), at(6000))
	if w == nil {
		t.Fatal("a request that can wait until the gate opens is refused")
	}

	g.answered(all[2], saysLeft(0, 8*time.Second), at(0))
	if w.place != nil {
		t.Error("a request that cannot wait until the gate opens stays")
	}
	if _, passed, closed := g.leave(w, at(0)); passed || closed != 8*time.Second {
		t.Errorf("passed %v, closed for %v", passed, closed)
	}
}

// A request that comes at the very instant at which another's turn comes is behind it.
func TestGateLetsNoRequestOvertake(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", true)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(9, 10*time.Second), at(0))
	_, _, first, _ := g.enter(at(0), at(5000))
	g.timer.Stop()
	if _, passed, second, _ := g.enter(at(1000), at(5000)); passed || second == nil || !first.passed || second.passed {
		t.Errorf("%v, %+v, %+v", passed, first, second)
	}
	g.timer.Stop()
}

// A server that has refused and said no more than Retry-After gets one request at a time, then two,
// and is trusted again in the end.
func TestGateTrustsASilentServerAgain(t *testing.T) {
	withJitter(t, 0)
	refused := func() *gate {
		g := newGate("k", false)
		g.answered(passes(t, g, at(0), 1)[0], &report{refusal: limited, wait: time.Second}, at(0))
		return g
	}

	// The longer nothing is heard after a refusal, the more may be under way: one more for each ten
	// times the wait of a second.
	for seconds, most := range map[int]int{1: 1, 10: 1, 11: 2, 21: 3, 61: 7} {
		g, now := refused(), at(1000*seconds)
		g.answered(passes(t, g, now, 1)[0], &report{}, now)
		passes(t, g, now, most)
		stays(t, g, now)
	}

	// After sixty times the wait the gate is as trusting as at first, even with a request answered
	// in between.
	g := refused()
	g.answered(passes(t, g, at(1000), 1)[0], &report{}, at(1000))
	g.answered(passes(t, g, at(61001), 1)[0], &report{}, at(61001))
	under := passes(t, g, at(61001), 1) // as at first
	stays(t, g, at(61001))
	g.answered(under[0], &report{}, at(61001))

	// It doubles with each second: eight three seconds later.
	passes(t, g, at(64001), 8)
	stays(t, g, at(64001))
}

// What was not sent is given back to a quota that has counted it, and to no other.
func TestGateGivesAPassBackOnce(t *testing.T) {
	withJitter(t, 0)
	g := newGate("k", false)

	// The first story: three are left of an hour, one of which is refused.
	refused := func(now time.Time) {
		g.answered(passes(t, g, now, 1)[0], &report{refusal: limited, wait: time.Second}, now)
	}
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(3, time.Hour), at(0))
	refused(at(0)) // 2 are left

	// The pass that is given back leaves two: one is answered, one passes, and a third does not.
	p := passes(t, g, at(1000), 1)
	g.cancel(p[0])
	g.answered(passes(t, g, at(1000), 1)[0], &report{}, at(1000))
	passes(t, g, at(1000), 1)
	stays(t, g, at(1000))

	// The second story: since the pass was counted, the server has refused twice and reported anew.
	g = newGate("k", false)
	g.answered(passes(t, g, at(0), 1)[0], saysLeft(9, time.Hour), at(0))
	p = passes(t, g, at(0), 1)
	refused(at(0))
	refused(at(1000))

	// One is left by the new report, which was made without the pass: to give it back would let two
	// through.
	g.answered(passes(t, g, at(2000), 1)[0], saysLeft(1, time.Hour), at(2000))
	g.cancel(p[0])

	passes(t, g, at(2000), 1)
	stays(t, g, at(2000))
}

func TestRefusalsInARowThatSayNothingWaitLonger(t *testing.T) {
	withJitter(t, 0)

	for why, first := range map[refusal]time.Duration{limited: time.Second, secondary: time.Minute} {
		// Each wait is twice the one before, up to 64 times the first, as a server that never
		// recovers must not be asked more often.
		g, now := newGate("k", false), at(0)
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64, 64} {
			if got := g.answered(passes(t, g, now, 1)[0], &report{refusal: why}, now); got != want*first {
				t.Errorf("refusal %d: %s", i+1, got)
			}
			now = now.Add(want * first)
		}

		// An answer that is no refusal begins anew.
		g.answered(passes(t, g, now, 1)[0], &report{}, now)
		if got := g.answered(passes(t, g, now, 1)[0], &report{refusal: why}, now); got != first {
			t.Errorf("after an answer: %s", got)
		}
	}
}

// Ten answers came through before, so as many are likely to do so again. With each refusal one more
// of them may be under way, until one of them is refused.
func TestGateLearnsHowManyComeThrough(t *testing.T) {
	withJitter(t, 0)
	g, now := newGate("k", false), at(0)

	// come sends n requests at once and has them answered before the next n.
	come := func(under ...int) {
		t.Helper()
		for _, n := range under {
			all := passes(t, g, now, n)
			stays(t, g, now)
			for _, p := range all {
				g.answered(p, &report{}, now)
			}
		}
	}

	// refuse sends some and has all refused, for ten seconds.
	refuse := func(under int) {
		t.Helper()
		for _, p := range passes(t, g, now, under) {
			g.answered(p, &report{refusal: limited, wait: 10 * time.Second}, now)
		}
		now = now.Add(10 * time.Second)
	}

	// After the first refusal ten answers come through, one at a time, and then one is refused: ten
	// is what the server allows.
	refuse(1)
	come(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	refuse(1)

	// Each wait that follows lets one more be under way, in the middle of the ten that are
	// expected, and one near their end, where the refusal is likely.
	come(1, 2, 2, 2, 2, 1, 1)
	refuse(1)
	come(1, 3, 3, 3, 1, 1)
	refuse(1)
	come(1, 4, 4)

	// Three are refused together: so many under way were too many, and it starts again with one.
	refuse(3)
	come(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	refuse(1)
	come(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
}

// Requests pass in the order of arrival, each when its turn has come.
func TestGateKeepsTheOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate("k", true)

		// The answer says that nine are left in ten seconds, so they pass a second apart.
		p := passes(t, g, time.Now(), 1)
		g.answered(p[0], saysLeft(9, 10*time.Second), time.Now())

		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup

		begun := time.Now()

		// Wait lets each arrive in the queue before the next starts.
		for i := range 9 {
			all.Go(func() {
				_, _, w, _ := g.enter(time.Now(), time.Now().Add(time.Minute))
				<-w.ready
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)

				// Both the turn and its instant have to be those of the order of arrival.
				if took := time.Since(begun); took != time.Duration(i+1)*time.Second {
					t.Errorf("%d passes after %s", i, took)
				}
			})
			synctest.Wait()
		}

		all.Wait()
		if !slices.IsSorted(order) {
			t.Error(order)
		}
	})
}
