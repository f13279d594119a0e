package service

import (
	"fmt"
	"testing"
	"time"
)

// The changes of a policy are found behind any number of changes of others, and only for actors
// who see them.
func TestMarkersOfOnePolicy(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()

		// Two versions under a, then more changes of others than are shown, and then the move to
		// b.
		p := w.create(sample("one", "a"))
		w.clock.pass(time.Second)
		p.Priority++
		p = must(w.UpdatePolicy(ctx, w.admin, p))

		for i := range maxMarkers {
			w.clock.pass(time.Millisecond)
			w.create(sample(fmt.Sprint("other-", i), "b"))
		}

		w.clock.pass(time.Second)
		p.Apps = []string{"b"}
		must(w.UpdatePolicy(ctx, w.admin, p))

		for _, row := range []struct {
			who  Actor
			q    TrafficQuery
			want string
		}{
			{w.admin, TrafficQuery{Policy: "one"}, "3 2 1 "},
			{w.admin, TrafficQuery{Policy: "one", App: "a"}, "3 2 1 "},
			{w.admin, TrafficQuery{Policy: "one", App: "b"}, "3 "},
			{w.admin, TrafficQuery{Policy: "one", App: "c"}, ""},
			{w.admin, TrafficQuery{Policy: "none"}, ""},
			{w.admin, TrafficQuery{App: "a"}, "3 "},
			{w.person("of-a", map[string]Role{"a": Viewer}), TrafficQuery{Policy: "one"}, "2 1 "},
			{w.person("of-b", map[string]Role{"b": Viewer}), TrafficQuery{Policy: "one"}, "3 "},
			{w.person("of-c", map[string]Role{"c": Viewer}), TrafficQuery{Policy: "one"}, ""},
		} {
			list, err := w.Markers(ctx, row.who, row.q)
			got := ""
			for _, m := range list {
				got += itoa(m.Version) + " "
			}

			if err != nil || got != row.want {
				t.Errorf("%s sees %q of %+v, want %q; %v", row.who.user, got, row.q, row.want, err)
			}
		}
	})
}
