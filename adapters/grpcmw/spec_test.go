package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
)

func TestSpec(t *testing.T) {
	adapterspec.RunRPC(t, adapterspec.RPCFramework{
		Package: "grpcmw",
		Serve:   serve,
		User: grpcmw.Key(func(c *grpcmw.Call) (string, bool) {
			if len(metadata.ValueFromIncomingContext(c.Context, "x-exempt")) > 0 {
				return "", false
			}
			if user := metadata.ValueFromIncomingContext(c.Context, "x-user"); len(user) > 0 {
				return user[0], true
			}
			return "", true
		}),
		NoRequest: grpcmw.Request(context.Background()),
		Request:   grpcmw.Request,
		Message: func(r core.Request) string {
			m, _ := grpcmw.Message(r).(*wrapperspb.StringValue)
			return m.GetValue()
		},
		NewError: func(code rpc.Code, text string) error { return status.Error(codes.Code(code), text) },
		RefundIf: func(f func(rpc.Code) bool) func(int) bool {
			return grpcmw.RefundIf(func(c codes.Code) bool { return f(rpc.Code(c)) })
		},
	})
}

// echoService describes the service of an App to a server.
var echoService = grpc.ServiceDesc{
	ServiceName: "headgate.test.Echo",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Say", Handler: say}},
	Streams:     []grpc.StreamDesc{{StreamName: "Chat", Handler: chat, ServerStreams: true, ClientStreams: true}},
}

func say(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := &wrapperspb.StringValue{}
	if err := decode(in); err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, req any) (any, error) {
		out, err := srv.(adapterspec.RPCApp).Say(ctx, req.(*wrapperspb.StringValue).Value)
		return wrapperspb.String(out), err
	}
	if interceptor == nil {
		return handler(ctx, in)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: adapterspec.SayMethod}, handler)
}

func chat(srv any, ss grpc.ServerStream) error {
	return srv.(adapterspec.RPCApp).Chat(ss.Context(), texts{ss})
}

// texts is a stream of texts on either side.
type texts struct{ messages }

type messages interface {
	SendMsg(any) error
	RecvMsg(any) error
}

func (s texts) Send(text string) error { return s.SendMsg(wrapperspb.String(text)) }

func (s texts) Recv() (string, error) {
	m := &wrapperspb.StringValue{}
	err := s.RecvMsg(m)
	return m.Value, err
}

// interceptors returns those of an app, the outermost first.
func interceptors(a adapterspec.RPCApp) []grpc.ServerOption {
	// A server of gRPC does not recover from panics by itself, and the specification has handlers
	// that panic.
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler) (_ any, err error) {
			defer recovered(a, &err)
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo,
			handler grpc.StreamHandler) (err error) {
			defer recovered(a, &err)
			return handler(srv, ss)
		}),
	}

	for _, around := range a.Around {
		options = append(options, grpcmw.New(around.Limiter, configs(around)...).Options()...)
	}

	return append(options, grpcmw.New(a.Limiter, configs(a)...).Options()...)
}

func recovered(a adapterspec.RPCApp, err *error) {
	if v := recover(); v != nil {
		*err = status.Error(codes.Internal, "panic")
		if a.Recovered != nil {
			a.Recovered(v)
		}
	}
}

// configs returns what New is given for the app.
func configs(a adapterspec.RPCApp) []grpcmw.Config {
	own := func(f func(context.Context, *limiter.Admission) error) func(*grpcmw.Call, *limiter.Admission) error {
		return func(c *grpcmw.Call, admission *limiter.Admission) error { return f(c.Context, admission) }
	}
	c := grpcmw.Config{Messages: a.Messages}

	if a.Skip {
		c.Skip = func(c *grpcmw.Call) bool {
			return adapterspec.Skips(strings.Join(metadata.ValueFromIncomingContext(c.Context, "x-skip"), ""))
		}
	}

	if a.Refused != nil {
		c.Refused = own(a.Refused)
	}
	if a.Failed != nil {
		c.Failed = own(a.Failed)
	}

	// A second Config has no effect, though it would skip everything.
	if a.SecondConfig {
		return []grpcmw.Config{c, {Skip: func(*grpcmw.Call) bool { return true }}}
	}
	return []grpcmw.Config{c}
}

// serve starts a server on loopback.
func serve(t testing.TB, a adapterspec.RPCApp) adapterspec.Client {
	t.Helper()
	server := grpc.NewServer(interceptors(a)...)
	server.RegisterService(&echoService, a)
	return newClient(t, listen(t, server))
}

// listen has the server serve on loopback until the end of the test.
func listen(t testing.TB, server *grpc.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)

	go func() { done <- server.Serve(l) }()

	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// client is a client with one connection.
type client struct {
	*grpc.ClientConn
	local chan string
	addr  string
}

func newClient(t testing.TB, addr string, options ...grpc.DialOption) *client {
	t.Helper()

	c := &client{local: make(chan string, 10)}
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			c.local <- conn.LocalAddr().String()
		}
		return conn, err
	}

	// Waiting for the connection, so that a server that starts late fails no call.
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true))}, options...)

	conn, err := grpc.NewClient("passthrough:"+addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })

	c.ClientConn = conn
	return c
}

// Addr is called after a call.
func (c *client) Addr() string {
	if c.addr == "" {
		c.addr = <-c.local
	}
	return c.addr
}

func (c *client) Say(ctx context.Context, md []string, text string) adapterspec.Answer {
	var header, trailer metadata.MD
	out := &wrapperspb.StringValue{}
	err := c.Invoke(metadata.AppendToOutgoingContext(ctx, md...), adapterspec.SayMethod, wrapperspb.String(text), out,
		grpc.Header(&header), grpc.Trailer(&trailer))
	return answerOf(err, out.Value, header, trailer)
}

func (c *client) Chat(ctx context.Context, md []string) (adapterspec.ClientStream, error) {
	s, err := c.NewStream(metadata.AppendToOutgoingContext(ctx, md...), &echoService.Streams[0], adapterspec.ChatMethod)
	return clientStream{texts{s}, s}, err
}

type clientStream struct {
	texts
	grpc.ClientStream
}

func (s clientStream) End() adapterspec.Answer {
	last := ""
	for {
		text, err := s.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			header, _ := s.Header() // none if the stream ended with an error
			return answerOf(err, last, header, s.Trailer())
		}
		last = text
	}
}

// answerOf returns the end of a call as a client sees it.
func answerOf(err error, text string, fields ...metadata.MD) adapterspec.Answer {
	s := status.Convert(err)
	a := adapterspec.Answer{CallStatus: adapterspec.CallStatus{Code: rpc.Code(s.Code()), Message: s.Message()}}
	if err == nil {
		a.Body = text
	}

	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			a.RetryAfter = d.RetryDelay.AsDuration()
		case *errdetails.QuotaFailure:
			for _, v := range d.Violations {
				a.Rules = append(a.Rules, v.Subject)
			}
		}
	}

	for _, md := range fields {
		for name, values := range md {
			a.AddPair(name, values)
		}
	}
	return a
}
