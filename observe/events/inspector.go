package events

import "github.com/headgate/headgate/core"

// Inspector answers what is asked, not told. A limiter is one. Its methods are safe for
// concurrent use, take no longer than some microseconds and a walk over the units that are
// held ahead, and ask no server.
type Inspector interface {
	// Stores returns the status of each store of the limiter, the outermost first.
	Stores() []StoreStatus
}

// Mode says what decides now.
type Mode uint8

const (
	StoreDecides    Mode = iota // the store itself
	FallbackDecides             // the fallback, under the keys of the shards that are away
	PassesUndecided             // nothing: the limiter lets requests pass
	FailsUndecided              // nothing: the limiter turns requests away
)

// Modes is the number of modes.
const Modes = int(FailsUndecided) + 1

// String returns "store", "local", "open" or "closed".
func (m Mode) String() string {
	switch m {
	case StoreDecides:
		return "store"
	case FallbackDecides:
		return "local"
	case PassesUndecided:
		return "open"
	case FailsUndecided:
		return "closed"
	}
	return "unknown mode"
}

// StoreStatus is the status of one store. Which fields have a meaning depends on its kind;
// the others are zero.
type StoreStatus struct {
	// Store is the kind: "memory", "redis", "failover" or "prefetch".
	Store string

	// Servers is how a store in Redis reaches its servers: "standalone", "sentinel",
	// "cluster" or "ring", or "" for a client of another kind.
	Servers string

	// Of is the store, so that one that several limiters share is counted once. Its value
	// can be compared. nil if the store does not say.
	Of core.Store

	// Keys is how many keys a store in memory holds, and Overflow how many overflow buckets
	// beside them. Bytes estimates the memory of both. Shared and Refused are how many takes
	// of new keys were counted in overflow buckets so far, or were refused for lack of one.
	Keys, Overflow, Bytes int64
	Shared, Refused       int64

	// CachedRefusals is how many requests a store refused by the answer to an earlier one.
	CachedRefusals uint64

	// Held is how many units a store holds ahead, by rule.
	Held map[string]int64

	// Of a store with a breaker, Mode is what decides under the shards that are Away. It is
	// the limiter that knows it where there is no fallback: by the OnStoreError of its
	// Config, which a rule may replace. Opened is how often a breaker opened, Local how many
	// steps the fallback decided, Waiting how many refunds wait for the store, Lost how many
	// were lost, and Cause the latest error for which a breaker opened or the fallback
	// decided, nil if there was none.
	Mode        Mode
	Away        []string
	Opened      uint64
	Local, Lost uint64
	Waiting     int
	Cause       error
}
