// This file delays replies on their way to clients.

package faultproxy

import (
	"math/rand/v2"
	"time"
)

// due returns when bytes that the server sends now reach the client, which is not
// before earlier, when the bytes before them do.
func (p *Proxy) due(earlier time.Time) time.Time {
	f := p.current()
	t := time.Now().Add(f.Delay)
	if f.Jitter > 0 {
		t = t.Add(rand.N(f.Jitter))
	}
	if t.Before(earlier) {
		return earlier
	}
	return t
}

// deliver hands the client its parcels in time, until no more can come.
func (l *link) deliver() {
	defer l.sever(false)
	for p := range l.out {
		if !l.wait(time.Until(p.due)) || !l.trickle(p.data) {
			return
		}
		if p.last {
			l.sever(p.rst)
			return
		}
	}
}

// wait reports whether the link is whole after d.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// trickle writes as fast as the fault in force lets it.
func (l *link) trickle(data []byte) bool {
	for len(data) > 0 {
		n, rate := len(data), l.proxy.current().Rate
		if rate > 0 {
			// A hundredth of a second at a time, so that the link ends soon when it is cut.
			n = min(n, max(1, rate/100))
			if !l.wait(time.Duration(n) * time.Second / time.Duration(rate)) {
				return false
			}
		}

		part, whole := l.spend(data[:n])
		if _, err := l.client.Write(part); err != nil || !whole {
			return false
		}
		data = data[n:]
	}
	return true
}
