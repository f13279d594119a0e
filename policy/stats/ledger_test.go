package stats

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/observe/events"
)

func counts(allowed int64) Counts { return Counts{events.Allowed: allowed} }

// known returns a ledger that knows the server's time.
func known() *ledger {
	l := newLedger()
	l.dateWaiting(0)
	return &l
}

// sumOf returns the requests and decisions of tallies, by minute.
func sumOf(list []*tally) (requests, decisions, lost map[int64]int64) {
	requests, decisions, lost = map[int64]int64{}, map[int64]int64{}, map[int64]int64{}

	for _, t := range list {
		if n := t.all().Total(); n != 0 {
			requests[t.minute] += n
		}
		for _, c := range t.policies {
			decisions[t.minute] += c.Total()
		}

		if t.lost != 0 {
			lost[t.minute] += t.lost
		}
	}
	return requests, decisions, lost
}

func TestLedgerDropsTheOldestMinutesAndSaysSo(t *testing.T) {
	l := known()

	// Three minutes more than are kept. Minute m has 10+m requests, so a sum shows which minutes it
	// is of.
	for m := range int64(maxMinutes + 3) {
		l.addRequests(m, 0, counts(10+m))
		l.addDecisions(m, "p", counts(1))
		l.bound()
	}

	requests, _, lost := sumOf(l.waiting)
	if len(l.waiting) != maxMinutes || l.pairs != maxMinutes || requests[2] != 0 || requests[3] != 13 {
		t.Errorf("%d minutes, %d pairs, %v", len(l.waiting), l.pairs, requests)
	}

	// The newest minute at each time takes over what was dropped: the requests of minutes 0, 1 and
	// 2.
	if want := map[int64]int64{maxMinutes: 10, maxMinutes + 1: 11, maxMinutes + 2: 12}; !maps.Equal(lost, want) {
		t.Errorf("lost: %v, want %v", lost, want)
	}
}

func TestLedgerDropsMinutesOfTooManyPolicies(t *testing.T) {
	l := known()
	for m := range int64(3) {
		l.addRequests(m, 0, counts(7))
		for p := range maxPairs / 2 {
			l.addDecisions(m, fmt.Sprint(p), counts(1))
		}
		l.bound()
	}
	requests, _, lost := sumOf(l.waiting)
	if len(requests) != 2 || l.pairs != maxPairs || !maps.Equal(lost, map[int64]int64{2: 7}) {
		t.Errorf("%v, %d pairs, lost %v", requests, l.pairs, lost)
	}
}

func TestLedgerBatchesAreSmallAndComplete(t *testing.T) {
	l := known()

	// Three minutes of 700 policies, which fit into no single batch.
	want := map[int64]int64{}
	for m := range int64(3) {
		l.addRequests(m, 0, counts(5))
		for p := range 700 {
			l.addDecisions(m, fmt.Sprint(p), counts(int64(p)))
			want[m] += int64(p)
		}
	}

	var all []*tally
	for number := int64(1); ; number++ {
		b := l.batch()
		if b == nil {
			break
		}

		// Asked again before it was written, the ledger returns the same batch: it may have
		// arrived.
		if b.number != number || b.pairs > maxBatch || l.batch() != b {
			t.Errorf("batch %d has number %d and %d pairs", number, b.number, b.pairs)
		}

		all = append(all, b.minutes...)
		l.written(time.Unix(0, 0))
	}

	// The batches together hold everything, and nothing twice.
	requests, decisions, _ := sumOf(all)
	if !maps.Equal(requests, map[int64]int64{0: 5, 1: 5, 2: 5}) || !maps.Equal(decisions, want) ||
		l.pairs != 0 || l.number != 3 {
		t.Errorf("%v %v, %d pairs left, %d batches", requests, decisions, l.pairs, l.number)
	}
}

func TestLedgerSendsAgainWhatTheServerLost(t *testing.T) {
	// By the number of the last batch that the server still has: none, both that were written, and
	// one.
	for last, want := range map[int64]map[int64]int64{0: {1: 1, 2: 2, 3: 3}, 2: {3: 3}, 1: {2: 2, 3: 3}} {
		l := known()
		id := l.id

		// The third batch is on its way when the server is found to have lost data.
		for m := range int64(3) {
			l.addRequests(m+1, 0, counts(m+1))
			l.batch()
			if m < 2 {
				l.written(time.Unix(m, 0))
			}
		}

		l.rewind(last)
		if l.id == id || l.batch().number != 1 {
			t.Error("the batches go on under the old id")
		}

		// Batches after the number are sent again under a new id, so that a call which is still on
		// its way adds nothing.
		if got, _, _ := sumOf(l.next.minutes); !maps.Equal(got, want) {
			t.Errorf("after %d: %v, want %v", last, got, want)
		}
	}
}

