package core

import (
	"math/big"
	"testing"
	"time"
)

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{"", "100/1m burst=20", "5/s sliding-log", "240/1h sliding-window segments=60",

		// Each algorithm, numbers at and beyond the borders, and words that are not of the grammar.
		"10/.5s fixed-window aligned",
		"1/100ms token-bucket burst=50", "20 concurrent ttl=30s", "1/400d", "1/1h1d", "9223372036854775807/1s",
		"-0/1s", "1/1s \xff", "1/1µs", "1/9600h0m0s",
		"10000/month tz=Europe/Berlin start=15", "5/day tz=UTC debt=3", "1/week start=07", "3/year start=02-28",
		"1/year start=02-29", "1/month start=31",
		"1/month tz=Europe/./Berlin", "1/month tz=posix/Europe/Berlin", "1/day tz=\x00"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLimit(text)
		if err != nil {
			if l != (Limit{}) {
				t.Errorf("ParseLimit(%q) = %+v with an error", text, l)
			}
			return
		}

		// What is accepted is valid, and its text leads back to it.
		if err := l.Validate(); err != nil {
			t.Errorf("ParseLimit(%q) is invalid: %v", text, err)
		}
		if again, err := ParseLimit(l.String()); again != l || err != nil {
			t.Errorf("ParseLimit(%q) = %+v, written %q and read as %+v, %v", text, l, l, again, err)
		}
	})
}

// Spans and units are exact for every limit that is accepted and every number
// of units that its state can hold.
func FuzzGCRASpans(f *testing.F) {
	f.Add(int64(60), int64(time.Second), int64(0), int64(59), int64(999_999))
	f.Add(int64(999_983), int64(24*time.Hour), int64(7), int64(999_982), int64(86_399_999_999))
	f.Add(int64(1e9), int64(time.Second), int64(0), int64(1), int64(1))
	f.Add(int64(9_007_199_254_740_991), int64(MaxPeriod), int64(1), int64(1<<52), int64(1))

	// The arithmetic in 64 bits is compared with that of big numbers.
	f.Fuzz(func(t *testing.T, quota, period, burst, n, span int64) {
		l := Limit{Quota: quota, Period: time.Duration(period), Burst: burst}
		if l.Validate() != nil {
			return
		}

		// Beyond what a state can hold nothing is promised, so the fuzzer's numbers are folded into
		// it.
		r := l.rate()
		maxUsed := l.Capacity() + r.units*(int64(MaxBooking/time.Microsecond)/r.every+3)
		n = abs(n) % (maxUsed + 1)
		span = abs(span) % (r.span(maxUsed) + 1)

		if got, want := r.span(n), fraction(n, r.every, r.units, r.units-1); got != want {
			t.Errorf("%s: span(%d) = %d, not %d", l, n, got, want)
		}
		if got, want := r.back(span), fraction(span, r.units, r.every, 0); got != want {
			t.Errorf("%s: back(%d) = %d, not %d", l, span, got, want)
		}
	})
}

// fraction returns (a·b + plus) / c.
func fraction(a, b, c, plus int64) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	return n.Add(n, big.NewInt(plus)).Div(n, big.NewInt(c)).Int64()
}

func abs(n int64) int64 { return max(n, -(n + 1)) }

