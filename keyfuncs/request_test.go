package keyfuncs

import (
	"net/textproto"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// from returns a request from the peer with the lines of one header.
func from(remote, header string, lines ...string) *test.Request {
	return &test.Request{
		Peer:    remote,
		Headers: map[string][]string{textproto.CanonicalMIMEHeaderKey(header): lines},
	}
}

// with returns a request with the lines of one header.
func with(header string, lines ...string) *test.Request {
	return from("192.0.2.1:1234", header, lines...)
}

// keyOf returns the key of a function that applies to every request.
func keyOf(t testing.TB, k core.KeyFunc, r core.Request) string {
	t.Helper()
	key, ok := k(r)
	if !ok {
		t.Fatalf("the rule is not about the request %+v", r)
	}
	return key
}

// constant returns a key function with this result.
func constant(key string, ok bool) core.KeyFunc {
	return func(core.Request) (string, bool) { return key, ok }
}
