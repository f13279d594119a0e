package trustedproxy

import (
	"context"
	"net/http"
)

// request is a core.Request for keyfuncs.
type request struct{ r *http.Request }

func (q request) Context() context.Context    { return q.r.Context() }
func (q request) Method() string              { return q.r.Method }
func (q request) Path() string                { return q.r.URL.Path }
func (q request) Route() string               { return "" }
func (q request) RemoteAddr() string          { return q.r.RemoteAddr }
func (q request) Header(name string) []string { return q.r.Header.Values(name) }
