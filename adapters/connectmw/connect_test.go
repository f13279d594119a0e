package connectmw_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/connectmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/findings"
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

// A refusal is a 429 on the wire that clients of Connect take for resource_exhausted. That
// of package nethttp they take for unavailable.
func TestRefusalHasACode(t *testing.T) {
	newRule := func() *limiter.Limiter { return newLimiter(t, &clock{}, rule("1/1h fixed-window"), limiter.Config{}) }
	for name, row := range map[string]struct {
		handler http.Handler
		want    connect.Code
	}{
		"connectmw": {mux(app(adapterspec.RPCApp{Limiter: newRule()})), connect.CodeResourceExhausted},

		// Around the whole handler, where nothing knows that the answer is for a client of
		// Connect.
		"nethttp": {nethttp.New(newRule())(mux(app(adapterspec.RPCApp{Limiter: newLimiter(t, &clock{}, rule("9/1h"),
			limiter.Config{})}))),
			connect.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, row.handler)
			c := newClient(t, addr)
			for _, want := range []connect.Code{0, row.want} {
				if got := connect.Code(c.Say(t.Context(), nil, "ok").Code); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}

			status, header, body := post(t, addr)

			// The limit is full now. On the wire both are the same for a client that knows nothing
			// of Connect.
			if status != 429 || header.Get("Retry-After") != "3600" || header.Get("Cache-Control") != "no-store" ||
				name == "connectmw" &&
					!strings.HasPrefix(body,
						`{"code":"resource_exhausted","message":"over the limit of \"a\"; retry after 3600 seconds"`) {
				t.Errorf("%d, %v\n%s", status, header, body)
			}

			for name := range header {
				if strings.Contains(strings.ToLower(name), "mark") {
					t.Errorf("the mark of the limiter was sent as %q", name)
				}
			}
		})
	}
}

// post calls Say without a client of Connect.
func post(t *testing.T, addr string) (status int, header http.Header, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+addr+adapterspec.SayMethod, "application/json", strings.NewReader(`"ok"`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// A call without side effects may be a GET, which rules see.
func TestGet(t *testing.T) {
	r := rule("1/1h fixed-window")

	// The key has the method, so that a POST and a GET have counts of their own.
	r.Key = func(r core.Request) (string, bool) { return r.Method() + r.Path(), true }
	l := newLimiter(t, &clock{}, r, limiter.Config{})

	h := connect.NewUnaryHandler(adapterspec.SayMethod,
		func(ctx context.Context, req *connect.Request[value]) (*connect.Response[value], error) {
			if got := connectmw.Request(ctx).Method(); got != req.HTTPMethod() {
				t.Errorf("the handler sees %s, want %s", got, req.HTTPMethod())
			}

			// An answer to a GET may say that nothing has changed.
			if req.Msg.Value == "old" {
				return nil, connect.NewNotModifiedError(nil)
			}
			return connect.NewResponse(req.Msg), nil
		}, connect.WithInterceptors(connectmw.New(l)), connect.WithIdempotency(connect.IdempotencyNoSideEffects))

	addr := listen(t, h)
	options := []connect.ClientOption{connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
	for _, row := range []struct {
		options []connect.ClientOption
		want    connect.Code
	}{
		{options, 0}, {append(options, connect.WithHTTPGet()), 0},
		{append(options, connect.WithHTTPGet()), connect.CodeResourceExhausted},
	} {
		if got := connect.Code(newClient(t, addr, row.options...).Say(t.Context(), nil, "ok").Code); got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
	}
}

// An answer that has not changed is a call that ended well.
func TestNotModifiedIsNoFailure(t *testing.T) {
	r := rule("1/1h fixed-window")
	codes := make(chan connect.Code, 1)
	r.RefundIf = connectmw.RefundIf(func(c connect.Code) bool {
		codes <- c
		return false
	})

	i := connectmw.New(newLimiter(t, &clock{}, r, limiter.Config{}))
	_, err := i.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		return nil, connect.NewNotModifiedError(nil)
	})(t.Context(), connect.NewRequest(wrapperspb.String("")))

	if !connect.IsNotModifiedError(err) || <-codes != 0 {
		t.Errorf("%v", err)
	}
}

// A call in a test of a handler has neither a peer nor a place for headers.
func TestCallsWithoutAServer(t *testing.T) {
	log := &test.Log{}
	l := newLimiter(t, &clock{}, rule("1/1h"), limiter.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})

	unary := connectmw.New(l).WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		return connect.NewResponse(wrapperspb.String("")), nil
	})

	for _, want := range []connect.Code{0, connect.CodeResourceExhausted} {
		_, err := unary(t.Context(), connect.NewRequest(wrapperspb.String("")))
		if got := connect.CodeOf(err); err == nil && want != 0 || err != nil && got != want {
			t.Errorf("%v, want %s", err, want)
		}
	}

	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "code="+findings.NoAddress) {
		t.Errorf("logged\n%s", text)
	}

	var none context.Context
	if r := connectmw.Request(none); r != nil {
		t.Errorf("no context has the view %v", r)
	}
}

