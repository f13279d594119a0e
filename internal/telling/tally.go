package telling

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
)

// Tally counts what became of the requests under one rule, and their keys. It is safe for
// concurrent use.
type Tally struct {
	since             time.Time
	top               int // the most keys of a list
	refused, admitted *topkeys.Sketch
	stripes           [tallyStripes]stripe
}

// tallyStripes is the number of counters for each verdict, a power of two, so that
// processors seldom write to the same one.
const tallyStripes = 8

// stripe is one counter for each verdict, on cache lines of its own.
type stripe struct {
	verdicts [events.Verdicts]atomic.Int64
	_        [128 - 8*events.Verdicts%128]byte
}

// NewTally returns a Tally that keeps so many keys; see topkeys.Options.Top, which top is within.
func NewTally(top int) *Tally {
	t := &Tally{since: time.Now(), top: top}
	t.refused, _ = topkeys.New(topkeys.Options{Top: top})
	t.admitted, _ = topkeys.New(topkeys.Options{Top: top})
	return t
}

// Count counts a request.
func (t *Tally) Count(v events.Verdict, key string) {
	t.stripes[rand.Uint32()%tallyStripes].verdicts[v].Add(1)
	switch v {
	case events.Allowed, events.Waited:
		t.admitted.Add(key)
	case events.Refused, events.Banned, events.Impossible, events.Denied, events.QueueFull, events.Degraded,
		events.ShadowRefused:

		t.refused.Add(key)
	}
}

// Counts returns how many requests had each verdict.
func (t *Tally) Counts() (n [events.Verdicts]int64) {
	for i := range t.stripes {
		for v := range n {
			n[v] += t.stripes[i].verdicts[v].Load()
		}
	}
	return n
}

// Since returns when t was made.
func (t *Tally) Since() time.Time { return t.since }

// Keys returns the keys that a rule of the name refused and admitted most often.
func (t *Tally) Keys(rule string) topkeys.Rule {
	top := topkeys.Rule{Rule: rule, Refused: t.refused.Summary(), Admitted: t.admitted.Summary()}

	// Of two minutes, one has ended a moment ago: the minute is complete when the other has too.
	refused, admitted := t.refused.Last(), t.admitted.Last()
	apart := refused.To.Sub(admitted.To).Abs()
	if refused.To.IsZero() || admitted.To.IsZero() || apart < topkeys.DefaultWindow/2 {
		top.Minute = topkeys.Merge(t.top, refused, admitted)
	}
	return top
}
