// This file knows for how long a server has been silent, and who is at fault for a call that
// failed.

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// patienceParts are how many fifths of its budget a caller may wait behind a server that is
// silent, counted from the call with which the silence began.
const patienceParts = 7

// patienceOf returns for how long a server may be silent.
func patienceOf(budget time.Duration) time.Duration { return budget * patienceParts / 5 }

const (
	// A silence begins later by lateFactor times what this process was late for a call, because
	// it may have been late before the call too.
	lateFactor = 4

	// maxLateInTurn is for how many late calls in a row the lateness is multiplied. For further
	// ones it counts once.
	maxLateInTurn = 4
)

// roundTrips is how many round trips a call may take.
const roundTrips = 3

// silenceStands is how long a server stays asked while no call asks it.
const silenceStands = time.Second

// server is what the store knows about a server: how far it is, and for how long it has been
// silent.
//
//	         a call begins                 a call fails for which there was time
//	heard ──────────────────▶ asked ──────────────────▶ silent
//	  ▲                        │ a reply                  │ a reply
//	  └────────────────────────┴──────────────────────────┘
//
// It is asked since the call that began first since its last reply. While it is silent, one
// call at a time asks it, and other callers get the failure.
type server struct {
	fixed, most time.Duration // the budget of the options, or 0 and the most that it may become
	made        time.Time

	since  atomic.Int64              // since when it is asked, in nanoseconds of instantOf; 0: it is not
	calls  atomic.Int64              // in flight
	span   atomic.Int64              // the budget of a call in nanoseconds
	silent atomic.Pointer[callError] // the latest failure of a server that is silent
	untold atomic.Pointer[callError] // a failure that no caller has got yet

	mu        sync.Mutex
	distance  distance  // guarded by mu, as are the following
	ended     int64     // when the last call without a reply ended, in nanoseconds of instantOf
	measuring bool      // a measurement of the distance is under way
	measured  time.Time // when a measurement last had a reply

	replied    time.Time // when the server has last replied
	lateInTurn int       // calls without a reply for which this process was late, each begun after the last
	lateAt     int64     // when this process noticed the last of these, in nanoseconds of instantOf
}

// instantOf returns a time in nanoseconds since the server became known, and 1 more, because 0
// stands for no instant.
func (s *server) instantOf(now time.Time) int64 { return int64(now.Sub(s.made)) + 1 }

// budget returns how long a call may take.
func (s *server) budget() time.Duration { return time.Duration(s.span.Load()) }

// deadline returns until when a caller that comes now may wait, or the failure that it gets
// at once. That is no later than a silence may last. After that, or if too little is left for
// an answer, a caller may ask as if there were no silence, unless another does. If one does,
// and no call has failed, this process is late, and the reply may be here.
func (s *server) deadline(now time.Time) (time.Time, error) {
	budget := s.budget()
	since := s.since.Load()
	if since == 0 {
		return now.Add(budget), nil
	}

	// A failure that no caller has got goes to one of them.
	if e := s.untold.Load(); e != nil && e.silent && s.untold.CompareAndSwap(e, nil) {
		return now, e
	}

	left := patienceOf(budget) - time.Duration(s.instantOf(now)-since)
	alone := s.calls.Load() == 0
	if left > 0 && (!alone || s.canAnswerIn(left)) {
		return now.Add(min(budget, left)), nil
	}

	if e := s.silent.Load(); e != nil && !alone {
		return now, e
	}
	return now.Add(budget), nil
}

// canAnswerIn reports whether a call can be answered in a time, as far as is known.
func (s *server) canAnswerIn(d time.Duration) bool {
	trip := s.roundTrip()
	return trip > 0 && 2*trip <= d
}

