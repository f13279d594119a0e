// This file compares what Redis counts with what a model says that it was used for.

package proxy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
)

// ledgerPolicy charges tokens. Nothing of its limit comes back with time, and no test reaches it.
const (
	ledgerQuota    = 1_000_000_000
	ledgerEstimate = 700
	ledgerAtMost   = 5000
)

var ledgerPolicy = policy.Policy{Name: "tokens", Apps: []string{"shop"}, Key: "global",
	Limit:  core.MustParseLimit(fmt.Sprint(ledgerQuota, "/24h fixed-window")),
	Cost:   policy.Cost{Usage: "tokens", Estimate: ledgerEstimate, AtMost: ledgerAtMost},
	Refund: policy.Statuses{"429"}}

// The ways in which an answer of the model goes.
const (
	whole        = iota // one JSON object
	streamed            // a stream with a usage at its end
	unreported          // a stream without one
	leaves              // the client leaves after the first event, which has a usage
	leavesBefore        // the client leaves before the answer
	breaksOff           // the model breaks off after the first event
	refusing            // the model answers 429, which is refunded
	failing             // the model answers 500
	closed              // the model closes the connection without an answer
	ways
)

// call is one request to the model.
type call struct {
	Way           int
	Input, Output int64
	Max           int64 // the max_tokens that it names, or 0
	Unknown       bool  // the length of its body
}

// body returns the body of the request.
func (c call) body() string {
	body := map[string]any{"model": "m", "call": c}
	if c.Max > 0 {
		body["max_tokens"] = c.Max
	}
	text, _ := json.Marshal(body)
	return string(text)
}

// units returns what the call costs, by the ledger of the model.
func (c call) units() int64 {
	// What is charged before the answer: a token for four bytes of the body, and those of the
	// largest answer.
	before := int64(len(c.body()))/4 + ledgerEstimate
	if c.Max > 0 {
		before += c.Max - ledgerEstimate
	}
	if before = min(before, ledgerAtMost); c.Unknown {
		before = ledgerAtMost
	}

	switch c.Way {
	case whole, streamed:
		return c.Input + c.Output
	case leaves, breaksOff:
		return max(before, c.Input+1)
	case refusing:
		return 0
	}
	return before
}

// ledgerModel is the API of a model. It breaks off an answer once its client has read the first
// event.
type ledgerModel struct{ moments sync.Map }

func (m *ledgerModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Call call }
	// A server notices that its client has left once it has read the whole body.
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, json.Unmarshal(text, &asked)); err != nil {
		w.WriteHeader(http.StatusTeapot)
		return
	}

	// An event passes at once, as the client may leave after it.
	c := asked.Call
	event := func(text string) {
		fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	switch c.Way {
	case whole:
		fmt.Fprintf(w, `{"model": "m", "usage": {"prompt_tokens": %d, "completion_tokens": %d}}`, c.Input, c.Output)
	case refusing:
		w.WriteHeader(http.StatusTooManyRequests)
	case failing:
		w.WriteHeader(http.StatusInternalServerError)
	case closed:
		panic(http.ErrAbortHandler)
	case leavesBefore:
		close(m.moment(r.Header.Get("X-Id")))
		<-r.Context().Done()

	case streamed, unreported:
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			event(`{"choices": [{"delta": {"content": "a"}}]}`)
		}
		if c.Way == streamed {
			event(fmt.Sprintf(`{"choices": [], "usage": {"prompt_tokens": %d, "completion_tokens": %d}}`, c.Input,
				c.Output))
		}
		event("[DONE]")
	case leaves, breaksOff:
		w.Header().Set("Content-Type", "text/event-stream")
		event(fmt.Sprintf(`{"type": "message_start", "message": {"usage": {"input_tokens": %d, "output_tokens": 1}}}`,
			c.Input))
		if c.Way == leaves {
			<-r.Context().Done()
			return
		}
		<-m.moment(r.Header.Get("X-Id"))
		panic(http.ErrAbortHandler)
	}
}

// moment returns what is closed once the model has the request of an id, or the client of the id
// has read the first event.
func (m *ledgerModel) moment(id string) chan struct{} {
	c, _ := m.moments.LoadOrStore(id, make(chan struct{}))
	return c.(chan struct{})
}

// ask makes a call through a gateway, and reads its answer as far as it comes.
func (m *ledgerModel) ask(ctx context.Context, gateway, id string, c call) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()

	r, err := http.NewRequestWithContext(ctx, "POST", gateway, strings.NewReader(c.body()))
	if err != nil {
		return err
	}
	r.Header.Set("X-Id", id)
	if c.Unknown {
		r.ContentLength = -1
	}

	if c.Way == leavesBefore {
		go m.leaveEarly(ctx, id, leave)
	}
	res, err := http.DefaultClient.Do(r)
	if c.Way == leavesBefore && errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()

	want := map[int]int{refusing: 429, failing: 500, closed: 502}[c.Way]
	if want = cmp.Or(want, 200); res.StatusCode != want {
		return fmt.Errorf("%+v: answered with %d", c, res.StatusCode)
	}
	return m.readAnswer(res.Body, id, c)
}

// leaveEarly leaves when the model has the request.
func (m *ledgerModel) leaveEarly(ctx context.Context, id string, leave func()) {
	select {
	case <-m.moment(id):
	case <-ctx.Done():
	}
	leave()
}

