// This file gives a store the memory that decides what Redis does not decide in time.

package redisstore

import (
	"log/slog"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

var _ core.Backed = (*Store)(nil)

// backing is the standby of a store while that has uses:
//
//	       Back             Back
//	none -------> in use <-------> in use, once more
//	  ^              |    release
//	  '--------------'
//	  the last release ends the heartbeats and the probes
//
// The memory ends with the last use. A later one begins anew. The zero value is one with
// default options.
type backing struct {
	expected   int // Options.Instances
	memoryKeys int
	log        *slog.Logger // or nil

	mu        sync.Mutex
	uses      int                 // guarded by mu
	standby   *failover.Store     // guarded by mu, nil without a use
	instances *failover.Instances // guarded by mu, nil without a use
}

// Back implements [core.Backed]. The fallback is a memstore, which decides this instance's
// part of each limit: the limit divided by the number of stores that are in use under the
// prefix, in all processes. All limiters over one Store are one instance and share its
// memory. Two Stores with one prefix are two instances, also in one process.
//
// A use counts the instances in the key <prefix>{instances}, by a heartbeat every few
// seconds. Until Redis has answered the first, their number is [Options.Instances]. The
// release that is the last waits until the heartbeats and the probes have ended, for about
// a second where Redis does not answer. The standby goes on deciding after it, with the
// state of its breaker and the number of instances as they were.
func (s *Store) Back() (core.Standby, func()) {
	b := &s.back
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.uses == 0 {
		b.standby, b.instances = s.newStandby()
	}
	b.uses++

	sides, _ := b.standby.Back()
	return sides, sync.OnceFunc(b.release)
}

// release ends a use.
func (b *backing) release() {
	b.mu.Lock()
	standby, instances := b.standby, b.instances
	if b.uses--; b.uses == 0 {
		b.standby, b.instances = nil, nil
	}
	last := b.uses == 0
	b.mu.Unlock()

	if last {
		_ = standby.Close()
		_ = instances.Close()
	}
}

// newStandby returns the store behind a breaker, with a memory, and the count of instances.
func (s *Store) newStandby() (*failover.Store, *failover.Instances) {
	b := &s.back

	instances, err := failover.NewInstances(s.client, failover.InstancesOptions{
		Prefix: s.wire.prefix, Expected: b.expected, Logger: b.log,
	})
	if err != nil {
		panic(err) // a mistake in the check of the Options, which has passed
	}

	standby := failover.MustNew(s, failover.Options{
		Fallback:  memstore.MustNew(memstore.Options{MaxKeys: b.memoryKeys, Clock: s.wire.clock, Logger: b.log}),
		Instances: instances.Live,
		Ignore:    aboutKey,
		Logger:    b.log,
	})
	return standby, instances
}
