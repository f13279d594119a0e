package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// flight is the callers whose steps one script call decides.
type flight struct {
	callers []*caller
	steps   []*step // of the callers
}

func newFlight() any { return new(flight) }

func (f *flight) add(c *caller) {
	f.callers, f.steps = append(f.callers, c), append(f.steps, &c.step)
}

func (f *flight) clear() {
	clear(f.callers)
	clear(f.steps)
	f.callers, f.steps = f.callers[:0], f.steps[:0]
}

// dropGone forgets those who have left. The queue's mutex is held.
func (f *flight) dropGone() {
	left := func(c *caller) bool { return c.place == gone }
	if !slices.ContainsFunc(f.callers, left) {
		return
	}
	f.callers = slices.DeleteFunc(f.callers, left)
	clear(f.steps)
	f.steps = f.steps[:0]
	for _, c := range f.callers {
		f.steps = append(f.steps, &c.step)
	}
}

// part moves to another flight those whose steps ran, or will not.
func (f *flight) part(to *flight) {
	all := f.callers
	f.callers, f.steps = f.callers[:0], f.steps[:0]
	for _, c := range all {
		if neverRan(c.err) {
			f.add(c)
		} else {
			to.add(c)
		}
	}
	clear(all[len(f.callers):])
	clear(f.steps[len(f.steps):len(all)])
}

// deadline is that of the most patient caller: nobody waits for longer.
func (f *flight) deadline() time.Time {
	last := f.callers[0].deadline
	for _, c := range f.callers[1:] {
		if c.deadline.After(last) {
			last = c.deadline
		}
	}
	return last
}

// fail gives all callers an error.
func (f *flight) fail(err error) {
	for _, c := range f.callers {
		c.err = err
	}
}

// pass hands a flight that has ended on to those who wait for one, so that its
// caller need not stay.
func (s *Store) pass(l *lane) {
	if s.queue.end(l) {
		go s.fly(l)
	}
}

// fly decides those who wait in the lane, flight after flight, until there are
// none. Every call ends at its deadline, so it ends soon after the last caller
// has left.
func (s *Store) fly(l *lane) {
	f := s.flights.Get().(*flight)
	for s.queue.board(l, f) {
		if err := s.sendTogether(f); err != nil {
			f.fail(err)
		}
		s.tell(f)
		// Who is told now may ask again at once, and then shares the next call.
		runtime.Gosched()
	}
	s.flights.Put(f)
}

// tell lets those who still wait for the flight have what it brought.
func (s *Store) tell(f *flight) {
	s.queue.land(f)
	for _, c := range f.callers {
		c.ready <- struct{}{}
	}
}

// sendTogether sends the flight on behalf of nobody in particular: a caller who
// leaves takes nothing from the others. Nobody else could recover a panic, such
// as one of a hook of the client.
func (s *Store) sendTogether(f *flight) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("redisstore: panic: %v", v)
		}
	}()
	ctx, cancel := context.WithDeadline(context.Background(), f.deadline())
	defer cancel()
	return s.send(ctx, f)
}

// send decides the steps of the flight. It tries again only after errors which
// prove that nothing ran, and then without those who have left.
func (s *Store) send(ctx context.Context, f *flight) error {
	for pause := time.Millisecond; ; pause *= 2 {
		err := s.decideTogether(ctx, f.steps)
		if len(f.steps) > 1 && dividing(err) {
			s.sendOneByOne(ctx, f)
			return nil
		}
		if err == nil || !neverRan(err) || !sleep(ctx, pause) {
			return err
		}
		if s.queue.thin(f); len(f.callers) == 0 {
			return nil
		}
	}
}

// dividing tells whether the error proves that nothing was written, and may not
// be that of each step by itself. A slot is on its way to another node: meanwhile
// a script may only hold keys that have all arrived, or none of which has. Or the
// server's memory is full, and one step is of those that may not write then.
func dividing(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "OOM")
}

// sendOneByOne sends each step of the flight by itself, and those again that did
// not run: the keys of one step may be apart too. Who is decided does not wait
// for them.
func (s *Store) sendOneByOne(ctx context.Context, f *flight) {
	for pause := time.Millisecond; ; pause *= 2 {
		s.queue.thin(f)
		for i, each := range f.steps {
			each.err = nil
			if err := s.decideTogether(ctx, f.steps[i:i+1]); err != nil {
				each.err = err
			}
		}
		s.tellDecided(f)
		if len(f.callers) == 0 || !sleep(ctx, pause) {
			return
		}
	}
}

// tellDecided leaves in the flight those whose steps did not run.
func (s *Store) tellDecided(f *flight) {
	decided := s.flights.Get().(*flight)
	f.part(decided)
	s.tell(decided)
	decided.clear()
	s.flights.Put(decided)
}
