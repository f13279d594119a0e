package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// starved is a connection whose process has no processor: it notices each deadline late by the
// next of lates. A reply arrives at the instant.
type starved struct {
	net.Conn // nil: no other method may be called
	arrives  time.Time
	lates    []time.Duration
	deadline time.Time
	reads    int
}

func (c *starved) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }

func (c *starved) Read(p []byte) (int, error) {
	c.reads++
	if !time.Now().Before(c.deadline) { // as the runtime does before it reads
		return 0, os.ErrDeadlineExceeded
	}

	// A reply is read if it comes before the deadline, or if it is there already and the process is
	// on time.
	if !c.arrives.After(time.Now()) || !c.arrives.After(c.deadline) && len(c.lates) == 0 {
		time.Sleep(time.Until(c.arrives))
		return copy(p, "reply"), nil
	}

	time.Sleep(time.Until(c.deadline))
	if len(c.lates) > 0 {
		time.Sleep(c.lates[0])
		c.lates = c.lates[1:]
	}
	return 0, os.ErrDeadlineExceeded
}

// A deadline of 50 ms is noticed late. What has arrived by then counts, and the read goes on
// for as long as it was late, at most 50 ms.
func TestReadGoesOnForAsLongAsItsDeadlineWasNoticedLate(t *testing.T) {
	const never = time.Hour
	for _, row := range []struct {
		name    string
		arrives time.Duration
		lates   []time.Duration
		ends    time.Duration
		read    bool
		late    time.Duration // of the error, with what was given for it
		ours    bool
	}{
		// The deadline is at 50ms. A read that is on time ends there, with or without a reply.
		{"in time", 30 * ms, nil, 30 * ms, true, 0, false},
		{"never", never, nil, 50 * ms, false, 0, false},
		// A reply that is in the socket when the lateness is noticed counts, after however long a
		// stop.
		{"in the socket, a little late", 40 * ms, []time.Duration{ms}, 51 * ms, true, 0, false},
		{"never, a little late", never, []time.Duration{ms}, 52 * ms, false, 0, false},
		{"in the socket after a stop of ten seconds", 40 * ms, []time.Duration{10 * time.Second}, 10050 * ms,
			true, 0, false},
		// A lateness of 20ms gives 20ms from when it was noticed, at 70ms.
		{"in the time that is given", 85 * ms, []time.Duration{20 * ms}, 85 * ms, true, 0, false},
		{"never, late once", never, []time.Duration{20 * ms}, 90 * ms, false, 40 * ms, false},
		// Never more than 50ms are given.
		{"never, late by more than is given", never, []time.Duration{80 * ms}, 180 * ms, false, 130 * ms, false},
		// Each further lateness gives time again, until 50ms are used up.
		{"never, late twice", never, []time.Duration{20 * ms, 10 * ms}, 110 * ms, false, 60 * ms, false},
		{"never, late each time", never, []time.Duration{40 * ms, 30 * ms, 20 * ms}, 190 * ms, false, 120 * ms, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				time.Sleep(ms)
				start := time.Now()
				under := &starved{arrives: start.Add(row.arrives), lates: row.lates}
				c := withPatience(under, func() time.Duration { return 50 * ms }, nil)

				time.Sleep(time.Nanosecond) // a deadline before the connection was made ends reads at once
				_ = c.SetReadDeadline(start.Add(50 * ms))
				n, err := c.Read(make([]byte, 10))
				if took := time.Since(start); took != row.ends || (n == 5) != row.read || (err == nil) != row.read {
					t.Errorf("%d bytes, %v after %v; want %v after %v", n, err, took, row.read, row.ends)
				}

				if err == nil {
					return
				}

				var late lateRead
				if e := (*lateRead)(nil); errors.As(err, &e) {
					late = *e
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) || late.late != row.late || late.ours != row.ours {
					t.Errorf("%v, late %v, ours %v; want %v, %v", err, late.late, late.ours, row.late, row.ours)
				}

				// The time that was given is used up: the next read ends at once.
				reads := under.reads
				if _, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) ||
					under.reads != reads+1 {
					t.Errorf("the next read: %v after %d reads", err, under.reads-reads)
				}
			})
		})
	}
}

