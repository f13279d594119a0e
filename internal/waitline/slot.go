// This file has slots: units that the store has booked and that are used later.

package waitline

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// Slot is what one step has booked under all rules of a request. Its line changes it.
type Slot struct {
	Ops    []core.Op
	Out    []core.Decision
	Booked time.Time // when the store answered
	Due    time.Time // when the units may be used

	// Degraded is kept for the caller: the request passes over the limit of a rule.
	Degraded bool

	// Owner is the request of a slot that fits no other, such as one with a lease, or nil.
	Owner any

	// Kept is set for a slot that was given back in vain: others have booked behind it.
	Kept bool
}

// fits reports whether the slot is one for a request with these ops.
func (s *Slot) fits(ops []core.Op) bool {
	if s.Owner != nil || len(ops) != len(s.Ops) {
		return false
	}

	for i := range ops {
		a, b := &ops[i], &s.Ops[i]
		same := a.Rule == b.Rule && a.Key == b.Key && a.Cost == b.Cost && a.Soft == b.Soft && a.Limit.Equal(&b.Limit)
		if !same || a.Lease != "" {
			return false
		}
	}
	return true
}

// Canceled notes that the caller has given slots of the line for k back, and has the next
// request of the line ask. It returns what is to be given back then.
func (q *Queue) Canceled(k Key, slots []*Slot) (surplus []*Slot) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[k]
	l.canceling--
	l.askNow = true

	for _, s := range slots {
		// A slot that the store could not take back is of use until its instant. It keeps its line,
		// so there is a bound.
		if s.Kept && q.Lines() <= q.max {
			l.spare = append(l.spare, s)
			own := Key{k.Rule, strings.Clone(k.Key)}
			time.AfterFunc(time.Until(s.Due), func() { q.dropSpare(own) })
		}
	}
	surplus = l.assignSlots()
	q.closeEmptyLocked(k)
	return surplus
}

// dropSpare forgets the kept slots whose instant has come.
func (q *Queue) dropSpare(k Key) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[k]
	if l == nil {
		return
	}

	now := time.Now()
	l.spare = slices.DeleteFunc(l.spare, func(s *Slot) bool { return s.Kept && !s.Due.After(now) })
	q.closeEmptyLocked(k)
}
