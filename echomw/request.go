package echomw

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/target"
)

// Request returns the view that the rules of a limiter have of c, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is valid until Echo uses c for another
// request. It is nil if c is nil.
func Request(c echo.Context) core.Request {
	if c == nil {
		return nil
	}
	return &request{c}
}

// request is the view that rules have of an echo.Context. Its context is the one of
// the *http.Request, because Echo uses an echo.Context again for another request.
type request struct{ c echo.Context }

func (r *request) Context() context.Context { return r.c.Request().Context() }
func (r *request) Method() string           { return r.c.Request().Method }
func (r *request) Path() string             { return r.c.Request().URL.Path }

// RawPath returns the encoded path if it is not the usual encoding of Path, for package
// policy.
func (r *request) RawPath() string { return r.c.Request().URL.RawPath }

// SentPath returns the path that the client sent if middleware has changed it since, for
// package policy.
func (r *request) SentPath() string { return target.Path(r.c.Request()) }

// RawQuery returns the query as the client encoded it, for package policy.
func (r *request) RawQuery() string { return r.c.Request().URL.RawQuery }

func (r *request) Route() string      { return r.c.Path() }
func (r *request) RemoteAddr() string { return r.c.Request().RemoteAddr }

func (r *request) Header(name string) []string {
	return httpexchange.Header(r.c.Request(), name)
}

// ReadAhead returns the body, for package policy.
func (r *request) ReadAhead(max int64) ([]byte, bool) {
	return httpexchange.ReadAhead(r.c.Request(), max)
}

// Key returns a key function that calls f with the echo.Context of the request.
// Requests of other frameworks share the key "".
func Key(f func(echo.Context) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if r, ok := r.(*request); ok {
			return f(r.c)
		}
		return "", true
	}
}
