package redisstore

import "sync"

// maxFlights is how many script calls of a lane are under way at a time. With
// two, one is on the wire while the next fills; more carry fewer steps each, which
// gains nothing unless they are full. Of full ones there may be as many as
// maxFull in all, so that a server need not wait for the next.
const (
	maxFlights = 2
	maxFull    = 4
)

// place is where a caller is.
type place uint8

const (
	queued place = iota
	aboard       // in a flight that is about to be sent, or was
	landed       // decided or failed, and about to be told
	gone         // left: nobody waits for it
)

// lane is the callers whose steps may share a script call. They wait only while
// maxFlights are under way.
type lane struct {
	slot        int
	flights     int
	ops         int // of those who wait
	first, last *caller
}

// queue is the lanes of a store: one for everything, or one for each hash slot
// that has a flight. Who waits in it is a goroutine in Apply, and their number
// bounds its memory.
type queue struct {
	batch int // the most operations of a flight of several callers

	mu    sync.Mutex
	whole lane
	slots map[int]*lane
}

// lane returns the lane of a slot, which begins a flight in it or waits for one.
func (q *queue) lane(slot int) *lane {
	if slot == anySlot {
		return &q.whole
	}
	l := q.slots[slot]
	if l == nil {
		if q.slots == nil {
			q.slots = map[int]*lane{}
		}
		l = &lane{slot: slot}
		q.slots[slot] = l
	}
	return l
}

// start begins a flight, unless enough are under way: then it returns nil.
func (q *queue) start(slot int) *lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(slot)
	if l.flights >= maxFlights {
		return nil
	}
	l.flights++
	return l
}

// enter is start, but puts c into the queue where start returns nil. If those who
// wait there fill a flight then, it may begin that and return its lane as full.
func (q *queue) enter(slot int, c *caller) (own, full *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(slot)
	if l.flights < maxFlights {
		l.flights++
		return l, nil
	}
	q.link(l, c)
	if l.ops < q.batch || l.flights == maxFull {
		return nil, nil
	}
	l.flights++
	return nil, l
}

// end ends a flight, unless somebody waits for its place: then it returns true,
// and the flight goes on.
func (q *queue) end(l *lane) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.first != nil {
		return true
	}
	q.close(l)
	return false
}

// close ends a flight of a lane without a queue. The mutex is held.
func (q *queue) close(l *lane) {
	l.flights--
	if l.flights == 0 && l != &q.whole {
		delete(q.slots, l.slot)
	}
}

// board moves those who have waited longest into the flight: one, and more while
// their operations are at most a batch. If there are none it ends the flight and
// returns false, and also if they are few while enough flights are under way.
func (q *queue) board(l *lane, f *flight) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.clear()
	if l.flights > maxFlights && l.ops < q.batch {
		q.close(l)
		return false
	}
	for n := 0; l.first != nil; {
		c := l.first
		if n += len(c.ops); n > q.batch && len(f.callers) > 0 {
			break
		}
		q.unlink(c)
		c.place = aboard
		f.add(c)
	}
	if len(f.callers) == 0 {
		q.close(l)
		return false
	}
	return true
}

// link puts c at the end of the lane's queue.
func (q *queue) link(l *lane, c *caller) {
	c.lane, c.place, c.prev, c.next = l, queued, l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
	l.ops += len(c.ops)
}

func (q *queue) unlink(c *caller) {
	l := c.lane
	l.ops -= len(c.ops)
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// leave takes c out of the queue or out of a flight, and returns where it was.
// One that has landed stays where it is: its answer is there.
func (q *queue) leave(c *caller) place {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := c.place
	switch was {
	case queued:
		q.unlink(c)
		c.place = gone
	case aboard:
		c.place = gone
	}
	return was
}

// land keeps in the flight those who still wait for it, who can no longer leave.
func (q *queue) land(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.dropGone()
	for _, c := range f.callers {
		c.place = landed
	}
}

// thin drops from the flight those who have left.
func (q *queue) thin(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.dropGone()
}
