package memstore

import (
	"context"
	"crypto/md5"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/tally"
	"github.com/headgate/headgate/store/storetest"
)

func open(t testing.TB, clock *storetest.Clock) *Store {
	s, err := New(Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoreDecidesAsSpecified(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) core.Store { return open(t, clock) })
}

// withIDs gives leases ids as limiters make them.
type withIDs struct{ *Store }

func (s withIDs) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	ops = slices.Clone(ops)
	for i := range ops {
		if ops[i].Lease != "" {
			ops[i].Lease = fmt.Sprintf("%x", md5.Sum([]byte(ops[i].Lease)))
		}
	}
	return s.Store.Apply(ctx, ops, out)
}

// Leases of limiters are kept packed.
func TestPackedLeasesAreDecidedAsSpecified(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) core.Store { return withIDs{open(t, clock)} })
}

// A single shard is swept most often.
func TestOneShardDecidesAsSpecified(t *testing.T) {
	storetest.Diff(t, 7000, 1, storetest.NewModel, func(t testing.TB, clock *storetest.Clock) core.Store {
		return oneShard(open(t, clock))
	})
}

// What was used stays used while limits change and units are refunded, over as many
// histories as are played in the model and in Redis.
func TestUsedUnitsAreKeptInMemory(t *testing.T) {
	test.Long(t, "it plays 10,000 random histories")
	tally.Add(t, "random histories of a limit that changes, in memory", 10_000)
	storetest.Kept(t, 10_000, storetest.Seed+1, func(t testing.TB, clock *storetest.Clock) core.Store {
		return open(t, clock)
	})
}