// callBegins counts a call that begins. The server is asked since this call, unless it was before.
func (s *server) callBegins(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()

	at := s.instantOf(now)
	first := s.calls.Add(1) == 1

	// A server that no call asked for a while may have come back, so it is asked since this call.
	if s.since.Load() == 0 || first && at-s.ended > int64(silenceStands) {
		s.since.Store(at)
		s.lateInTurn = 0
		s.silent.Store(nil)
		s.untold.Store(nil)
	}
}

// heard records the reply to a call, which took so long.
func (s *server) heard(took time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Add(-1)
	s.repliedLocked(took, now)
}

// repliedLocked records a reply, which took so long. The silence is over, and another begins if
// calls are in flight.
func (s *server) repliedLocked(took time.Duration, now time.Time) {
	// A reply says nothing about the calls that are in flight yet. Every caller reads these fields,
	// so they are written only where they change.
	if s.calls.Load() > 0 {
		s.since.Store(s.instantOf(now))
	} else if s.since.Load() != 0 {
		s.since.Store(0)
	}

	s.replied, s.lateInTurn = now, 0
	if s.silent.Load() != nil {
		s.silent.Store(nil)
	}
	if s.untold.Load() != nil {
		s.untold.Store(nil)
	}

	s.distance.remember(took, now)
	s.followLocked()
}

// roundTrip returns the round trip to the server, or 0 if it is not known.
func (s *server) roundTrip() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.distance.rtt()
}

// followLocked has the budget follow the distance.
func (s *server) followLocked() {
	span := s.fixed
	if span == 0 {
		span = min(max(DefaultTimeout, roundTrips*s.distance.rtt()), s.most)
	}

	if int64(span) != s.span.Load() {
		s.span.Store(int64(span))
	}
}

// unheard records a call that ended without a reply. What this process was late does not
// count as silence.
func (s *server) unheard(now time.Time, late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.calls.Add(-1)
	s.ended = s.instantOf(now)

	if late > 0 && s.since.Load() != 0 {
		s.since.Store(min(s.ended, s.since.Load()+int64(late)))
	}
}

// excuse has the silence begin later, because this process was late for a call, by a time above
// 0. It may have been late before too, and would not have noticed a reply. After maxLateInTurn late
// calls in a row the silence begins later only by the lateness itself: a process that is late by
// a moment for each call still finds out that the server is silent.
func (s *server) excuse(begun, now time.Time, late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	at := s.instantOf(now)

	// Calls that were in flight together were late together, and count once.
	if s.instantOf(begun) >= s.lateAt {
		s.lateInTurn, s.lateAt = s.lateInTurn+1, at
	}

	if s.lateInTurn <= maxLateInTurn {
		late *= lateFactor
	}

	if since := s.since.Load(); since != 0 {
		s.since.Store(min(at, since+int64(late)))
	}
}

// isSilent reports whether the server has been silent for longer than a call may take.
func (s *server) isSilent(now time.Time) bool {
	since := s.since.Load()
	return since != 0 && time.Duration(s.instantOf(now)-since) >= patienceOf(s.budget())
}

// ownTime returns the error of a caller whose context has ended.
func ownTime(err error) error {
	own := fmt.Errorf("redisstore: %w", err)
	if errors.Is(err, context.Canceled) {
		return own
	}
	return &overloadError{own}
}

// lateness returns how late this process noticed the end of a call.
func lateness(err error) time.Duration {
	if err == nil {
		return 0
	}
	var read *lateRead
	if errors.As(err, &read) {
		return read.late
	}
	return 0
}

// isReply reports whether the error of a call, or nil, is a reply of the server.
func isReply(err error) bool {
	if err == nil {
		return true
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// init makes the server ready for use, with the timeouts of the options.
func (s *server) init(fixed, most time.Duration) {
	s.fixed, s.most, s.made = fixed, most, time.Now()
	s.followLocked()
}

// knows reports whether the distance of the server is known.
func (s *server) knows(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.distance.rtt() > 0 && now.Sub(s.replied) < distanceStands
}

// distanceStands is how long the distance of a server is known without a reply.
const distanceStands = time.Minute
