package grpcmw_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// FuzzCall makes each call twice. The second is refused, whatever the client has sent: the
// keys of both are the same, and no key function fails.
func FuzzCall(f *testing.F) {
	f.Add("/shop.v1.Cart/Add", "x-user", "ann", "ann", "192.0.2.1:50000")
	f.Add("shop.v1.Cart/Add", "x-forwarded-for", "203.0.113.1, 198.51.100.2", "", "@")
	f.Add("", "x-user-bin", "\x00\xff\r\n", "\x00", "bufconn")
	f.Add("//", "authorization", "Bearer  k", "Basic eDp5", "[fe80::1%eth0]:1")
	f.Add("/a/B", ":authority", "[::1", "a.example:80:90", "")
	f.Add("/a/B", "cookie", "sid=%zz; sid", "sid=\"", "\x00")

	// Each reads another part of what a client chooses.
	keys := []core.KeyFunc{keyfuncs.RemoteIP, keyfuncs.Route, keyfuncs.Path, keyfuncs.Method, keyfuncs.Host,
		keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: keyfuncs.Private()}), keyfuncs.Header("X-User"),
		keyfuncs.Header("X-User-Bin"),
		keyfuncs.APIKey("Authorization"), keyfuncs.BearerToken, keyfuncs.BasicUser, keyfuncs.Cookie("sid"),
		grpcmw.TLSIdentity}

	f.Fuzz(func(t *testing.T, method, name, value, again, addr string) {
		r := rule("1/1h fixed-window")
		r.Key = keyfuncs.Join(keys...)
		l := newLimiter(t, &clock{}, r, limiter.Config{OnError: func(_ context.Context, err error) { t.Error(err) }})
		limit := grpcmw.New(l, grpcmw.Config{Probes: true})

		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{name: {value, again}})
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: oddAddr(addr)})

		for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
			_, err := limit.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method},
				func(context.Context, any) (any, error) { return nil, nil })
			if got := status.Code(err); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}
