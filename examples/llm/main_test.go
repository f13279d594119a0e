package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/examples/internal/try"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/store/memstore"
)

// step is what a store was asked at once, and what it decided.
type step struct {
	Ops []core.Op
	Out []core.Decision
}

// recorder keeps the steps of a store, and lets a test wait for them.
type recorder struct {
	core.Store
	mu     sync.Mutex
	more   *sync.Cond
	steps  []step
	failed int
}

func record(s core.Store) *recorder {
	r := &recorder{Store: s}
	r.more = sync.NewCond(&r.mu)
	return r
}

func (r *recorder) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	err := r.Store.Apply(ctx, ops, out)

	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.more.Broadcast()
	if err != nil {
		r.failed++
		return err
	}

	// The step is kept after the call, so its slices must not be those of the caller.
	s := step{slices.Clone(ops), slices.Clone(out)}
	for i := range s.Ops {
		s.Ops[i].Key = strings.Clone(s.Ops[i].Key) // its memory may serve another request
	}

	r.steps = append(r.steps, s)
	return nil
}

// await returns once n steps are such.
func (r *recorder) await(n int, such func(step) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	// A failed call is no step, and is counted so that the test does not wait for it without end.
	for {
		found := r.failed
		for _, s := range r.steps {
			if such(s) {
				found++
			}
		}

		if found >= n {
			return
		}
		r.more.Wait()
	}
}

// ends reports whether the step is that at the end of a request.
func ends(s step) bool { return s.Ops[0].Verb == core.Refund || s.Ops[0].Verb == core.Debit }

// waits reports whether the step is that of a request which has to wait for a stream.
func waits(s step) bool {
	return slices.ContainsFunc(s.Out, func(d core.Decision) bool { return !d.Allowed })
}

// used returns how many units the key of a token has used in the store.
func used(t *testing.T, s core.Store, token string, rule string, limit core.Limit) int64 {
	t.Helper()
	if rule == "tokens" {
		limit.Quota = 1 << 30 // the debt is seen under a larger limit
	}
	op := [1]core.Op{{Verb: core.Peek, Rule: rule, Key: keyfuncs.Digest(token), Limit: limit, Cost: 1}}
	var out [1]core.Decision
	if err := s.Apply(context.Background(), op[:], out[:]); err != nil {
		t.Fatal(err)
	}
	return limit.Capacity() - out[0].Remaining
}

// proxy is the program in front of an API. Its clock stands still.
type proxy struct {
	t       *testing.T
	handler http.Handler
	url     string
	store   *recorder
}

func open(t *testing.T, api http.HandlerFunc) *proxy {
	t.Helper()
	p := &proxy{t: t,
		store: record(memstore.MustNew(memstore.Options{Clock: func() int64 { return 1_800_000_000_000_000 }}))}
	p.handler = newHandler(serve(t, api), p.store)
	p.url = serve(t, p.handler).String()
	return p
}

func serve(t *testing.T, h http.Handler) *url.URL {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// begin sends a request over a connection. A prompt may be lost if the API answers before
// the proxy has seen its end.
func begin(ctx context.Context, url, prompt, usage string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(prompt))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set("X-Usage", usage)
	return http.DefaultClient.Do(r)
}

