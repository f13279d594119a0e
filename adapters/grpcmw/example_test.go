package grpcmw_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func ExampleNew() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "peer", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
		{Name: "method", Key: keyfuncs.Join(keyfuncs.RemoteIP, keyfuncs.Route), Limit: core.MustParseLimit("10/1s")},
	}})
	limit := grpcmw.New(l)
	server := grpc.NewServer(limit.Options()...)
	defer server.Stop()
	fmt.Println(len(server.GetServiceInfo()), "services are limited")
	// Output: 0 services are limited
}

// A client may open ten streams a minute, and send fifty messages a second on them.
func ExampleConfig() {
	calls := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "calls", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("10/1m")},
	}})
	messages := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "messages", Key: keyfuncs.RemoteIP,
			Limit: core.MustParseLimit("50/1s"), OnLimit: limiter.Wait(time.Second)},
	}})
	limit := grpcmw.New(calls, grpcmw.Config{Messages: messages})
	fmt.Println(len(limit.Options()), "interceptors")
	// Output: 2 interceptors
}

// The error of a refused call says which rule refused it, and when to come again.
func ExampleServer_Unary() {
	l := limiter.MustNew(limiter.Config{
		Rules: []limiter.Rule{{Name: "everyone", Key: keyfuncs.Global,
			Limit: core.MustParseLimit("1/1h fixed-window")}},
		Logger: slog.New(slog.DiscardHandler),
	})
	limit := grpcmw.New(l)
	for range 2 {
		_, err := limit.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.v1.Cart/Add"},
			func(context.Context, any) (any, error) { return "added", nil })
		fmt.Println(status.Code(err), len(status.Convert(err).Details()), "details")
	}
	// Output:
	// OK 0 details
	// ResourceExhausted 2 details
}

// A client waits as long as a server asks it to, but no longer than five seconds.
func ExampleNewRetry() {
	retry, err := grpcmw.NewRetry(grpcmw.Retry{MaxWait: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient("127.0.0.1:50051",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(retry))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: 127.0.0.1:50051
}

// Attempts that end with Unauthenticated count, and others do not.
func ExampleRefundIf() {
	rule := limiter.Rule{
		Name:     "logins",
		Key:      keyfuncs.RemoteIP,
		Limit:    core.MustParseLimit("5/15m sliding-log"),
		RefundIf: grpcmw.RefundIf(func(c codes.Code) bool { return c != codes.Unauthenticated }),
	}
	fmt.Println(rule.RefundIf(200), rule.RefundIf(401))
	// Output: true false
}

// A call costs as many units as its message asks for.
func ExampleMessage() {
	type batch interface{ GetValue() string }
	rule := limiter.Rule{
		Name:  "bytes",
		Key:   keyfuncs.RemoteIP,
		Limit: core.MustParseLimit("100000/1m"),
		Cost: func(r core.Request) int64 {
			m, _ := grpcmw.Message(r).(batch)
			if m == nil {
				return 1
			}
			return int64(len(m.GetValue()))
		},
	}
	fmt.Println(rule.Limit)
	// Output: 100000/1m
}

// A server admits 100 calls a minute from each address.
func Example() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "peer", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}})
	limit := grpcmw.New(l)
	server := grpc.NewServer(limit.Options()...)
	healthpb.RegisterHealthServer(server, health.NewServer()) // register your services here

	listener, err := net.Listen("tcp", "127.0.0.1:50051")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
