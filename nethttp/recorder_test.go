package nethttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// refunding returns a limiter that refunds requests answered with status.
func refunding(t *testing.T, status int) *limiter.Limiter {
	t.Helper()
	r := rule("5/1m fixed-window")
	r.RefundIf = func(got int) bool { return got == status }
	return newLimiter(t, limiter.Config{Rules: []limiter.Rule{r}})
}

func TestRecorderStatus(t *testing.T) {
	rows := []struct {
		name    string
		handler http.HandlerFunc
		want    int
	}{
		// The status is the first that is sent, which is 200 if a body or a flush comes before one.
		// 1xx answers come before it, but 101 is the last.
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, 200},
		{"written", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, 200},
		{"a string", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a") }, 200},
		{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 404},
		{"the first status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(500) },
			404},
		{"a status too late", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil); w.WriteHeader(500) },
			200},
		{"a status after a string",
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a"); w.WriteHeader(500) }, 200},
		{"a status after a flush",
			func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, 200},
		{"early hints", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, 404},
		{"another protocol", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, 101},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			// The refund for this status gives the unit back.
			l := refunding(t, row.want)
			get(nethttp.New(l)(row.handler), "/")
			wantLeft(t, l, 5)

			// A refund for another status gives nothing back, so that the test before is not of a
			// rule which refunds everything.
			l = refunding(t, row.want+1)
			get(nethttp.New(l)(row.handler), "/")
			wantLeft(t, l, 4)
		})
	}
}

func TestRecorderStatusAfterReadFrom(t *testing.T) {
	l := refunding(t, 200)
	h := nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("a"))
		w.WriteHeader(500)
	}))

	w := struct {
		*plainWriter
		reads
	}{&plainWriter{http.Header{}}, reads{new([]string)}}

	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	wantLeft(t, l, 5)
}

// A panic leaves the status that was sent. Without one the client sees a fault.
func TestRecorderPanic(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, "boom"} {
		for text, l := range map[string]*limiter.Limiter{
			// Before anything is sent a panic is a 500, and after it what was sent. A lease ends in
			// both cases.
			"": refunding(t, 500), "begun": refunding(t, 200), "leased": limited(t, "5 concurrent ttl=1m"),
		} {
			h := nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if text != "" {
					_, _ = io.WriteString(w, text)
				}
				panic(value)
			}))

			// More often than the limit of five, so that a unit or lease which is not given back
			// would show.
			for range 20 {
				func() {
					defer func() {
						if got := recover(); got != value {
							t.Errorf("recovered %v, want %v", got, value)
						}
					}()
					get(h, "/")
				}()
			}

			wantLeft(t, l, 5)
		}
	}
}

// The optional methods of a writer, each of which logs its call.
type (
	flushing struct{ log *[]string }
	hijacks  struct{ log *[]string }
	reads    struct{ log *[]string }
)

func (f flushing) Flush() { *f.log = append(*f.log, "flush") }
func (h hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	*h.log = append(*h.log, "hijack")
	return nil, nil, errors.New("no")
}
func (r reads) ReadFrom(io.Reader) (int64, error) { *r.log = append(*r.log, "read"); return 0, nil }

// combinations returns a writer with each of the eight sets of optional methods.
func combinations(log *[]string) []http.ResponseWriter {
	p, f, h, r := &plainWriter{http.Header{}}, flushing{log}, hijacks{log}, reads{log}
	type base = *plainWriter
	return []http.ResponseWriter{
		// By hand, as a set of methods is a type of its own.
		p,
		struct {
			base
			flushing
		}{p, f},
		struct {
			base
			hijacks
		}{p, h},
		struct {
			base
			reads
		}{p, r},
		struct {
			base
			flushing
			hijacks
		}{p, f, h},
		struct {
			base
			flushing
			reads
		}{p, f, r},
		struct {
			base
			hijacks
			reads
		}{p, h, r},
		struct {
			base
			flushing
			hijacks
			reads
		}{p, f, h, r},
	}
}