// The interceptors leave the other side alone.
func TestInterceptorsOfOneSide(t *testing.T) {
	// The limit of one is on the client's side, where it has nothing to count.
	l := newLimiter(t, &clock{}, rule("1/1h"), limiter.Config{})
	addr := listen(t, mux(app(adapterspec.RPCApp{Limiter: newLimiter(t, &clock{}, rule("9/1h"), limiter.Config{})})))

	c := newClient(t, addr, connect.WithInterceptors(connectmw.New(l)))
	for range 2 {
		if got := c.Say(t.Context(), nil, "ok"); got.Code != 0 {
			t.Errorf("got\n%s", got)
		}

		s, err := c.Chat(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.End(); got.Code != 0 {
			t.Errorf("got\n%s", got)
		}
	}

	calls := 0

	// A handler that waits and calls again on behalf of its client would hold the connection.
	h := connect.NewUnaryHandler(adapterspec.SayMethod,
		func(context.Context, *connect.Request[value]) (*connect.Response[value], error) {
			calls++
			return nil, refused(t)
		}, connect.WithInterceptors(connectmw.MustRetry(connectmw.Retry{})))

	if newClient(t, listen(t, h)).Say(t.Context(), nil, "ok"); calls != 1 {
		t.Errorf("the handler was called %d times", calls)
	}
}

// refused returns the error of a refused call.
func refused(t *testing.T) error {
	t.Helper()
	unary := connectmw.New(newLimiter(t, &clock{}, rule("1/1ms"), limiter.Config{})).WrapUnary(
		func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return nil, nil })
	if _, err := unary(t.Context(), connect.NewRequest(wrapperspb.String(""))); err != nil {
		t.Fatal(err)
	}
	_, err := unary(t.Context(), connect.NewRequest(wrapperspb.String("")))
	return err
}

// inside is an interceptor that takes one more unit of each call.
type inside struct{ l *limiter.Limiter }

func (i inside) take(ctx context.Context) error {
	_, err := i.l.TakeRequest(connectmw.Request(ctx))
	return err
}

func (i inside) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := i.take(ctx); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func (i inside) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := i.take(ctx); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

func (i inside) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// Interceptors behind the limiter ask about calls before their handlers can.
func TestRequestInAnInterceptor(t *testing.T) {
	l := newLimiter(t, &clock{}, rule("9/1h fixed-window"), limiter.Config{})

	// The second interceptor asks for the call that the first has counted: each call takes two
	// units.
	options := connect.WithInterceptors(connectmw.New(l), inside{l})
	mux := http.NewServeMux()
	mux.Handle(adapterspec.SayMethod, connect.NewUnaryHandler(adapterspec.SayMethod,
		func(_ context.Context, r *connect.Request[value]) (*connect.Response[value], error) {
			return connect.NewResponse(r.Msg), nil
		}, options))
	mux.Handle(adapterspec.ChatMethod, connect.NewBidiStreamHandler(adapterspec.ChatMethod,
		func(_ context.Context, s *connect.BidiStream[value, value]) error {
			return s.Send(wrapperspb.String("ok"))
		}, options))

	c := newClient(t, listen(t, mux))
	if got := c.Say(t.Context(), nil, "ok"); got.Code != 0 {
		t.Errorf("got\n%s", got)
	}

	s, err := c.Chat(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.End(); got.Code != 0 {
		t.Errorf("got\n%s", got)
	}

	// Two calls of two units.
	if list, err := l.Peek(t.Context(), "127.0.0.1"); err != nil || list[0].Decision.Remaining != 5 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestProbes(t *testing.T) {
	const check = "/grpc.health.v1.Health/Check"
	for name, configs := range map[string][]connectmw.Config{"are not counted": nil,
		"are counted with Probes": {{Probes: true}}} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, &clock{}, rule("9/1h fixed-window"), limiter.Config{})
			h := connect.NewUnaryHandler(check,
				func(context.Context, *connect.Request[value]) (*connect.Response[value], error) {
					return connect.NewResponse(wrapperspb.String("")), nil
				}, connect.WithInterceptors(connectmw.New(l, configs...)))
			resp, err := http.Post("http://"+listen(t, h)+check, "application/json", strings.NewReader(`""`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()

			list, err := l.Peek(t.Context(), "127.0.0.1")
			if err != nil || resp.StatusCode != 200 || list[0].Decision.Remaining != int64(9-len(configs)) {
				t.Errorf("%d, %+v, %v", resp.StatusCode, list, err)
			}
		})
	}
}

