package requestlog

import (
	"bufio"
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// RequestID is the header with the id of a request.
const RequestID = "X-Request-Id"

// Switch is the log that is in force. The zero value has none. It is safe for concurrent use.
type Switch struct{ log atomic.Pointer[Log] }

// Set puts a log in force, or none, and returns the former.
func (s *Switch) Set(l *Log) (before *Log) { return s.log.Swap(l) }

// Log returns the log that is in force, or nil.
func (s *Switch) Log() *Log {
	if s == nil {
		return nil
	}
	return s.log.Load()
}

// Record is what a line says of a request beside what the handler sees.
type Record struct {
	Upstream string // the name and the address, with a space between them
	Attempts int    // how often it was sent to an upstream
	Policy   string // that has refused it

	start   time.Time
	address string
	id      string
	target  string
	status  int
	bytes   int64

	returned bool // the handlers have not panicked
}

type recordKey struct{}

// Of returns the record of a request, or nil if it is not logged.
func Of(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// Handler returns a handler whose requests are logged while there is a log. The address of a
// request is what address returns. A request gets an id, unless it has one of 1 to 64 letters,
// digits, and -_.=+/: in one line, and next sees the id in its header RequestID.
func (s *Switch) Handler(next http.Handler, address func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.log.Load() == nil {
			next.ServeHTTP(w, r)
			return
		}

		// The handlers may remove headers, and so the address is found first.
		x := &Record{start: time.Now(), address: address(r), target: r.RequestURI}
		if ids := r.Header[RequestID]; len(ids) == 1 && isID(ids[0]) {
			x.id = ids[0]
		} else {
			x.id = rand.Text()
			r.Header[RequestID] = []string{x.id}
		}

		// A handler that panics has broken off its answer, and is logged too. Without a status it
		// has not answered at all.
		defer func() {
			if x.status == 0 && !x.returned {
				x.status = http.StatusInternalServerError
			}
			s.end(x, r)
		}()
		next.ServeHTTP(&writer{w, x}, r.WithContext(context.WithValue(r.Context(), recordKey{}, x)))
		x.returned = true
	})
}

// isID reports whether a text is kept as the id of a request.
func isID(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c|' ' && c|' ' <= 'z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == '=', c == '+', c == '/', c == ':':
		default:
			return false
		}
	}
	return text != "" && len(text) <= 64
}

// end writes the line of a request. A log may be replaced while a request is under way.
func (s *Switch) end(x *Record, r *http.Request) {
	took := time.Since(x.start)
	for l := s.log.Load(); l != nil; {
		line := lines.Get().(*[]byte)
		*line = l.appendLine((*line)[:0], x, r, took)
		if l.put(line) {
			return
		}

		// It was closed since. Another is in force by now, or none.
		next := s.log.Load()
		if next == l {
			return
		}
		l = next
	}
}

// writer keeps the status and the size of an answer.
type writer struct {
	http.ResponseWriter
	record *Record
}

// WriteHeader implements http.ResponseWriter. An interim answer is not the one that is logged.
func (w *writer) WriteHeader(status int) {
	if w.record.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.record.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (int, error) {
	if w.record.status == 0 {
		w.record.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.record.bytes += int64(n)
	return n, err
}

// FlushError flushes as http.ResponseController does.
func (w *writer) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// Hijack implements http.Hijacker. What is sent on the connection later is not counted.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.record.status == 0 {
		w.record.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
