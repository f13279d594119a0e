//go:build !race

package grpcmw_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/limiter"
)

// discarding is a stream of a transport that keeps nothing.
type discarding struct{}

func (*discarding) Method() string               { return "/a/B" }
func (*discarding) SetHeader(metadata.MD) error  { return nil }
func (*discarding) SendHeader(metadata.MD) error { return nil }
func (*discarding) SetTrailer(metadata.MD) error { return nil }
func handle(context.Context, any) (any, error)   { return nil, nil }

func call(l *limiter.Limiter) func() {
	limit, info := grpcmw.New(l), &grpc.UnaryServerInfo{FullMethod: "/a/B"}
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}})
	ctx = grpc.NewContextWithServerTransportStream(ctx, &discarding{})
	return func() {
		if _, err := limit.Unary(ctx, nil, info, handle); err != nil {
			panic(err)
		}
	}
}

// Under the race detector a sync.Pool drops some items.
func TestAllocations(t *testing.T) {
	f := call(newLimiter(t, &clock{}, rule("1000000/1m"), limiter.Config{}))
	for range 1000 { // the first calls, which are examined for mistakes
		f()
	}
	const want = 10
	if got := testing.AllocsPerRun(1000, f); got != want {
		t.Errorf("%v allocations, want %d", got, want)
	}
}

func BenchmarkUnary(b *testing.B) {
	f := call(newLimiter(b, &clock{}, rule("1000000000/1m"), limiter.Config{}))
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}
