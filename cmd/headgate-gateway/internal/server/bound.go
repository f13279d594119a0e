// This file bounds the size of bodies and the time between their pieces.

package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Bound returns a handler for the service, whose requests have bodies of at most BodyBytes, and
// whose clients keep sending and accepting within PieceTimeout. A request that announces a larger
// body is answered by h too, which gets the error when it reads.
func Bound(h http.Handler, o HTTPOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hasBody := r.Body != nil && r.Body != http.NoBody
		if hasBody {
			// The server looks at its own body to know whether the client waits to be told to
			// send it, and whether it can be discarded.
			outer := *r
			r = &outer
		}
		if hasBody && o.BodyBytes > 0 {
			r.Body = http.MaxBytesReader(w, r.Body, o.BodyBytes)
		}
		if o.PieceTimeout <= 0 {
			h.ServeHTTP(w, r)
			return
		}
		p := &patience{
			ResponseWriter: w, controller: http.NewResponseController(w),
			timeout: o.PieceTimeout, streams: r.ProtoMajor > 1,
		}
		if hasBody {
			p.body = r.Body
			r.Body = (*patientBody)(p)
		}

		defer p.end()
		h.ServeHTTP(p, r)
	})
}

// patience is a ResponseWriter, and the body of the request, which give the client a time
// for each piece instead of one for all.
//
// Two deadlines of the connection follow what the handler does:
//
//	read   one piece before each read of the body, none at its end, and half a piece from
//	       the header of the answer on, in which the server discards the rest of the body
//	write  one piece before each write, and on streams none between two
//
// After end both are the server's, and after Hijack there are none.
type patience struct {
	http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration

	// streams means that a deadline ends the request when it passes, and not only a piece
	// that is late then, so none is left running between two pieces. So it is for the
	// streams of HTTP/2.
	streams bool

	body   io.ReadCloser // nil if there is none
	closed atomic.Bool   // the body was

	mu    sync.Mutex // a transport may read while the handler returns
	read  bool       // the body was read to its end, or cannot be read on. Guarded by mu.
	taken bool       // by Hijack. Guarded by mu.
	ended bool       // the handler has returned. Guarded by mu.
}

// patientBody is the body of the request of a patience.
type patientBody patience

// Read implements io.Reader. At the end of the body no time is left running, as the server
// goes on reading from the connection to learn that the client has gone.
func (p *patientBody) Read(buf []byte) (int, error) {
	whole := (*patience)(p)
	if whole.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}

	whole.await(time.Now().Add(whole.timeout), nil)
	n, err := whole.body.Read(buf)
	switch {
	case err == io.EOF || whole.streams:
		whole.await(time.Time{}, err)
	case err != nil: // what is left does not come, so the server need not wait for it
		whole.await(time.Unix(1, 0), err)
	}
	return n, err
}

// Close implements io.Closer. What is left of the body is the server's to discard, after it has
// sent the header of the answer to a client that waits to be told to send: the server's own
// body would wait for that client now.
func (p *patientBody) Close() error {
	p.closed.Store(true)
	return nil
}

// await sets the time until which the client has to send more, and keeps whether the last read
// has failed. It leaves a request alone that has ended, as the connection may be another's.
func (p *patience) await(t time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.taken {
		return
	}
	p.read = p.read || err != nil
	p.controller.SetReadDeadline(t)
}

// end gives the client the time of one more piece of the answer, and half of it for what is
// left of the body, which the server discards first. From then on the deadlines are the
// server's.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken {
		return
	}

	p.ended = true
	now := time.Now()
	if p.body != nil && !p.read {
		p.controller.SetReadDeadline(now.Add(p.timeout / 2))
	}
	p.controller.SetWriteDeadline(now.Add(p.timeout))
}

// startWrite starts the time for a piece of the answer.
func (p *patience) startWrite() { p.controller.SetWriteDeadline(time.Now().Add(p.timeout)) }

// startDiscard starts the time in which the server discards what is left of the body before the
// header of the answer, unless a handler that reads on at the same time starts it anew. It is
// half of that for the answer, which begins at the same time.
func (p *patience) startDiscard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.body != nil && !p.read && !p.streams && !p.taken && !p.ended {
		p.controller.SetReadDeadline(time.Now().Add(p.timeout / 2))
	}
}

// endWrite ends the time for a piece, on streams.
func (p *patience) endWrite() {
	if p.streams {
		p.controller.SetWriteDeadline(time.Time{})
	}
}

// WriteHeader implements http.ResponseWriter.
func (p *patience) WriteHeader(status int) {
	p.startWrite()
	p.startDiscard()
	p.ResponseWriter.WriteHeader(status)
	p.endWrite()
}

// Write implements io.Writer.
func (p *patience) Write(b []byte) (int, error) {
	p.startWrite()
	n, err := p.ResponseWriter.Write(b)
	p.endWrite()
	return n, err
}

// FlushError flushes as http.ResponseController does.
func (p *patience) FlushError() error {
	p.startWrite()
	err := p.controller.Flush()
	p.endWrite()
	return err
}

// Flush implements http.Flusher.
func (p *patience) Flush() { _ = p.FlushError() }

// Hijack implements http.Hijacker. The connection has no deadlines, as a WebSocket may
// rest.
func (p *patience) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn, rw, err := p.controller.Hijack()
	if err == nil {
		p.taken = true
		err = conn.SetDeadline(time.Time{})
	}
	return conn, rw, err
}

// Unwrap returns the writer below, for http.ResponseController.
func (p *patience) Unwrap() http.ResponseWriter { return p.ResponseWriter }
