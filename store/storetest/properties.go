package storetest

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// Properties tests facts that hold for every limit under any arrivals.
func Properties(t *testing.T, f Factory) {
	buckets := []core.Algorithm{core.GCRA, core.TokenBucket}
	exact := []core.Algorithm{core.GCRA, core.SlidingLog, core.SlidingWindow}
	noLeases := windowed()
	debts := append(buckets, core.FixedWindow, core.SlidingWindow, core.CalendarWindow)
	run := func(name string, property func(*world), of ...core.Algorithm) {
		t.Run(name, func(t *testing.T) { every(t, f, property, of...) })
	}

	run("no span of a period admits more than the worst case", boundedInAnySpan, noLeases...)
	run("no more than the quota is ever held", heldWithinQuota, core.Concurrency)
	run("a refusal changes nothing", refusalChangesNothing)
	run("waiting exactly RetryAfter is enough, and a microsecond less is not", retryIsExact)
	run("a ban begins with its last strike and ends at RetryAfter", banIsExact, noLeases...)
	run("what remains can be taken, and not a unit more", remainingIsExact)
	run("an UpTo take gets all units that fit, and not one more", upToIsExact, noLeases...)
	run("a debit charges up to the debt, and a refund of it restores every field", debitIsExact, debts...)
	run("the order of settlements does not matter", settledInAnyOrder, debts...)
	run("the UpTo takes of a step charge the same number", upToIsShared, noLeases...)

	// What a take has charged comes back, and no more than that.
	run("a key is fresh at ResetAfter and not before", resetIsExact)
	run("a refund right after a take restores every field", refundRestores)
	run("refunds never lift a key above its capacity", refundsAreBounded)
	run("a refund leaves no more than if the take had not been made", refundGivesNoExtra, exact...)
	run("a cost of n is n costs of one", costsAddUp, noLeases...)

	run("changes of a limit keep its bounds", changesKeepBounds)
	run("peeks and refusals under other limits change nothing", peeksChangeNothing)
	run("a clock that steps back gives nothing and locks out for one refill", backwardsIsBounded)
	run("a refused step costs no rule anything", allOrNothing)
}

func banIsExact(w *world) {
	w.arrive(10)
	spans := rapid.Int64Range(1_000, 2*w.limit.Period.Microseconds()+1_000)
	span := func(name string) time.Duration { return time.Duration(spans.Draw(w.t, name)) * time.Microsecond }
	strikes := rapid.Int64Range(1, 4).Draw(w.t, "strikes")
	w.ban = &core.Ban{Strikes: strikes, Within: span("within"), For: span("for")}
	w.ban.Max = 4 * w.ban.For

	// While a take of the capacity is in use, the next one is a strike. Only the last strike
	// begins a ban.
	capacity, d := w.limit.Capacity(), core.Decision{}
	for n := int64(1); n <= w.ban.Strikes; n++ {
		if d.Banned {
			w.t.Fatalf("banned after %d of %d strikes: %+v", n-1, w.ban.Strikes, d)
		}
		if d = w.take(capacity); d.Allowed {
			d = w.take(capacity)
		}
	}
	if !d.Banned || d.Allowed || d.Remaining != 0 || d.RetryAfter < w.ban.For {
		w.t.Fatalf("after %d strikes: %+v", w.ban.Strikes, d)
	}

	if again := w.take(capacity); again != d {
		w.t.Fatalf("banned: %+v, and a moment later %+v", d, again)
	}

	// RetryAfter of a banned key is no sooner than when its units are back.
	end := d.At + d.RetryAfter.Microseconds()
	w.clock.Set(end - 1)
	if d := w.peek(capacity); d.Allowed || d.RetryAfter != time.Microsecond {
		w.t.Fatalf("a microsecond before the end: %+v", d)
	}
	w.clock.Set(end)
	if d := w.take(capacity); !d.Allowed || d.Banned {
		w.t.Fatalf("at the end: %+v", d)
	}
}

