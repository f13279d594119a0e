package failover

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// Each step lets all instances expire, or none.
func TestInstancesKeepTheirPartsWhenTheClockOfRedisSteps(t *testing.T) {
	server := redistest.StartClock(t, 0)
	c := patiently(t, server.Addr)
	beat := heartbeats(t, c, "hg:")

	// Three instances of a fleet of three have a part of a third each.
	for n, id := range []string{"a", "b", "c"} {
		if got := beat(id, time.Hour, 3, 3); got != (answer{int64(n) + 1, 3}) {
			t.Errorf("%s: %v", id, got)
		}
	}

	// Two hours forth are more than the TTL of an hour, so all expire; five hours back let none; a
	// day forth lets all again.
	for _, step := range []time.Duration{2 * time.Hour, -5 * time.Hour, 24 * time.Hour} {
		server.Step(step)
		for _, id := range []string{"a", "b", "c", "a", "b", "c"} {
			if got := beat(id, time.Hour, 3, 3); got.number != 3 {
				t.Errorf("%v: %s: %v", step, id, got)
			}
		}

		// A newcomer finds no part that is free, as the three still hold theirs, and leaves again.
		if got := beat("d", time.Hour, UnknownInstances, 1); got != (answer{4, UnknownInstances}) {
			t.Errorf("%v: one more: %v", step, got)
		}
		beat("d", 0, UnknownInstances, 1)
	}
}
