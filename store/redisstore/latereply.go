// This file reads replies that come after their calls have ended, and tells them who follows.

package redisstore

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// replyStands is how long a reply is waited for after its call has ended.
	replyStands = time.Second

	// maxParked is how many connections of a store wait for a reply at a time. The replies to
	// further calls are lost with their connections.
	maxParked = 16

	// claimWithin is how long a closed connection waits to be claimed by the call that was late on
	// it. It is closed by the client, and claimed by the store a moment later.
	claimWithin = 100 * time.Millisecond
)

// parkingLot counts the connections that wait for a reply, or to be claimed.
type parkingLot struct{ parked atomic.Int32 }

// enter takes a place, or returns false if there is none.
func (p *parkingLot) enter() bool {
	if p.parked.Add(1) <= maxParked {
		return true
	}
	p.parked.Add(-1)
	return false
}

func (p *parkingLot) leave() { p.parked.Add(-1) }

// parking is what becomes of a connection that the client closes while a reply is still to come:
//
//	        a read ends at its deadline        Close                   claim
//	in use -----------------------------> late -----> parked, counted -----> read on
//	                                                      |                    |
//	                                   no claim in time   |                    |  a reply, or
//	                                                      +----> closed <------+  none in time
//
// Without a lot a connection is closed at once.
type parking struct {
	lot   *parkingLot // or nil
	late  atomic.Bool
	timer atomic.Pointer[time.Timer] // closes a connection that is parked
}

// readEnded records that a read has ended at its deadline, and reports whether the connection may
// be parked. It may not if no read had any time.
func (p *parking) readEnded(hadTime bool) bool {
	if p.lot != nil && hadTime {
		p.late.Store(true)
	}
	return p.late.Load()
}

// Close implements [net.Conn]. A connection on which a reply may come yet stays for a moment, for
// the call to claim it.
func (p *patientConn) Close() error {
	k := &p.parking
	if !k.late.CompareAndSwap(true, false) || !k.lot.enter() {
		return p.Conn.Close()
	}

	k.timer.Store(time.AfterFunc(claimWithin, p.leave))
	return nil
}

// leave closes a connection that was parked.
func (p *patientConn) leave() {
	_ = p.Conn.Close()
	p.parking.lot.leave()
}

// claim has the reply of a connection that is parked left to the caller, who must call readReply.
// It returns false if the connection is in use or closed.
func (p *patientConn) claim() bool {
	timer := p.parking.timer.Load()
	return timer != nil && timer.Stop()
}

// readReply reads the reply of integers that comes on a claimed connection, and closes it.
func (p *patientConn) readReply() ([]int64, error) {
	defer p.leave()
	if err := p.Conn.SetReadDeadline(time.Now().Add(replyStands)); err != nil {
		return nil, err
	}
	return readIntegers(p.Conn)
}

// errNoIntegers means that what comes on a connection is no reply of integers from its beginning:
// it is an error of the server, the reply to another command, or the rest of one.
var errNoIntegers = errors.New("no reply of integers")

// readIntegers reads an array of integers in the protocol of Redis.
func readIntegers(c net.Conn) ([]int64, error) {
	r := bufio.NewReader(c)
	n, err := readInteger(r, "*")
	if err != nil {
		return nil, err
	}

	// The memory grows with what comes, and not with what is announced.
	var ints []int64
	for range n {
		i, err := readInteger(r, ":")
		if err != nil {
			return nil, err
		}
		ints = append(ints, i)
	}
	return ints, nil
}

// readInteger reads a line with an integer after the prefix.
func readInteger(r *bufio.Reader, prefix string) (int64, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	digits, ok := strings.CutPrefix(string(line), prefix)
	if !ok {
		return 0, errNoIntegers
	}

	n, err := strconv.ParseInt(strings.TrimSuffix(digits, "\r\n"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoIntegers, err)
	}
	return n, nil
}

// lateReply is a reply that may come yet to a call that has ended without one.
type lateReply struct {
	conn    *patientConn // that was claimed
	waiters []*waiter    // of the steps of the call, in order
}

// claimReply returns the reply that may come yet to a call, which ended with err, of the waiters.
// The caller has it told by tell, after the waiters have their error. It returns nil if none can
// come, and else has the waiters' error lead to it.
func claimReply(q *queue, err error, waiters []*waiter) *lateReply {
	var call *lateCall
	if !errors.As(err, &call) || call.conn == nil || !call.conn.claim() {
		return nil
	}

	l := &lateReply{call.conn, slices.Clone(waiters)}
	for _, w := range l.waiters {
		w.err = &pendingError{err, w, q}
	}
	return l
}

// tell waits for the reply, and tells those who follow the steps.
func (l *lateReply) tell(q *queue) {
	ints, err := l.conn.readReply()
	if err != nil {
		return
	}

	// The callers have their error, which may be read at any time, so the steps get others.
	steps := make([]*step, len(l.waiters))
	for i, w := range l.waiters {
		steps[i] = &step{ops: w.ops, out: w.out}
	}
	if decode(steps, ints) != nil {
		return
	}

	for _, w := range l.markMissed(q, steps) {
		w.follower(w.ops, w.out)
	}
}

// markMissed records that the steps of the waiters, which have left or failed, were decided all the
// same, and returns the waiters that are followed.
func (l *lateReply) markMissed(q *queue, steps []*step) (followed []*waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()

	for i, w := range l.waiters {
		if steps[i].err != nil {
			continue
		}

		w.stage = missed
		if w.follower != nil {
			followed = append(followed, w)
		}
	}
	return followed
}

// keepFailed returns a waiter with a copy of a step that has failed, whose memory is its caller's.
func keepFailed(ops []core.Op) *waiter {
	w := newWaiter().(*waiter)
	w.copyOps(ops)
	w.stage = done
	return w
}
