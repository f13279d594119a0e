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

	// over puts a store over the one in Redis, which counts a call as failed that
	// takes longer than slow; nil means none.
	over func(t testing.TB, primary core.Store, slow time.Duration) core.Store

	// spare is how many units more than the limit the mode may admit while
	// Redis cannot decide.
	spare int
}

// instances is how many share the limits where memory decides for Redis.
const instances = 2

// modes are what every fault is run under, at the same time.
var modes = []mode{
	{name: "open", failure: limiter.FailOpen},
	{name: "closed", failure: limiter.FailClosed},
	{name: "fallback", failure: limiter.FailLocal, over: fallback, spare: quota / instances},
}

// store is what the limiter of the mode uses.
func (m *mode) store(t testing.TB, primary core.Store, slow time.Duration) core.Store {
	if m.over == nil {
		return primary
	}
	return m.over(t, primary, slow)
}

// fallback has memory decide what Redis cannot.
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
