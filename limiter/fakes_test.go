package limiter_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

// mapStore is the simplest store that meets the contract.
type mapStore struct {
	now func() time.Time

	mu     sync.Mutex
	states map[stateKey]*core.State
	calls  int
}

type stateKey struct {
	rule, key string
	algorithm core.Algorithm
}

// epoch is the instant of a store whose clock does not tick.
var epoch = time.Unix(1_800_000_000, 0)

func newStore() *mapStore {
	return &mapStore{now: func() time.Time { return epoch }, states: map[stateKey]*core.State{}}
}

// newTicking returns a store on the clock of the bubble that it is called in.
func newTicking() *mapStore {
	s := newStore()
	s.now = time.Now
	return s
}

func (s *mapStore) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	var room [4]*core.State
	states := room[:0]
	for i := range ops {
		k := stateKey{ops[i].Rule, ops[i].Key, ops[i].Limit.Algorithm}
		if s.states[k] == nil {
			s.states[k] = &core.State{}
		}
		states = append(states, s.states[k])
	}
	core.Decide(ops, states, s.now().UnixMicro(), out)
	return nil
}

// asked returns how many steps the store was asked for.
func (s *mapStore) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// brokenStore calls its function.
type brokenStore func() error

func (s brokenStore) Apply(context.Context, []core.Op, []core.Decision) error { return s() }

// get returns a GET of a client.
func get() *test.Request {
	return &test.Request{Verb: "GET", URLPath: "/a", Peer: "192.0.2.1:1234"}
}

// everyone is a key function that gives all requests one key.
func everyone(core.Request) (string, bool) { return "k", true }

// byHeader counts by the first X-Key line.
func byHeader(r core.Request) (string, bool) {
	lines := r.Header("X-Key")
	if len(lines) == 0 {
		return "", true
	}
	return lines[0], true
}

func keyed(key string) *test.Request {
	return &test.Request{Headers: map[string][]string{"X-Key": {key}}}
}

func limit(t testing.TB, text string) core.Limit {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func rule(t testing.TB, name, text string) limiter.Rule {
	t.Helper()
	return limiter.Rule{Name: name, Limit: limit(t, text), Key: everyone}
}

func newLimiter(t testing.TB, s core.Store, rules ...limiter.Rule) *limiter.Limiter {
	t.Helper()
	return configured(t, limiter.Config{Store: s, Rules: rules})
}

func configured(t testing.TB, c limiter.Config) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// admit admits one request, ends it with 200, also for the store, and returns its
// outcome.
func admit(l *limiter.Limiter) limiter.Outcome {
	a := l.Admit(get())
	defer l.AwaitReleases()
	defer a.Done(200)
	return a.Outcome()
}

// left returns the number of units that the key has left under each rule.
func left(t testing.TB, l *limiter.Limiter, key string) []int64 {
	t.Helper()
	list, err := l.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	var n []int64
	for _, d := range list {
		n = append(n, d.Decision.Remaining)
	}
	return n
}

// wantLeft fails unless the key has exactly want left once all releases have ended.
func wantLeft(t testing.TB, l *limiter.Limiter, key string, want ...int64) {
	t.Helper()
	l.AwaitReleases()
	got := left(t, l, key)
	if len(got) != len(want) {
		t.Fatalf("%d rules, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("rule %d has %d left, want %d", i, got[i], want[i])
		}
	}
}

// leaseEnds are the ways in which a request ends that holds leases.
var leaseEnds = map[string]func(*limiter.Admission){
	"request": func(a *limiter.Admission) { a.Done(200) },
	"connection": func(a *limiter.Admission) {
		near, far := net.Pipe()
		defer far.Close()
		c := a.HoldConn(near)
		a.Done(101)
		_ = c.Close()
	},
}
