package events_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

type plainStore struct{}

func (plainStore) Apply(context.Context, []core.Op, []core.Decision) error { return nil }

// partly reports what it is made of.
type partly struct {
	plainStore
	report events.Report
}

func (p partly) Report() events.Report { return p.report }

// A store reports as little as it likes: what it leaves out does nothing, and the rest is its own.
func TestReportOfAStoreThatLeavesThingsOut(t *testing.T) {
	own := events.StoreStatus{Store: "own"}
	status := func(list []events.StoreStatus) []events.StoreStatus { return append(list, own) }
	for _, row := range []struct {
		store   core.Store
		maxCall time.Duration
		kinds   int
		bans    string
	}{
		// No store, one without a report, an empty report, and one with a part.
		{nil, 0, 0, "headgate: a <nil> cannot list bans: unsupported operation"},
		{plainStore{}, 0, 0, "headgate: a events_test.plainStore cannot list bans: unsupported operation"},
		{partly{}, 0, 0, "headgate: a events_test.partly cannot list bans: unsupported operation"},
		{partly{report: events.Report{MaxCall: time.Second, Status: status}}, time.Second, 1,
			"headgate: a events_test.partly cannot list bans: unsupported operation"},
	} {
		// Every function of the report can be called, also those that the store left out.
		r := events.ReportOf(row.store)
		r.Listen(&events.Hooks{})
		if found := r.Diagnose(t.Context(), nil); r.MaxCall != row.maxCall || found != nil ||
			len(r.Status(nil)) != row.kinds {
			t.Errorf("%T: MaxCall %v, %v, %v", row.store, r.MaxCall, found, r.Status(nil))
		}

		if _, err := r.Bans(t.Context(), nil, 1); !errors.Is(err, errors.ErrUnsupported) || err.Error() != row.bans {
			t.Errorf("%T: %v", row.store, err)
		}
	}
}

func TestReportOfAStoreIsItsOwn(t *testing.T) {
	var heard []*events.Hooks
	h := &events.Hooks{}
	banned, found := []core.Banned{{Rule: "r", Key: "k"}}, []core.Finding{{Code: "HG042"}}
	r := events.ReportOf(partly{report: events.Report{
		Diagnose: func(context.Context, []core.Op) []core.Finding { return found },
		Bans:     func(context.Context, []string, int) ([]core.Banned, error) { return banned, nil },
		Listen:   func(h *events.Hooks) { heard = append(heard, h) },
	}})

	r.Listen(h)
	if !slices.Equal(heard, []*events.Hooks{h}) {
		t.Errorf("%d hooks", len(heard))
	}
	if list, err := r.Bans(t.Context(), nil, 1); err != nil || !slices.Equal(list, banned) {
		t.Errorf("%v, %v", list, err)
	}
	if got := r.Diagnose(t.Context(), nil); !slices.Equal(got, found) {
		t.Errorf("%v", got)
	}
}
