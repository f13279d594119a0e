package test

import "context"

// Request is a core.Request of plain values.
type Request struct {
	Ctx     context.Context // nil is context.Background
	Verb    string          // of Method
	URLPath string          // of Path
	Pattern string          // of Route
	Peer    string          // of RemoteAddr
	Headers map[string][]string
}

// Context returns Ctx, or [context.Background] if it is nil.
func (r *Request) Context() context.Context {
	if r.Ctx == nil {
		return context.Background()
	}
	return r.Ctx
}

// Method returns Verb.
func (r *Request) Method() string { return r.Verb }

// Path returns URLPath.
func (r *Request) Path() string { return r.URLPath }

// Route returns Pattern.
func (r *Request) Route() string { return r.Pattern }

// RemoteAddr returns Peer.
func (r *Request) RemoteAddr() string { return r.Peer }

// Header returns the lines of a header. The keys of Headers are in canonical form.
func (r *Request) Header(name string) []string { return r.Headers[name] }
