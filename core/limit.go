package core

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// Bounds of the fields of a [Limit].
const (
	// minPeriod and MaxPeriod bound Limit.Period, and MaxPeriod also bounds
	// how long an empty bucket may take to fill.
	minPeriod = time.Millisecond
	MaxPeriod = 400 * 24 * time.Hour

	// maxLog is the highest Quota of a SlidingLog, which keeps every admitted
	// unit.
	maxLog = 1000

	// maxLeases is the highest Quota of Concurrency, which keeps every lease.
	maxLeases = 10000

	// maxSegments is the highest number of Segments of a SlidingWindow.
	maxSegments = 360

	// MaxBooking is the longest Op.MaxWait: how far ahead a Take may book.
	MaxBooking = time.Hour

	// defaultSegments is the number of segments that Segments 0 stands for.
	defaultSegments = 10
)

// exact is the end of the integers that a float64, and so Lua, counts exactly.
const exact = 1 << 53

// Limit defines how much is allowed. It is comparable, and its text form (see
// [ParseLimit]) fits flags, JSON and YAML. The zero value is not valid.
type Limit struct {
	// Algorithm is the way of counting; the zero value is GCRA.
	Algorithm Algorithm

	// Aligned makes FixedWindow's windows start at multiples of Period since
	// the Unix epoch instead of at the first request.
	Aligned bool

	// Quota is the number of units granted per Period or, for Concurrency, held
	// at once.
	Quota int64

	// Period is in whole microseconds, from a millisecond to MaxPeriod. For
	// Concurrency it is the time for which a lease is held unless it is
	// renewed. CalendarWindow has none.
	Period time.Duration

	// Burst is, for TokenBucket and GCRA, the largest number of units that can be
	// taken at once; 0 means Quota.
	Burst int64

	// Segments is, for SlidingWindow, the number of sub-windows of a Period; 0
	// means ten. It must divide the Period into whole microseconds.
	Segments int

	// Calendar is, for CalendarWindow, what the windows begin with: day, week, month or
	// year, and then unless it is the default
	//
	//	tz=Europe/Berlin  the time zone, by its name in the IANA database: UTC
	//	start=15          the first day of a window: 1 (Monday) to 7 of a week, 1 to 28
	//	                  of a month, or month and day of a year as in start=04-06
	//
	// The rules of a zone come from the machine, or from package time/tzdata in a program
	// that imports it.
	Calendar string

	// Debt is, for algorithms other than SlidingLog and Concurrency, how many units a
	// [Debit] may put in use beyond the capacity; 0 means as many as the capacity. See
	// MaxDebt.
	Debt int64
}

// Capacity returns the largest number of units that the limit can admit at once.
func (l Limit) Capacity() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Quota
}

// Validate returns every fault of the limit, joined into one error, or nil. Faults of the numbers
// together, which depend on the algorithm, are looked for once each number is in range by itself.
func (l Limit) Validate() error {
	if !l.Algorithm.known() {
		return fmt.Errorf("algorithm %d is not known", l.Algorithm)
	}

	var errs []error
	if l.Quota <= 0 {
		errs = append(errs, fmt.Errorf("quota %d is not positive", l.Quota))
	}
	errs = append(errs, l.checkPeriod())
	errs = append(errs, l.checkOptions()...)
	if err := errors.Join(errs...); err != nil {
		return err
	}

	// An algorithm computes with the numbers, so each is in range by itself before it is asked.
	a := algorithms[l.Algorithm]
	if err := a.check(&l); err != nil {
		return err
	}
	if most := a.maxDebt(&l); l.Debt > most {
		return fmt.Errorf("debt %d is above %d, the most that can be counted or that comes back within %s",
			l.Debt, most, textform.Duration(MaxPeriod))
	}
	return nil
}

// MaxDebt returns how many units a [Debit] may put in use beyond the capacity: Debt, or if
// that is 0, as many as the capacity or as come back within MaxPeriod. It is 0 under an
// algorithm without debt. The limit must be valid.
func (l *Limit) MaxDebt() int64 {
	a := algorithms[l.Algorithm]
	switch {
	case !a.options().debt:
		return 0
	case l.Debt > 0:
		return l.Debt
	}
	return max(0, min(l.Capacity(), a.maxDebt(l)))
}

