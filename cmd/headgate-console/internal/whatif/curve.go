package whatif

import (
	"math"
	"time"

	"github.com/headgate/headgate/core"
)

// curve is what a key may get under one of several limits, by the minute.
type curve struct {
	most []int64 // at most, in one more minute than the index says
	need []int64 // admitted at least in one of a refusal and as many minutes before it
}

// curveOf returns the curve of limits over n minutes, the counts of which may be of so much more
// time.
func curveOf(limits []core.Limit, cost int64, n int, slack time.Duration) *curve {
	c := &curve{most: make([]int64, n), need: make([]int64, n)}
	step := time.Minute
	if slack > 0 {
		step = 0 // it is not known where a minute begins
	}

	for i := range n {
		span := time.Duration(i) * time.Minute
		c.need[i] = math.MaxInt64
		for _, l := range limits {
			c.most[i] = max(c.most[i], l.MostWithin(cost, span+time.Minute+slack, step))
			c.need[i] = min(c.need[i], l.LeastBefore(cost, span, step))
		}
	}

	// What a longer time does not raise says nothing more.
	for n > 1 && c.need[n-1] == c.need[n-2] {
		n--
	}
	c.need = c.need[:n]
	return c
}

// barredFor returns the curve of a key that is banned for n minutes: it gets nothing.
func barredFor(n int) *curve { return &curve{most: make([]int64, n), need: make([]int64, 1)} }

// leastRefused returns how many of the requests in each minute were refused at least. In each run
// of minutes at most as many were admitted as the limit admits in that time.
func (c *curve) leastRefused(counts []int64) int64 {
	var all int64
	admitted := make([]int64, len(counts)+1) // at most, up to each minute

	for i, n := range counts {
		all += n

		// All of this minute, or what the limit admits in a run of minutes that it ends.
		most := admitted[i] + n
		for k := range i + 1 {
			most = min(most, admitted[i-k]+c.most[k])
		}
		admitted[i+1] = most
	}
	return all - admitted[len(counts)]
}

// mostRefused returns how many of the requests in each minute after the first lead ones were
// refused at most. A minute without a refusal has admitted all. One with a refusal ends some
// minutes in which at least need was admitted. That is a lower bound of what was admitted up to
// each minute, as fewer in one minute are never more in a later one.
func (c *curve) mostRefused(counts []int64, lead int) int64 {
	var all int64
	admitted := make([]int64, len(counts)+1) // at least, after the first lead minutes
	for i := lead - 1; i >= 0; i-- {
		admitted[i] = admitted[i+1] - counts[i]
	}

	for i := lead; i < len(counts); i++ {
		all += counts[i]

		least := admitted[i]
		for w := 0; w < len(c.need) && w <= i; w++ {
			least = max(least, admitted[i-w]+c.need[w])
		}
		admitted[i+1] = min(admitted[i]+counts[i], least)
	}
	return all - admitted[len(counts)]
}

// mayRefuse reports whether a key with at most so many requests in each minute may have been
// refused one in minute i.
func (c *curve) mayRefuse(counts []int64, i int) bool {
	var sum int64
	for w := 0; w < len(c.need) && w <= i; w++ {
		if sum += counts[i-w]; sum <= c.need[w] {
			return false
		}
	}
	return true
}
