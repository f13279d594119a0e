package grpcmw_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

// logging returns a configuration with a log.
func logging() (limiter.Config, *test.Log) {
	log := &test.Log{}
	return limiter.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}, log
}

// wantFinding fails the test unless the log has one line, with the code.
func wantFinding(t *testing.T, log *test.Log, code string) {
	t.Helper()
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "code="+code) {
		t.Errorf("logged\n%s\nwant one line with %s", text, code)
	}
}

// oddAddr is an address of an unusual network.
type oddAddr string

func (a oddAddr) Network() string { return "odd" }
func (a oddAddr) String() string  { return string(a) }

// Callers without an address share a count, and the limiter says so.
func TestPeersWithoutAnAddress(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"no peer":           context.Background(),
		"a nil address":     peer.NewContext(context.Background(), &peer.Peer{}),
		"a nil TCP addr":    peer.NewContext(context.Background(), &peer.Peer{Addr: (*net.TCPAddr)(nil)}),
		"an empty TCP addr": peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{}}),
		"a Unix socket": peer.NewContext(context.Background(),
			&peer.Peer{Addr: &net.UnixAddr{Net: "unix", Name: "@"}}),
		"a nil Unix addr": peer.NewContext(context.Background(), &peer.Peer{Addr: (*net.UnixAddr)(nil)}),
		"no text":         peer.NewContext(context.Background(), &peer.Peer{Addr: oddAddr("")}),
		"binary text":     peer.NewContext(context.Background(), &peer.Peer{Addr: oddAddr("\x00\xff:80")}),
		"long text":       peer.NewContext(context.Background(), &peer.Peer{Addr: oddAddr(strings.Repeat("1", 1<<20))}),
	} {
		t.Run(name, func(t *testing.T) {
			config, log := logging()
			limit := grpcmw.New(newLimiter(t, &clock{}, rule("1/1h"), config))

			// The second is refused: the two have one key, and it is one that a store can keep.
			for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
				_, err := limit.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"},
					func(context.Context, any) (any, error) { return nil, nil })
				if got := status.Code(err); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}

			wantFinding(t, log, findings.NoAddress)
		})
	}
}

func TestBufconnHasNoAddress(t *testing.T) {
	config, log := logging()
	l := newLimiter(t, &clock{}, rule("1/1h"), config)

	// Go programs test their servers over bufconn, whose addresses are all the same.
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpcmw.New(l).Options()...)
	server.RegisterService(&echoService, app(adapterspec.RPCApp{}))
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})

	c := newClient(t, "bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return listener.DialContext(ctx)
		}))
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if got := codes.Code(c.Say(t.Context(), nil, "ok").Code); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	wantFinding(t, log, findings.NoAddress)
}

// A server of gRPC does not recover from a panic.
func TestAnswerThatPanicsIsThatOfTheLimiter(t *testing.T) {
	config, log := logging()
	// The program's own answer to a refusal panics, and the call is refused all the same.
	refuse := func(*grpcmw.Call, *limiter.Admission) error { panic("of the program") }
	limit := grpcmw.New(newLimiter(t, &clock{}, rule("1/1h"), config), grpcmw.Config{Refused: refuse})
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err := limit.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"},
			func(context.Context, any) (any, error) { return nil, nil })
		if got := status.Code(err); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if !strings.Contains(log.String(), "Config.Refused") {
		t.Errorf("the log is %q", log.String())
	}
}

// Metadata that another interceptor has put into the context may have names in any case.
func TestMetadataOfTheProgram(t *testing.T) {
	r := rule("1/1h")
	r.Key = keyfuncs.Header("X-User")
	limit := grpcmw.New(newLimiter(t, &clock{}, r, limiter.Config{}))

	for _, md := range []metadata.MD{nil, {}, {"X-User": {"ann"}}, {"x-user": nil}} {
		ctx := metadata.NewIncomingContext(t.Context(), md)
		_, err := limit.Unary(ctx, nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
			return nil, grpc.SetHeader(ctx, nil)
		})

		// Who has a user and who has none decides between the two codes: there is no panic.
		if code := status.Code(err); code != codes.OK && code != codes.ResourceExhausted {
			t.Errorf("%v: %v", md, err)
		}
	}

	var none context.Context
	if r := grpcmw.Request(none); r != nil {
		t.Errorf("no context has the view %v", r)
	}
}

func TestTLSIdentity(t *testing.T) {
	authority := adapterspec.NewAuthority(t)
	config, log := logging()
	r := rule("1/1h")
	r.Key = grpcmw.TLSIdentity
	l := newLimiter(t, &clock{}, r, config)

	server := grpc.NewServer(append(grpcmw.New(l).Options(), grpc.Creds(credentials.NewTLS(authority.Server())))...)
	server.RegisterService(&echoService, app(adapterspec.RPCApp{}))
	addr := listen(t, server)

	// By the identity in the certificate each service has its own count. Clients without one share
	// theirs.
	for _, step := range []struct {
		id   string
		want codes.Code
	}{
		{"spiffe://example.org/cart", 0}, {"spiffe://example.org/shop", 0},
		{"spiffe://example.org/cart", codes.ResourceExhausted},
		{"", 0}, {"", codes.ResourceExhausted},
	} {
		c := newClient(t, addr, grpc.WithTransportCredentials(credentials.NewTLS(authority.Client(step.id))))
		if got := codes.Code(c.Say(t.Context(), nil, "ok").Code); got != step.want {
			t.Errorf("%q: %s, want %s", step.id, got, step.want)
		}
	}

	if list, err := l.Peek(t.Context(), "uri:spiffe://example.org/cart"); err != nil ||
		list[0].Decision.Remaining != 0 {
		t.Errorf("%+v, %v", list, err)
	}

	if text := log.String(); text != "" {
		t.Errorf("logged\n%s", text)
	}
}

func TestTLSIdentityWithoutTLS(t *testing.T) {
	config, log := logging()
	r := rule("1/1h")
	r.Key = grpcmw.TLSIdentity
	c := serve(t, app(adapterspec.RPCApp{Limiter: newLimiter(t, &clock{}, r, config)}))

	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if got := codes.Code(c.Say(t.Context(), nil, "ok").Code); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	wantFinding(t, log, "HG015")

	// A key function may be asked outside of any call.
	if key, ok := grpcmw.TLSIdentity(nil); key != "" || !ok {
		t.Errorf("no request has the key %q, %t", key, ok)
	}
}
