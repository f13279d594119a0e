package ginmw

import (
	"context"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/target"
)

// Request returns the view that the rules of a limiter have of c, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is valid until Gin uses c for another
// request. It is nil if c is nil.
func Request(c *gin.Context) core.Request {
	if c == nil {
		return nil
	}
	return request{c}
}

// request is the view that rules have of a *gin.Context. Its context is the one of
// the *http.Request, because Gin uses a *gin.Context again for another request.
type request struct{ c *gin.Context }

func (r request) Context() context.Context { return r.c.Request.Context() }
func (r request) Method() string           { return r.c.Request.Method }
func (r request) Path() string             { return r.c.Request.URL.Path }

// RawPath returns the encoded path if it is not the usual encoding of Path, for package
// policy.
func (r request) RawPath() string { return r.c.Request.URL.RawPath }

// SentPath returns the path that the client sent if middleware has changed it since, for
// package policy.
func (r request) SentPath() string { return target.Path(r.c.Request) }

// RawQuery returns the query as the client encoded it, for package policy.
func (r request) RawQuery() string { return r.c.Request.URL.RawQuery }

func (r request) Route() string      { return r.c.FullPath() }
func (r request) RemoteAddr() string { return r.c.Request.RemoteAddr }

func (r request) Header(name string) []string {
	return httpexchange.Header(r.c.Request, name)
}

// ReadAhead returns the body, for package policy.
func (r request) ReadAhead(max int64) ([]byte, bool) {
	return httpexchange.ReadAhead(r.c.Request, max)
}

// UnescapeCookie returns the value as gin.Context.Cookie does, for
// package keyfuncs: "" if it cannot be unescaped.
func (r request) UnescapeCookie(value string) string {
	value, _ = url.QueryUnescape(value)
	return value
}

// Key returns a key function that calls f with the *gin.Context of the request.
// Requests of other frameworks share the key "".
func Key(f func(*gin.Context) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		switch r := r.(type) {
		case request:
			return f(r.c)
		case checkedRequest:
			key, ok := f(r.c)
			r.framework.inspect(r.c, key)
			return key, ok
		}
		return "", true
	}
}
