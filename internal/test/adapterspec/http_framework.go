package adapterspec

import (
	"context"
	"net"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// An HTTPFramework is an adapter for an HTTP framework under test.
type HTTPFramework struct {
	// Package is the name of the adapter's package.
	Package string

	// Serve starts a server on loopback that ends with the test, and returns
	// its address.
	Serve func(t testing.TB, a HTTPApp) (addr string)

	// User is the adapter's Key of a function that reads the framework's own
	// context. The key is the header X-User. It does not apply to requests with a
	// header X-Exempt.
	User core.KeyFunc

	// NoRequest is what the adapter's Request returns for nil.
	NoRequest core.Request

	// Route is the route that rules see of POST /login.
	Route string

	// SameRoute and SamePath are the tried spellings under which the router finds
	// /login.
	SameRoute, SamePath []string

	// Fails returns the answer of Exchange.Fail without the limiter's headers.
	Fails func(status int) Answer

	// Errs and Panics are the answers if a handler returns an error with the text
	// "boom", or panics with that text.
	Errs, Panics Answer

	// BlindToLeaving reports whether the framework does not notice that a client
	// has left. The client's slot then comes back when its wait ends.
	BlindToLeaving bool

	// BlindToStreams reports whether the framework sends streams after its handlers have returned,
	// so that rules do not see them, and has read the body of a request before them.
	BlindToStreams bool

	// NoRanges reports whether Exchange.ServeContent does nothing.
	NoRanges bool
}

// An HTTPApp is a server in terms that every HTTP framework has. It recovers from panics.
type HTTPApp struct {
	Limiter *limiter.Limiter

	// Around holds limiters around Limiter, the outermost first, each with its
	// Config. The same limiter may occur several times.
	Around []HTTPApp

	// Paths says what is served and where the middleware stands.
	Paths Paths

	Handler Handler

	// Skip has the Config skip requests by the header X-Skip, as [Skips] says.
	Skip bool

	// Refused, Failed and Degraded are the fields of that name in the Config.
	Refused, Failed func(Exchange, *limiter.Admission) error
	Degraded        Handler

	// SecondConfig gives New a second Config, which skips every request.
	SecondConfig bool

	// Recovered, unless nil, is called with the value of each panic that the
	// server recovers from.
	Recovered func(value any)
}

// Paths says what an HTTPApp serves.
type Paths uint8

const (
	All    Paths = iota // all paths, with the middleware around the router
	Login               // /login alone, the same
	Routed              // /login alone, with the middleware where the route is known
)

// A Handler answers a request.
type Handler func(Exchange) error

// An Exchange is a request and its answer in the framework's own way.
type Exchange interface {
	Context() context.Context
	// Request is the adapter's view of the request.
	Request() core.Request
	// Cookie returns the cookie as handlers of the framework read it, or "".
	Cookie(name string) string
	// Body returns the body of the request as handlers of the framework read it.
	Body() ([]byte, error)
	// Host returns the host as handlers of the framework read it.
	Host() string
	// Reply answers in text/plain.
	Reply(status int, body string) error
	// Fail answers with an error as users of the framework do.
	Fail(status int) error
	// Stream sends each text at once.
	Stream(contentType string, write func(send func(text string) error) error) error
	// Hijack answers 101 and calls serve with the connection while the handler
	// returns.
	Hijack(serve func(net.Conn)) error
	// ServeContent answers as net/http's function does.
	ServeContent(content string) error
}