func boundedInAnySpan(w *world) {
	admitted := w.arrive(60)
	bound := worstCase(w.limit, admitted)
	span, _ := spansOf(&w.limit)
	period := span.Microseconds()

	// The span ends with each admission in turn, and begins a period before it.
	first, sum := 0, int64(0)
	for _, a := range admitted {
		sum += a.n
		for admitted[first].at <= a.at-period {
			sum -= admitted[first].n
			first++
		}
		if sum > bound {
			w.t.Fatalf("%s admitted %d in a period, more than %d: %v", w.limit, sum, bound, admitted)
		}
	}
}

// worstCase returns the maximum number of units that any span of a Period may
// admit.
func worstCase(l core.Limit, admitted []admission) int64 {
	switch l.Algorithm {
	case core.FixedWindow, core.CalendarWindow:
		return 2 * l.Quota
	case core.SlidingLog:
		return l.Quota
	case core.SlidingWindow:
		// The oldest segment may leave as a whole while most of it is within the span.
		segments := map[int64]int64{}
		var largest int64
		for _, a := range admitted {
			i := a.at / width(l).Microseconds()
			segments[i] += a.n
			largest = max(largest, segments[i])
		}
		return l.Quota + largest
	}
	return l.Capacity() + l.Quota
}

func heldWithinQuota(w *world) {
	held := map[string]core.Lease{}
	for range rapid.IntRange(1, 40).Draw(w.t, "steps") {
		w.move()
		op := w.op(core.Take, w.cost())
		op.Lease = w.key + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(w.t, "lease")
		if rapid.IntRange(0, 3).Draw(w.t, "release") == 0 {
			op.Verb = core.Refund
		}

		d := w.do(op)
		for id, l := range held {
			if l.Expiry <= d.At {
				delete(held, id)
			}
		}
		// A take with a lease that is held renews it, and leaves its units as they are.
		switch {
		case op.Verb == core.Refund:
			delete(held, op.Lease)
		case d.Allowed:
			units := op.Cost
			if l, ok := held[op.Lease]; ok {
				units = l.Units
			}
			held[op.Lease] = core.Lease{Expiry: d.At + w.limit.Period.Microseconds(), Units: units}
		}

		var sum int64
		for _, l := range held {
			sum += l.Units
		}
		if sum > w.limit.Quota || d.Remaining != w.limit.Quota-sum {
			w.t.Fatalf("%d of %d are held and %d remain", sum, w.limit.Quota, d.Remaining)
		}
	}
}

func refusalChangesNothing(w *world) {
	w.arrive(20)
	cost := w.cost()
	before := w.peek(cost)
	if before.Allowed {
		return
	}
	if d := w.take(cost); d != before {
		w.t.Fatalf("a take got %+v, the peek before it %+v", d, before)
	}
	if d := w.peek(cost); d != before {
		w.t.Fatalf("after a refusal %+v, before it %+v", d, before)
	}
}

func retryIsExact(w *world) {
	w.arrive(30)
	w.move()

	// The units of a sliding-window of another width move at the end of a segment.
	if w.limit.Algorithm != core.SlidingWindow && rapid.Bool().Draw(w.t, "change") {
		w.limit = drawLimit(w.t, w.limit.Algorithm)
	}

	cost := w.cost()
	d := w.take(cost)
	if d.Allowed {
		return
	}
	if d.RetryAfter <= 0 || d.RetryAfter > d.ResetAfter {
		w.t.Fatalf("retry after %s, fresh after %s", d.RetryAfter, d.ResetAfter)
	}

	// A store that rounded to milliseconds would be found here.
	w.clock.Set(d.At + d.RetryAfter.Microseconds() - 1)
	if early := w.peek(cost); early.Allowed || early.RetryAfter != time.Microsecond {
		w.t.Fatalf("a microsecond before %s has passed: %+v", d.RetryAfter, early)
	}
	w.clock.Add(time.Microsecond)
	if late := w.take(cost); !late.Allowed {
		w.t.Fatalf("after %s: %+v", d.RetryAfter, late)
	}
}

func remainingIsExact(w *world) {
	w.arrive(30)
	w.move()
	w.limit = drawLimit(w.t, w.limit.Algorithm)

	n := w.peek(0).Remaining
	if n < 0 || n > w.limit.Capacity() {
		w.t.Fatalf("%d of %d remain", n, w.limit.Capacity())
	}
	if d := w.peek(n + 1); d.Allowed {
		w.t.Fatalf("%d remain and %d could be taken", n, n+1)
	}
	if d := w.take(n); !d.Allowed || d.Wait != 0 || d.Remaining != 0 {
		w.t.Fatalf("%d remain, and a take of them gives %+v", n, d)
	}
}

