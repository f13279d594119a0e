package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// bounds are those of the tests.
func bounds() HTTPOptions {
	return HTTPOptions{
		HeaderBytes: 4096, BodyBytes: 1 << 20,
		HeaderTimeout: 10 * time.Second, PieceTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		Log: quietlog.New(slog.New(slog.DiscardHandler)),
	}
}

// serve serves h on pipes until the test ends, within a synctest bubble.
func serve(t *testing.T, h http.HandlerFunc, o HTTPOptions) (*HTTP, *pipes) {
	t.Helper()
	s, l := NewHTTP(Bound(h, o), o), newPipes()

	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()

	// With a context that has ended, so that no test waits for what is still under way.
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Shutdown(ctx)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, l
}

func dial(t *testing.T, l *pipes) net.Conn {
	t.Helper()
	c, err := l.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// send writes in the background, as a pipe has no buffer.
func send(c net.Conn, text string) { go io.WriteString(c, text) }

func read(t *testing.T, r *bufio.Reader) (int, string) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// endOf returns the time until the server closes the connection.
func endOf(c net.Conn) time.Duration {
	begun := time.Now()
	io.Copy(io.Discard, c)
	return time.Since(begun)
}

func TestHTTPEndsSlowHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }, bounds())
		c := dial(t, l)
		var sender sync.WaitGroup

		// Each byte comes in time by itself: the bound is on the header as a whole.
		sender.Go(func() {
			for { // a byte a second
				if _, err := io.WriteString(c, "G"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})

		if d := endOf(c); d != 10*time.Second {
			t.Errorf("the connection ended after %v, want 10s", d)
		}

		sender.Wait()
	})
}

func TestHTTPEndsIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, func(http.ResponseWriter, *http.Request) {}, bounds())
		c := dial(t, l)
		send(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		r := bufio.NewReader(c)
		if status, _ := read(t, r); status != 200 {
			t.Error(status)
		}
		if d := endOf(c); d != time.Minute {
			t.Errorf("the connection ended after %v, want 1m", d)
		}
	})
}

func TestHTTPBoundsTheTimeOfEachPieceOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type result struct {
			n    int
			err  error
			took time.Duration
		}

		results := make(chan result, 1)
		_, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
			begun := time.Now()
			body, err := io.ReadAll(r.Body)
			results <- result{len(body), err, time.Since(begun)}
			if err != nil {
				return
			}

			time.Sleep(5 * time.Minute) // a slow answer is no fault of the client
			if r.Context().Err() != nil {
				t.Error("the request was cancelled although the client waits")
			}
			io.WriteString(w, "ok")
		}, bounds())

		post := func(pieces int, pause time.Duration) (net.Conn, *bufio.Reader) {
			c := dial(t, l)
			go func() {
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
				for range pieces {
					time.Sleep(pause)
					io.WriteString(c, "x")
				}
			}()
			return c, bufio.NewReader(c)
		}

		// 145 s in all, which is more than any bound, and no piece is late.
		_, r := post(5, 29*time.Second)
		if got := <-results; got.err != nil || got.n != 5 || got.took != 145*time.Second {
			t.Errorf("a piece every 29 s: %+v", got)
		}

		if status, body := read(t, r); status != 200 || body != "ok" {
			t.Errorf("%d %q", status, body)
		}

		// The third piece is awaited from 40 s on, and 30 s later it is late.
		post(2, 20*time.Second)
		if got := <-results; !errors.Is(got.err, os.ErrDeadlineExceeded) || got.n != 2 || got.took != 70*time.Second {
			t.Errorf("no third piece: %+v, want the time-out after 70s", got)
		}
	})
}

// A client whose body does not come gets its answer, and the connection ends.
func TestHTTPAnswersAClientWhoseBodyStops(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) }
	for name, row := range map[string]struct {
		handler        http.HandlerFunc
		more           string // of the request
		status         int
		answered, ends time.Duration
	}{
		"the handler reads": {func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read until %v", err)
			}
			http.Error(w, "late", http.StatusRequestTimeout)
		}, "\r\nxx", 408, 30 * time.Second, 30 * time.Second},

		// A handler that does not read leaves the rest to the server, which waits for half the time
		// of a piece before it answers.
		"the handler does not read":   {refuse, "\r\nxx", 429, 15 * time.Second, 15 * time.Second},
		"the client waits to be told": {refuse, "Expect: 100-continue\r\n\r\n", 429, 0, 15 * time.Second},
		"told, and the handler closes": {func(w http.ResponseWriter, r *http.Request) { r.Body.Close(); refuse(w, r) },
			"Expect: 100-continue\r\n\r\n", 429, 0, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := serve(t, row.handler, bounds())
				c, begun := dial(t, l), time.Now()
				send(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"+row.more)
				status, _ := read(t, bufio.NewReader(c))

				if took := time.Since(begun); status != row.status || took != row.answered {
					t.Errorf("%d after %v, want %d after %v", status, took, row.status, row.answered)
				}

				// The server may read for a moment what still comes, so that the client sees the
				// answer and no reset.
				if ends := time.Since(begun) + endOf(c); ends < row.ends || ends > row.ends+time.Second {
					t.Errorf("the connection ends after %v, want %v", ends, row.ends)
				}
			})
		})
	}
}

