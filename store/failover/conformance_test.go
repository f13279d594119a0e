package failover

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/storetest"
)

// Over a healthy primary the store decides as the primary does, with and without a
// fallback.
func TestStoreDecidesAsSpecified(t *testing.T) {
	rows := map[string]func() Options{
		"breaker":  func() Options { return Options{Slow: patience} },
		"fallback": func() Options { return threeOf(Options{Slow: patience, Fallback: memory()}) },
	}
	for name, options := range rows {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, clock *storetest.Clock) core.Store {
				return over(t, memstore.MustNew(memstore.Options{Clock: clock.Now}), options())
			})
		})
	}
}
