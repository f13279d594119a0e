package nethttp

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/target"
)

// Request returns the view that the rules of a limiter have of r, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is nil if r is nil.
func Request(r *http.Request) core.Request {
	if r == nil {
		return nil
	}
	return request{r}
}

// request is the view that rules have of an *http.Request.
type request struct{ *http.Request }

func (r request) Context() context.Context { return r.Request.Context() }
func (r request) Method() string           { return r.Request.Method }
func (r request) Path() string             { return r.URL.Path }

// RawPath returns the encoded path if it is not the usual encoding of Path, for package
// policy.
func (r request) RawPath() string { return r.URL.RawPath }

// SentPath returns the path that the client sent if middleware has changed it since, for
// package policy.
func (r request) SentPath() string { return target.Path(r.Request) }

// RawQuery returns the query as the client encoded it, for package policy.
func (r request) RawQuery() string { return r.URL.RawQuery }

func (r request) Route() string      { return r.Pattern }
func (r request) RemoteAddr() string { return r.Request.RemoteAddr }

func (r request) Header(name string) []string {
	return httpexchange.Header(r.Request, name)
}

// ReadAhead returns the body, for package policy.
func (r request) ReadAhead(max int64) ([]byte, bool) { return httpexchange.ReadAhead(r.Request, max) }

// Key returns a key function that calls f with the *http.Request of the request.
// Requests of other frameworks share the key "".
func Key(f func(*http.Request) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if r, ok := r.(request); ok {
			return f(r.Request)
		}
		return "", true
	}
}
