// Echo is a gRPC server that limits calls, and a client that waits when it is asked to:
//
//	go -C adapters/grpcmw run ./examples/echo
//	go -C adapters/grpcmw run ./examples/echo -ask 8
//
// The client gets two answers at once, and then one every half second.
package main

import (
	"context"
	"flag"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() {
	n := flag.Int("ask", 0, "call the server `n` times instead")
	flag.Parse()
	if ask("127.0.0.1:50051", *n); *n > 0 {
		return
	}

	listener, err := net.Listen("tcp", "127.0.0.1:50051")
	if err == nil {
		err = server("2/1s").Serve(listener)
	}
	log.Fatal(err)
}

func server(limit string) *grpc.Server {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{
		Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit(limit),
	}}})
	s := grpc.NewServer(grpcmw.New(l).Options()...)
	pb.RegisterTestServiceServer(s, service{})
	return s
}

type service struct {
	pb.UnimplementedTestServiceServer
}

func (service) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: r.GetPayload()}, nil
}

func ask(addr string, n int) {
	retry := grpc.WithUnaryInterceptor(grpcmw.MustRetry(grpcmw.Retry{}))
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), retry)
	for i := 0; i < n && err == nil; i++ {
		_, err = pb.NewTestServiceClient(conn).UnaryCall(context.Background(), &pb.SimpleRequest{})
		log.Println("call", i+1, err)
	}
}
