package keyfuncs

import (
	"context"
	"net/textproto"
	"testing"

	"github.com/headgate/headgate/core"
)

// request is a core.Request that is what it says.
type request struct {
	ctx                         context.Context
	method, path, route, remote string
	header                      map[string][]string
}

func (r *request) Context() context.Context {
	if r.ctx == nil {
		return context.Background()
	}
	return r.ctx
}
func (r *request) Method() string              { return r.method }
func (r *request) Path() string                { return r.path }
func (r *request) Route() string               { return r.route }
func (r *request) RemoteAddr() string          { return r.remote }
func (r *request) Header(name string) []string { return r.header[name] }

// from is a request from the peer with the lines of one header.
func from(remote, header string, lines ...string) *request {
	return &request{
		remote: remote,
		header: map[string][]string{textproto.CanonicalMIMEHeaderKey(header): lines},
	}
}

// with is a request with the lines of one header.
func with(header string, lines ...string) *request {
	return from("192.0.2.1:1234", header, lines...)
}

// keyOf is the key of a function that is about every request.
func keyOf(t testing.TB, k core.KeyFunc, r core.Request) string {
	t.Helper()
	key, ok := k(r)
	if !ok {
		t.Fatalf("the rule is not about the request %+v", r)
	}
	return key
}

// constant is a key function that answers this.
func constant(key string, ok bool) core.KeyFunc {
	return func(core.Request) (string, bool) { return key, ok }
}