// A read that is to end at once does.
func TestReadWithAnOldDeadlineIsNotGivenMore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		time.Sleep(time.Second)
		c := withPatience(&starved{arrives: time.Now().Add(time.Hour)}, func() time.Duration { return 50 * ms }, nil)
		start := time.Now()
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if _, err := c.Read(nil); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// The client peeks into a socket by SyscallConn, and finds the socket under TLS by NetConn.
func TestPatientConnectionHasTheMethodsThatTheClientLooksFor(t *testing.T) {
	type layer interface{ NetConn() net.Conn }
	budget := func() time.Duration { return ms }
	for name, row := range map[string]struct {
		conn          net.Conn
		socket, layer bool
	}{
		"a socket":         {new(net.TCPConn), true, false},
		"a Unix socket":    {new(net.UnixConn), true, false},
		"TLS":              {layered{new(net.TCPConn)}, false, true},
		"something opaque": {&starved{arrives: time.Now().Add(time.Hour)}, false, false},
	} {
		c := withPatience(row.conn, budget, nil)
		if _, is := c.(syscall.Conn); is != row.socket {
			t.Errorf("%s has SyscallConn: %v", name, is)
		}
		if _, is := c.(layer); is != row.layer {
			t.Errorf("%s has NetConn: %v", name, is)
		}

		// The wrapping is safe to repeat, as a client may be given to two stores.
		if again := withPatience(c, budget, nil); again != c {
			t.Errorf("%s is wrapped twice", name)
		}
	}
}

// layered is a connection over another, as TLS is.
type layered struct{ under *net.TCPConn }

func (l layered) NetConn() net.Conn                { return l.under }
func (l layered) Read([]byte) (int, error)         { return 0, io.EOF }
func (l layered) Write([]byte) (int, error)        { return 0, io.EOF }
func (l layered) Close() error                     { return nil }
func (l layered) LocalAddr() net.Addr              { return nil }
func (l layered) RemoteAddr() net.Addr             { return nil }
func (l layered) SetDeadline(time.Time) error      { return nil }
func (l layered) SetReadDeadline(time.Time) error  { return nil }
func (l layered) SetWriteDeadline(time.Time) error { return nil }

// Each kind of client dials connections with patience. The hook before that of the store sees
// what the client gets.
func TestClientsDialWithPatience(t *testing.T) {
	const addr = "127.0.0.1:1"

	// The far end is closed, so that the client fails right after it has dialled.
	dial := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}
	for name, c := range map[string]redis.UniversalClient{
		"server":  redis.NewClient(&redis.Options{Addr: addr, Dialer: dial, MaxRetries: -1}),
		"Ring":    redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, Dialer: dial, MaxRetries: -1}),
		"Cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, Dialer: dial, MaxRetries: -1}),
	} {
		var w dialWatch
		w.addTo(c)
		MustNew(c, Options{})
		_ = c.Ping(t.Context())
		c.Close()

		if dialled, patient := w.dialled.Load(), w.patient.Load(); dialled == 0 || patient != dialled {
			t.Errorf("%s: %d of %d connections have patience", name, patient, dialled)
		}
	}
}

// dialWatch is a hook that counts connections.
type dialWatch struct{ dialled, patient atomic.Int64 }

func (w *dialWatch) addTo(client redis.UniversalClient) {
	switch c := client.(type) {
	case *redis.Client:
		c.AddHook(w)
	case *redis.ClusterClient:
		c.OnNewNode(func(c *redis.Client) { c.AddHook(w) })
	case *redis.Ring:
		_ = c.ForEachShard(context.Background(), func(_ context.Context, c *redis.Client) error {
			c.AddHook(w)
			return nil
		})
	}
}

func (w *dialWatch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		w.dialled.Add(1)
		if _, is := c.(interface{ isPatient() }); is {
			w.patient.Add(1)
		}
		return c, err
	}
}

func (*dialWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (*dialWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
