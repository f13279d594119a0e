package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
)

// owner returns what the database knows of its right to publish.
func (w *world) owner() publish.Owner {
	w.t.Helper()
	o := must(w.Outbox().Owner(w.t.Context()))
	return o
}

// A refusal lasts until an administrator takes over or a set is published, whatever is saved.
func TestARefusalLasts(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		first := w.owner()
		if first.Refused || first.Replaces != "" || first.Former != "" || first.Labels != nil {
			t.Errorf("a new database: %+v", first)
		}

		w.must(w.Outbox().Refused(t.Context(), "9.x"))
		w.create(full("p"))
		w.must(w.Outbox().Intend(t.Context(), "10.y"))
		if o := w.owner(); !o.Refused || o.Database != first.Database {
			t.Errorf("after a change: %+v", o)
		}

		// A console that has not seen the decision yet is refused again, and the decision counts.
		w.must(w.TakeOver(t.Context(), w.admin, "9.x", ""))
		w.must(w.Outbox().Refused(t.Context(), "9.x"))
		taken := w.owner()
		if taken.Refused || taken.Former != first.Database || taken.Replaces != publish.Digest("9.x") {
			t.Errorf("after the take-over: %+v", taken)
		}

		w.must(w.Outbox().Refused(t.Context(), "11.z"))
		if !w.owner().Refused {
			t.Error("the decision about one version is one about another")
		}
		w.must(w.Outbox().IntendOverrides(t.Context(), "7.o"))
		w.must(w.Outbox().Published(t.Context(), 2, "12.z"))
		if o := w.owner(); o.Refused || !slices.Equal(o.Labels, []string{"10.y", "12.z"}) ||
			!slices.Equal(o.OverrideLabels, []string{"7.o"}) {
			t.Errorf("after a publication: %+v", o)
		}
	})
}

// Consoles that publish at the same time lose no label, and old ones make room for new ones.
func TestLabelsOfTheDatabase(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.must(w.Outbox().Intend(t.Context(), "the oldest"))
		var all sync.WaitGroup
		var want []string
		for i := range maxLabels {
			label := fmt.Sprintf("%02d.x", i)
			want = append(want, label)
			all.Go(func() {
				if err := w.Outbox().Intend(t.Context(), label); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()

		equal(t, "the labels are", slices.Sorted(slices.Values(w.owner().Labels)), want)

		// One that comes again is the newest.
		w.must(w.Outbox().Intend(t.Context(), "00.x"))
		if got := w.owner().Labels; len(got) != maxLabels || got[maxLabels-1] != "00.x" {
			t.Errorf("the labels are %q", got)
		}
	})
}

// Whoever writes to Redis may write any version.
func TestTakeOverOfAnyVersion(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, version := range []string{"1.x", strings.Repeat("9", 1<<20), "10.\xff\xfe", "1.\x00\n<b>"} {
			w.must(w.TakeOver(t.Context(), w.admin, version, ""))
			row := w.entries(AuditQuery{Action: "publishing.takeover"})[0]
			if w.owner().Replaces != publish.Digest(version) || len(row.Before) > 110 ||
				strings.Contains(row.Before, "\x00") || strings.Contains(row.Before, "\xff") {
				t.Errorf("%.20q: %+v, and the audit log has %q", version, w.owner(), row.Before)
			}
		}

		var bad *InvalidError
		if err := w.TakeOver(t.Context(), w.admin, "", ""); !errors.As(err, &bad) {
			t.Errorf("no version: %v", err)
		}
	})
}
