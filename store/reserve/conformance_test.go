package reserve_test

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/reserve"
	"github.com/headgate/headgate/store/storetest"
)

func TestManyTakersGetExactlyTheQuota(t *testing.T) {
	for range 20 {
		storetest.Contention(t, func(t testing.TB, clock *storetest.Clock) core.Store {
			s, err := reserve.New(memstore.MustNew(memstore.Options{Clock: clock.Now}), reserve.Options{Clock: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	}
}