// readAnswer reads an answer as far as its client stays.
func (m *ledgerModel) readAnswer(body io.Reader, id string, c call) error {
	if c.Way == leaves || c.Way == breaksOff {
		if _, err := bufio.NewReader(body).ReadString('\n'); err != nil {
			return err
		}
	}

	switch c.Way {
	case leaves:
		return nil
	case breaksOff:
		close(m.moment(id))
		if _, err := io.Copy(io.Discard, body); err == nil {
			return errors.New("an answer that was broken off came to its end")
		}
		return nil
	}
	_, err := io.Copy(io.Discard, body)
	return err
}

// ledgerGateway starts a gateway before the model, and returns its address and what ends it.
func ledgerGateway(t *testing.T, addr, prefix string, model *url.URL) (string, *engine.Engine) {
	t.Helper()
	discard := slog.New(slog.DiscardHandler)
	e, err := engine.Open(t.Context(), engine.Options{Apps: []string{"shop"},
		Source: engine.Fixed([]policy.Policy{ledgerPolicy}), Redis: &redis.UniversalOptions{Addrs: []string{addr}},
		RedisPrefix: prefix, Timeout: 10 * time.Second, Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })

	know, err := callers.New(callers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := quietlog.New(discard)
	t.Cleanup(log.Close)

	table, err := upstream.New([]upstream.Options{{Name: "model", Addresses: []*url.URL{model},
		ConnectTimeout: 10 * time.Second, HeaderTimeout: time.Minute}}, discard)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(e, Options{Upstreams: table, Callers: know, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	table.Start(nil)
	t.Cleanup(func() { table.Close(nil) })

	s := httptest.NewUnstartedServer(p)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, e
}

// counted returns how many units Redis counts.
func counted(t *testing.T, e *engine.Engine) int64 {
	t.Helper()
	l, err := e.Limiter("shop", Face)
	if err != nil {
		t.Fatal(err)
	}
	list, err := l.Peek(t.Context(), "all")
	if err != nil {
		t.Fatal(err)
	}
	return ledgerQuota - list[0].Decision.Remaining
}

// Two gateways on one Redis charge exactly what a thousand answers have used, or the estimate that
// is stated for those that do not say it.
func TestRedisHasTheLedgerOfTheModel(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	m := &ledgerModel{}
	api := httptest.NewUnstartedServer(m)
	api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	api.Start()
	defer api.Close()
	model, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}

	// Both have a store of their own, and share Redis alone.
	var gateways []string
	var engines []*engine.Engine
	for range 2 {
		address, e := ledgerGateway(t, addr, prefix, model)
		gateways, engines = append(gateways, address), append(engines, e)
	}

	const streams, clients = 1000, 20
	var want atomic.Int64
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(client)))
			for i := range streams / clients {
				// Answers differ from their estimates, and both ways.
				c := call{Way: r.IntN(ways), Input: r.Int64N(6000), Output: 1 + r.Int64N(2000), Unknown: r.IntN(5) == 0}
				if r.IntN(2) == 0 {
					c.Max = 1 + r.Int64N(6000)
				}
				want.Add(c.units())
				if err := m.ask(t.Context(), gateways[i%2], fmt.Sprint(client, ".", i), c); err != nil {
					t.Errorf("%+v: %v", c, err)
				}
			}
		})
	}
	all.Wait()

	// A settlement is made after the answer: the gateways end when all of them are made.
	_, e := ledgerGateway(t, addr, prefix, model)
	for _, one := range engines {
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := counted(t, e); got != want.Load() {
		t.Errorf("%d units are counted, and the ledger has %d", got, want.Load())
	}
	t.Logf("%d units", want.Load())
}

// A request that is settled is two calls of Redis, and one if there is nothing to settle.
func TestSettledRequestIsTwoCallsOfRedis(t *testing.T) {
	server := redistest.Start(t)
	m := &ledgerModel{}
	api := httptest.NewServer(m)
	defer api.Close()
	model, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}

	// The log of the server has each command, whose arguments name the rule.
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	gateway, _ := ledgerGateway(t, server.Addr, "ledger", model)
	_, e := ledgerGateway(t, server.Addr, "ledger", model) // whose looks are in no call of the other
	for name, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "10000"} {
		if err := admin.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}

	// Each is made twice, as the first use of a script sends its text.
	rows := []call{
		{Way: whole, Input: 10, Output: 5}, {Way: streamed, Input: 3000, Output: 5000}, {Way: refusing},
		{Way: leaves, Input: 2000}, {Way: unreported}, {Way: failing},
	}
	for i, c := range append(rows, rows...) {
		if err := admin.SlowLogReset(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		before := counted(t, e)
		if err := m.ask(t.Context(), gateway, fmt.Sprint("two.", i), c); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}

		// The settlement comes after the answer.
		deadline := time.Now().Add(time.Minute)
		for n := counted(t, e); n != before+c.units(); n = counted(t, e) {
			if time.Now().After(deadline) {
				t.Fatalf("%+v: %d units are counted, want %d", c, n-before, c.units())
			}
			time.Sleep(time.Millisecond)
		}

		want := 2
		if c.Way == unreported || c.Way == failing {
			want = 1
		}
		if got := calls(t, admin); i >= len(rows) && got != want {
			t.Errorf("%+v: %d calls, want %d", c, got, want)
		}
	}
}

// calls returns how many scripts have changed the count of the policy since the log was reset.
func calls(t *testing.T, admin *redis.Client) (n int) {
	t.Helper()
	list, err := admin.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}

	for _, l := range list {
		args := strings.Join(l.Args, " ")
		if strings.HasPrefix(args, "eval") && strings.Contains(args, ":tokens:") && !strings.Contains(args, " peek ") {
			n++
		}
	}
	return n
}