// ask has the program answer a request with a prompt of that many bytes.
func (p *proxy) ask(prompt int) try.Answer {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", prompt)))
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set("Content-Length", strconv.Itoa(prompt)) // as a server does
	p.handler.ServeHTTP(w, r)
	return try.Answer{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
}

// wantUsed waits until as many requests have ended, and compares what they have used.
func (p *proxy) wantUsed(ended int, wantTokens int64) {
	p.t.Helper()
	p.store.await(ended, ends)
	got := [3]int64{
		used(p.t, p.store.Store, "alice", "requests", requests),
		used(p.t, p.store.Store, "alice", "tokens", tokens),
		used(p.t, p.store.Store, "alice", "streams", streams),
	}
	if want := [3]int64{int64(ended), wantTokens, 0}; got != want || len(p.store.steps) != 2*ended {
		p.t.Errorf("%d requests, tokens and streams after %d steps, want %d after %d", got,
			len(p.store.steps), want, 2*ended)
	}
}

// Answers of the APIs, or the first events of one.
const (
	completions = `data: {"choices":[{"index":0,"delta":{"content":"Hello!"}}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}

data: [DONE]

`
	messageStart = `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}

`
	messageDelta = `event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":60}}

`
)

func TestTokensAreThoseThatTheAnswerReports(t *testing.T) {
	for _, row := range []struct {
		name, answer string
		status       int
		prompt       int
		want         int64
	}{
		{"a stream of chat completions", completions, 200, 4000, 29},
		{"a stream of messages", messageStart + messageDelta, 200, 4000, 85},
		{"more than the estimate", `{"usage":{"input_tokens":1800,"output_tokens":1700}}`, 200, 4000, 3500},
		{"more than the limit", `{"usage":{"input_tokens":9000,"output_tokens":41000}}`, 200, 4000, 50_000},
		{"more than the limit and its debt", `{"usage":{"input_tokens":9000,"output_tokens":91000}}`,
			200, 4000, 80_000},
		{"no usage", "data: {}\n\n", 200, 4000, 2000},
		{"no usage, after an estimate above the limit", "data: {}\n\n", 200, 400_000, 40_000},
		{"an error", `{"error":{"message":"overloaded"}}`, 529, 4000, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			// The estimate is that of the prompt; what the answer says replaces it.
			p := open(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.answer)
			})

			if a := p.ask(row.prompt); a.Status != row.status || a.Body != row.answer {
				t.Errorf("%d %q", a.Status, a.Body)
			}
			p.wantUsed(1, row.want)
		})
	}
}

// A client that leaves before the last event has used the estimate, or what was reported
// until then if that is more.
func TestTokensOfClientsThatLeave(t *testing.T) {
	const (
		longPrompt = `data: {"type":"message_start","message":{"usage":{"input_tokens":3000,"output_tokens":1}}}` + "\n\n"
		chunk      = `data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":19,"completion_tokens":1,"total_tokens":20}}` + "\n\n"
		lastChunk  = `data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":5,"total_tokens":24}}` + "\n\n"
		goesOn     = `data: {"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":30}}` + "\n\n"
	)
	for _, row := range []struct {
		name, sent string
		want       int64
	}{
		{"nothing but text", completions[:20], 1000},
		{"the beginning of a message", messageStart, 1000},
		{"the beginning of a message with a long prompt", longPrompt, 3001},
		{"the middle of a message", messageStart + goesOn, 1000},
		{"the last event of a message", messageStart + messageDelta, 85},
		{"a chunk with a usage so far", chunk, 1000},
		{"the last chunk with a usage", chunk + lastChunk, 24},
		{"the usage of chat completions", completions[:strings.Index(completions, "data: [DONE]")], 29},
	} {
		t.Run(row.name, func(t *testing.T) {
			// The API sends so much and then nothing until the client has left.
			p := open(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, row.sent)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})

			ctx, leave := context.WithCancel(t.Context())
			resp, err := begin(ctx, p.url, "", "")
			if err == nil {
				// The client leaves only after it has read all, so that the proxy has seen it too.
				_, err = io.ReadFull(resp.Body, make([]byte, len(row.sent)))
			}
			if err != nil {
				t.Fatal(err)
			}

			leave()
			resp.Body.Close()
			p.wantUsed(1, row.want)
		})
	}
}

// The answer that breaks off costs what it might have had.
func TestEstimateIsOfMaxTokens(t *testing.T) {
	for prompt, want := range map[string]int64{
		`{"max_tokens": 300, "messages": []}`:         308,
		`{"max_completion_tokens":20000,"a":"b"}`:     20_009,
		`{"max_output_tokens":5,"max_tokens":7}`:      16,
		`{"max_tokens": 9000000000000000000, "a": 1}`: 40_000,
		`{"max_tokens": -1, "messages": ["aaaa"]}`:    1010,
		`{"max_tokens": "many", "messages": [""]}`:    40_000,
		`{"max_tokens": 30, "n": 4, "messages": []}`:  130,
		`{"max_tokens": 3e3, "MAX_TOKENS": 1}`:        3009,
		`{"metadata": {"max_tokens": 1}, "a": []}`:    1010,
		`no JSON, but {"max_tokens": 1} in a text`:    1010,
	} {
		arrived := ""
		p := open(t, func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			arrived = string(text)
			_, _ = io.WriteString(w, completions[:20])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})

		resp, err := begin(t.Context(), p.url, prompt, "")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if arrived != prompt {
			t.Errorf("the API got %q of %q", arrived, prompt)
		}
		p.wantUsed(1, want)
	}
}

