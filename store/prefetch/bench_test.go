package prefetch_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
)

func BenchmarkBusyKey(b *testing.B) {
	s, err := prefetch.New(memstore.MustNew(memstore.Options{}), prefetch.Options{})
	if err != nil {
		b.Fatal(err)
	}

	// The limit is never met, so all but a few Takes are answered from what is held.
	op := take(limit(b, "1000000000/1s"), 1)
	b.ReportAllocs()

	b.RunParallel(func(pb *testing.PB) {
		ops, out := []core.Op{op}, make([]core.Decision, 1)
		for pb.Next() {
			if err := s.Apply(context.Background(), ops, out); err != nil {
				b.Error(err)
			}
		}
	})
}
