//go:build !race

package rueidisstore_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/redisstore"
	rueidisstore "github.com/headgate/headgate/store/redisstore/rueidis"
)

// A decision takes as many allocations as it does, so that one more is noticed. With the race
// detector pools forget, and there are more.
func TestAllocations(t *testing.T) {
	s := rueidisstore.MustNew(connect(t, at(redistest.Addr(t))),
		redisstore.Options{Prefix: redistest.Prefix(t), Timeout: patient})
	ops := []core.Op{{Rule: "r", Key: "10.0.0.1", Limit: core.MustParseLimit("1000/1s burst=1000000"), Cost: 1}}
	out := make([]core.Decision, 1)
	got := testing.AllocsPerRun(1000, func() {
		if err := s.Apply(context.Background(), ops, out); err != nil {
			t.Error(err)
		}
	})
	if want := 8.0; got != want {
		t.Errorf("%v allocations a decision, want %v", got, want)
	}
}