// A request that does not arrive costs nothing.
func TestPromptThatBreaksOff(t *testing.T) {
	p := open(t, func(http.ResponseWriter, *http.Request) { t.Error("the API was asked") })
	r := httptest.NewRequest("POST", "/", iotest.ErrReader(io.ErrUnexpectedEOF))
	r.ContentLength = 40
	w := httptest.NewRecorder()
	if p.handler.ServeHTTP(w, r); w.Code != 400 || len(p.store.steps) != 0 {
		t.Errorf("%d %q after %d steps", w.Code, w.Body, len(p.store.steps))
	}
}

// A prompt without a length may be as long as the client likes, so it counts as the whole
// limit until its answer has ended.
func TestTokensOfPromptsWithoutALength(t *testing.T) {
	for answer, want := range map[string]int64{completions: 29, "data: {}\n\n": 40_000} {
		p := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(strings.Repeat("x", 40_000))))
		r.Header.Set("Authorization", "Bearer alice")
		w := httptest.NewRecorder()
		if p.handler.ServeHTTP(w, r); w.Code != 200 {
			t.Fatalf("%d %q", w.Code, w.Body)
		}
		p.wantUsed(1, want)
	}
}

func TestTokensOfClientsThatLeaveBeforeTheAnswer(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	p := open(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		leave()
		<-r.Context().Done()
	})
	if _, err := begin(ctx, p.url, strings.Repeat("x", 4000), ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.wantUsed(1, 2000)
}

// The proxy panics where the API breaks off.
func TestTokensOfStreamsThatBreak(t *testing.T) {
	for sent, want := range map[string]int64{messageStart: 1000, messageStart + messageDelta: 85} {
		p := open(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, sent)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})

		// The status has arrived before the break, so the beginning of the answer has no error.
		resp, err := begin(t.Context(), p.url, "", "")
		if err != nil {
			t.Fatal(err)
		}

		// The break must reach the client: a stream that ends well would look complete.
		if text, err := io.ReadAll(resp.Body); string(text) != sent || err == nil {
			t.Errorf("%q, %v", text, err)
		}

		resp.Body.Close()
		p.wantUsed(1, want)
	}
}

func TestFourthStreamWaitsForAnother(t *testing.T) {
	begun, finish := make(chan bool), make(chan bool)
	p := open(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		<-finish
		_, _ = io.WriteString(w, completions)
	})

	var all sync.WaitGroup

	// The API holds each answer until the test lets it go on.
	ask := func() {
		all.Go(func() {
			resp, err := begin(t.Context(), p.url, "", "")
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}

	// Three streams are all that a key may have.
	for range 3 {
		ask()
		<-begun
	}

	// The fourth has asked the store and been told to wait.
	ask()
	p.store.await(1, waits)

	select {
	case <-begun:
		t.Error("four streams at a time")
	default:
	}

	// One that ends gives its place to the fourth, which reaches the API.
	finish <- true
	<-begun

	for range 3 {
		finish <- true
	}
	all.Wait()

	// Every one of the four has been settled.
	p.store.await(4, ends)
	if n := used(t, p.store.Store, "alice", "tokens", tokens); n != 4*29 {
		t.Errorf("%d tokens", n)
	}
}

func TestRequestsOverTheLimitUseNoTokens(t *testing.T) {
	p := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, completions) })

	// The request limit is 60: every answer has used its own 29 tokens.
	for i := range 60 {
		if a := p.ask(0); a.Status != 200 {
			t.Fatalf("request %d has status %d", i+1, a.Status)
		}
		p.wantUsed(i+1, int64(29*(i+1)))
	}

	// The 61st is refused by the first rule, so the estimate of its tokens was not kept.
	if a := p.ask(0); a.Status != 429 || !strings.Contains(a.Body, `"violated-policies":["requests"]`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if n := used(t, p.store.Store, "alice", "tokens", tokens); n != 60*29 {
		t.Errorf("%d tokens", n)
	}
}