func upToIsExact(w *world) {
	w.arrive(30)
	w.move()
	op := w.op(core.Take, w.cost()+rapid.Int64Range(-1, 1).Draw(w.t, "more"))
	op.UpTo = true

	// Peeks say how much fits, which the take then has to charge.
	before := w.peek(0).Remaining
	want := min(op.Cost, before)
	if !w.peek(want).Allowed || want < op.Cost && w.peek(want+1).Allowed {
		w.t.Fatalf("%s: %d are not all that fit of %d", w.limit, want, op.Cost)
	}

	d := w.do(op)
	if d.Taken != want || d.Allowed != (want > 0 || op.Cost == 0) || d.Wait != 0 || d.Remaining != before-want {
		w.t.Fatalf("%s: of %d fit %d, and the take got %+v", w.limit, op.Cost, want, d)
	}
	if back := w.do(op.Refund(d)); back.Remaining != before {
		w.t.Fatalf("%s: %d remained, and after the refund %d", w.limit, before, back.Remaining)
	}
}

// debitIsExact begins before there is a debt, because what remains says what is in use only
// then.
func debitIsExact(w *world) {
	w.arrive(30)
	_, longest := spansOf(&w.limit)
	w.clock.Add(longest)
	w.move()
	before := w.peek(0)
	if before.Remaining == 0 {
		return
	}

	// The first debit charges what is left and the debt, and never more.
	most := before.Remaining + w.limit.MaxDebt()
	first := w.op(core.Debit, rapid.Int64Range(0, most+2).Draw(w.t, "cost"))
	d := w.do(first)
	want := min(first.Cost, most)
	charged := d.Allowed && d.Taken == want && d.Remaining == max(0, before.Remaining-want)
	if !charged || d.Wait != 0 || d.RetryAfter != 0 {
		w.t.Fatalf("%s: a debit of %d where %d fit: %+v", w.limit, first.Cost, most, d)
	}

	second := w.op(core.Debit, most)
	e := w.do(second)
	if e.Taken != most-want || e.Remaining != 0 {
		w.t.Fatalf("%s: after %d of %d, a debit gives %+v", w.limit, want, most, e)
	}

	w.do(second.Refund(e))
	if after := w.do(first.Refund(d)); after != before {
		w.t.Fatalf("%s: before the debits %+v, after their refunds %+v", w.limit, before, after)
	}
}

// settledInAnyOrder has takes of one key settled by refunds and debits, in one order, and
// the same takes of another key in another order. Under GCRA and TokenBucket the clock stands
// still, because a key does not keep the order of its takes.
func settledInAnyOrder(w *world) {
	moves := w.limit.Algorithm == core.FixedWindow || w.limit.Algorithm == core.SlidingWindow
	one, other := w.key+" in order", w.key+" in another"
	settled, sum := w.settlements(moves, one, other)

	for _, ops := range settled {
		w.doOn(one, ops[0])
	}
	if len(settled) > 0 {
		for _, ops := range rapid.Permutation(settled).Draw(w.t, "order") {
			w.doOn(other, ops[1])
		}
	}

	peek := w.op(core.Peek, 1)
	if moves {
		peek.Limit.Quota += 1000 // a debt is seen under a larger limit
	}

	// Without a move all units are still in use.
	d, e := w.doOn(one, peek), w.doOn(other, peek)
	if moves { // a window may have ended for a key whose units were all given back
		d, e = core.Decision{Remaining: d.Remaining}, core.Decision{Remaining: e.Remaining}
	}
	if !same(d, e) || !moves && d.Remaining != max(0, w.limit.Capacity()-sum) {
		w.t.Fatalf("%s: %d used in all leave %+v, and in another order %+v", w.limit, sum, d, e)
	}
}

