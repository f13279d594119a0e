// This file bounds the bodies of requests that are read before the limits have decided.

package proxy

import (
	"io"
	"net/http"
	"sync/atomic"
)

// maxAhead is how many bytes of bodies the gateway holds at once that policies read before they
// decide, as by cost.usage.
const maxAhead = 64 << 20

// ahead is how many bytes are held. The zero value holds none.
type ahead struct{ bytes atomic.Int64 }

// bounded is the body of a request, of which no more is read ahead than there is room for. It
// implements the interface that package httpexchange asks for.
type bounded struct {
	io.ReadCloser
	ahead *ahead
	held  int64
}

// Reserve reports whether n bytes may be held until the request ends.
func (b *bounded) Reserve(n int64) bool {
	if b.ahead.bytes.Add(n) > maxAhead {
		b.ahead.bytes.Add(-n)
		return false
	}
	b.held += n
	return true
}

// bound returns a handler that bounds the bodies which next reads ahead.
func (a *ahead) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &bounded{ReadCloser: r.Body, ahead: a}
		defer func() { a.bytes.Add(-b.held) }()
		r.Body = b
		next.ServeHTTP(w, r)
	})
}
