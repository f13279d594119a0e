package adapterspec

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// The methods that an RPCApp serves. Their messages are google.protobuf.StringValue.
const (
	SayMethod  = "/headgate.test.Echo/Say"  // one message each way
	ChatMethod = "/headgate.test.Echo/Chat" // a stream each way
)

// An RPCFramework is an adapter for calls under test.
type RPCFramework struct {
	// Package is the name of the adapter's package.
	Package string

	// Serve starts a server on loopback that ends with the test, and returns a client.
	Serve func(t testing.TB, a RPCApp) Client

	// User is the adapter's Key of a function that reads the metadata x-user. It does not
	// apply to calls with x-exempt.
	User core.KeyFunc

	// NoRequest is what the adapter's Request returns for a context of no call.
	NoRequest core.Request

	// Request and Message are the adapter's, Message as text.
	Request func(context.Context) core.Request
	Message func(core.Request) string

	// NewError returns an error with the code and the text.
	NewError func(code rpc.Code, text string) error

	// RefundIf is the adapter's, of a function of a code.
	RefundIf func(func(rpc.Code) bool) func(status int) bool
}

// An RPCApp is a server in terms that every framework for calls has. It recovers from panics,
// outside of the limiters, and answers with Internal and "panic".
type RPCApp struct {
	Limiter *limiter.Limiter

	// Around holds limiters around Limiter, the outermost first, each with its
	// options. The same limiter may occur several times.
	Around []RPCApp

	// Say and Chat answer the two methods. Without them the server sends back what it got.
	Say  func(ctx context.Context, text string) (string, error)
	Chat func(ctx context.Context, s Stream) error

	// Skip has the Config skip calls by the metadata x-skip, as [Skips] says.
	Skip bool

	// Refused, Failed and Messages are the fields of that name in the Config.
	Refused, Failed func(context.Context, *limiter.Admission) error
	Messages        *limiter.Limiter

	// SecondConfig gives New a second Config, which skips every call.
	SecondConfig bool

	// Recovered, unless nil, is called with the value of each panic.
	Recovered func(value any)
}

// A Stream is the stream of Chat on either side.
type Stream interface {
	Send(text string) error
	Recv() (text string, err error) // io.EOF at the end
}

// A Client is a client of an RPCApp.
type Client interface {
	// Say calls Say with metadata of names and values in turns.
	Say(ctx context.Context, metadata []string, text string) Answer
	// Chat calls Chat.
	Chat(ctx context.Context, metadata []string) (ClientStream, error)
	// Addr is the address of the client as the server sees it.
	Addr() string
}

// A ClientStream is the stream of Chat on the side of the client.
type ClientStream interface {
	Stream
	CloseSend() error
	// End receives what is left and returns the answer, with the last text.
	End() Answer
}