func TestHTTPBoundsTheTimeOfEachPieceOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := make(chan error, 1)
		_, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			var err error
			for range 5 {
				time.Sleep(2 * time.Minute) // events are rare
				io.WriteString(w, "event\n")
				if err = c.Flush(); err != nil {
					break
				}
			}
			results <- err
		}, bounds())

		get := func() net.Conn {
			c := dial(t, l)
			send(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			return c
		}

		if status, body := read(t, bufio.NewReader(get())); status != 200 || body != strings.Repeat("event\n", 5) {
			t.Errorf("%d %q", status, body)
		}
		if err := <-results; err != nil {
			t.Error(err)
		}

		begun := time.Now()
		get() // and read nothing
		if err := <-results; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client that reads nothing: %v", err)
		}

		// The first event waits for two minutes in the handler, and is late 30 s after it was
		// sent.
		if d := time.Since(begun); d != 2*time.Minute+30*time.Second {
			t.Errorf("it took %v, want 2m30s", d)
		}
	})
}

// A large piece ends as late as a small one, and one that the handler holds back is not late.
func TestHTTPBoundsTheTimeOfAPieceFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := make(chan error, 1)
		_, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			io.WriteString(w, "held back")
			time.Sleep(2 * time.Minute)
			if err := c.Flush(); err != nil {
				t.Errorf("the flush of a piece that was held back: %v", err)
			}

			time.Sleep(2 * time.Minute)

			// More than the buffers hold: the write itself has to wait for the client.
			_, err := w.Write(make([]byte, 1<<20))
			results <- err
		}, bounds())

		c := dial(t, l)
		send(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		begun := time.Now()

		if res, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil); err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}

		go func() { // all of the first piece, and nothing of the second
			buf := make([]byte, 1)
			for time.Since(begun) < 3*time.Minute {
				if _, err := c.Read(buf); err != nil {
					return
				}
			}
		}()

		if err := <-results; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client that reads nothing of a large piece: %v", err)
		}

		// Two minutes twice, and the 30 s of the large piece, however much of it there is.
		if d := time.Since(begun); d != 4*time.Minute+30*time.Second {
			t.Errorf("it took %v, want 4m30s", d)
		}
	})
}

// A stream of HTTP/2 ends when its deadline passes, even if no piece is late by then, so
// none may be left running.
func TestHTTPBoundsTheTimeOfEachPieceOverHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, 1)
			for range 3 { // an echo that takes its time
				if _, err := io.ReadFull(r.Body, body); err != nil {
					t.Errorf("%s: %v", r.Proto, err)
					return
				}
				time.Sleep(2 * time.Minute)
				w.Write(body)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Errorf("%s: %v", r.Proto, err)
					return
				}
			}

			begun := time.Now()
			if _, err := r.Body.Read(body); !errors.Is(err, os.ErrDeadlineExceeded) ||
				time.Since(begun) != 30*time.Second {
				t.Errorf("a client that sends nothing: %v after %v, want the time-out after 30s", err,
					time.Since(begun))
			}
		}, bounds())

		only := &http.Protocols{}
		only.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: only,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial() }}
		defer transport.CloseIdleConnections()

		body, feed := io.Pipe()
		go feed.Write([]byte("a"))
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/", body)
		if err != nil {
			t.Fatal(err)
		}

		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}

		if res.Proto != "HTTP/2.0" {
			t.Error(res.Proto)
		}
		piece := make([]byte, 1)

		// Each piece of the answer asks for the next of the request: the stream lives for six
		// minutes.
		for _, want := range "abc" {
			if _, err := io.ReadFull(res.Body, piece); err != nil || rune(piece[0]) != want {
				t.Fatalf("%q %v, want %c", piece, err, want)
			}
			if want < 'c' {
				feed.Write([]byte{byte(want + 1)})
			}
		}

		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		feed.Close()
	})
}

func TestHTTPBoundsSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var large *http.MaxBytesError
		_, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); errors.As(err, &large) {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		}, bounds())

		for _, row := range []struct {
			name   string
			header int
			body   int
			want   int
		}{
			{"all is small", 10, 10, 200},
			{"the body is as large as it may be", 10, 1 << 20, 200},
			{"the body is too large", 10, 1<<20 + 1, 413},
			{"the header is too large", 4096 + 4096 + 100, 0, 431}, // net/http adds 4096 to its bound
		} {
			c := dial(t, l)
			send(c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\nContent-Length: %d\r\n\r\n%s",
				strings.Repeat("x", row.header), row.body, strings.Repeat("y", row.body)))

			if status, _ := read(t, bufio.NewReader(c)); status != row.want {
				t.Errorf("%s: answered with %d, want %d", row.name, status, row.want)
			}
			c.Close()
		}
	})
}

func TestHTTPLogsWhatClientsCauseInFewLines(t *testing.T) {
	var b strings.Builder
	events := quietlog.New(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	e := errorLog{events}
	for range 5 {
		e.Write([]byte("http: TLS handshake error from 192.0.2.1:1: EOF\n"))
		e.Write([]byte("http: panic serving 192.0.2.1:1: oh\x1b[31m\ngoroutine 1\n"))
		e.Write([]byte("http2: server: error reading preface from client\n"))
	}
	events.Close()
	// Each of the three is a line at once, and another for the four that repeat it. The escape
	// would colour a terminal.
	if n := strings.Count(b.String(), "\n"); n != 6 || strings.Contains(b.String(), "\x1b") ||
		strings.Count(b.String(), "count=4") != 3 {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}
