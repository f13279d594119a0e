package faults

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	// quota is the limit of the rule that all requests share.
	quota = 30

	// sharedKey is the key of that rule.
	sharedKey = "all"

	// pace is the interval between the requests of a worker. The three workers of a
	// lane send 200 requests a second.
	pace = 15 * time.Millisecond
)

// limits are the rules for requests that use each key once, so that a count above one
// shows a request that was counted twice. Requests under the rule "settled" are charged
// an estimate, and settled when they have ended.
var limits = map[string]string{
	"fixed":  "10/24h fixed-window",
	"log":    "10/24h sliding-log",
	"window": "10/24h sliding-window",
	"bucket": "10/24h token-bucket",
	"gcra":   "10/24h",
	"lease":  "10 concurrent ttl=30s",
	"shared": strconv.Itoa(quota) + "/1h fixed-window",

	"settled": strconv.Itoa(settledQuota) + "/24h fixed-window",
}

// onceEach lists the rules whose keys are used once.
var onceEach = []string{"fixed", "log", "window", "bucket", "gcra", "lease", "settled"}

const (
	// settledQuota is the limit of the rule "settled".
	settledQuota = 12

	// estimate is what a request under the rule "settled" is charged first.
	estimate = 5
)

// usedBy returns what a request with the key reports to have used: less than the estimate,
// or more than the limit.
func usedBy(key string) int64 {
	if n := key[len(key)-1]; n%2 == 0 {
		return 2
	}
	return 15
}

// lane is one limiter with its own client and keys, and the load on it.
type lane struct {
	mode    *mode
	proxy   *faultproxy.Proxy // nil where none is between
	prefix  string
	handler http.Handler
	limitOf func(rule string) string

	calls atomic.Int64 // of the store in Redis, from their beginning
	eased atomic.Bool  // most requests are left out

	mu   sync.Mutex
	hits []hit
}

// openLane puts a limiter under a mode over a client, for a fault.
func openLane(t testing.TB, f *fault, m *mode, c client) *lane {
	t.Helper()
	l := &lane{mode: m, prefix: redistest.Prefix(t), limitOf: f.limitOf}

	primary := c.store(redisstore.Options{Prefix: l.prefix, Timeout: f.timeout()})

	// Every call of the store in Redis is noted, beneath whatever the mode puts over it.
	lim := limiter.MustNew(limiter.Config{
		Store: m.store(t, noting{primary, l}, f.timeout()), Rules: rules(f), OnStoreError: m.failure, KeepResult: true,
	})

	t.Cleanup(func() {
		lim.Close()
		c.close()
	})

	// The handler notes when it was entered, and settles the estimate of the rule that has one.
	l.handler = nethttp.New(lim)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		tr := r.Context().Value(traceKey{}).(*trace)
		tr.entered = time.Now()
		if r.Header["X-Rule"][0] == "settled" {
			used := map[string]int64{"settled": usedBy(r.Header["X-Key"][0])}
			if err := limiter.FromContext(r.Context()).Settle(r.Context(), used); err != nil {
				t.Error(err)
			}
		}
	}))
	return l
}

func rules(f *fault) []limiter.Rule {
	// Each request says by headers which rule it is for and under which key, so that it meets one
	// rule only.
	var list []limiter.Rule
	for name := range limits {
		r := limiter.Rule{Name: name, Limit: core.MustParseLimit(f.limitOf(name)),
			Key: func(r core.Request) (string, bool) {
				if r.Header("X-Rule")[0] != name {
					return "", false
				}
				return r.Header("X-Key")[0], true
			}}
		if name == "settled" {
			r.Cost = func(core.Request) int64 { return estimate }
		}
		list = append(list, r)
	}
	return list
}

// trace records a request inside the limiter.
type trace struct {
	entered time.Time // when the handler was called

	mu      sync.Mutex
	decided bool  // by Redis
	err     error // of Redis

	settled time.Time // when Redis answered that the request is settled
}

type traceKey struct{}

// noting records the answers of the store in the trace of the request.
type noting struct {
	core.Store
	lane *lane
}

func (n noting) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	n.lane.calls.Add(1)
	err := n.Store.Apply(ctx, ops, out)
	if tr, ok := ctx.Value(traceKey{}).(*trace); ok {
		switch ops[0].Verb {
		case core.Take:
			tr.note(err)
		case core.Refund, core.Debit:
			tr.noteSettled(ops[0].Rule, err)
		}
	}
	return err
}

// Shards names the masters of keys, as the store does.
func (n noting) Shards() func(key string) string { return n.Store.(core.Sharded).Shards() }

func (tr *trace) note(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.decided, tr.err = err == nil, err
}

func (tr *trace) noteSettled(rule string, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if rule == "settled" && err == nil {
		tr.settled = time.Now()
	}
}

// settledAt returns when Redis answered that the request is settled, or the zero time.
func (tr *trace) settledAt() time.Time {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.settled
}

// load sends requests until the context ends.
func (l *lane) load(ctx context.Context) {
	var workers sync.WaitGroup
	workers.Go(func() { l.work(ctx, func(int) (rule, key string) { return "shared", sharedKey }) })
	for w := range 2 {
		workers.Go(func() {
			l.work(ctx, func(i int) (rule, key string) {
				return onceEach[i%len(onceEach)], strconv.Itoa(w) + "-" + strconv.Itoa(i)
			})
		})
	}
	workers.Wait()
}

func (l *lane) work(ctx context.Context, next func(i int) (rule, key string)) {
	tick := time.NewTicker(pace)
	defer tick.Stop()

	sent := 0

	// One request a tick; if the lane is eased, one in ten.
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		if n%10 != 0 && l.eased.Load() {
			continue
		}

		l.record(l.hit(next(sent)))
		sent++
	}
}

func (l *lane) record(h hit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hits = append(l.hits, h)
}

// hit sends one request.
func (l *lane) hit(rule, key string) hit {
	var tr trace
	r := httptest.NewRequestWithContext(context.WithValue(context.Background(), traceKey{}, &tr), "GET", "/", nil)
	r.Header["X-Rule"], r.Header["X-Key"] = []string{rule}, []string{key}

	w := httptest.NewRecorder()
	h := hit{rule: rule, key: key, from: time.Now(), trace: &tr}
	l.handler.ServeHTTP(w, r)
	h.to = time.Now()

	// A request that was admitted is answered when its handler begins: settling is no part of its
	// decision.
	h.answered = h.to
	if !tr.entered.IsZero() {
		h.answered = tr.entered
	}

	h.read(&tr, w.Result(), l.mode)
	return h
}

// seen returns the requests that have ended.
func (l *lane) seen() []hit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hits[:len(l.hits):len(l.hits)]
}
