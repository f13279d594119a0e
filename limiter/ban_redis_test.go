package limiter_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
)

// instance returns a limiter with a client of its own, as another process has it.
func instance(t *testing.T, addr, prefix string) *limiter.Limiter {
	t.Helper()
	l := newLimiter(t, patientStore(t, addr, prefix), banning(t, "a", "1/1h fixed-window"), banning(t, "b", "9/1h"))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// keysOf returns the keys that l lists as banned under the rule a, in order.
func keysOf(t *testing.T, l *limiter.Limiter) (keys []string) {
	t.Helper()
	list, err := l.Bans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if b.Rule != "a" {
			t.Errorf("%+v", b)
		}
		keys = append(keys, b.Key)
	}
	slices.Sort(keys)
	return keys
}

// waitFor returns when the instance lists these keys as banned: a process lists in the
// background what it has seen.
func waitFor(t *testing.T, l *limiter.Limiter, keys ...string) {
	t.Helper()
	for !slices.Equal(keysOf(t, l), keys) { // each a round trip
	}
}

// Instances share bans. Of their concurrent refusals exactly one begins the ban.
func TestBanAcrossProcesses(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	var all [2]*limiter.Limiter
	for i := range all {
		all[i] = instance(t, addr, prefix)
	}

	if d, err := all[0].Allow(t.Context(), "k", 1); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}

	var mu sync.Mutex
	banned := map[bool]int{}
	var done sync.WaitGroup
	// The one unit is spent, so that all twenty requests are refused, half of them by each process.
	for i := range 20 {
		done.Go(func() {
			d, err := all[i%2].Allow(t.Context(), "k", 1)
			if err != nil || d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
			mu.Lock()
			defer mu.Unlock()
			banned[d.Banned]++
		})
	}

	done.Wait()
	// The third refusal is the ban, whichever process it meets.
	if banned[false] != 2 || banned[true] != 18 {
		t.Errorf("%d refusals before the ban and %d of the ban", banned[false], banned[true])
	}
}

// A process that starts finds the bans of those before, and a server that starts again with
// its data has them too.
func TestBanOutlastsRestarts(t *testing.T) {
	// The server writes each command to its file, so that it has them all when it starts again.
	server, prefix := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always"), redistest.Prefix(t)
	first := instance(t, server.Addr, prefix)

	hostile := "<script>\x00\r\n\xff{}"
	for _, key := range []string{"k", hostile, "other"} {
		useUp(t, first, key, 3)
	}

	waitFor(t, first, hostile, "k", "other")

	// Neither the process nor the server that began the bans is there any longer.
	_ = first.Close()
	server.Restart()
	second := instance(t, server.Addr, prefix)
	waitFor(t, second, hostile, "k", "other")

	for _, key := range []string{"k", hostile} {
		if d, err := second.Allow(t.Context(), key, 1); err != nil || !d.Banned {
			t.Errorf("%q: %+v, %v", key, d, err)
		}
	}

	// A lift and a reset take the key from the lists of all processes.
	if err := second.Lift(t.Context(), "a", hostile); err != nil {
		t.Error(err)
	}

	third := instance(t, server.Addr, prefix)
	if keys := keysOf(t, third); !slices.Equal(keys, []string{"k", "other"}) {
		t.Errorf("after the lift: %q", keys)
	}
	d, err := third.Allow(t.Context(), hostile, 1)
	if err != nil || d.Banned || d.Allowed {
		t.Errorf("after the lift: %+v, %v", d, err)
	}

	if err := third.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if keys := keysOf(t, second); !slices.Equal(keys, []string{"other"}) {
		t.Errorf("after the reset: %q", keys)
	}
}
