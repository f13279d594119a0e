package grpcmw_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func TestProbes(t *testing.T) {
	for name, configs := range map[string][]grpcmw.Config{"are not counted": nil,
		"are counted with Probes": {{Probes: true}}} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, &clock{}, rule("9/1h fixed-window"), limiter.Config{})
			server := grpc.NewServer(grpcmw.New(l, configs...).Options()...)
			healthpb.RegisterHealthServer(server, health.NewServer())
			reflection.Register(server)
			c := newClient(t, listen(t, server))

			// Health as a balancer asks it, once and by a stream.
			probe := healthpb.NewHealthClient(c)
			if _, err := probe.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
				t.Error(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			watch, err := probe.Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Error(err)
			}

			// Reflection, as tools ask it.
			info, err := reflectionpb.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
			if err == nil {
				err = info.Send(
					&reflectionpb.ServerReflectionRequest{
						MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			}
			if err == nil {
				_, err = info.Recv()
			}
			if err != nil {
				t.Error(err)
			}

			// Three calls were made, and each is one unit or none.
			list, err := l.Peek(t.Context(), "127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}

			if got, want := list[0].Decision.Remaining, int64(9-3*len(configs)); got != want {
				t.Errorf("%d left, want %d", got, want)
			}
		})
	}
}

// Clients can make up the methods of unknown services, which share one key.
func TestUnknownServicesShareOneRoute(t *testing.T) {
	r := rule("2/1h fixed-window")
	r.Key = keyfuncs.Route

	server := grpc.NewServer(append(grpcmw.New(newLimiter(t, &clock{}, r, limiter.Config{})).Options(),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			return s.SendMsg(wrapperspb.String("ok"))
		}))...)
	server.RegisterService(&echoService, app(adapterspec.RPCApp{}))

	// The made-up methods share two units, and a registered one has its own.
	c := newClient(t, listen(t, server))
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted, codes.ResourceExhausted} {
		err := c.Invoke(t.Context(), fmt.Sprintf("/made.up/Method%d", i), wrapperspb.String(""),
			&wrapperspb.StringValue{})
		if got := status.Code(err); got != want {
			t.Errorf("method %d: %s, want %s", i, got, want)
		}
	}

	if got := c.Say(t.Context(), nil, "ok"); got.Code != 0 {
		t.Errorf("a registered method: got\n%s", got)
	}
}

// A method is counted as it is, whether or not a client has sent the slash before it.
func TestMethodsHaveASlashBefore(t *testing.T) {
	seen := ""
	r := rule("9/1h")
	r.Key = grpcmw.Key(func(c *grpcmw.Call) (string, bool) {
		seen = c.FullMethod
		return "", true
	})

	limit := grpcmw.New(newLimiter(t, &clock{}, r, limiter.Config{}))
	for method, want := range map[string]string{"/a.B/C": "/a.B/C", "a.B/C": "/a.B/C", "": "/"} {
		_, err := limit.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return nil, nil })
		if seen != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", method, seen, err, want)
		}
	}
}

// Only what a client streams is a message: the request of a call with a stream of answers
// is counted with the call.
func TestMessagesOfAServerStream(t *testing.T) {
	messages := newLimiter(t, &clock{}, rule("1/1h fixed-window"), limiter.Config{})
	calls := newLimiter(t, &clock{}, rule("9/1h fixed-window"), limiter.Config{})
	server := grpc.NewServer(grpcmw.New(calls, grpcmw.Config{Messages: messages}).Options()...)

	// The client sends one message, as the request of the call: were it counted, the second call
	// would be refused.
	service := grpc.ServiceDesc{ServiceName: "headgate.test.Echo", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Chat", ServerStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				m := &wrapperspb.StringValue{}
				if err := s.RecvMsg(m); err != nil {
					return err
				}
				return s.SendMsg(m)
			}}}}

	server.RegisterService(&service, app(adapterspec.RPCApp{}))
	c := newClient(t, listen(t, server))

	for range 3 {
		s, err := c.Chat(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send("ok"); err != nil {
			t.Error(err)
		}
		if err := s.CloseSend(); err != nil {
			t.Error(err)
		}

		if got := s.End(); got.Code != 0 || got.Body != "ok" {
			t.Errorf("got\n%s", got)
		}
	}
}