func TestLedgerForgetsBatchesThatWereWrittenLongAgo(t *testing.T) {
	l := known()
	at := time.Unix(0, 0)

	// Written a minute apart, only the last three are within the two minutes for which a server may
	// need them again.
	for range 5 {
		l.addDecisions(1, "p", counts(1))
		l.batch()
		l.written(at)
		at = at.Add(repeatable / 2)
	}
	if len(l.sent) != 3 || l.kept != 3 {
		t.Errorf("%d batches of %d pairs are kept, want those of two minutes", len(l.sent), l.kept)
	}

	// Twice as many pairs as may be kept, at one instant: now their number is the bound.
	for range 2*maxRepeatable/maxBatch + 1 {
		for p := range maxBatch {
			l.addDecisions(2, fmt.Sprint(p), counts(1))
		}
		l.batch()
		l.written(at)
	}

	if l.kept > maxRepeatable || len(l.sent) != maxRepeatable/maxBatch {
		t.Errorf("%d batches of %d pairs are kept", len(l.sent), l.kept)
	}
}

// Counts from before the server's time is known move to its minutes, however far off the
// own clock is.
func TestLedgerMovesEarlyCounts(t *testing.T) {
	for _, off := range []time.Duration{0, 90 * time.Second, -90 * time.Second, 7*time.Hour + 17*time.Second} {
		l := newLedger()
		server := time.Unix(1_000_000*60, 0)
		want := map[int64]int64{}

		// One request a second for four minutes by a clock that is off.
		for s := range int64(240) {
			at := server.Add(time.Duration(s) * time.Second)
			minute, ten := l.slot(at.Add(off))
			l.addRequests(minute, ten, counts(1))
			want[minuteOf(at)]++
		}

		// Once the offset is known every count moves. At each edge of a minute a span of `early`
		// seconds may be on the wrong side.
		l.dateWaiting(-off)
		got, _, _ := sumOf(l.waiting)
		if len(got) < 4 || len(got) > 5 {
			t.Errorf("off by %s: %v", off, got)
		}

		total := int64(0)
		for m, n := range got {
			total += n
			if wrong := n - want[m]; wrong < -early || wrong > early {
				t.Errorf("off by %s: %d of %d in minute %d", off, n, want[m], m)
			}
		}

		if total != 240 || !slices.IsSortedFunc(l.waiting, func(a, b *tally) int { return int(a.minute - b.minute) }) {
			t.Errorf("off by %s: %d of 240", off, total)
		}
	}
}

// Requests have their ten seconds, whatever becomes of the batches that they are in.
func TestLedgerTellsTensApart(t *testing.T) {
	l := known()
	for s := range int64(120) {
		minute, ten := l.slot(time.Unix(s, 0))
		l.addRequests(minute, ten, counts(s/10+1))
	}
	l.addDecisions(0, "p", counts(7))

	told := func(list []*tally) (text string) {
		for _, m := range list {
			text += fmt.Sprint(m.minute, " ", m.tens(), " ", len(m.policies), " ")
		}
		return text
	}
	const want = "0 [0a 10 1a 20 2a 30 3a 40 4a 50 5a 60] %d 1 [0a 70 1a 80 2a 90 3a 100 4a 110 5a 120] 0 "

	// In haste the requests go before the decisions, which follow in the next batch.
	l.hasten()
	if got := told(l.next.minutes); got != fmt.Sprintf(want, 0) || l.pairs != 1 || l.number != 1 {
		t.Errorf("in haste: %s, %d pairs wait", got, l.pairs)
	}
	l.hasten() // while it may have been added, it stays as it is
	l.written(time.Unix(0, 0))
	if b := l.batch(); told(b.minutes) != "0 [] 1 " || b.number != 2 || l.pairs != 0 {
		t.Errorf("then: %s", told(b.minutes))
	}
	l.written(time.Unix(0, 0))
	if l.hasten(); l.next != nil {
		t.Errorf("of nothing: %s", told(l.next.minutes))
	}

	// What the server lost is sent again in the same tens.
	l.rewind(0)
	if got := told(l.batch().minutes); got != fmt.Sprintf(want, 1) {
		t.Errorf("again: %s", got)
	}
}

// Requests from before the server's time is known move to its ten seconds.
func TestLedgerMovesEarlyTens(t *testing.T) {
	l := newLedger()
	for s := range int64(60) {
		minute, ten := l.slot(time.Unix(s, 0))
		l.addRequests(minute, ten, counts(1))
	}
	l.dateWaiting(90 * time.Second)
	if got := fmt.Sprint(l.waiting[0].minute, l.waiting[0].tens(), l.waiting[1].minute, l.waiting[1].tens()); got !=
		"1 [3a 10 4a 10 5a 10] 2 [0a 10 1a 10 2a 10]" {
		t.Errorf("they moved to %s", got)
	}
}