// checkPeriod returns the mistake in the period, or nil. The algorithm is known.
func (l *Limit) checkPeriod() error {
	switch {
	case algorithms[l.Algorithm].options().calendar:
		if l.Period != 0 {
			return fmt.Errorf("period %v means nothing to %s", l.Period, l.Algorithm)
		}
	case l.Period < minPeriod:
		return fmt.Errorf("period %v is below %v", l.Period, minPeriod)
	case l.Period > MaxPeriod:
		return fmt.Errorf("period %s is above %s", textform.Duration(l.Period), textform.Duration(MaxPeriod))
	case l.Period%time.Microsecond != 0:
		return fmt.Errorf("period %v is not a whole number of microseconds", l.Period)
	}
	return nil
}

// checkOptions returns every mistake in the optional fields. The algorithm is known.
func (l *Limit) checkOptions() []error {
	var errs []error
	name, has := l.Algorithm.String(), algorithms[l.Algorithm].options()

	if l.Burst < 0 {
		errs = append(errs, fmt.Errorf("burst %d is negative", l.Burst))
	}
	if l.Burst > 0 && !has.burst {
		errs = append(errs, fmt.Errorf("burst means nothing to %s", name))
	}

	if l.Segments < 0 || l.Segments > maxSegments {
		errs = append(errs, fmt.Errorf("segments %d is not within 1 to %d", l.Segments, maxSegments))
	}
	if l.Segments != 0 && !has.segments {
		errs = append(errs, fmt.Errorf("segments mean nothing to %s", name))
	}

	if l.Debt < 0 {
		errs = append(errs, fmt.Errorf("debt %d is negative", l.Debt))
	}
	if l.Debt > 0 && !has.debt {
		errs = append(errs, fmt.Errorf("debt means nothing to %s", name))
	}

	if l.Aligned && !has.aligned {
		errs = append(errs, fmt.Errorf("aligned means nothing to %s", name))
	}
	if l.Calendar != "" && !has.calendar {
		errs = append(errs, fmt.Errorf("a calendar means nothing to %s", name))
	}
	return errs
}

// ScriptArgs returns the three numbers that define a valid limit in its
// algorithm's script: a period in microseconds, a quota, and a number whose meaning
// depends on the algorithm.
func (l Limit) ScriptArgs() (period, quota, extra int64) {
	return algorithms[l.Algorithm].scriptArgs(&l)
}

// Equal reports whether *l == *m. Stores compare limits at each step. Most are equal and
// have no calendar, which takes a third of the time of the compiler's == and one branch.
func (l *Limit) Equal(m *Limit) bool {
	differ := (l.Quota ^ m.Quota) | int64(l.Period^m.Period) | (l.Burst ^ m.Burst) | (l.Debt ^ m.Debt) |
		int64(l.Segments^m.Segments) | int64(l.Algorithm^m.Algorithm)
	if differ|int64(len(l.Calendar)|len(m.Calendar)) != 0 {
		return *l == *m
	}
	return l.Aligned == m.Aligned
}

// Windows returns the windows of the limit's calendar around an instant in microseconds,
// for Op.Windows, or nil if the limit has no calendar. The limit must be valid. It reads
// the rules of the time zone each time, so keep the result until its window 3 ends.
func (l *Limit) Windows(at int64) *Windows {
	c, err := parseCalendar(l.Calendar)
	if !l.NeedsWindows() || err != nil {
		return nil
	}
	w := c.windows(at)
	return &w
}

// MaxRecords returns how many records the state of a key has at most: entries of
// State.Log or leases of State.Leases, or the one window of a calendar. It is 0 under an algorithm
// that uses none. The limit must be valid.
func (l *Limit) MaxRecords() int64 { return algorithms[l.Algorithm].maxRecords(l) }

// Leased reports whether leases hold the units. Then a Take and its Refund need
// Op.Lease, a lease may end at any time, and releasing one twice does no harm.
func (l Limit) Leased() bool { return l.Algorithm.known() && traits[l.Algorithm].leased }

// NeedsWindows reports whether units count in the windows of a calendar, so that an operation
// needs Op.Windows; see [Limit.Windows].
func (l Limit) NeedsWindows() bool { return l.Algorithm.known() && traits[l.Algorithm].windows }

