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
// Lua twins are registered in lua/lua.go at the same numbers.
var algorithms = [algorithmCount]algorithm{
	GCRA:          gcra{},
	FixedWindow:   fixedWindow{},
	SlidingLog:    slidingLog{},
	SlidingWindow: slidingWindow{},
	TokenBucket:   tokenBucket{},
	Concurrency:   concurrency{},
}

// traits are the answers of the algorithms that depend on no limit, so that to ask
// for one takes no call.
var traits = func() (all [algorithmCount]trait) {
	for i, a := range algorithms {
		all[i] = trait{a.letter(), a.leased(), a.books(), a.prefetchable()}
	}
	return all
}()

type trait struct {
	letter                      string
	leased, books, prefetchable bool
}

// known reports whether the algorithm is registered.
func (a Algorithm) known() bool { return a < algorithmCount }

// String returns the name that the text form of a [Limit] uses.
func (a Algorithm) String() string {
	if a.known() {
		return algorithms[a].name()
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// Letter is a single letter that identifies the algorithm in scripts and in the
// names of keys, or "" if the algorithm is not known. It never changes, because
// counts that are kept under it would be lost.
func (a Algorithm) Letter() string {
	if a.known() {
		return traits[a].letter
	}
	return ""
}

// algorithm is the arithmetic of one algorithm, free of clocks, locks and
// stores, and its answers to what stores ask. Every instant and span is in
// microseconds, and the limit is valid. The functions of the arithmetic have
// twins in lua/.
type algorithm interface {
	// name is the word for the algorithm in the text form of a limit.
	name() string

	// letter is what Algorithm.Letter returns.
	letter() string

	// options are the optional fields of a limit that mean something to the
	// algorithm.
	options() options

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
	// the key is fresh.
	gauge(s *State, l *Limit, now int64) (remaining, reset int64)

	// scriptArgs are the period, the quota and what else the twin needs.
	scriptArgs(l *Limit) (period, quota, extra int64)

	// leased is what Limit.Leased returns.
	leased() bool

	// books is what Limit.Books returns.
	books() bool

	// prefetchable is what Limit.Prefetchable returns.
	prefetchable() bool

	// stillUsed is what Limit.StillUsed returns.
	stillUsed(l *Limit, used, span int64) int64

	// steady is what Limit.Steady returns.
	steady(l *Limit) Steady

	// part is what Limit.Part returns for n above 1.
	part(l *Limit, n int64) Limit

	// foretell is what a refusal says of a Take of n units that comes since
	// microseconds later, before the refusal ends: the units that remain then,
	// and how long after the refusal n units fit. ok is false if units may come
	// back meanwhile of which the refusal does not tell, or if they may come
	// back at any time.
	foretell(l *Limit, r refusal, n, since int64) (remaining, retry int64, ok bool)
}

// options are optional fields of a [Limit].
type options struct{ burst, segments, aligned bool }

// refusal is a refused Take of cost units, with the units that remained and the
// microseconds until the cost fits.
type refusal struct{ cost, remaining, retry int64 }

// single foretells nothing but another Take of one unit after one that was
// refused: nothing remains until that fits.
func (r refusal) single(n int64) (remaining, retry int64, ok bool) {
	return r.remaining, r.retry, r.cost == 1 && n == 1
}
