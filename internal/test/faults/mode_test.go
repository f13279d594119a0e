package faults

import (
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

// mode is a policy for when Redis cannot decide.
type mode struct {
	name string

	failure limiter.FailureMode

	// over returns a store over the one in Redis that counts a call longer than slow as
	// failed; nil means none.
	over func(t testing.TB, primary core.Store, slow time.Duration) core.Store

	// spare is the number of units above the limit that the mode may admit while
	// Redis cannot decide.
	spare int
}

// instances is the number of instances that share the limits while memory decides.
const instances = 2

// modes lists the policies under which every fault is run, at the same time.
var modes = []mode{
	{name: "open", failure: limiter.FailOpen},
	{name: "closed", failure: limiter.FailClosed},
	{name: "fallback", failure: limiter.FailLocal, over: fallback, spare: quota / instances},
}

// store returns the store of the mode's limiter.
func (m *mode) store(t testing.TB, primary core.Store, slow time.Duration) core.Store {
	if m.over == nil {
		return primary
	}
	return m.over(t, primary, slow)
}

// fallback returns a store in which memory decides when Redis cannot.
func fallback(t testing.TB, primary core.Store, slow time.Duration) core.Store {
	s := failover.MustNew(primary, failover.Options{
		Fallback:  memstore.MustNew(memstore.Options{}),
		Instances: func() int { return instances },
		Logger:    slog.New(slog.DiscardHandler),
		Slow:      slow,
	})
	t.Cleanup(func() { s.Close() })
	return s
}
