package prefetch_test

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
	"github.com/headgate/headgate/store/storetest"
)

func TestConcurrentTakersGetExactlyTheQuota(t *testing.T) {
	for range 20 {
		storetest.Contention(t, func(t testing.TB, clock *storetest.Clock) core.Store {
			s, err := prefetch.New(memstore.MustNew(memstore.Options{Clock: clock.Now}),
				prefetch.Options{Clock: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	}
}
