package stats

import (
	"cmp"
	"crypto/rand"
	"slices"
	"time"
)

const (
	// maxMinutes and maxPairs bound the counts that wait: of so many minutes, and of so
	// many pairs of a minute and a policy.
	maxMinutes = 60
	maxPairs   = 100_000

	// maxBatch is the largest number of pairs in a batch. It bounds for how long a batch
	// keeps the server from other calls.
	maxBatch = 1000

	// repeatable is how long the batches that were written are kept, for a server that
	// loses them, and maxRepeatable how many pairs of them.
	repeatable    = 2 * time.Minute
	maxRepeatable = 20_000
)

// ledger holds the counts that are to be written and those that were written lately.
//
//	waiting --batch--> next --written--> sent --after repeatable--> forgotten
//	   ^                |                 |
//	   +----- rewind, if the server has lost it -----+
//
// There is at most one batch in next, which the server may have added or not: it is sent as it is
// until that is known. The numbers of batches count up from 1 under each id. The server adds a
// batch only if it has added the one before and not this one, so it adds none twice and leaves
// none out. If it turns out to have lost batches, because it was restarted without its data or
// replaced by a replica that lacked some, those of the last two minutes are sent again.
type ledger struct {
	id      string   // under which the server knows the batches
	number  int64    // of the last batch
	unit    int64    // the seconds of what stands for a minute: less until the server's time is known
	waiting []*tally // in no batch yet, by minute
	pairs   int      // in waiting
	next    *batch   // that may have been added or not; nil for none
	sent    []*batch // that were added lately, the oldest first
	kept    int      // the pairs in sent
}

// tally holds the counts of one minute.
type tally struct {
	minute   int64
	requests [Tens]Counts // of each ten seconds; in the first while the minute is not known
	lost     int64
	policies map[string]Counts
}

// all returns the requests of the minute.
func (t *tally) all() (sum Counts) {
	for _, n := range t.requests {
		sum.Add(n)
	}
	return sum
}

// batch is what is written in one call. It never changes.
type batch struct {
	number  int64
	minutes []*tally
	pairs   int
	at      time.Time // when it was added
}

// early is the number of seconds that are told apart until the server's time is known, so
// that each is moved to the right minute then.
const early = 5

func newLedger() ledger { return ledger{id: rand.Text(), unit: early} }

// minute returns the counts of a minute that wait.
func (l *ledger) minute(minute int64) *tally {
	i, found := slices.BinarySearchFunc(l.waiting, minute, func(t *tally, m int64) int {
		return cmp.Compare(t.minute, m)
	})
	if !found {
		l.waiting = slices.Insert(l.waiting, i, &tally{minute: minute, policies: map[string]Counts{}})
	}
	return l.waiting[i]
}

func (l *ledger) addRequests(minute int64, ten int, n Counts) { l.minute(minute).requests[ten].Add(n) }

func (l *ledger) addDecisions(minute int64, name string, n Counts) {
	t := l.minute(minute)
	sum, known := t.policies[name]
	if !known {
		l.pairs++
	}
	sum.Add(n)
	t.policies[name] = sum
}

// merge adds counts to those that wait.
func (l *ledger) merge(minute int64, from *tally) {
	for ten, n := range from.requests {
		l.addRequests(minute, ten, n)
	}
	l.minute(minute).lost += from.lost
	for name, n := range from.policies {
		l.addDecisions(minute, name, n)
	}
}

// bound drops the oldest minutes that wait while there are too many, and counts their
// requests as lost in the newest.
func (l *ledger) bound() {
	for len(l.waiting) > int(maxMinutes*60/l.unit) || l.pairs > maxPairs && len(l.waiting) > 1 {
		oldest := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		l.pairs -= len(oldest.policies)
		l.waiting[len(l.waiting)-1].lost += oldest.all().Total() + oldest.lost
	}
}

// slot returns the minute of an instant, or the shorter span that stands for one, and its ten
// seconds in a minute.
func (l *ledger) slot(t time.Time) (minute int64, ten int) {
	if l.unit == early {
		return floor(t.Unix(), early), 0
	}
	return minuteOf(t), tenOf(t)
}

