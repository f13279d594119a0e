package memstore

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/storetest"
)

func TestStoreDecidesAsSpecified(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) core.Store {
		s, err := New(Options{Clock: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
