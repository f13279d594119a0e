package main

import (
	"log"
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// start starts the server on loopback, and returns its address.
func start(t *testing.T, limit string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, done := server(limit), make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String()
}

// newClient returns a client that does not wait.
func newClient(t *testing.T, addr string) pb.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewTestServiceClient(conn)
}

func TestThirdCallIsRefused(t *testing.T) {
	client := newClient(t, start(t, "2/1h fixed-window"))
	payload := &pb.Payload{Body: []byte("hello")}

	for range 2 {
		got, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{Payload: payload})
		if err != nil || string(got.GetPayload().GetBody()) != "hello" {
			t.Fatalf("%v, %v", got, err)
		}
	}

	_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{Payload: payload})
	s := status.Convert(err)

	// When to come again, and what was exceeded.
	if s.Code() != codes.ResourceExhausted || len(s.Details()) != 2 {
		t.Fatalf("%v", err)
	}
	if _, ok := s.Details()[0].(*errdetails.RetryInfo); !ok {
		t.Errorf("%v", s.Details())
	}
}

// The client of the program is refused again and again, and loses no call.
func TestClientWaitsForItsTurns(t *testing.T) {
	addr := start(t, "1/10ms")
	var lines strings.Builder
	log.SetOutput(&lines)
	log.SetFlags(0)
	defer log.SetOutput(os.Stderr)
	ask(addr, 4)
	if got, want := lines.String(), "call 1 <nil>\ncall 2 <nil>\ncall 3 <nil>\ncall 4 <nil>\n"; got != want {
		t.Errorf("got\n%s", got)
	}
}
