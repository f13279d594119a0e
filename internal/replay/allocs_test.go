//go:build !race

package replay

import (
	"testing"

	"github.com/headgate/headgate/internal/accesslog"
)

// Under the race detector a sync.Pool drops some items.

// A line of a log costs no memory once its key is known.
func TestReplayAllocatesNothing(t *testing.T) {
	r, _ := replayOf(t, lineAt(0, "192.0.2.1", "/"), Options{
		Policies: setOf(t, "- {name: api, apps: [a], limit: 10/1s, key: ip}\n- {name: b, apps: [a], limit: 5/1m, key: ip}")})

	// The key is known after its first request, and pinned after some more.
	e := accesslog.Entry{At: r.now, Address: "192.0.2.1", Method: "GET", Target: "/"}
	add := func() {
		e.At += 1e5
		r.Add(&e)
	}

	for range 1000 {
		add()
	}

	if n := testing.AllocsPerRun(2000, add); n != 0 {
		t.Errorf("%v allocations for a line", n)
	}
}
