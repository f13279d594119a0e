package web

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/events"
	"github.com/headgate/headgate/policy/stats"
)

func TestStatsNeedARole(t *testing.T) {
	w := newWorld(t)
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	b := w.as("viewer")
	for _, path := range []string{"/stats?app=a", "/stats/live?app=a"} {
		got := b.get(path).want(http.StatusOK)
		rows := got.rows()
		if row := rows["one"]; !strings.HasSuffix(row, "| 50 | 10 | 0 | 6 | 0 | 0 | 0 | 0 | 0 | 0") {
			t.Errorf("%s: the policy has the row %q", path, row)
		}
		if row := rows["further policies"]; !strings.HasSuffix(row, "| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 2 | 0") {
			t.Errorf("%s: failures have the row %q", path, row)
		}
		for _, part := range []string{"<dt>Passed</dt><dd>31</dd>", "<dt>Over, in shadow</dt><dd>7</dd>", "<dt>Denied</dt><dd>3</dd>", "The counts of 4 more requests were lost"} {
			if !strings.Contains(got.text, part) {
				t.Errorf("%s: the page does not say %s", path, part)
			}
		}
		if row := rows["here-1 abc"]; !strings.Contains(row, "1m30s behind") || !strings.Contains(row, "its memory: Redis is away") {
			t.Errorf("%s: the instance has the row %q", path, row)
		}
		rows["here-1"] = rows["here-1 abc"]
		if !strings.Contains(rows["here-1"], "up to date") || strings.Contains(rows["here-1"], "not yet") || !strings.Contains(rows["here-2"], "not yet up to date") {
			t.Errorf("%s: the instances are %q and %q", path, rows["here-1"], rows["here-2"])
		}
		if _, there := rows["there"]; there {
			t.Errorf("%s: an instance of another application is shown", path)
		}
	}
	b.get("/stats?app=b").want(http.StatusNotFound)
	if got := b.get("/stats?app=a&refresh=5"); !strings.Contains(got.text, `<meta http-equiv="refresh" content="5">`) {
		t.Error("without JavaScript nothing is refreshed")
	}
}

func TestChartStacksBars(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := chartOf([]stats.Minute{
		{Start: at, Policies: map[string]stats.Counts{"p": {events.Allowed: 30, events.Refused: 10}}},
		{Start: at.Add(time.Minute), Policies: map[string]stats.Counts{"p": {events.Allowed: 5, events.ShadowRefused: 5, events.Banned: 20}}},
		{Start: at.Add(2 * time.Minute)},
	}, "p")
	want := []bar{
		{0, 20, 98, 60, "passed", "12:00: 30 passed"},
		{0, 0, 98, 20, "refused", "12:00: 10 refused"},
		{100, 70, 98, 10, "passed", "12:01: 5 passed"},
		{100, 60, 98, 10, "shadowed", "12:01: 5 over the limit, in shadow"},
		{100, 20, 98, 40, "banned", "12:01: 20 banned"},
	}
	if c.Max != 40 || len(c.Bars) != len(want) {
		t.Fatalf("the chart is %+v", c)
	}
	for i, b := range c.Bars {
		if b != want[i] {
			t.Errorf("bar %d is %+v and not %+v", i, b, want[i])
		}
	}
	if c := chartOf(nil, "p"); len(c.Bars) != 0 || c.Max != 0 {
		t.Errorf("the chart of no minutes is %+v", c)
	}
}
