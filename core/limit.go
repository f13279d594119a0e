package core

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Bounds of what a [Limit] may ask for.
const (
	// MinPeriod and MaxPeriod bound Limit.Period, and MaxPeriod also bounds
	// how long an empty bucket may take to fill.
	MinPeriod = time.Millisecond
	MaxPeriod = 400 * 24 * time.Hour

	// MaxLog is the highest Quota of a SlidingLog, which keeps every admitted
	// unit.
	MaxLog = 1000

	// MaxLeases is the highest Quota of Concurrency, which keeps every lease.
	MaxLeases = 10000

	// MaxSegments is the highest number of Segments of a SlidingWindow.
	MaxSegments = 360

	// MaxBooking is how far ahead a Take may book.
	MaxBooking = time.Hour

	// DefaultSegments is what Segments 0 means.
	DefaultSegments = 10
)

// exact is the end of the integers that a float64, and so Lua, counts exactly.
const exact = 1 << 53

// Limit says how much is allowed. It is comparable, and its text form (see
// [ParseLimit]) fits flags, JSON and YAML. The zero value is not valid.
type Limit struct {
	// Algorithm is GCRA unless set.
	Algorithm Algorithm

	// Quota is how many units are granted per Period; for Concurrency how many
	// are held at once.
	Quota int64

	// Period is in whole microseconds, from MinPeriod to MaxPeriod; for
	// Concurrency it is how long a lease stays held unless it is renewed.
	Period time.Duration

	// Burst is, for TokenBucket and GCRA, the most units that can be taken at
	// once; 0 means Quota.
	Burst int64

	// Segments is, for SlidingWindow, the number of sub-windows of a Period,
	// which it must divide; 0 means DefaultSegments.
	Segments int

	// Aligned makes FixedWindow's windows start at multiples of Period since
	// the Unix epoch instead of at the first request.
	Aligned bool
}

// Capacity is the most units that the limit can ever admit at once.
func (l Limit) Capacity() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Quota
}

// Validate reports everything that keeps the limit from working, joined into
// one error, or nil.
func (l Limit) Validate() error {
	if l.Algorithm >= algorithmCount {
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
	return algorithms[l.Algorithm].check(&l)
}

func (l *Limit) checkPeriod() error {
	switch {
	case l.Period < MinPeriod:
		return fmt.Errorf("period %v is below %v", l.Period, MinPeriod)
	case l.Period > MaxPeriod:
		return fmt.Errorf("period %s is above %s", compact(l.Period), compact(MaxPeriod))
	case l.Period%time.Microsecond != 0:
		return fmt.Errorf("period %v is not a whole number of microseconds", l.Period)
	}
	return nil
}

func (l *Limit) checkOptions() []error {
	var errs []error
	name := l.Algorithm.String()
	bucket := l.Algorithm == TokenBucket || l.Algorithm == GCRA
	if l.Burst < 0 {
		errs = append(errs, fmt.Errorf("burst %d is negative", l.Burst))
	}
	if l.Burst > 0 && !bucket {
		errs = append(errs, fmt.Errorf("burst means nothing to %s", name))
	}
	if l.Segments < 0 || l.Segments > MaxSegments {
		errs = append(errs, fmt.Errorf("segments %d is not within 1 to %d", l.Segments, MaxSegments))
	}
	if l.Segments != 0 && l.Algorithm != SlidingWindow {
		errs = append(errs, fmt.Errorf("segments mean nothing to %s", name))
	}
	if l.Aligned && l.Algorithm != FixedWindow {
		errs = append(errs, fmt.Errorf("aligned means nothing to %s", name))
	}
	return errs
}

// Numbers returns the three that define a valid limit to its algorithm's
// script: a period in microseconds, a quota, and one whose meaning is the
// algorithm's own.
func (l Limit) Numbers() (period, quota, extra int64) {
	return algorithms[l.Algorithm].numbers(&l)
}

// period is Period in microseconds.
func (l *Limit) period() int64 { return int64(l.Period / time.Microsecond) }

// checkExact refuses the product of two numbers that Lua could not hold.
func checkExact(what string, a, b int64) error {
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi != 0 || lo >= exact {
		return fmt.Errorf("%s: %d·%d is not below 2^53", what, a, b)
	}
	return nil
}