// Books reports whether a Take may book units that come back within its MaxWait.
func (l Limit) Books() bool { return l.Algorithm.known() && traits[l.Algorithm].books }

// Rolling reports whether the units count that were admitted in the Period which ends now,
// whenever that is, instead of those of a window or a bucket.
func (l Limit) Rolling() bool { return l.Algorithm.known() && algorithms[l.Algorithm].rolling() }

// Windowed reports whether units count in windows of a Period each, which Aligned puts by the
// clock.
func (l Limit) Windowed() bool { return l.Algorithm.options().aligned }

// SegmentCount returns in how many parts of a Period units are counted, or 0 if the algorithm
// has no Segments.
func (l Limit) SegmentCount() int {
	if !l.Algorithm.options().segments {
		return 0
	}
	return cmp.Or(l.Segments, defaultSegments)
}

// Prefetchable reports whether units may be taken ahead of their use: whether
// the limit's worst case holds if units are used at any time before they are
// due to come back; see [Limit.StillUsed].
func (l Limit) Prefetchable() bool {
	return l.Algorithm.known() && traits[l.Algorithm].prefetchable
}

// StillUsed returns a lower bound of the units of a key that have not come back
// span microseconds before the key is fresh. used is the number of units that
// were in use when that instant was read from a Decision: at least
// min(used, StillUsed) of them are still in use. The limit must be valid.
func (l *Limit) StillUsed(used, span int64) int64 {
	return algorithms[l.Algorithm].stillUsed(l, used, span)
}

// MayBeCompact reports whether limits with the algorithm may have a [Compact].
func (a Algorithm) MayBeCompact() bool { return a.known() && traits[a].compact }

// Listed reports whether the [Compact] of a limit with the algorithm has a list.
func (a Algorithm) Listed() bool { return a.known() && traits[a].listed }

// Compact returns the fast arithmetic of the limit, or the zero value if there
// is none. The limit must be valid.
func (l *Limit) Compact() Compact { return algorithms[l.Algorithm].compact(l) }

// Wider returns the limit with room for one unit more. It is not valid where l is the largest.
func (l Limit) Wider() Limit {
	if l.Algorithm.options().burst {
		l.Burst = l.Capacity() + 1
		return l
	}
	l.Quota++
	return l
}

// Part returns the limit under which each of n stores may grant by itself, so
// that all together grant no more than l. A part has at least one unit, so more
// stores than units grant more than l together. Where rounding makes a bucket
// take too long to fill, or its numbers too large for exact arithmetic, the part is
// smaller, and so is its debt. An invalid limit is returned as it is.
func (l Limit) Part(n int64) Limit {
	if n <= 1 || l.Validate() != nil {
		return l
	}
	a := algorithms[l.Algorithm]
	debt := l.Debt
	l.Debt = 0
	part := a.part(&l, n)
	if debt > 0 {
		part.Debt = max(0, min(max(1, debt/n), a.maxDebt(&part)))
	}
	return part
}

// countPart returns the part of a limit that has no burst.
func (l *Limit) countPart(n int64) Limit {
	part := *l
	part.Quota = max(1, l.Quota/n)
	return part
}

// bucketPart returns the part of a limit that may have a burst.
func (l *Limit) bucketPart(n int64) Limit {
	part := l.countPart(n)
	if l.Burst > 0 {
		part.Burst = max(1, l.Burst/n)
	}
	if part.Validate() == nil {
		return part
	}

	// Rounding may make the bucket take too long to fill: then the burst is given up.
	part.Burst = min(part.Burst, 1)

	// Or the numbers of the part are too large for exact arithmetic, where those of the whole were
	// not, because its quota shared more divisors with the period. Then the last digits of the
	// quota become zeros, so that it shares some too.
	for unit := int64(10); part.Validate() != nil && part.Quota > 1; unit *= 10 {
		part.Quota = max(1, part.Quota/unit*unit)
	}
	return part
}

// period returns Period in microseconds.
func (l *Limit) period() int64 { return int64(l.Period / time.Microsecond) }

// checkExact returns an error if Lua cannot hold the product of a and b
// exactly.
func checkExact(what string, a, b int64) error {
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi != 0 || lo >= exact {
		return fmt.Errorf("%s: %d·%d is not below 2^53", what, a, b)
	}
	return nil
}
