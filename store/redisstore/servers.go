// This file knows the servers of a store, and when this process was late itself.

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/observe/findings"
)

// servers is what the store knows about its servers: how far they are, and whether they are
// silent.
type servers struct {
	topology    *topology
	fixed, most time.Duration // of the options; fixed is 0 if the budget follows the distance
	sharded     bool          // the client has several servers
	single      server        // unless it is sharded
	byName      sync.Map      // of *server

	lateAt atomic.Int64 // when this process last noticed a deadline late; 0: never
	lateBy atomic.Int64 // by how much, in nanoseconds
}

// serverFor returns what is known about the server that has the keys of a subject.
func (s *servers) serverFor(subject string) *server {
	if !s.sharded {
		return &s.single
	}
	return s.serverAmong(subject)
}

// serverAmong is serverFor where the client has several servers.
func (s *servers) serverAmong(subject string) *server {
	name := s.topology.shard(subject)
	if v, ok := s.byName.Load(name); ok {
		return v.(*server)
	}

	v := new(server)
	v.init(s.fixed, s.most)
	known, _ := s.byName.LoadOrStore(name, v)
	return known.(*server)
}

// eachServer calls f for what is known about each server.
func (s *servers) eachServer(f func(*server)) {
	f(&s.single)
	s.byName.Range(func(_, v any) bool {
		f(v.(*server))
		return true
	})
}

// maxCall returns the most that a call to a server may ever take.
func (s *servers) maxCall() time.Duration { return cmp.Or(s.fixed, s.most) }

// budget returns the longest that a call to any of the servers may take now.
func (s *servers) budget() time.Duration {
	longest := time.Duration(0)
	s.eachServer(func(v *server) { longest = max(longest, v.budget()) })
	return longest
}

// reach returns how long a call may take to the farthest of the servers, for what has to reach
// a server before its distance is known, such as a connection. It is the most that a call may
// ever take if the distance of some server is not known, because the server may have moved.
func (s *servers) reach() time.Duration {
	longest, known, now := time.Duration(0), true, time.Now()
	s.eachServer(func(v *server) {
		if v == &s.single && s.sharded {
			return
		}
		longest = max(longest, v.budget())
		known = known && v.knows(now)
	})

	if longest == 0 || !known {
		return s.maxCall()
	}
	return longest
}

// judged returns the error of a call, which began and was to end at the deadline. The
// server is at fault unless the call had not its time: because its caller's ended before, or
// because this process was late, for this call or while this one waited for a connection.
func (s *servers) judged(v *server, begun, deadline time.Time, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case !isLate(err):
		return failedCall(err)
	}

	// What a read was late has been made up for by a longer wait. The rest is the fault of this
	// process.
	now, noticed, read := endOf(err)
	late := time.Duration(0) // this process
	if read || now.Sub(deadline)-noticed > onTime {
		late = max(1, now.Sub(deadline))
		s.recordLate(now, late)
	} else if !waitedForReply(err) {
		late = s.wasLate(now, patienceOf(v.budget()))
	}
	if late > 0 {
		v.excuse(begun, now, late)
	}

	short := deadline.Sub(begun) < v.budget() && !now.Before(deadline)

	e := failedCall(err)

	// A silence counts before the lateness of this process, which the silence has been moved by
	// already.
	if v.isSilent(now) {
		e.silent = true
		v.silent.Store(e)
		return e
	}

	if late > 0 || short {
		return &overloadError{err}
	}
	return e
}

// endOf returns when a call that was late ended, how late its last read was noticed, and
// whether that is the fault of this process.
func endOf(err error) (at time.Time, late time.Duration, ours bool) {
	at = time.Now()
	var ended *lateCall
	if errors.As(err, &ended) {
		at = ended.at
	}
	var read *lateRead
	if errors.As(err, &read) {
		late, ours = read.late, read.ours
	}
	return at, late, ours
}

// noticedLate reports whether this process was late to notice that a call, which ended with
// err, had no time left, or was late while the call waited for a connection.
func (s *servers) noticedLate(ctx context.Context, v *server, ended time.Time, err error) bool {
	if end, ok := ctx.Deadline(); ok && ended.Sub(end) > onTime {
		return true
	}
	return lateness(err) > 0 || !waitedForReply(err) && s.wasLate(ended, patienceOf(v.budget())) > 0
}

