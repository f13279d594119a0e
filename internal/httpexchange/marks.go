// Package httpexchange has what adapters do alike with a request of net/http and its answer. It
// keeps the mark of a request that a limiter has counted where nothing sends it: in the header map
// of the answer, if that is one of net/http's servers, and otherwise in the request's context.
// [Meet] finds it.
package httpexchange

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/limiter"
)

// inContexts reports whether any mark was left in a context. Servers of net/http alone need
// none, and then none is looked for.
var inContexts atomic.Bool

type contextKey struct{}

// markIn returns the mark in a context, or nil.
func markIn(ctx context.Context) *limiter.Mark {
	m, _ := ctx.Value(contextKey{}).(*limiter.Mark)
	return m
}

// leave leaves the mark of a request that passes, whose headers are set, and returns the
// request for the handlers.
func leave(w http.ResponseWriter, header http.Header, r *http.Request, a *limiter.Admission) *http.Request {
	if sendsNoEmptyList(w) {
		a.LeaveMark(header)
		return r
	}
	if !inContexts.Load() {
		inContexts.Store(true)
	}
	return r.WithContext(context.WithValue(r.Context(), contextKey{}, a.Mark()))
}

// sendsNoEmptyList reports whether a writer is that of a server which makes no header of an
// entry without values, as is known of net/http's. Others, such as those that turn an answer
// into an event of a platform, may send it.
func sendsNoEmptyList(w http.ResponseWriter) bool {
	// What matters is the innermost writer, which sends the header. One of a known type wraps
	// nothing, and need not be asked, which takes longer than all else here.
	last := lastServer.Load()
	for w != nil {
		t := reflect.TypeOf(w)
		if last != nil && *last == t {
			return true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return isKnownServer(t)
		}
		w = wrapper.Unwrap()
	}
	return false
}

// isKnownServer is isServer, and has a server's type found sooner the next time.
func isKnownServer(t reflect.Type) bool {
	if !isServer(t) {
		return false
	}
	known := t // a parameter that is kept would be allocated at each call
	lastServer.Store(&known)
	return true
}

// lastServer is the type of the writer that was found to be a server's last, as nearly all are
// of one type.
var lastServer atomic.Pointer[reflect.Type]

// isServer reports whether a type is that of a writer of a server.
func isServer(t reflect.Type) bool {
	switch t.String() {
	case "*http.response", "*http.http2responseWriter", "*http2.responseWriter", "*httptest.ResponseRecorder":
		from := t.Elem().PkgPath()
		return strings.HasPrefix(from, "net/http") || from == "golang.org/x/net/http2"
	}
	return false
}
