package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// estimated returns a Cost of that many tokens.
func estimated(tokens int64) func(*http.Request) map[string]int64 {
	return func(*http.Request) map[string]int64 { return map[string]int64{"tokens": tokens} }
}

// requestsAndTokens returns a limiter with both limits over a store.
func requestsAndTokens(store core.Store, tokens string) *limiter.Limiter {
	return limiter.MustNew(limiter.Config{Store: store, Rules: []limiter.Rule{
		{Name: "requests", Limit: core.MustParseLimit("1000000/1m")},
		{Name: "tokens", Limit: core.MustParseLimit(tokens)},
	}})
}

func TestCostIsSettledByTheAnswer(t *testing.T) {
	const (
		first = `data: {"message":{"usage":{"input_tokens":25,"output_tokens":1}}}` + "\n\n"
		long  = `data: {"message":{"usage":{"input_tokens":2500,"output_tokens":1}}}` + "\n\n"
		last  = `data: {"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":60}}` + "\n\n"
	)

	for _, row := range []struct {
		name, body string
		status     int
		most       int // bytes of the body that the program reads
		want       int64
	}{
		{"a whole answer", `{"usage":{"prompt_tokens":19,"completion_tokens":10}}`, 200, 999, 29},
		{"more than the estimate", `{"usage":{"prompt_tokens":19,"completion_tokens":1000}}`, 200, 999, 1019},
		{"a whole stream", first + last, 200, 999, 85},
		{"a stream that breaks off", first, 200, 999, 100},
		{"a stream that breaks off and has used more", long, 200, 999, 2501},
		{"a stream that is left", first + last, 200, len(first), 100},
		{"no usage", "data: {}\n\n", 200, 999, 100},
		{"an answer that is not read", `{"usage":{"prompt_tokens":19,"completion_tokens":10}}`, 200, 0, 100},
		{"an error", `{"error":{"message":"overloaded"}}`, 529, 999, 0},
	} {
		bubble(t, func(t *testing.T) {
			l := requestsAndTokens(nil, "5000/1m burst=5000")
			tr := MustNew(Config{Limiter: l, Cost: estimated(100), Settle: SettleTokens("tokens"),
				Base: roundTripper(func(*http.Request) (*http.Response, error) {
					return response(row.status, "", row.body), nil
				})})

			ctx, cancel := context.WithCancel(t.Context())
			resp, err := tr.RoundTrip(get(ctx))
			if err != nil {
				t.Fatal(err)
			}

			// The context may end before the body does.
			_, _ = io.CopyN(io.Discard, resp.Body, int64(row.most))
			cancel()
			before := used(t, l)
			resp.Body.Close()
			resp.Body.Close()
			if got := used(t, l); before != 100 || got != row.want {
				t.Errorf("%s: %d tokens, and %d before its end, want %d and 100", row.name, got, before, row.want)
			}
		})
	}
}

// used returns how many tokens the key of the tests has used under a burst of 5000.
func used(t *testing.T, l *limiter.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), "api.test")
	if err != nil || d[1].Rule != "tokens" {
		t.Fatalf("%+v, %v", d, err)
	}
	return 5000 - d[1].Decision.Remaining
}

// One request in excess under any rule is not sent, and costs nothing under the others.
func TestCostsOfSeveralLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := saying("200")
		l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
			{Name: "requests", Limit: core.MustParseLimit("3/1m burst=3")},
			{Name: "tokens", Limit: core.MustParseLimit("5000/1m burst=5000"), CostAtMost: true},
		}})
		cost := int64(0)
		tr := MustNew(Config{Base: s, Limiter: l, MaxWait: time.Second,
			Cost: func(*http.Request) map[string]int64 { return map[string]int64{"tokens": cost} }})

		for _, row := range []struct {
			cost int64
			want string
			used int64
		}{
			// The second waits for a unit to come back, the third is lowered to the limit, and the
			// fifth is the fourth request.
			{4000, "200", 4000}, {1001, "200", 5000}, {9000, "limited 1m0s", 5000}, {1, "200", 5000},
			{0, "limited 19.976s", 5000},
		} {
			cost = row.cost
			if got := send(t, tr, get(t.Context())); got != row.want || used(t, l) != row.used {
				t.Errorf("%d: %s, %d used, want %s, %d", row.cost, got, used(t, l), row.want, row.used)
			}
		}
	})
}

// refusing is a store that gives nothing back.
type refusing struct{ core.Store }

func (s refusing) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if ops[0].Verb != core.Take {
		return errBroken
	}
	return s.Store.Apply(ctx, ops, out)
}

func TestSettlementThatFailsIsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := &events{}
		l := requestsAndTokens(refusing{memstore.MustNew(memstore.Options{})}, "5000/1m burst=5000")
		tr := MustNew(Config{Limiter: l, Cost: estimated(100), Settle: SettleTokens("tokens"), Observer: o,
			Base: saying("429 Retry-After: 1")})
		if got := send(t, tr, get(t.Context())); got != "429" {
			t.Error(got)
		}

		want := "api.test unsettled 0 try=0 waited=0s retry=0s err=broken"
		if len(o.all) != 2 || o.all[1] != want {
			t.Errorf("%q, want the last to be %q", o.all, want)
		}
	})
}

func TestCostThatCannotBeTaken(t *testing.T) {
	tr := MustNew(Config{Limiter: requestsAndTokens(nil, "5/1m"), Base: saying("200"),
		Cost: func(*http.Request) map[string]int64 { return map[string]int64{"tokenz": 1} }})
	_, err := tr.RoundTrip(get(t.Context()))
	if !errors.Is(err, core.ErrOp) || !strings.Contains(err.Error(), `no rule in force is called "tokenz"`) {
		t.Error(err)
	}
	if _, err := New(Config{Cost: estimated(1)}); err == nil || err.Error() != "Cost and Settle need a Limiter" {
		t.Error(err)
	}
}

// After a panic of the program's functions nothing is held: no lease, no turn, no body.
func TestPanicsOfCostAndSettleHoldNothing(t *testing.T) {
	boom := func(n *int) {
		if *n++; *n == 1 {
			panic("boom")
		}
	}
	for _, which := range []string{"Cost", "Settle"} {
		bubble(t, func(t *testing.T) {
			l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
				{Name: "parallel", Limit: core.MustParseLimit("1 concurrent ttl=1m")},
			}})
			calls, closed := 0, 0
			base := roundTripper(func(*http.Request) (*http.Response, error) { return response(200, "", "ok"), nil })
			c := Config{Limiter: l, MaxWait: time.Second, Base: base}
			if which == "Cost" {
				c.Cost = func(*http.Request) map[string]int64 { boom(&calls); return nil }
			} else {
				c.Settle = func(*http.Response, Settlement) { boom(&calls) }
			}
			tr := MustNew(c)

			send := func() error {
				body := closer{strings.NewReader("x"), &closed}
				r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/", body)
				resp, err := tr.RoundTrip(r)
				if err == nil {
					resp.Body.Close()
				}
				return err
			}
			func() {
				defer func() { _ = recover() }()
				_ = send()
			}()

			// The second waits for nothing.
			start := time.Now()
			if err := send(); err != nil || time.Since(start) != 0 {
				t.Errorf("%s: %v after %v", which, err, time.Since(start))
			}
			if which == "Cost" && closed == 0 {
				t.Errorf("%s: the body of the request is open", which)
			}
		})
	}
}

// closer counts how often it is closed.
type closer struct {
	io.Reader
	closed *int
}

func (c closer) Close() error { *c.closed++; return nil }
