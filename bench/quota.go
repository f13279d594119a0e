package main

import (
	"time"

	"github.com/headgate/headgate/core"
)

// quota is the limit of a contest, in the terms of every contender: units per
// period, and the burst.
type quota struct {
	units  int
	period time.Duration
	burst  int
}

var (
	// wide refuses no request of a contest, and keys under it stay in use: a key
	// gets back one unit in 0.15 s, and the burst in 347 days.
	wide = quota{units: 576_000, period: 24 * time.Hour, burst: 200_000_000}

	// narrow refuses all requests but the first.
	narrow = quota{units: 1, period: time.Hour, burst: 1}
)

// limit is the quota for headgate.
func (q quota) limit() core.Limit {
	return core.Limit{Quota: int64(q.units), Period: q.period, Burst: int64(q.burst)}
}

// perSecond is how many units come back in a second.
func (q quota) perSecond() float64 { return float64(q.units) / q.period.Seconds() }