// abilities calls each optional method of w, directly and through an
// http.ResponseController, and lists them.
func abilities(w http.ResponseWriter) string {
	var b strings.Builder
	// Each is called both ways, as one may be there and not the other.
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
		b.WriteString("flush ")
	}
	if h, ok := w.(http.Hijacker); ok {
		_, _, _ = h.Hijack()
		b.WriteString("hijack ")
	}
	if r, ok := w.(io.ReaderFrom); ok {
		_, _ = r.ReadFrom(strings.NewReader(""))
		b.WriteString("read ")
	}

	c := http.NewResponseController(w)
	_, _, err := c.Hijack()
	fmt.Fprint(&b, c.Flush(), err, c.EnableFullDuplex())

	return b.String()
}

func TestRecorderOptionalMethods(t *testing.T) {
	var plainLog, ourLog []string
	plain, ours := combinations(&plainLog), combinations(&ourLog)

	seen := map[string]bool{}
	for i := range plain {
		plainLog, ourLog = nil, nil
		want := abilities(plain[i])

		var got string
		h := nethttp.New(refunding(t, 0))(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { got = abilities(w) }))
		h.ServeHTTP(ours[i], httptest.NewRequest("GET", "/", nil))

		// The handler finds what the server's own writer has, no more and no less, and each call
		// reaches it.
		if got != want || strings.Join(ourLog, " ") != strings.Join(plainLog, " ") {
			t.Errorf("%d: %s %v, want %s %v", i, got, ourLog, want, plainLog)
		}

		seen[want] = true
	}

	if len(seen) != 8 {
		t.Errorf("%d combinations, want 8", len(seen))
	}
}

func TestRecorderAbsentByDefault(t *testing.T) {
	w := &plainWriter{http.Header{}}
	h := nethttp.New(limited(t, "5/1m"))(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		if got != http.ResponseWriter(w) {
			t.Errorf("wrapped as %T", got)
		}
	}))
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
}

// onlyUnwraps hides all optional methods, as some middleware does.
type onlyUnwraps struct{ w http.ResponseWriter }

func (o onlyUnwraps) Header() http.Header         { return o.w.Header() }
func (o onlyUnwraps) Write(p []byte) (int, error) { return o.w.Write(p) }
func (o onlyUnwraps) WriteHeader(status int)      { o.w.WriteHeader(status) }
func (o onlyUnwraps) Unwrap() http.ResponseWriter { return o.w }

func TestRecorderHijackHoldsLease(t *testing.T) {
	// A middleware around the limiter may hide the methods. Then only Unwrap leads to them.
	hide := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(onlyUnwraps{w}, r) })
	}
	straight := func(next http.Handler) http.Handler { return next }

	for name, around := range map[string]func(http.Handler) http.Handler{"straight": straight, "behind another": hide} {
		t.Run(name, func(t *testing.T) {
			l := limited(t, "2 concurrent ttl=1h")
			taken := make(chan net.Conn, 1)
			limit := nethttp.New(l)
			returned := make(chan struct{})

			h := around(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
				}
				taken <- conn
			})))

			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(returned)
				h.ServeHTTP(w, r)
			}))
			defer server.Close()

			client, err := net.DialTimeout("tcp", server.Listener.Addr().String(), 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}

			// The handler has returned. The lease is held by the connection that it took over.
			conn := <-taken
			<-returned
			wantLeft(t, l, 1)

			// The connection works as ever.
			if _, err := io.WriteString(conn, "x"); err != nil {
				t.Error(err)
			}
			one := make([]byte, 1)
			if _, err := io.ReadFull(client, one); err != nil || one[0] != 'x' {
				t.Errorf("%q, %v", one, err)
			}

			// Its end is that of the lease.
			_ = conn.Close()
			wantLeft(t, l, 2)
		})
	}
}