// settlements makes the same takes of two keys, and returns the operations that settle
// them, each for one key and the other, and the sum of what they have used, which is within
// the debt of the limit.
func (w *world) settlements(moves bool, one, other string) (settled [][2]core.Op, sum int64) {
	debt := w.limit.MaxDebt() // that the settlements may still make
	for range rapid.IntRange(1, 8).Draw(w.t, "takes") {
		if moves {
			w.move()
		}
		take := w.op(core.Take, w.cost())
		d, e := w.doOn(one, take), w.doOn(other, take)
		if !same(d, e) {
			w.t.Fatalf("%s: a take gives %+v and %+v", w.limit, d, e)
		}
		if !d.Allowed {
			continue
		}

		// What was used less is refunded, and what was used more is debited.
		used := rapid.Int64Range(0, take.Cost+debt).Draw(w.t, "used")
		ops := [2]core.Op{take.Refund(d), take.Refund(e)}
		for i := range ops {
			if ops[i].Cost -= used; ops[i].Cost < 0 {
				ops[i] = take
				ops[i].Verb, ops[i].Cost = core.Debit, used-take.Cost
			}
		}

		debt -= max(0, used-take.Cost)
		settled, sum = append(settled, ops), sum+used
	}
	if moves {
		w.move()
	}
	return settled, sum
}

// doOn carries out the op on another key.
func (w *world) doOn(key string, op core.Op) core.Decision {
	op.Key = key
	return w.do(op)
}

// upToIsShared has three rules decide together. The last may be soft.
func upToIsShared(w *world) {
	w.arrive(10)
	ops, peeks := make([]core.Op, 3), make([]core.Op, 3)
	for i := range ops {
		ops[i] = w.op(core.Take, 1)
		if i > 0 {
			a := rapid.SampledFrom(windowed()).Draw(w.t, "algorithm")
			ops[i].Rule, ops[i].Limit = []string{"", "second", "third"}[i], drawLimit(w.t, a)
			ops[i].Cost = rapid.Int64Range(0, ops[i].Limit.Capacity()).Draw(w.t, "used before")
			w.do(ops[i])
		}
		peeks[i] = ops[i]
		peeks[i].Verb, peeks[i].Cost = core.Peek, 0
	}

	// The scarcest rule that is not soft says how many units the step charges under each.
	ops[2].Soft = rapid.Bool().Draw(w.t, "soft")
	before := w.apply(peeks...)
	cost := rapid.Int64Range(0, 1+before[0].Remaining+before[1].Remaining).Draw(w.t, "cost")
	want := cost
	for i := range ops {
		ops[i].UpTo, ops[i].Cost = true, cost
		if !ops[i].Soft {
			want = min(want, before[i].Remaining)
		}
	}

	// A soft rule that has too few left charges nothing, and the others still do.
	out := w.apply(ops...)
	for i, after := range w.apply(peeks...) {
		taken := want
		if before[i].Remaining < want {
			taken = 0
		}
		allowed := cost == 0 || before[i].Remaining >= max(1, want)
		if out[i].Taken != taken || out[i].Allowed != allowed || after.Remaining != before[i].Remaining-taken {
			w.t.Fatalf("%d of %d fit: %+v became %+v, answered %+v", want, cost, before[i], after, out[i])
		}
	}
}

func resetIsExact(w *world) {
	w.arrive(30)

	d := w.take(1)
	if d.ResetAfter == 0 {
		w.t.Fatalf("fresh right after a take: %+v", d)
	}

	// A store that keeps a key for ResetAfter, and no longer, loses nothing.
	w.clock.Set(d.At + d.ResetAfter.Microseconds() - 1)
	if early := w.peek(0); early.ResetAfter != time.Microsecond {
		w.t.Fatalf("a microsecond before %s has passed: %+v", d.ResetAfter, early)
	}
	w.clock.Add(time.Microsecond)
	late := w.peek(w.limit.Capacity())
	if late.ResetAfter != 0 || !late.Allowed || late.Remaining != w.limit.Capacity() {
		w.t.Fatalf("after %s: %+v", d.ResetAfter, late)
	}
}

func refundRestores(w *world) {
	w.arrive(30)
	w.move()
	before := w.peek(0)
	take := w.op(core.Take, w.cost())
	d := w.do(take)
	if !d.Allowed {
		return
	}
	if after := w.do(take.Refund(d)); after != before {
		w.t.Fatalf("%s: before the take %+v, after the refund %+v", w.limit, before, after)
	}
}