// waitedForReply reports whether a call that ended at its deadline was waiting for a reply then.
// Otherwise it was waiting for a connection, for which this process has to do more than read.
func waitedForReply(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// recordLate records that this process has noticed a deadline late, by so much.
func (s *servers) recordLate(now time.Time, late time.Duration) {
	s.lateBy.Store(int64(late))
	s.lateAt.Store(s.single.instantOf(now))
}

// wasLate returns by how much this process was late within a time until now, or 0.
func (s *servers) wasLate(now time.Time, within time.Duration) time.Duration {
	if at := s.lateAt.Load(); at == 0 || s.single.instantOf(now)-at >= int64(within) {
		return 0
	}
	return time.Duration(s.lateBy.Load())
}

// remeasure is the minimum pause after a measurement of a server that had a reply. Another that had
// none may be repeated with the next call that is late.
const remeasure = time.Second

// measure finds out in the background how far the server of a key is, after a call that was
// late: nothing else would, if it is farther than a call may take. It does so if the distance
// is not known, or the server has been asked for a second without a reply. A server that is not
// asked, because another call was answered meanwhile, counts as asked since it became known. There
// is one measurement of a server at a time.
func (s *servers) measure(v *server, key string) {
	now := time.Now()
	v.mu.Lock()
	far := v.distance.rtt() == 0 || v.instantOf(now)-v.since.Load() >= int64(remeasure)
	due := far && !v.measuring && now.Sub(v.measured) >= remeasure
	v.measuring = v.measuring || due
	v.mu.Unlock()

	if !due {
		return
	}

	go func() {
		took, ok := s.timeRoundTrip(key)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.measuring = false
		if ok {
			v.measured = time.Now()
			v.repliedLocked(took, v.measured)
		}
	}()
}

// timeRoundTrip returns how long the server of the key takes to answer over a connection that is
// ready. ok is false if there is none, or no reply. It dials no connection, because a server that
// hangs would collect them.
func (s *servers) timeRoundTrip(key string) (took time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*s.reach())
	defer cancel()

	err := rediscall.Safely(ctx, func(ctx context.Context) error {
		if own := foreignOf(s.topology.client); own != nil {
			took, ok = timeForeign(ctx, own, key)
			return nil
		}

		c, err := s.topology.clientOf(ctx, key)
		if err != nil || c == nil || c.PoolStats().IdleConns == 0 {
			return err
		}

		begun := time.Now()
		err = c.Process(ctx, rediscall.Reply{Cmd: redis.NewCmd(ctx, "time")})
		took, ok = time.Since(begun), isReply(err)
		return nil
	})
	return took, ok && err == nil
}

// timeForeign returns how long the server of the key takes to answer over a connection that is
// ready. ok is false if it does not answer.
func timeForeign(ctx context.Context, own Client, key string) (took time.Duration, ok bool) {
	var err error

	// The first command finds no connection, and has the client make one.
	for range 2 {
		cmd := rediscall.Reply{Cmd: redis.NewCmd(ctx, "exists", key)}
		begun := time.Now()
		err = own.Process(ctx, cmd)
		took = time.Since(begun)
	}
	return took, isReply(err)
}

// appendTooFar appends a finding if a server is too far for the timeout.
func (s *servers) appendTooFar(found []core.Finding) []core.Finding {
	farthest := time.Duration(0)
	s.eachServer(func(v *server) { farthest = max(farthest, v.roundTrip()) })
	if longest := s.maxCall(); longest < 2*farthest {
		found = append(found, core.Finding{Code: findings.TooFar, Text: fmt.Sprintf("a round trip to Redis takes %v, "+
			"and a call may take %v: set redisstore.Options.%s to three round trips, or use a server that is nearer",
			farthest.Round(time.Millisecond/10), longest, s.bound())})
	}
	return found
}

// bound returns the name of the option that bounds a call.
func (s *servers) bound() string {
	if s.fixed > 0 {
		return "Timeout"
	}
	return "MaxTimeout"
}
