package redisstore

import "time"

// maxBatches is how many script calls of a lane are in flight at a time beside the
// server. With two, one is on the wire while the next fills; more of them carry fewer
// steps each, which gains nothing unless they are full. Up to maxFull full ones may be in
// flight in all, so that a server need not wait for the next, and up to twice as many where
// some of them are on their way all the time: one more for each fullGap of the round trip.
//
// Far from the server a step that waits for a call to end waits for a round trip. There
// another call may begin a gap after the last: after a tenth of the round trip, but at
// least minGap. So up to maxGaps more are in flight, and none where a round trip is
// shorter than minGap.
const (
	maxBatches = 2
	maxFull    = 4
	maxGaps    = 10
	minGap     = 250 * time.Microsecond
	fullGap    = 500 * time.Microsecond
)

// pace is how many calls of a lane may be in flight. The zero value is that of a lane
// whose distance is not known, and stands for maxBatches.
//
// Its round trip is the shortest of the latest calls: the longer ones have waited for the
// server, or for a processor. A slow server takes its time for the shortest too, so that
// does not prove a distance. But while more calls are in flight, those to a slow server
// take longer, and those that are on their way do not. So if all that may be in flight
// were, and the last of them took little longer than the shortest, twice as many may be,
// and half as many if it took longer.
type pace struct {
	distance
	maxCalls int // how many calls may be in flight, if more than maxBatches
	maxFull  int // how many full ones, if more than maxFull
}

// distance is the round trip to a server. The zero value stands for one that is not known.
type distance struct {
	latest time.Duration // the shortest call of this period; 0 before the first
	before time.Duration // and of the one before
	calls  int           // of this period
	since  time.Time     // when it began
}

const (
	// period is how long the shortest call counts, up to twice, and minCalls how many
	// calls do at least.
	period   = time.Second
	minCalls = 16

	// slack is the part of the round trip that a call on its way may take longer.
	slack = 4
)

// rtt returns the round trip, or 0 if it is not known.
func (d *distance) rtt() time.Duration {
	if d.before == 0 {
		return d.latest
	}
	return min(d.before, d.latest)
}

// gap returns the least time between the beginnings of two calls beyond maxBatches.
func (p *pace) gap() time.Duration { return max(p.rtt()/maxGaps, minGap) }

// full returns how many full calls may be in flight.
func (p *pace) full() int { return max(maxFull, p.maxFull, p.maxCalls) }

// remember takes the time of a call into the round trip.
func (d *distance) remember(took time.Duration, now time.Time) {
	// The shortest call of the period before counts on, until this one has its own.
	if d.calls >= minCalls && now.Sub(d.since) >= period {
		d.before, d.latest, d.calls = d.latest, 0, 0
	}

	if d.calls == 0 {
		d.latest, d.since = took, now
	}
	d.latest = min(d.latest, took)
	d.calls++
}

// record counts a call that has ended now: how long it took, and among how many calls in
// flight it began. ready is for how many calls the client has connections. If the distance
// allows for more, record returns for how many.
func (p *pace) record(took time.Duration, among, ready int, now time.Time) (more int) {
	p.remember(took, now)

	rtt, calls := p.rtt(), max(p.maxCalls, maxBatches)
	switch quick := took <= rtt+max(rtt/slack, minGap); {
	case quick && among >= calls:
		calls *= 2
	case !quick && among <= calls: // a call among more says nothing about fewer
		calls /= 2
	}

	// More calls than the client has connections for would wait for one.
	most := maxBatches + int(min(rtt/minGap, maxGaps))
	full := maxFull + int(min(rtt/fullGap, maxFull))
	p.maxCalls = max(maxBatches, min(calls, most, ready))
	p.maxFull = min(full, ready)

	switch {
	case most > ready && p.maxCalls == ready:
		return most
	case full > ready && among >= p.full():
		return full
	}
	return 0
}
