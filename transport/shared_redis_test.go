package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/transport"
)

// provider is the API of a model that gives so many tokens in each window of the clock. It counts
// what a request uses, exactly, when the request arrives.
type provider struct {
	tokens int64
	period time.Duration

	// mu guards what follows.
	mu      sync.Mutex
	used    map[int64]int64 // by window
	refused int
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prompt, _ := strconv.Atoi(r.Header.Get("X-Prompt"))
	answer, _ := strconv.Atoi(r.Header.Get("X-Answer"))
	if !p.take(int64(prompt + answer)) {
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	}
	fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, answer)
}

// take reports whether the window has so many tokens, and takes them.
func (p *provider) take(tokens int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	window := time.Now().UnixMicro() / p.period.Microseconds()
	if p.used[window]+tokens > p.tokens {
		p.refused++
		return false
	}
	p.used[window] += tokens
	return true
}

// Ten workers, each with a client and a limiter of its own, use up what the provider gives and
// never ask for more. The limit is 99 % of the provider's, for requests that cross into the next
// window.
func TestWorkersShareTheTokensOfAProvider(t *testing.T) {
	const tokens, workers, windows = 100_000, 10, 2
	period := 5 * time.Second // of the same shape as the minute
	if os.Getenv("HEADGATE_LONG") != "" {
		period = time.Minute
	}

	p := &provider{tokens: tokens, period: period, used: map[int64]int64{}}
	server := httptest.NewServer(p)
	defer server.Close()
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)

	var all sync.WaitGroup
	begin, end := make(chan struct{}), time.Time{}
	for range workers {
		client := worker(t, addr, prefix, "99000/"+period.String()+" fixed-window aligned")
		ask(t, client, server.URL, 1, 0) // opens the connections
		all.Go(func() {
			<-begin
			for i := 0; time.Now().Before(end); i++ {
				ask(t, client, server.URL, 120+i%120, 60+i%61)
			}
		})
	}

	// The workers begin with a window, and end a moment before another one.
	first := time.Now().UnixMicro()/period.Microseconds() + 1
	start := time.UnixMicro(first * period.Microseconds())
	time.Sleep(time.Until(start))
	end = start.Add(windows*period - period/10)
	close(begin)
	all.Wait()

	// A request waits for the window behind the last, and is sent in it.
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range int64(windows) {
		part := float64(p.used[first+i]) / tokens
		t.Logf("window %d of %s: %.1f %%", i, period, 100*part)
		if part < 0.98 {
			t.Errorf("%d of %d tokens of window %d were used, want 98 %%", p.used[first+i], tokens, i)
		}
	}
	if p.refused != 0 {
		t.Errorf("%d requests were refused", p.refused)
	}
}

// worker returns the client of one worker.
func worker(t *testing.T, addr, prefix, limit string) *http.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	store, err := redisstore.New(c, redisstore.Options{Prefix: prefix, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter.MustNew(limiter.Config{Store: store, OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{
		{Name: "requests", Limit: core.MustParseLimit("1000000/1m")},
		{Name: "tokens", Limit: core.MustParseLimit(limit)},
	}})
	t.Cleanup(func() { l.Close() })

	// The estimate is the prompt and the most that the answer may have.
	return &http.Client{Transport: transport.MustNew(transport.Config{
		Limiter: l,
		MaxWait: 2 * time.Minute,
		Cost: func(r *http.Request) map[string]int64 {
			n, _ := strconv.ParseInt(r.Header.Get("X-Prompt"), 10, 64)
			return map[string]int64{"tokens": n + 120}
		},
		Settle: transport.SettleTokens("tokens"),
	})}
}

// ask sends a request and reads its answer.
func ask(t *testing.T, client *http.Client, url string, prompt, answer int) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("X-Prompt", strconv.Itoa(prompt))
	r.Header.Set("X-Answer", strconv.Itoa(answer))
	resp, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}
