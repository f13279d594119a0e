package core

import (
	"fmt"
	"time"
)

// Algorithm names one of the ways to count. Its zero value is GCRA.
type Algorithm uint8

// The algorithms. The comment of each states the most that it can admit in any
// span of one Period.
const (
	GCRA           Algorithm = iota // Burst + Quota, evenly spaced
	FixedWindow                     // 2·Quota, around the end of a window
	SlidingLog                      // exactly Quota
	SlidingWindow                   // Quota + at most what one segment held
	TokenBucket                     // Burst + Quota, refilled in steps
	Concurrency                     // Quota held at any time
	CalendarWindow                  // 2·Quota, around the end of a window; Quota in each window

	algorithmCount
)

// algorithms is the registry, with each algorithm at its own number. lua/lua.go
// registers the Lua twins under the same numbers.
var algorithms = [algorithmCount]algorithm{
	GCRA:          &gcra{},
	FixedWindow:   &fixedWindow{},
	SlidingLog:    &slidingLog{},
	SlidingWindow: &slidingWindow{},
	TokenBucket:   &tokenBucket{},
	Concurrency:   &concurrency{},

	CalendarWindow: &calendarWindow{},
}

// traits holds the answers of the algorithms that depend on no limit, so that
// reading one takes no call.
var traits = func() (all [algorithmCount]trait) {
	for i, a := range algorithms {
		compact := a.compact(&Limit{Quota: 1, Period: time.Second})
		all[i] = trait{a.letter(), a.leased(), a.books(), a.prefetchable(), a.options().calendar, compact.Valid(),
			compact.Listed()}
	}
	return all
}()

// trait is what one algorithm is, whatever the numbers of the limit.
type trait struct {
	letter                                                string
	leased, books, prefetchable, windows, compact, listed bool
}

// known reports whether the algorithm is registered.
func (a Algorithm) known() bool { return a < algorithmCount }

// options returns the optional fields of a limit under the algorithm, none if it is not known.
func (a Algorithm) options() options {
	if !a.known() {
		return options{}
	}
	return algorithms[a].options()
}

// String returns the name that the text form of a [Limit] uses.
func (a Algorithm) String() string {
	if a.known() {
		return algorithms[a].name()
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// Letter returns the letter that identifies the algorithm in scripts and in the
// names of keys, or "" if the algorithm is not known. It never changes, because
// counts kept under the old letter would be lost.
func (a Algorithm) Letter() string {
	if a.known() {
		return traits[a].letter
	}
	return ""
}

// algorithm is the arithmetic of one algorithm, free of clocks, locks and
// stores, and its answers to the questions of stores. Instants and spans are in
// microseconds, and the limit is valid. The functions of the arithmetic have
// twins in lua/.
type algorithm interface {
	// name is the word for the algorithm in the text form of a limit.
	name() string

	// letter returns the result of Algorithm.Letter.
	letter() string

	// options returns the optional fields of a limit that the algorithm uses.
	options() options

	// check returns an error if the algorithm cannot carry out l, an otherwise
	// valid limit.
	check(l *Limit) error

	// settle brings the state to now: it drops expired units, and pulls back
	// instants that a stepped clock has left in the future, by the limit under
	// which the state was written. It returns true only if it pulled instants back,
	// because no other change has to be kept if nothing is taken. It must not change
	// the elements of Log and Leases, which a store may keep without a copy.
	settle(s *State, l *Limit, now int64) (changed bool)

	// delay returns the time until n units fit, 0 if they fit now. n is
	// positive and at most the capacity, unless earlier ops of the step raised
	// it. ahead is the longest delay for which the units may be booked, in
	// microseconds, if the limit books.
	delay(s *State, l *Limit, now, n, ahead int64, lease string) int64

	// take charges n units, which fit or are booked. Afterwards the state is under
	// l, except that windows and leases which began under another limit end as they
	// would have ended under that.
	take(s *State, l *Limit, now, n int64, lease string)

	// inUse returns the units in use, which may exceed the capacity.
	inUse(s *State, l *Limit, now int64) int64

	// maxDebt returns the highest Debt that the limit may have: as many units as can be
	// counted, and under an algorithm with a refill, as come back within MaxPeriod.
	maxDebt(l *Limit) int64

	// debit charges n units, at least one, on top of all that is booked. It is not called
	// under an algorithm whose options include no debt, and neither is inUse.
	debit(s *State, l *Limit, now, n int64)

	// refund gives back op.Cost units; see Op.At.
	refund(s *State, l *Limit, now int64, op *Op)

	// gauge returns the units that could be taken at once and the span until
	// the key is fresh.
	gauge(s *State, l *Limit, now int64) (remaining, reset int64)

	// scriptArgs returns the result of Limit.ScriptArgs.
	scriptArgs(l *Limit) (period, quota, extra int64)

	// maxRecords returns the result of Limit.MaxRecords.
	maxRecords(l *Limit) int64

	// leased returns the result of Limit.Leased.
	leased() bool

	// books returns the result of Limit.Books.
	books() bool

	// prefetchable returns the result of Limit.Prefetchable.
	prefetchable() bool

	// rolling returns the result of Limit.Rolling.
	rolling() bool

	// stillUsed returns the result of Limit.StillUsed.
	stillUsed(l *Limit, used, span int64) int64

	// mostWithin returns the result of Limit.MostWithin, for a span of an instant more than last.
	mostWithin(l *Limit, cost, last, step int64) int64

	// leastBefore returns the result of Limit.LeastBefore.
	leastBefore(l *Limit, cost, span, step int64) int64

	// compact returns the result of Limit.Compact.
	compact(l *Limit) Compact

	// part returns the result of Limit.Part for n above 1.
	part(l *Limit, n int64) Limit

	// foretells reports whether a Take that comes before the refusal ends is refused
	// until then too, with as many units remaining.
	foretells(r refusal) bool
}

// options reports which optional fields of a [Limit] an algorithm uses.
type options struct{ burst, segments, aligned, debt, calendar bool }

// refusal is a refused Take of cost units, with the units that remained, and the units
// that a later Take wants.
type refusal struct{ cost, remaining, wanted int64 }

// single reports whether the later Take has the same cost and lacks a single unit: as
// many remain as now until that comes back.
func (r refusal) single() bool { return r.wanted == r.cost && r.remaining == r.cost-1 }
