package redisstore

import "time"

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
	room   int           // how many calls may be in flight, if more than maxBatches
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
func (p *pace) rtt() time.Duration {
	if p.before == 0 {
		return p.latest
	}
	return min(p.before, p.latest)
}

// gap returns the least time between the beginnings of two calls beyond maxBatches.
func (p *pace) gap() time.Duration { return max(p.rtt()/maxGaps, minGap) }

// remember takes the time of a call into the round trip.
func (p *pace) remember(took time.Duration, now time.Time) {
	if p.calls >= minCalls && now.Sub(p.since) >= period {
		p.before, p.latest, p.calls = p.latest, 0, 0
	}
	if p.calls == 0 {
		p.latest, p.since = took, now
	}
	p.latest = min(p.latest, took)
	p.calls++
}

// note notes a call that has ended now: how long it took, and among how many calls in
// flight it began. ready is for how many calls the client has connections. If the distance
// allows for more, note returns for how many.
func (p *pace) note(took time.Duration, among, ready int, now time.Time) (more int) {
	p.remember(took, now)
	rtt, room := p.rtt(), max(p.room, maxBatches)
	switch quick := took <= rtt+max(rtt/slack, minGap); {
	case quick && among >= room:
		room *= 2
	case !quick && among <= room: // a call among more says nothing about fewer
		room /= 2
	}
	most := maxBatches + int(min(rtt/minGap, maxGaps))
	p.room = max(maxBatches, min(room, most, ready))
	if most > ready && p.room == ready {
		return most
	}
	return 0
}
