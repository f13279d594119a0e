package connectmw_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/connectmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
)

func TestSpec(t *testing.T) {
	t.Run("Connect", func(t *testing.T) { adapterspec.RunRPC(t, framework(connect.WithClientOptions())) })
	t.Run("gRPC", func(t *testing.T) { adapterspec.RunRPCInMemory(t, framework(connect.WithGRPC())) })
	t.Run("gRPC-Web", func(t *testing.T) { adapterspec.RunRPCInMemory(t, framework(connect.WithGRPCWeb())) })
}

func framework(protocol connect.ClientOption) adapterspec.RPCFramework {
	return adapterspec.RPCFramework{
		Package: "connectmw",
		Serve: func(t testing.TB, a adapterspec.RPCApp) adapterspec.Client {
			return newClient(t, listen(t, mux(a)), protocol)
		},
		User: connectmw.Key(func(c *connectmw.Call) (string, bool) {
			return c.Header.Get("X-User"), c.Header.Get("X-Exempt") == ""
		}),
		NoRequest: connectmw.Request(context.Background()),
		Request:   connectmw.Request,
		Message: func(r core.Request) string {
			m, _ := connectmw.Message(r).(*wrapperspb.StringValue)
			return m.GetValue()
		},
		NewError: func(code rpc.Code, text string) error {
			return connect.NewError(connect.Code(code), errors.New(text))
		},
		RefundIf: func(f func(rpc.Code) bool) func(int) bool {
			return connectmw.RefundIf(func(c connect.Code) bool { return f(rpc.Code(c)) })
		},
	}
}

type value = wrapperspb.StringValue

// mux serves the service of an app.
func mux(a adapterspec.RPCApp) *http.ServeMux {
	m, options := http.NewServeMux(), interceptors(a)
	m.Handle(adapterspec.SayMethod, connect.NewUnaryHandler(adapterspec.SayMethod,
		func(ctx context.Context, req *connect.Request[value]) (*connect.Response[value], error) {
			text, err := a.Say(ctx, req.Msg.Value)
			if err != nil {
				return nil, err
			}
			return connect.NewResponse(wrapperspb.String(text)), nil
		}, options))
	m.Handle(adapterspec.ChatMethod, connect.NewBidiStreamHandler(adapterspec.ChatMethod,
		func(ctx context.Context, s *connect.BidiStream[value, value]) error { return a.Chat(ctx, texts{s}) }, options))
	return m
}

// texts is a stream of texts on either side.
type texts struct{ messages }

type messages interface {
	Send(*value) error
	Receive() (*value, error)
}

func (s texts) Send(text string) error { return s.messages.Send(wrapperspb.String(text)) }

func (s texts) Recv() (string, error) {
	m, err := s.Receive()
	if errors.Is(err, io.EOF) {
		err = io.EOF
	}
	return m.GetValue(), err
}

// interceptors returns those of an app, the outermost first.
func interceptors(a adapterspec.RPCApp) connect.HandlerOption {
	list := []connect.Interceptor{recovery{a}}
	for _, around := range a.Around {
		list = append(list, connectmw.New(around.Limiter, configs(around)...))
	}
	return connect.WithInterceptors(append(list, connectmw.New(a.Limiter, configs(a)...))...)
}

// recovery recovers from panics.
type recovery struct{ adapterspec.RPCApp }

func (r recovery) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (_ connect.AnyResponse, err error) {
		defer r.recover(&err)
		return next(ctx, req)
	}
}

func (r recovery) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		defer r.recover(&err)
		return next(ctx, conn)
	}
}

func (r recovery) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (r recovery) recover(err *error) {
	if v := recover(); v != nil {
		*err = connect.NewError(connect.CodeInternal, errors.New("panic"))
		if r.Recovered != nil {
			r.Recovered(v)
		}
	}
}

// configs returns what New is given for the app.
func configs(a adapterspec.RPCApp) []connectmw.Config {
	own := func(f func(context.Context, *limiter.Admission) error) func(*connectmw.Call, *limiter.Admission) error {
		return func(c *connectmw.Call, admission *limiter.Admission) error { return f(c.Context, admission) }
	}
	c := connectmw.Config{Messages: a.Messages}

	if a.Skip {
		c.Skip = func(c *connectmw.Call) bool { return adapterspec.Skips(c.Header.Get("X-Skip")) }
	}
	if a.Refused != nil {
		c.Refused = own(a.Refused)
	}
	if a.Failed != nil {
		c.Failed = own(a.Failed)
	}

	// A second Config has no effect, though it would skip everything.
	if a.SecondConfig {
		return []connectmw.Config{c, {Skip: func(*connectmw.Call) bool { return true }}}
	}
	return []connectmw.Config{c}
}

