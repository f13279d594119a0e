package grpcmw_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/grpcmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// ticking is an observer that notes decisions, and has the clock reach the end of each
// refusal, as it does for a client that waits.
type ticking struct {
	clock *clock
	mu    sync.Mutex
	seen  []string
}

func (o *ticking) Observe(_ context.Context, e *events.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, e.Verdict.String())
	if d := e.Rules[0].Decision; !d.Allowed && d.RetryAfter != core.Never {
		o.clock.add(d.RetryAfter)
	}
}

func (o *ticking) outcomes() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.seen, " ")
}

// The backoff of the policy is a minute, so that a test in which a client does not heed the
// server does not end.
const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "%BACKOFF%",
	"maxBackoff": "%BACKOFF%", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

func withPolicy(backoff string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(strings.ReplaceAll(policy, "%BACKOFF%", backoff))
}

func TestRetryPolicyHeedsRefusals(t *testing.T) {
	costly := rule("1/20ms")

	// Two units of a limit of one: no wait helps.
	costly.Cost = func(core.Request) int64 { return 2 }
	for name, row := range map[string]struct {
		rule    limiter.Rule
		backoff string
		codes   [2]codes.Code
		want    string
	}{
		// A refusal for a while is waited for by the server's word, and not by the minute of the
		// policy.
		"a refusal for a while": {rule("1/20ms"), "60s", [2]codes.Code{}, "allowed refused allowed"},

		// A pushback of more than a minute would hold a call for too long: the limiter sends -1,
		// after which gRPC does not retry.
		"a refusal for above a minute": {rule("1/61s"), "0.001s", [2]codes.Code{0, codes.ResourceExhausted},
			"allowed refused"},
		"a call that can never be let in": {costly, "0.001s",
			[2]codes.Code{codes.ResourceExhausted, codes.ResourceExhausted}, "impossible impossible"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &ticking{clock: &clock{}}
			l := newLimiter(t, o.clock, row.rule, limiter.Config{Observer: o})
			server := grpc.NewServer(grpcmw.New(l).Options()...)
			server.RegisterService(&echoService, app(adapterspec.RPCApp{}))
			c := newClient(t, listen(t, server), withPolicy(row.backoff))

			for _, want := range row.codes {
				if got := codes.Code(c.Say(t.Context(), nil, "ok").Code); got != want {
					t.Errorf("code %s, want %s", got, want)
				}
			}

			if got := o.outcomes(); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

// A limiter that sends headers leaves calls that fail behind it to the retry policy.
func TestRetryPolicyHeedsFailuresBehindALimiter(t *testing.T) {
	calls := make(chan struct{}, 10)

	// It fails twice: the policy lets a call have four attempts, and the third one succeeds.
	flaky := func() error {
		calls <- struct{}{}
		if len(calls) < 3 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return nil
	}

	l := newLimiter(t, &clock{}, rule("99/1h"), limiter.Config{})
	server := grpc.NewServer(grpcmw.New(l).Options()...)
	server.RegisterService(&echoService, app(adapterspec.RPCApp{
		Say: func(_ context.Context, text string) (string, error) { return text, flaky() },
		Chat: func(_ context.Context, s adapterspec.Stream) error {
			if err := flaky(); err != nil {
				return err
			}
			return s.Send("ok")
		},
	}))

	c := newClient(t, listen(t, server), withPolicy("0.001s"))
	if got := c.Say(t.Context(), nil, "ok"); got.Code != 0 || len(calls) != 3 {
		t.Errorf("%d calls, got\n%s", len(calls), got)
	}

	for len(calls) > 0 {
		<-calls
	}

	s, err := c.Chat(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.End(); got.Code != 0 || got.Body != "ok" || len(calls) != 3 {
		t.Errorf("%d streams, got\n%s", len(calls), got)
	}
}

func TestNewRetry(t *testing.T) {
	for name, row := range map[string]struct {
		rule  limiter.Rule
		retry grpcmw.Retry
		want  string
	}{
		"a call waits for its turn": {rule("1/20ms"), grpcmw.Retry{}, "allowed refused allowed"},
		"a call does not wait longer than MaxWait": {rule("1/20ms"), grpcmw.Retry{MaxWait: time.Millisecond},
			"allowed refused"},
		"a call is sent MaxAttempts times": {rule("1/20ms"), grpcmw.Retry{MaxAttempts: 1}, "allowed refused"},

		// The turn would come after an hour, and the deadline is in a minute: the call does not
		// begin to wait.
		"a call does not wait past its deadline": {rule("1/1h"), grpcmw.Retry{MaxWait: 2 * time.Hour},
			"allowed refused"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &ticking{clock: &clock{}}
			l := newLimiter(t, o.clock, row.rule, limiter.Config{Observer: o})
			server := grpc.NewServer(grpcmw.New(l).Options()...)
			server.RegisterService(&echoService, app(adapterspec.RPCApp{}))
			c := newClient(t, listen(t, server), grpc.WithUnaryInterceptor(grpcmw.MustRetry(row.retry)))

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			c.Say(ctx, nil, "ok")
			got := c.Say(ctx, nil, "ok")

			if seen := o.outcomes(); seen != row.want ||
				(got.Code == 0) != strings.HasSuffix(row.want, "refused allowed") {
				t.Errorf("%s, want %s; got\n%s", seen, row.want, got)
			}
		})
	}
}

func TestNewRetryEndsWithItsContext(t *testing.T) {
	interceptor := grpcmw.MustRetry(grpcmw.Retry{MaxWait: 2 * time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	l := newLimiter(t, &clock{}, rule("1/1h"), limiter.Config{})

	// The call is cancelled while it is refused, and so before the wait of an hour begins.
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		_, err := grpcmw.New(l).Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"},
			func(context.Context, any) (any, error) { return nil, nil })
		if err != nil {
			cancel()
		}
		return err
	}

	for _, want := range []codes.Code{codes.OK, codes.Canceled} {
		if got := status.Code(interceptor(ctx, "/a/B", nil, nil, nil, invoke)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNewRetryReturnsOtherErrors(t *testing.T) {
	calls := 0
	err := grpcmw.MustRetry(grpcmw.Retry{})(t.Context(), "/a/B", nil, wrapperspb.String(""), nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			calls++
			return status.Error(codes.ResourceExhausted, "no details")
		})
	if calls != 1 || status.Convert(err).Message() != "no details" {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestNewRetryNamesItsMistakes(t *testing.T) {
	_, err := grpcmw.NewRetry(grpcmw.Retry{MaxWait: -1, MaxAttempts: -1})
	if err == nil || !strings.HasPrefix(err.Error(), "grpcmw: Retry: MaxWait: ") ||
		!strings.Contains(err.Error(), "MaxAttempts: ") {
		t.Errorf("%v", err)
	}
}
