package grpcmw_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// clock stands still unless it is moved.
type clock struct{ micros atomic.Int64 }

func (c *clock) add(d time.Duration) { c.micros.Add(d.Microseconds()) }

// newLimiter returns a limiter with one rule in memory, on the clock.
func newLimiter(t testing.TB, c *clock, r limiter.Rule, more limiter.Config) *limiter.Limiter {
	t.Helper()
	more.Store = memstore.MustNew(memstore.Options{Clock: c.micros.Load})

	if r.Key == nil {
		r.Key = keyfuncs.RemoteIP
	}

	more.Rules = []limiter.Rule{r}
	if more.Logger == nil {
		more.Logger = slog.New(slog.DiscardHandler)
	}

	l, err := limiter.New(more)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func rule(limit string) limiter.Rule {
	return limiter.Rule{Name: "a", Limit: core.MustParseLimit(limit)}
}

// app returns an App with handlers that send back what they get, unless it has some.
func app(a adapterspec.RPCApp) adapterspec.RPCApp {
	if a.Say == nil {
		a.Say = func(_ context.Context, text string) (string, error) { return text, nil }
	}
	if a.Chat == nil {
		a.Chat = func(_ context.Context, s adapterspec.Stream) error { return s.Send("ok") }
	}
	return a
}

// Fields are in the header of a call that ends well, and else in the trailer, so that a
// failed call stays one that clients may retry.
func TestFieldsAreInHeaderOrTrailer(t *testing.T) {
	failure := status.Error(codes.NotFound, "no")
	own := metadata.Pairs("x-own", "1")

	// More names than these in one part are a sign that something for the inside is sent.
	const all = 9
	for name, row := range map[string]struct {
		say       func(context.Context, string) (string, error)
		limit     string
		inTrailer bool
	}{
		"a call that ends well": {limit: "9/1h"},
		"an error": {limit: "9/1h", inTrailer: true,
			say: func(context.Context, string) (string, error) { return "", failure }},
		"a panic": {limit: "9/1h", inTrailer: true,
			say: func(context.Context, string) (string, error) { panic("boom") }},
		"a refusal": {limit: "1/1h fixed-window", inTrailer: true},

		// Once the header is sent, only the trailer is left.
		"a handler that sends the header": {limit: "9/1h", inTrailer: true,
			say: func(ctx context.Context, text string) (string, error) { return text, grpc.SendHeader(ctx, own) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, &clock{}, rule(row.limit), limiter.Config{})
			c := serve(t, app(adapterspec.RPCApp{Limiter: l, Say: row.say})).(*client)

			// For a refusal the limit of one needs two calls. All the others look at both.
			for range 2 {
				var header, trailer metadata.MD
				_ = c.Invoke(t.Context(), adapterspec.SayMethod, wrapperspb.String("ok"), &wrapperspb.StringValue{},
					grpc.Header(&header), grpc.Trailer(&trailer))
				if row.limit != "9/1h" && len(trailer["retry-after"]) == 0 {
					continue // the first, which passes
				}

				if has, want := len(trailer["ratelimit"]) == 1, row.inTrailer; has != want {
					t.Errorf("RateLimit in the trailer: %t, want %t; %v, %v", has, want, header, trailer)
				}
				if has, want := len(header["ratelimit"]) == 1, !row.inTrailer; has != want {
					t.Errorf("RateLimit in the header: %t, want %t; %v, %v", has, want, header, trailer)
				}

				// What is for HTTP alone, and the mark by which nested limiters know each other,
				// stays inside.
				for _, md := range []metadata.MD{header, trailer} {
					if len(md["cache-control"]) > 0 || len(md["headgate mark"]) > 0 || len(md) > all {
						t.Errorf("got %v", md)
					}
				}
			}
		})
	}
}

// A stream sends the fields with its first message or before its own header.
func TestFieldsOfAStream(t *testing.T) {
	failure := status.Error(codes.NotFound, "no")
	for name, row := range map[string]struct {
		chat            func(grpc.ServerStream) error
		header, trailer string
	}{
		"a message": {func(s grpc.ServerStream) error { return s.SendMsg(wrapperspb.String("a")) }, "ratelimit", ""},
		"a message and an error": {func(s grpc.ServerStream) error {
			if err := s.SendMsg(wrapperspb.String("a")); err != nil {
				return err
			}
			return failure
		}, "ratelimit", ""},
		"no message": {func(grpc.ServerStream) error { return nil }, "ratelimit", ""},
		"an error":   {func(grpc.ServerStream) error { return failure }, "", "ratelimit"},
		"a header": {func(s grpc.ServerStream) error { return s.SendHeader(metadata.Pairs("x-own", "1")) },
			"ratelimit", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, &clock{}, rule("9/1h"), limiter.Config{})

			// The service has no method but this one, with a handler that uses the stream itself.
			service := grpc.ServiceDesc{ServiceName: "headgate.test.Echo", HandlerType: (*any)(nil),
				Streams: []grpc.StreamDesc{{
					StreamName: "Chat", ServerStreams: true, ClientStreams: true,
					Handler: func(_ any, s grpc.ServerStream) error { return row.chat(s) }}}}
			server := grpc.NewServer(grpcmw.New(l).Options()...)

			server.RegisterService(&service, app(adapterspec.RPCApp{}))
			s, err := newClient(t, listen(t, server)).Chat(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}

			s.End()
			header, _ := s.(clientStream).Header()

			for want, md := range map[*string]metadata.MD{&row.header: header,
				&row.trailer: s.(clientStream).Trailer()} {
				if n := len(md["ratelimit"]); n != len(*want)/len("ratelimit") {
					t.Errorf("%v has RateLimit %d times", md, n)
				}
			}
		})
	}
}

// A program's own header that gRPC cannot send does not break calls.
func TestFieldsThatCannotBeSentAreLeftOut(t *testing.T) {
	l := newLimiter(t, &clock{}, rule("1/1h"),
		limiter.Config{CustomHeaders: func([]limiter.RuleDecision) []limiter.Header {
			// A space, a letter beyond ASCII, a name that gRPC keeps, a pseudo-header and no name:
			// gRPC fails calls with such metadata.
			return []limiter.Header{{Name: "X Own", Value: "1"}, {Name: "X-Text", Value: "grün"},
				{Name: "Grpc-Status", Value: "0"},
				{Name: ":Path", Value: "/"}, {Name: "", Value: "1"}, {Name: "X-Fine", Value: "1"}}
		}})
	c := serve(t, app(adapterspec.RPCApp{Limiter: l})).(*client)

	var header metadata.MD
	if err := c.Invoke(t.Context(), adapterspec.SayMethod, wrapperspb.String("ok"), &wrapperspb.StringValue{},
		grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"x own", "x-text", "grpc-status", ":path", ""} {
		if len(header[name]) > 0 {
			t.Errorf("%q was sent", name)
		}
	}

	if !slices.Equal(header["x-fine"], []string{"1"}) {
		t.Errorf("got %v", header)
	}
}
