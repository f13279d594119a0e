package prefetch_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
)

// listening is a store that notes its hooks.
type listening struct {
	*memstore.Store
	told []*events.Hooks
}

func (l *listening) Report() events.Report {
	r := l.Store.Report()
	r.Listen = func(h *events.Hooks) { l.told = append(l.told, h) }
	return r
}

func TestStatusSaysHowMuchIsHeldByRule(t *testing.T) {
	w := newWorld(t)
	s := w.instance(64)
	held := w.makeBusy(s, limit(t, "100000/1h"))

	// Takes here are all of one rule.
	got := s.Report().Status(nil)
	if len(got) != 1 || got[0].Store != "prefetch" || fmt.Sprint(got[0].Held) != fmt.Sprintf("map[%s:%d]",
		take(limit(t, "1/1s"), 1).Rule, held) {
		t.Errorf("%+v, want %d units held", got, held)
	}

	// The status of the store behind follows, and hooks are passed on to it.
	under := &listening{Store: memstore.MustNew(memstore.Options{})}
	over, err := prefetch.New(under, prefetch.Options{})
	if err != nil {
		t.Fatal(err)
	}

	h := &events.Hooks{}
	if over.Report().Listen(h); len(under.told) != 1 || under.told[0] != h {
		t.Errorf("%d hooks reached the store", len(under.told))
	}

	if list := over.Report().Status(nil); len(list) != 2 || list[1].Store != "memory" {
		t.Errorf("%+v", list)
	}
}
