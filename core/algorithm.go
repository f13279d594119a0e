package core

import "fmt"

// Algorithm names one of the ways to count. Its zero value is GCRA.
type Algorithm uint8

// The algorithms, with the most they can admit in any span of one Period.
const (
	GCRA          Algorithm = iota // Burst + Quota, evenly spaced
	FixedWindow                    // 2·Quota, around the end of a window
	SlidingLog                     // exactly Quota
	SlidingWindow                  // Quota + at most what one segment held
	TokenBucket                    // Burst + Quota, refilled in steps
	Concurrency                    // Quota held at any time

	algorithmCount
)

// algorithms is the registry: one line an algorithm, at its own number. The
// Lua twins are registered in lua/scripts.go under the same names.
var algorithms = [algorithmCount]algorithm{
	GCRA:          gcra{},
	FixedWindow:   fixedWindow{},
	SlidingLog:    slidingLog{},
	SlidingWindow: slidingWindow{},
	TokenBucket:   tokenBucket{},
	Concurrency:   concurrency{},
}

var algorithmNames = [algorithmCount]string{
	GCRA:          "gcra",
	FixedWindow:   "fixed-window",
	SlidingLog:    "sliding-log",
	SlidingWindow: "sliding-window",
	TokenBucket:   "token-bucket",
	Concurrency:   "concurrent",
}

// String returns the name that the text form of a [Limit] uses.
func (a Algorithm) String() string {
	if a < algorithmCount {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// algorithm is the arithmetic of one algorithm, free of clocks, locks and
// stores. Every instant and span is in microseconds, and the limit is valid.
// Its twin in lua/ has the same functions.
type algorithm interface {
	// check reports what this algorithm cannot do with an otherwise valid
	// limit.
	check(l *Limit) error

	// settle brings the state to now and under l: it drops what has expired,
	// pulls back instants that a clock which stepped has left in the future,
	// and carries what was used under another limit over to this one. It
	// returns true when the new state means something else than the old, so
	// that it has to be kept even if nothing is taken.
	settle(s *State, l *Limit, now int64) (changed bool)

	// delay is how long until n units fit: 0 if they do now. n is positive
	// and at most the capacity, unless earlier ops of the step raised it.
	delay(s *State, l *Limit, now, n int64, lease string) int64

	// take charges n units, which fit or are booked.
	take(s *State, l *Limit, now, n int64, lease string)

	// refund gives back op.Cost units; see Op.At.
	refund(s *State, l *Limit, now int64, op *Op)

	// gauge reports the units that could be taken at once and the span until
	// the state is as good as new.
	gauge(s *State, l *Limit, now int64) (remaining, reset int64)

	// numbers are the period, the quota and what else the twin needs.
	numbers(l *Limit) (period, quota, extra int64)
}
