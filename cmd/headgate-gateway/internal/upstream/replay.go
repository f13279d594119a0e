// This file sends a request again.

package upstream

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"
)

// maxReplay is the largest body in bytes of a request that may be sent again.
const maxReplay = 64 << 10

// isIdempotent reports whether a request of the method may be carried out twice, by RFC 9110.
func isIdempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// replayOf reports whether the body of a request can be sent again. It returns nil for a request
// without one.
func replayOf(r *http.Request) (body *replay, ok bool) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, true
	case r.ContentLength <= 0 || r.ContentLength > maxReplay:
		return nil, false
	}
	return &replay{from: r.Body}, true
}

// replay keeps what was read of a body, so that it can be read again from the beginning. It reads
// no more of the body than an attempt asks for.
type replay struct {
	from io.Reader

	mu   sync.Mutex // a transport may still read for an attempt that has failed
	kept []byte     // guarded by mu
	err  error      // of the end of from; guarded by mu
}

// again returns the body for another attempt. Its Close does not close the body of the request.
func (r *replay) again() io.ReadCloser { return &attempt{replay: r} }

// attempt is the body of one attempt.
type attempt struct {
	replay *replay
	at     int // guarded by replay.mu
	closed atomic.Bool
}

var errClosed = errors.New("the body of an attempt was closed")

// Read implements io.Reader.
func (a *attempt) Read(b []byte) (int, error) {
	if a.closed.Load() {
		return 0, errClosed
	}

	p := a.replay
	p.mu.Lock()
	defer p.mu.Unlock()

	// What an attempt before has read comes first. What it reads from now on is kept too, so no
	// byte is lost if this one fails.
	if a.at == len(p.kept) && p.err == nil {
		n, err := p.from.Read(b)
		p.kept = append(p.kept, b[:n]...)
		p.err = err
	}

	n := copy(b, p.kept[a.at:])
	a.at += n
	if a.at == len(p.kept) {
		return n, p.err
	}

	return n, nil
}

// Close implements io.Closer.
func (a *attempt) Close() error {
	a.closed.Store(true)
	return nil
}

// watch returns a request that sets informed once an interim answer comes, as that reaches the
// client at once.
func watch(r *http.Request, informed *atomic.Bool) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			informed.Store(true)
			return nil
		},
	}))
}

// discard ends an answer that no client gets, and does not wait for it. A short one that comes soon
// leaves its connection for others.
func discard(res *http.Response) {
	if res.ContentLength < 0 || res.ContentLength > shortAnswer {
		_ = res.Body.Close()
		return
	}
	go func() {
		late := time.AfterFunc(discardTime, func() { _ = res.Body.Close() })
		_, _ = io.CopyN(io.Discard, res.Body, shortAnswer+1)
		late.Stop()
		_ = res.Body.Close()
	}()
}

// An answer of at most shortAnswer bytes is read to its end, for as long as discardTime.
const (
	shortAnswer = 4 << 10
	discardTime = time.Second
)