// dateWaiting moves the counts that wait to the minutes of the server's clock, which is ahead by d.
func (l *ledger) dateWaiting(d time.Duration) {
	from := l.waiting
	l.waiting, l.pairs = nil, 0
	for _, t := range from {
		middle := time.Unix(t.minute*l.unit, 0).Add(time.Duration(l.unit) * time.Second / 2).Add(d)
		t.requests, t.requests[tenOf(middle)] = [Tens]Counts{}, t.all()
		l.merge(minuteOf(middle), t)
	}
	l.unit = 60
}

// batch returns the batch to be written now: the one of the last call if it may not have
// been added, or else a new one of the counts that have waited longest. It returns nil if
// there are none.
func (l *ledger) batch() *batch {
	if l.next != nil || len(l.waiting) == 0 {
		return l.next
	}

	l.number++
	b := &batch{number: l.number}
	for len(l.waiting) > 0 && b.pairs < maxBatch {
		t := l.waiting[0]

		// A minute that does not fit is split, and the rest of it waits for the next batch.
		if piece := t.split(maxBatch - b.pairs); piece != nil {
			t = piece
		} else {
			l.waiting = slices.Delete(l.waiting, 0, 1)
		}
		b.minutes = append(b.minutes, t)
		b.pairs += len(t.policies)
		l.pairs -= len(t.policies)
	}

	// Until it is known to be added, it is sent again as it is: counts that come meanwhile must not
	// join it.
	l.next = b
	return b
}

// split takes all but the policies beyond the first n away, or returns nil if there are
// none beyond.
func (t *tally) split(n int) *tally {
	if len(t.policies) <= n {
		return nil
	}
	return t.piece(n)
}

// piece takes all but the policies beyond the first n away.
func (t *tally) piece(n int) *tally {
	// The first piece takes what is not of single policies, which must not be added twice.
	piece := &tally{minute: t.minute, requests: t.requests, lost: t.lost, policies: make(map[string]Counts, n)}
	t.requests, t.lost = [Tens]Counts{}, 0

	for name, c := range t.policies {
		if len(piece.policies) == n {
			break
		}
		piece.policies[name] = c
		delete(t.policies, name)
	}
	return piece
}

// hasten takes the requests of all minutes, and not the decisions on them, into a batch that is
// written before the others. It does nothing while a batch may have been added or not.
func (l *ledger) hasten() {
	if l.next != nil {
		return
	}

	b := &batch{number: l.number + 1}
	for _, t := range l.waiting {
		if t.all() != (Counts{}) || t.lost != 0 {
			b.minutes = append(b.minutes, t.piece(0))
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(t *tally) bool { return len(t.policies) == 0 })
	if len(b.minutes) > 0 {
		l.number, l.next = b.number, b
	}
}

// written records that the batch was added, and forgets those that were added long ago.
func (l *ledger) written(now time.Time) {
	l.next.at = now
	l.sent, l.kept = append(l.sent, l.next), l.kept+l.next.pairs
	l.next = nil

	for len(l.sent) > 0 && (now.Sub(l.sent[0].at) > repeatable || l.kept > maxRepeatable) {
		l.kept -= l.sent[0].pairs
		l.sent = slices.Delete(l.sent, 0, 1)
	}
}

// rewind puts the batches after the number last back among the counts that wait, because
// the server has lost them. The batches that follow have another id, so that no call that is
// still on its way can be taken for one of them.
func (l *ledger) rewind(last int64) {
	written := l.sent
	if l.next != nil {
		written = append(written, l.next)
	}

	l.id, l.number, l.next, l.sent, l.kept = rand.Text(), 0, nil, nil, 0

	for _, b := range written {
		if b.number <= last {
			continue
		}
		for _, t := range b.minutes {
			l.merge(t.minute, t)
		}
	}
}

// fields returns the fields of the hash of the minute, each with what is added to it.
func (t *tally) fields() (list []any) {
	for v, n := range t.all() {
		if n != 0 {
			list = append(list, letters[v], n)
		}
	}
	if t.lost != 0 {
		list = append(list, lostField, t.lost)
	}

	for name, c := range t.policies {
		for v, n := range c {
			if n != 0 {
				list = append(list, fieldOf(v, name), n)
			}
		}
	}
	return list
}

// tens returns the fields of the hash of the ten seconds of the minute, as fields does.
func (t *tally) tens() (list []any) {
	for ten, c := range t.requests {
		for v, n := range c {
			if n != 0 {
				list = append(list, tenField(ten, v), n)
			}
		}
	}
	return list
}
