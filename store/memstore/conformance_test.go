package memstore

import (
	"testing"

	"github.com/headgate/headgate/core"
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

// A single shard is swept most often.
func TestOneShardDecidesAsSpecified(t *testing.T) {
	storetest.Diff(t, 7000, 1, storetest.NewModel, func(t testing.TB, clock *storetest.Clock) core.Store {
		return oneShard(open(t, clock))
	})
}