// listen serves HTTP/1 and HTTP/2 on loopback until the end of the test. It takes headers
// as long as gRPC does.
func listen(t testing.TB, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)

	server := &http.Server{Handler: h, Protocols: &protocols, MaxHeaderBytes: 16 << 20}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()

	t.Cleanup(func() {
		server.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// client is a client with one connection.
type client struct {
	say, chat *connect.Client[value, value]
	local     chan string
	addr      string
}

func newClient(t testing.TB, addr string, options ...connect.ClientOption) *client {
	t.Helper()

	c := &client{local: make(chan string, 10)}
	transport := &http.Transport{Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				c.local <- conn.LocalAddr().String()
			}
			return conn, err
		}}

	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)

	h := &http.Client{Transport: transport}
	options = append(options, connect.WithAcceptCompression("gzip", nil, nil)) // none, so that sent data fills buffers
	c.say = connect.NewClient[value, value](h, "http://"+addr+adapterspec.SayMethod, options...)
	c.chat = connect.NewClient[value, value](h, "http://"+addr+adapterspec.ChatMethod, options...)
	return c
}

// Addr is called after a call.
func (c *client) Addr() string {
	if c.addr == "" {
		c.addr = <-c.local
	}
	return c.addr
}

// setHeader adds metadata to a header.
func setHeader(h http.Header, md []string) {
	for i := 0; i < len(md); i += 2 {
		value := md[i+1]
		if strings.HasSuffix(md[i], "-bin") {
			value = connect.EncodeBinaryHeader([]byte(value))
		}
		h.Add(md[i], value)
	}
}

func (c *client) Say(ctx context.Context, md []string, text string) adapterspec.Answer {
	req := connect.NewRequest(wrapperspb.String(text))
	setHeader(req.Header(), md)
	resp, err := c.say.CallUnary(ctx, req)
	if err != nil {
		return answerOf(err, "")
	}
	return answerOf(nil, resp.Msg.Value, resp.Header(), resp.Trailer())
}

func (c *client) Chat(ctx context.Context, md []string) (adapterspec.ClientStream, error) {
	s := c.chat.CallBidiStream(ctx)
	setHeader(s.RequestHeader(), md)
	// A client of net/http does not look at its context while the request has more to come.
	context.AfterFunc(ctx, func() {
		s.CloseRequest()
		s.CloseResponse()
	})
	return clientStream{texts{s}, s}, s.Send(nil) // sends the header
}

type clientStream struct {
	texts
	*connect.BidiStreamForClient[value, value]
}

func (s clientStream) Send(text string) error   { return s.texts.Send(text) }
func (s clientStream) Recv() (string, error)    { return s.texts.Recv() }
func (s clientStream) CloseSend() error         { return s.CloseRequest() }
func (s clientStream) Receive() (*value, error) { return s.BidiStreamForClient.Receive() }

func (s clientStream) End() adapterspec.Answer {
	defer s.CloseResponse()

	last := ""
	for {
		text, err := s.Recv()
		switch err {
		case nil:
			last = text
		case io.EOF:
			return answerOf(nil, last, s.ResponseHeader(), s.ResponseTrailer())
		default:
			return answerOf(err, "")
		}
	}
}

// answerOf returns the end of a call as a client sees it. The headers of an error are in
// the error.
func answerOf(err error, text string, fields ...http.Header) adapterspec.Answer {
	a := adapterspec.Answer{Body: text}
	var coded *connect.Error
	if errors.As(err, &coded) {
		a.Code, a.Message = rpc.Code(coded.Code()), coded.Message()

		fields = append(fields, coded.Meta())
		for _, detail := range coded.Details() {
			message, _ := detail.Value()
			switch d := message.(type) {
			case *errdetails.RetryInfo:
				a.RetryAfter = d.RetryDelay.AsDuration()
			case *errdetails.QuotaFailure:
				for _, v := range d.Violations {
					a.Rules = append(a.Rules, v.Subject)
				}
			}
		}
	}

	for _, h := range fields {
		for name, values := range h {
			a.AddPair(name, values)
		}
	}
	return a
}