// A step ends, its decision is within bounds and nothing overflows, under all
// valid limits, for all sound ops and at all instants.
func FuzzDecide(f *testing.F) {
	// A seed for each algorithm: the two limits under which its moves are played, and the moves.
	f.Add(uint8(0), int64(7), int64(time.Second), int64(3), 0, int64(9), int64(MaxPeriod),
		[]byte("\x00\x01\x82\x43\x00\xff\x10"))
	f.Add(uint8(1), int64(2), int64(3*time.Second), int64(0), 1, int64(5), int64(time.Second),
		[]byte("takes and refunds"))
	f.Add(uint8(2), int64(1000), int64(time.Hour), int64(0), 0, int64(1), int64(time.Hour), []byte("\xc0\x40\x80\x00"))
	f.Add(uint8(3), int64(240), int64(time.Hour), int64(0), 60, int64(9_007_199_254), int64(time.Hour),
		[]byte("\x00\x01\x02\x03\x04"))
	f.Add(uint8(4), int64(1<<51), int64(minPeriod), int64(1<<51), 0, int64(3), int64(time.Hour),
		[]byte("\x00\x80\x80\x80\x05"))
	f.Add(uint8(5), int64(10000), int64(MaxPeriod), int64(0), 0, int64(1), int64(time.Second),
		[]byte("\x00\x11\x22\x33"))
	f.Fuzz(func(t *testing.T, algorithm uint8, quota, period, burst int64, segments int, quota2, period2 int64,
		moves []byte) {
		// The second limit differs in quota and period: a state written under one is decided under
		// the other.
		a := Algorithm(algorithm % uint8(algorithmCount))
		first := Limit{Algorithm: a, Quota: quota, Period: time.Duration(period), Burst: burst, Segments: segments}
		second := first
		second.Quota, second.Period, second.Aligned = quota2, time.Duration(period2), a == FixedWindow
		if first.Validate() != nil || second.Validate() != nil || len(moves) > 200 {
			return
		}

		s, now := new(State), int64(1_790_000_000_000_000)
		last := Decision{At: now}

		// A byte is a move: its low bits choose the op, its high ones the instant.
		for i, m := range moves {
			op := fuzzOp(m, first, last)
			if m&0x0c == 0x0c {
				op.Limit = second
			}
			now = fuzzInstant(now, int64(m>>4), last, op.Limit)
			var out [1]Decision
			if err := CheckOps([]Op{op}, out[:]); err != nil {
				t.Fatal(err)
			}
			Decide([]Op{op}, []*State{s}, now, out[:])

			// The next op may refer to it, as a refund does.
			last = out[0]
			checkDecision(t, i, &op, &last)
		}
	})
}

func fuzzOp(m byte, l Limit, last Decision) Op {
	costs := []int64{1, l.Capacity(), l.Capacity()/2 + 1, 1<<63 - 1}
	op := Op{Limit: l, Cost: costs[m>>2&3], Lease: string('a' + rune(m>>5)), MaxWait: MaxBooking}
	switch m & 3 {
	case 1:
		op.MaxWait = 0
	case 2:
		op.Verb, op.At, op.ResetAfter = Refund, last.At, last.ResetAfter
	case 3:
		op.Verb, op.At, op.ResetAfter = Refund, exact-1-last.At*int64(m>>7), Never
	}
	return op
}

// fuzzInstant goes to an instant that the last decision named, to one around
// it, an hour back, or far away.
func fuzzInstant(now, kind int64, last Decision, l Limit) int64 {
	switch {
	case kind < 4:
		return now + int64(last.ResetAfter/time.Microsecond) + kind - 2
	case kind < 8 && last.RetryAfter != Never:
		return now + int64(last.RetryAfter/time.Microsecond) + kind - 6
	case kind < 12:
		return now + l.period()*(kind-8)/3
	case kind == 12:
		return max(1e15, now-3600e6)
	}
	return max(1e15, min(1e15*8, now+(kind-14)*l.period()*7))
}

func checkDecision(t *testing.T, i int, op *Op, d *Decision) {
	t.Helper()
	capacity := op.Limit.Capacity()
	switch {
	case d.Remaining < 0 || d.Remaining > capacity,
		d.ResetAfter < 0 || (d.ResetAfter == 0) != (d.Remaining == capacity),
		d.Allowed != (d.RetryAfter == 0),
		d.RetryAfter < 0, d.Wait < 0 || d.Wait > op.MaxWait,
		d.RetryAfter == Never && op.Cost <= capacity,
		d.RetryAfter != Never && d.RetryAfter > d.ResetAfter:
		t.Fatalf("step %d, %s of %d under %s: %+v", i, op.Verb, op.Cost, op.Limit, *d)
	}
}
