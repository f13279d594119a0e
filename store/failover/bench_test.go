package failover

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/store/memstore"
)

// instant admits everything at once, so that only the store around it is
// measured.
type instant struct{}

func (instant) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	for i := range ops {
		out[i] = core.Decision{Allowed: true, Remaining: 1 << 40, ResetAfter: 1000, At: 1}
	}
	return nil
}

// stores are the bare store and the stores over it, whose costs are compared.
func stores(b testing.TB) map[string]core.Store {
	three := func() int { return 3 }
	open := over(b, &fake{Store: memory()}, Options{Fallback: memory(), Instances: three})
	open.primary.breaker.generation.Store(1)
	return map[string]core.Store{
		"0 primary":              instant{},
		"1 breaker":              over(b, instant{}, Options{}),
		"2 breaker and memory":   over(b, instant{}, Options{Fallback: memory()}),
		"3 one of three":         over(b, instant{}, Options{Fallback: memory(), Instances: three}),
		"4 one of three, open":   open,
		"5 the memory by itself": memstore.MustNew(memstore.Options{}),
	}
}

func BenchmarkApply(b *testing.B) {
	for name, s := range stores(b) {
		b.Run(name, func(b *testing.B) {
			ops, out := []core.Op{take(b, "k", "1000000000/1s", 1)}, make([]core.Decision, 1)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Apply(context.Background(), ops, out); err != nil {
					b.Fatal(err)
				}
			}
		})

		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			op := take(b, "k", "1000000000/1s", 1)
			b.RunParallel(func(pb *testing.PB) {
				ops, out := []core.Op{op}, make([]core.Decision, 1)
				for pb.Next() {
					if err := s.Apply(context.Background(), ops, out); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func TestApplyAllocatesNothing(t *testing.T) {
	if racing {
		test.Skip(t, "pools forget under the race detector")
	}
	for name, s := range stores(t) {
		// Two limits, one of which refuses all but the first Takes, so that both outcomes are
		// measured.
		ops := []core.Op{take(t, "a", "5/1h", 1), take(t, "b", "1000000000/1s", 1)}
		out := make([]core.Decision, 2)

		if got := testing.AllocsPerRun(1000, func() {
			if err := s.Apply(context.Background(), ops, out); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