func TestTLSIdentity(t *testing.T) {
	authority, log := adapterspec.NewAuthority(t), &test.Log{}
	r := rule("1/1h")
	r.Key = connectmw.TLSIdentity

	l := newLimiter(t, &clock{}, r, limiter.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	addr := listenTLS(t, connectmw.Handler(mux(app(adapterspec.RPCApp{Limiter: l}))), authority.Server())

	// By the identity in the certificate each service has its own count, and clients without one
	// share theirs.
	for _, step := range []struct {
		id   string
		want connect.Code
	}{
		{"spiffe://example.org/cart", 0}, {"spiffe://example.org/shop", 0},
		{"spiffe://example.org/cart", connect.CodeResourceExhausted},
		{"", 0}, {"", connect.CodeResourceExhausted},
	} {
		transport := &http.Transport{TLSClientConfig: authority.Client(step.id), ForceAttemptHTTP2: true}
		c := connect.NewClient[value, value](&http.Client{Transport: transport}, "https://"+addr+adapterspec.SayMethod)
		_, err := c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("ok")))
		transport.CloseIdleConnections()

		if err == nil && step.want != 0 || err != nil && connect.CodeOf(err) != step.want {
			t.Errorf("%q: %v, want %s", step.id, err, step.want)
		}
	}

	if text := log.String(); text != "" {
		t.Errorf("logged\n%s", text)
	}
}

// listenTLS serves on loopback until the end of the test.
func listenTLS(t *testing.T, h http.Handler, config *tls.Config) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	server := &http.Server{Handler: h, TLSConfig: config}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return l.Addr().String()
}

func TestTLSIdentityWithoutTLS(t *testing.T) {
	log := &test.Log{}
	r := rule("1/1h")
	r.Key = connectmw.TLSIdentity
	l := newLimiter(t, &clock{}, r, limiter.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	c := newClient(t, listen(t, connectmw.Handler(mux(app(adapterspec.RPCApp{Limiter: l})))))

	for _, want := range []connect.Code{0, connect.CodeResourceExhausted} {
		if got := connect.Code(c.Say(t.Context(), nil, "ok").Code); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "code=HG015") {
		t.Errorf("logged\n%s", text)
	}

	if key, ok := connectmw.TLSIdentity(nil); key != "" || !ok {
		t.Errorf("no request has the key %q, %t", key, ok)
	}
}

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

func TestNewRetry(t *testing.T) {
	// Each protocol has another place for the details by which a client learns how long to wait.
	protocols := map[string]connect.ClientOption{
		"Connect": connect.WithClientOptions(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	}
	for name, row := range map[string]struct {
		limit string
		retry connectmw.Retry
		want  string
	}{
		"a call waits for its turn": {"1/20ms", connectmw.Retry{}, "allowed refused allowed"},
		"a call does not wait longer than MaxWait": {"1/20ms", connectmw.Retry{MaxWait: time.Millisecond},
			"allowed refused"},
		"a call is sent MaxAttempts times": {"1/20ms", connectmw.Retry{MaxAttempts: 1}, "allowed refused"},

		// The turn would come after an hour, and the deadline is in a minute: the call does not
		// begin to wait.
		"a call does not wait past its deadline": {"1/1h", connectmw.Retry{MaxWait: 2 * time.Hour}, "allowed refused"},
	} {
		for protocol, option := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				o := &ticking{clock: &clock{}}
				addr := listen(t,
					mux(app(adapterspec.RPCApp{Limiter: newLimiter(t, o.clock, rule(row.limit),
						limiter.Config{Observer: o})})))
				c := newClient(t, addr, option, connect.WithInterceptors(connectmw.MustRetry(row.retry)))

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c.Say(ctx, []string{"x-user", "ann"}, "ok")
				got := c.Say(ctx, []string{"x-user", "ann"}, "ok")

				if seen := o.outcomes(); seen != row.want ||
					(got.Code == 0) != strings.HasSuffix(row.want, "refused allowed") {
					t.Errorf("%s, want %s; got\n%s", seen, row.want, got)
				}
			})
		}
	}
}

func TestNewRetryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	addr := listen(t, mux(app(adapterspec.RPCApp{Limiter: newLimiter(t, &clock{}, rule("1/1h"), limiter.Config{})})))

	// Behind the retries, it sees the refusal first: the context ends before the wait of an hour
	// begins.
	canceler := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			resp, err := next(ctx, req)
			if err != nil {
				cancel()
			}
			return resp, err
		}
	})

	c := newClient(t, addr,
		connect.WithInterceptors(connectmw.MustRetry(connectmw.Retry{MaxWait: 2 * time.Hour}), canceler))
	for _, want := range []connect.Code{0, connect.CodeCanceled} {
		if got := connect.Code(c.Say(ctx, nil, "ok").Code); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNewRetryReturnsOtherErrors(t *testing.T) {
	calls := 0
	h := connect.NewUnaryHandler(adapterspec.SayMethod,
		func(context.Context, *connect.Request[value]) (*connect.Response[value], error) {
			calls++
			return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("no details"))
		})
	got := newClient(t, listen(t, h), connect.WithInterceptors(connectmw.MustRetry(connectmw.Retry{}))).Say(t.Context(),
		nil, "ok")
	if calls != 1 || got.Message != "no details" {
		t.Errorf("%d calls, got\n%s", calls, got)
	}
}

func TestNewRetryNamesItsMistakes(t *testing.T) {
	_, err := connectmw.NewRetry(connectmw.Retry{MaxWait: -1, MaxAttempts: -1})
	if err == nil || !strings.HasPrefix(err.Error(), "connectmw: Retry: MaxWait: ") ||
		!strings.Contains(err.Error(), "MaxAttempts: ") {
		t.Errorf("%v", err)
	}
}