func refundsAreBounded(w *world) {
	type taken struct {
		op core.Op
		d  core.Decision
	}
	var all []taken

	// The same take may be refunded many times, and with more than it was charged.
	for range rapid.IntRange(1, 40).Draw(w.t, "steps") {
		w.move()
		op := w.op(core.Take, w.cost())
		if len(all) > 0 && rapid.IntRange(0, 2).Draw(w.t, "refund") == 0 {
			g := rapid.SampledFrom(all).Draw(w.t, "of")
			op = g.op.Refund(g.d)
			op.Cost = rapid.Int64Range(0, 2*op.Cost).Draw(w.t, "back")
		}

		before := w.peek(0)
		d := w.do(op)
		full := d.Remaining == w.limit.Capacity()
		if d.Remaining < 0 || d.Remaining > w.limit.Capacity() || (d.ResetAfter == 0) != full {
			w.t.Fatalf("%s after %s of %d: %+v", w.limit, op.Verb, op.Cost, d)
		}

		maxBack := op.Cost
		if w.limit.Algorithm == core.Concurrency {
			maxBack = w.limit.Quota // a release gives all of its lease back
		}
		if op.Verb == core.Refund && (d.Remaining < before.Remaining || d.Remaining > before.Remaining+maxBack) {
			w.t.Fatalf("%s: a refund of %d took %d to %d", w.limit, op.Cost, before.Remaining, d.Remaining)
		}

		if op.Verb == core.Take && d.Allowed {
			all = append(all, taken{op, d})
		}
	}
}

// refundGivesNoExtra gives two keys the same takes, and one of them an additional
// take that is refunded in the end.
func refundGivesNoExtra(w *world) {
	with, without := *w, *w
	without.key += "-without"
	with.arrive(10)
	extra := with.op(core.Take, with.cost())
	d := with.do(extra)
	if !d.Allowed {
		return
	}

	// The takes before are not repeated: the key without starts fresh, which
	// can only give it more.
	for range rapid.IntRange(0, 8).Draw(w.t, "later takes") {
		with.move()
		cost := with.cost()
		if with.take(cost).Allowed && !without.take(cost).Allowed {
			w.t.Fatalf("%s: a key with less use refuses", w.limit)
		}
	}

	with.move()
	got, want := with.do(extra.Refund(d)).Remaining, without.peek(0).Remaining
	if got > want {
		w.t.Fatalf("%s: %d remain after a refund, %d without the take", w.limit, got, want)
	}
}

func costsAddUp(w *world) {
	one, many := *w, *w
	many.key += "-many"
	for range rapid.IntRange(1, 10).Draw(w.t, "steps") {
		one.move()
		n := min(one.cost(), 12)
		if !one.peek(n).Allowed {
			continue
		}

		// The last of the single takes leaves the key as the one of n does.
		want := one.take(n)
		var got core.Decision
		var taken int64
		for range n {
			got = many.take(1)
			taken += got.Taken
		}
		if got.Taken = taken; !same(got, want) {
			w.t.Fatalf("%s: a cost of %d gives %+v, %d of one give %+v", w.limit, n, want, n, got)
		}
	}
}

// changesKeepBounds checks that no change of the limit makes a key take longer to
// be fresh than it took under the limits before.
func changesKeepBounds(w *world) {
	var sum, longest time.Duration
	for range rapid.IntRange(1, 10).Draw(w.t, "changes") {
		full := refill(w.limit)
		sum, longest = sum+full, max(longest, full)
		for range rapid.IntRange(0, 5).Draw(w.t, "arrivals") {
			w.move()
			w.take(w.cost())
		}

		unchanged := w.peek(1)
		if again := w.peek(1); again != unchanged {
			w.t.Fatalf("%s: %+v, and again %+v", w.limit, unchanged, again)
		}

		// Another limit of the same algorithm goes on with the units as they are.
		w.limit = drawLimit(w.t, w.limit.Algorithm)
		d, bound := w.peek(1), max(longest, refill(w.limit))
		if w.limit.Algorithm == core.TokenBucket {
			bound = sum + refill(w.limit) // the first refill is the old limit's
		}
		if d.Remaining < 0 || d.Remaining > w.limit.Capacity() || d.RetryAfter > bound || d.ResetAfter > bound {
			w.t.Fatalf("under %s, after limits that fill in %s: %+v", w.limit, bound, d)
		}
	}
}

