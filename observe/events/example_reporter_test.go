package events_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// ownStore is a store of one's own, which asks a server.
type ownStore struct {
	core.Store
	listeners events.Listeners // told of each call in Apply
}

// Report leaves out what the store does not know.
func (s *ownStore) Report() events.Report {
	return events.Report{MaxCall: time.Second, Listen: s.listeners.Add}
}

// A limiter refuses leases that end before the store, whose calls take up to a second, could
// renew them.
func ExampleReporter() {
	_, err := limiter.New(limiter.Config{
		Store: &ownStore{Store: memstore.MustNew(memstore.Options{})},
		Rules: []limiter.Rule{{Name: "jobs", Limit: core.MustParseLimit("5 concurrent ttl=2s")}},
	})
	fmt.Println(err)
	// Output: rule 0 "jobs": ttl 2s is below 3s, so a lease could end before the store has renewed it
}
