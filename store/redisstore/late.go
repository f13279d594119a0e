// This file tells the lateness of this process from that of a server.

package redisstore

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// onTime is how late a deadline may be noticed without this process being late.
	onTime = 2 * time.Millisecond

	// minRead is the least time that a read is given which looks for what has arrived.
	minRead = time.Millisecond
)

// lateRead is the error of a read that ended at its deadline, which was noticed late.
type lateRead struct {
	err  error
	late time.Duration // how late it was noticed, and how much longer the read was given for that
	ours bool          // the end of the time that it was given was noticed late too
	conn *patientConn  // that has no reply yet, or nil
}

func (l *lateRead) Error() string { return l.err.Error() }

// Unwrap returns the error of the connection.
func (l *lateRead) Unwrap() error { return l.err }

// Timeout implements [net.Error].
func (l *lateRead) Timeout() bool { return true }

// Temporary implements [net.Error].
func (l *lateRead) Temporary() bool { return true }

// patientConn is a connection whose reads heed how late their deadlines are noticed. By
// itself a read whose deadline has passed fails although the reply lies in the socket: the
// process may have been stopped, or have had no processor.
type patientConn struct {
	net.Conn
	budget func() time.Duration // the most that a read is given in addition
	made   int64                // in nanoseconds since the Unix epoch, as are the deadlines

	reading, writing atomic.Int64 // the deadlines, or 0 for none
	parking          parking
}

// WithPatience returns the connection for a client that is not one of go-redis's; the store has
// those wrap what they dial. Its reads and writes heed how late this process notices their
// deadlines: they get as much longer, up to atMost.
func WithPatience(c net.Conn, atMost time.Duration) net.Conn {
	return withPatience(c, func() time.Duration { return atMost }, nil)
}

// withPatience returns the connection with patience. It has the methods that the client looks
// for in a connection: SyscallConn of a socket, and NetConn of TLS. It is parked in the lot, unless
// that is nil.
func withPatience(c net.Conn, budget func() time.Duration, lot *parkingLot) net.Conn {
	if _, is := c.(interface{ isPatient() }); is {
		return c
	}

	p := &patientConn{Conn: c, budget: budget, made: time.Now().UnixNano(), parking: parking{lot: lot}}
	switch under := c.(type) {
	case syscall.Conn:
		return patientSocket{p, under}
	case interface{ NetConn() net.Conn }:
		return patientLayer{p, under}
	}
	return p
}

// patientSocket is a patientConn over a socket.
type patientSocket struct {
	*patientConn
	syscall.Conn
}

// patientLayer is a patientConn over a layer such as TLS.
type patientLayer struct {
	*patientConn
	under interface{ NetConn() net.Conn }
}

// NetConn returns the connection under the layer.
func (p patientLayer) NetConn() net.Conn { return p.under.NetConn() }

func (p *patientConn) isPatient() {}

// nanos returns a deadline in nanoseconds since the Unix epoch, or 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// SetDeadline implements [net.Conn].
func (p *patientConn) SetDeadline(t time.Time) error {
	p.reading.Store(nanos(t))
	p.writing.Store(nanos(t))
	return p.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (p *patientConn) SetReadDeadline(t time.Time) error {
	p.reading.Store(nanos(t))
	return p.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements [net.Conn].
func (p *patientConn) SetWriteDeadline(t time.Time) error {
	p.writing.Store(nanos(t))
	return p.Conn.SetWriteDeadline(t)
}

// Read implements [net.Conn].
func (p *patientConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if err == nil || n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	return p.readOn(b, err)
}

// readOn reads again after a read has failed with err at its deadline: for a moment, in which it
// gets what has arrived, or for as long as the deadline was noticed late. It goes on if the end of
// that time is noticed late too, in all for at most the budget.
func (p *patientConn) readOn(b []byte, err error) (int, error) {
	// The deadline is taken, so that a second read does not get the time once more. One before the
	// connection was made ends a read at once, and was not noticed late.
	end, left := p.reading.Swap(0), p.budget()
	result := lateRead{err: err}
	for first := true; end > p.made; first = false {
		now := time.Now()
		late := time.Duration(now.UnixNano() - end)
		result.ours = late > onTime
		if left <= 0 || late <= 0 || !result.ours && !first {
			break
		}

		// The read gets as long as its deadline was noticed late, and at least what it takes to see
		// what has arrived.
		more := max(min(late, left), minRead)
		if result.ours {
			result.late += late + more
		}

		left -= more
		end = now.Add(more).UnixNano()

		if failed := p.Conn.SetReadDeadline(now.Add(more)); failed != nil {
			return 0, failed
		}

		n, again := p.Conn.Read(b)
		if again == nil || n > 0 || !errors.Is(again, os.ErrDeadlineExceeded) {
			return n, again
		}

		result.err = again
	}

	if p.parking.readEnded(end > p.made) {
		result.conn = p
	}
	if result.late == 0 {
		if result.conn == nil {
			return 0, err
		}
		result.ours = false // it was given nothing
	}
	return 0, &result
}

// Write implements [net.Conn]. It writes what it found no time to begin with.
func (p *patientConn) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(b)
	if err == nil || n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}

	// Nothing of the text was written, so all of it may be written again.
	now, end := time.Now(), p.writing.Load()
	late := time.Duration(now.UnixNano() - end)
	if end <= p.made || late <= onTime {
		return n, err
	}

	if failed := p.Conn.SetWriteDeadline(now.Add(min(late, p.budget()))); failed != nil {
		return 0, failed
	}
	return p.Conn.Write(b)
}

// patience has a client dial connections with patience.
type patience struct {
	budget func() time.Duration
	lot    *parkingLot
}

// DialHook implements [redis.Hook].
func (p patience) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return withPatience(c, p.budget, p.lot), nil
	}
}

// ProcessHook implements [redis.Hook].
func (patience) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (patience) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// addTo has the client wrap what it dials from now on. It cannot in a client that is not
// one of go-redis's own: there a reply that is read late is lost.
func (p patience) addTo(client redis.UniversalClient) {
	add := func(c *redis.Client) { c.AddHook(p) }

	switch c := client.(type) {
	case *redis.Client:
		add(c)
	case *redis.ClusterClient:
		c.OnNewNode(add)
	case *redis.Ring:
		c.OnNewNode(add)
		_ = c.ForEachShard(context.Background(), func(_ context.Context, c *redis.Client) error {
			add(c)
			return nil
		})
	}
}