// peeksChangeNothing gives two keys the same takes under the same limits. On one of
// them, other callers peek and are refused in between, under other limits. A store may
// forget keys that are fresh under the limit of their last take, so they end the run.
func peeksChangeNothing(w *world) {
	alone, watched, last := *w, *w, *w
	watched.key += "-watched"
	used := false
	for range rapid.IntRange(1, 30).Draw(w.t, "steps") {
		w.move()
		if used && last.peek(0).ResetAfter == 0 {
			return
		}

		// Other callers have another limit, under which they peek and are refused.
		limit := drawLimit(w.t, w.limit.Algorithm)
		if rapid.Bool().Draw(w.t, "peek") {
			watched.limit = limit
			watched.peek(w.cost())
			if n := watched.peek(0).Remaining; n < limit.Capacity() {
				if d := watched.take(n + 1); d.Allowed {
					w.t.Fatalf("%s admits more than the %d that remain: %+v", limit, n, d)
				}
			}
			continue
		}

		w.limit = limit
		op := w.op(core.Take, w.cost())
		alone.named, watched.named = nil, nil
		op.Key = alone.key
		want := alone.do(op)
		op.Key = watched.key
		if got := watched.do(op); !same(got, want) {
			w.t.Fatalf("under %s, %+v without peeks and refusals, and %+v with them", limit, want, got)
		}

		w.named = append(w.named, alone.named...)
		if want.Taken > 0 {
			used, last.limit = true, limit
		}
	}
}

func backwardsIsBounded(w *world) {
	for range rapid.IntRange(1, 30).Draw(w.t, "arrivals") {
		w.move()
		w.take(w.cost())
	}

	before := w.peek(1)
	back := rapid.Int64Range(1, 3*3600*1e6).Draw(w.t, "back")
	w.clock.Add(-time.Duration(back) * time.Microsecond)
	after := w.peek(1)
	if after.Remaining > before.Remaining {
		w.t.Fatalf("%s: the clock steps back and %d become %d", w.limit, before.Remaining, after.Remaining)
	}

	// What was charged at instants that are to come yet counts as charged now.
	if bound := refill(w.limit); after.RetryAfter > bound {
		w.t.Fatalf("%s: locked out for %s, more than %s", w.limit, after.RetryAfter, bound)
	}
}

func allOrNothing(w *world) {
	w.arrive(10)
	ops, peeks := make([]core.Op, 3), make([]core.Op, 3)
	for i := range ops {
		ops[i] = w.op(core.Take, w.cost())
		if i > 0 {
			a := rapid.SampledFrom(append(windowed(), core.Concurrency)).Draw(w.t, "algorithm")
			ops[i].Rule, ops[i].Limit = []string{"", "second", "third"}[i], drawLimit(w.t, a)
			ops[i].Cost = rapid.Int64Range(1, ops[i].Limit.Capacity()+1).Draw(w.t, "cost of another")
		}
		peeks[i] = ops[i]
		peeks[i].Verb = core.Peek
	}

	// Peeks before and after show what the step has changed under each rule.
	before := w.apply(peeks...)
	out := w.apply(ops...)
	granted := out[0].Allowed && out[1].Allowed && out[2].Allowed
	for i, d := range w.apply(peeks...) {
		if !granted && d != before[i] {
			w.t.Fatalf("a refused step turned %+v into %+v", before[i], d)
		}
		if granted && out[i].Remaining > before[i].Remaining-ops[i].Cost {
			w.t.Fatalf("an admitted step of %d turned %+v into %+v", ops[i].Cost, before[i], out[i])
		}
	}
}

// ceilMulDiv returns a·b/c, rounded up.
func ceilMulDiv(a, b, c int64) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	n.Add(n, big.NewInt(c-1))
	return n.Div(n, big.NewInt(c)).Int64()
}
