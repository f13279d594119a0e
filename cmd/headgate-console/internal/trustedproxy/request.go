package trustedproxy

import (
	"context"
	"net/http"
)

// request is a core.Request for keyfuncs.
type request struct{ r *http.Request }

func (r request) Context() context.Context    { return r.r.Context() }
func (r request) Method() string              { return r.r.Method }
func (r request) Path() string                { return r.r.URL.Path }
func (r request) Route() string               { return "" }
func (r request) RemoteAddr() string          { return r.r.RemoteAddr }
func (r request) Header(name string) []string { return r.r.Header.Values(name) }
