//go:build linux

package load

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// answers counts the answers that clients got.
type answers struct {
	ok, refused, failed, other atomic.Int64
	broken                     atomic.Int64 // connections that ended without one
}

func (a *answers) add(status int) {
	switch status {
	case 200:
		a.ok.Add(1)
	case 429:
		a.refused.Add(1)
	case 503:
		a.failed.Add(1)
	default:
		a.other.Add(1)
	}
}

func (a *answers) String() string {
	return fmt.Sprintf("200: %d, 429: %d, 503: %d, others: %d, broken: %d", a.ok.Load(), a.refused.Load(),
		a.failed.Load(), a.other.Load(),
		a.broken.Load())
}

// request is the bytes of a request with the key.
func request(key string) []byte {
	return []byte("GET / HTTP/1.1\r\nHost: load\r\nX-Api-Key: " + key + "\r\n\r\n")
}

// conn is a connection that stays open.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReaderSize(c, 2048)}, nil
}

// dialAll opens n connections, which end with the test.
func dialAll(t testing.TB, addr string, n int) []*conn {
	t.Helper()
	all := make([]*conn, n)
	var failed atomic.Pointer[error]
	var running sync.WaitGroup

	// Several at a time, because each handshake takes a round trip, and few enough for the backlog
	// of a listener.
	for i := range dialers {
		running.Go(func() {
			for j := i; j < n; j += dialers {
				c, err := dial(addr)
				if err != nil {
					failed.Store(&err)
					return
				}
				all[j] = c
			}
		})
	}

	running.Wait()

	// Those that were opened are closed even if another one failed.
	t.Cleanup(func() { hangUp(all) })

	if err := failed.Load(); err != nil {
		t.Fatalf("a connection of %d: %v", n, *err)
	}
	return all
}

// dialers is how many connections are made at a time.
const dialers = 32

// hangUp closes the connections.
func hangUp(all []*conn) {
	for _, c := range all {
		if c != nil {
			c.Close()
		}
	}
}

// ask sends the request and reads the answer.
func (c *conn) ask(request []byte) (status int, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	return c.answer()
}

// answer reads an answer.
func (c *conn) answer() (status int, err error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("the status line is %q", line)
	}

	// The status is at a fixed place: "HTTP/1.1 200".
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}

	// Headers up to the empty line, of which only the length matters: the body has to be read to
	// reach the next answer.
	length := 0
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}

	_, err = c.r.Discard(length)
	return status, err
}

// flood has each connection ask again and again for the span. It returns when all have their
// last answer.
func flood(all []*conn, span time.Duration, key string, a *answers) {
	text, end := request(key), time.Now().Add(span)

	var running sync.WaitGroup
	for _, c := range all {
		running.Go(func() {
			// Past the end there is time for the last answer; a service that hangs longer breaks
			// the connection.
			c.SetDeadline(end.Add(time.Minute))
			for time.Now().Before(end) {
				status, err := c.ask(text)
				if err != nil {
					a.broken.Add(1)
					return
				}
				a.add(status)
			}
		})
	}

	running.Wait()
}

// inTurn asks n times.
func (c *conn) inTurn(t *testing.T, n int, key string, a *answers) {
	t.Helper()
	c.SetDeadline(time.Now().Add(time.Minute))
	for range n {
		status, err := c.ask(request(key))
		if err != nil {
			t.Fatal(err)
		}
		a.add(status)
	}
}

// knock opens a connection and closes it again, n times or until the end, and asks meanwhile
// or not, as how says for each.
func knock(addr string, n int, end time.Time, how func(c *conn, i int)) {
	for i := 0; i < n && time.Now().Before(end); i++ {
		c, err := dial(addr)
		if err != nil {
			continue // as it may be refused
		}
		how(c, i)
		c.Close()
	}
}

// pour sends requests until the connection takes no more, or the end, and reads nothing.
func pour(c *conn, text []byte, end time.Time) (sent int) {
	c.SetWriteDeadline(end)
	for {
		if _, err := c.Write(text); err != nil {
			return sent
		}
		sent++
	}
}
