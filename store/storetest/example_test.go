package storetest_test

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/storetest"
)

// The tests of a store have a function such as TestStore.
func ExampleRun() {
	TestStore := func(t *testing.T) {
		storetest.Run(t, func(t testing.TB, clock *storetest.Clock) core.Store {
			return memstore.MustNew(memstore.Options{Clock: clock.Now})
		})
	}
	_ = TestStore
}
