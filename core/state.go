package core

import (
	"slices"
	"time"
)

// State is the state of one key in a store: the zero value for a key that was
// never used. Only the algorithms read or write its fields. A store keeps it as
// [Decide] says.
type State struct {
	// Limit is the limit under which the units in use come back. It may be another
	// than that of the last op: a Peek, a refused Take and a Refund leave it, and
	// some algorithms also leave it at a Take while units are in use.
	Limit Limit

	// Used is the number of units in use since Mark, an instant in
	// microseconds. FixedWindow, CalendarWindow, TokenBucket and GCRA use both.
	Used, Mark int64

	// Over is the number of units that GCRA had in use beyond its burst, booked or in
	// debt, and Slot is the instant of the latest booking. For CalendarWindow Slot is the
	// beginning of the window that ends at Mark.
	Over, Slot int64

	// Log holds the admitted units of SlidingLog by the instant at which they end, and those
	// of SlidingWindow that were taken under Limit by segment, from Head on, oldest first.
	Log  []Entry
	Head int

	// Leases are the leases of Concurrency, in the order of their expiry.
	Leases []Lease

	Aside

	// Changed is set by [Decide] when the state has to be kept, ConductChanged when at
	// least its Conduct and its Credits have to be.
	Changed, ConductChanged bool

	windows *Windows // of the step that Decide carries out
}

// Entry is N units that end at the instant, or were admitted in the segment, At.
type Entry struct{ At, N int64 }

// Aside is the part of a state that hardly any key has. It is zero for all others.
type Aside struct {
	// Conduct is what is kept of the refusals of the key under a [Ban].
	Conduct conduct

	// Void says which Takes a Reset has made void.
	Void void

	// Others holds the units of SlidingWindow that were taken under segments of another
	// length or number than those of Limit. Those of one length and number are neighbours.
	Others []segment

	// Credits are the units that the key may take beside its limit.
	Credits []credit
}

// None reports whether the part holds nothing.
func (a *Aside) None() bool {
	return a.Conduct.Until|a.Conduct.Forget|a.Void.Until|int64(len(a.Others)|len(a.Credits)) == 0 // one branch
}

// segment is N units that were admitted in segment At of those that are Width microseconds
// long, and of which Count make a period.
type segment struct{ At, N, Width, Count int64 }

// Lease is Units held by ID until the instant Expiry.
type Lease struct {
	ID            string
	Expiry, Units int64
}

// void says that a Reset has dropped the units of the Takes up to the instant At, so that
// their refunds give nothing back. After Until they would not, because the time has given
// back all that was in use. The zero value is of a key that was not reset.
type void struct{ At, Until int64 }

// exclude makes the Takes at the instant of the Reset valid, when units were taken at now, after
// it. A refund cannot tell the Takes of one instant apart.
func (v *void) exclude(now int64) {
	if v.At == now {
		v.At--
	}
}

// covers reports whether the Take of a refund is void.
func (v void) covers(op *Op, now int64) bool {
	return op.At != 0 && op.At <= v.At && v.At <= now && now < v.Until
}

// ForgetAfter returns the time from d, the decision on an op on the state, until its key is
// fresh and a store may forget it: until its units are back, its strikes no longer count,
// its bans are forgotten, no Take is void and its credits have ended.
func (s *State) ForgetAfter(d *Decision) time.Duration {
	if s.unitsOnly() {
		return d.ResetAfter
	}
	return max(d.ResetAfter, micros(s.Conduct.reset(d.At)), micros(s.Void.Until-d.At), micros(s.creditReset(d.At)))
}

// unitsOnly reports whether the state holds nothing but units.
func (s *State) unitsOnly() bool {
	return s.Conduct.None() && s.Void.Until|int64(len(s.Credits)) == 0
}

// live returns the entries that still count.
func (s *State) live() []Entry { return s.Log[s.Head:] }

// push adds n units at the instant or segment at, which must not precede any
// other. It reuses the room of entries that no longer count.
func (s *State) push(at, n int64) {
	if end := len(s.Log) - 1; end >= s.Head && s.Log[end].At == at {
		s.Log[end].N += n
		return
	}
	if len(s.Log) == cap(s.Log) && s.Head > 0 {
		s.Log = s.Log[:copy(s.Log, s.Log[s.Head:])]
		s.Head = 0
	}
	s.Log = append(s.Log, Entry{at, n})
}

// insert adds n units that end at the instant.
func (s *State) insert(end, n int64) {
	i := len(s.Log)
	for i > s.Head && s.Log[i-1].At > end {
		i--
	}
	switch {
	case i == len(s.Log):
		s.push(end, n)
	case i > s.Head && s.Log[i-1].At == end:
		s.Log[i-1].N += n
	default:
		s.Log = slices.Insert(s.Log, i, Entry{end, n})
	}
}

// total is the sum of the units that still count.
func (s *State) total() int64 {
	var n int64
	for _, e := range s.live() {
		n += e.N
	}
	return n
}

// pop takes up to n units from the i-th live entry and returns how many it
// took.
func (s *State) pop(i int, n int64) int64 {
	e := &s.Log[s.Head+i]
	n = min(n, e.N)
	e.N -= n
	return n
}

// prune removes entries that hold nothing.
func (s *State) prune() {
	kept := s.Log[:0]
	for _, e := range s.live() {
		if e.N > 0 {
			kept = append(kept, e)
		}
	}
	s.Log, s.Head = kept, 0
}
