package failover

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

var errDown = errors.New("down")

// fake is a primary whose health the test sets, and which records its calls.
type fake struct {
	core.Store
	start time.Time

	mu     sync.Mutex
	health func(ctx context.Context) error // nil: well
	mute   bool                            // it carries out steps and returns an error
	calls  []call
}

// call is a step that reached the primary.
type call struct {
	at  time.Duration // since the test began
	ops []core.Op
}

// newFake returns a primary whose clock is not that of the fallback.
func newFake() *fake {
	clock := func() int64 { return time.Now().Add(11 * time.Minute).UnixMicro() }
	return &fake{Store: memstore.MustNew(memstore.Options{Clock: clock}), start: time.Now()}
}

func (f *fake) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	f.mu.Lock()
	f.calls = append(f.calls, call{time.Since(f.start), slices.Clone(ops)})
	health, mute := f.health, f.mute
	f.mu.Unlock()

	// The lock is not held while the store decides, as calls may hang.
	if mute {
		return cmp.Or(f.Store.Apply(ctx, ops, out), errDown)
	}

	if health != nil {
		if err := health(ctx); err != nil {
			return err
		}
	}

	return f.Store.Apply(ctx, ops, out)
}

func (f *fake) be(health func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.health = health
}

func (f *fake) fall() { f.be(func(context.Context) error { return errDown }) }
func (f *fake) rise() { f.be(nil) }

// seen returns the calls until now and forgets them.
func (f *fake) seen() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// instants returns when the calls were made.
func instants(calls []call) []time.Duration {
	var list []time.Duration
	for _, c := range calls {
		list = append(list, c.at)
	}
	return list
}

// after returns a health under which every call takes d, and fails with
// the end of its context if that comes first.
func after(d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// over returns a quiet store over f whose probes come after whole intervals.
func over(t testing.TB, f core.Store, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = silent
	}
	s, err := New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	s.primary.jitter = func() float64 { return 1 }
	t.Cleanup(func() { s.Close() })
	return s
}

func memory() core.Store { return memstore.MustNew(memstore.Options{}) }

func limit(t testing.TB, text string) core.Limit {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// take returns a Take of n units of a key.
func take(t testing.TB, key, text string, n int64) core.Op {
	t.Helper()
	return inWindows(core.Op{Rule: "r", Key: key, Limit: limit(t, text), Cost: n})
}

// inWindows returns op with the windows of its calendar, if it has one, around the present
// instant.
func inWindows(op core.Op) core.Op {
	op.Windows = op.Limit.Windows(time.Now().UnixMicro())
	return op
}

// one carries out one op.
func one(t testing.TB, s core.Store, op core.Op) core.Decision {
	t.Helper()
	out := make([]core.Decision, 1)
	if err := s.Apply(context.Background(), []core.Op{inWindows(op)}, out); err != nil {
		t.Fatalf("%s: %v", op.Verb, err)
	}
	return out[0]
}

// try carries out one op and returns its error too.
func try(s core.Store, op core.Op) (core.Decision, error) {
	out := make([]core.Decision, 1)
	err := s.Apply(context.Background(), []core.Op{inWindows(op)}, out)
	return out[0], err
}

// undo returns the refund of a Take.
func undo(op core.Op, d core.Decision) core.Op { return op.Refund(d) }

// remaining returns how many units a store has left of the op's key.
func remaining(t testing.TB, s core.Store, op core.Op) int64 {
	t.Helper()
	op.Verb, op.UpTo, op.Cost, op.Lease = core.Peek, false, 1, "looker"
	return one(t, s, op).Remaining
}

// openNow opens the breaker at once.
func openNow(t testing.TB, s *Store, f *fake) {
	t.Helper()
	f.fall()
	for range s.primary.breaker.max {
		_, _ = try(s, take(t, "opener", "1000/1s", 1))
	}
	if s.State() != Open {
		t.Fatal("the breaker is closed")
	}
	f.seen()
}
