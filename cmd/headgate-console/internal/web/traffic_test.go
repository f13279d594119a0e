package web

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

func TestTrafficNeedsARole(t *testing.T) {
	w := newWorld(t)
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	b := w.as("viewer")

	// The parts that move show the same figures as the whole page, and what is folded if it is
	// open.
	for _, path := range []string{"/?app=a", "/", "/live?app=a&open=sums&open=all-instances",
		"/live?open=all-instances&open=sums"} {
		got := b.get(path).want(http.StatusOK)
		// 31 passed, 7 in shadow and 3 refused are 41, of which 3 are 7.3 %. All were in the last
		// whole minute.
		for name, want := range map[string]string{"Requests": "0.68 /s now", "Refused": "7.3% now",
			"Errors": "none", "Shadow": "7 in 1 hour"} {
			if n := got.tile(name); n != want {
				t.Errorf("%s: %s is %q and not %q", path, name, n, want)
			}
		}
		if legend := got.list("series"); strings.Join(legend, ", ") !=
			"Passed 31: leave it out, Shadow 7: leave it out, Refused 3: leave it out" {
			t.Errorf("%s: the legend is %q", path, legend)
		}

		// In two minutes 50 passed. The 10 refusals and 6 bans together are 16 of 66 decisions.
		rows := got.tables("policies")
		if row := rows["one"]; !strings.HasSuffix(row, "| 66 | 50 | 0 | 0 | 16 | 24.2% | 0") {
			t.Errorf("%s: the policy has the row %q", path, row)
		}

		if row := rows["further policies"]; !strings.HasSuffix(row, "| 2 | 0 | 0 | 0 | 0 | 0% | 2") {
			t.Errorf("%s: failures have the row %q", path, row)
		}

		if !strings.Contains(got.text, "The counts of 4 more requests were lost") {
			t.Errorf("%s: the page hides what was lost", path)
		}
		wantInstances(t, path, got)
	}

	// An application in which one has no role is not there.
	b.get("/?app=b").want(http.StatusNotFound)

	b.get("/?app=a&refresh=5").has(`<meta http-equiv="refresh" content="5">`)

	// An administrator sees the sum of each application.
	all := w.as("admin").get("/").want(http.StatusOK)
	if rows := all.rows(); !strings.HasSuffix(rows["a"], "| 41 | 31 | 0 | 7 | 3 | 7.3% | 0") ||
		!strings.HasSuffix(rows["b"], "| 0 | 0 | 0 | 0 | 0 | – | 0") {
		t.Errorf("the applications have the rows %q and %q", rows["a"], rows["b"])
	}
}

// wantInstances checks what a viewer of a sees of instances.
func wantInstances(t *testing.T, path string, got *answer) {
	t.Helper()
	rows := got.rows()

	if row := rows["here-1 abc"]; !strings.Contains(row, "1m30s behind") || !strings.Contains(
		row, "its memory: Redis is away") || !strings.Contains(row, "up to date") || strings.Contains(row, "not yet") {
		t.Errorf("%s: the instance has the row %q", path, row)
	}

	// The error names a policy of b, whose name must not be shown to those of a alone.
	if row := rows["here-2"]; !strings.Contains(row, "refuses 7-abc a policy of another application is not valid") ||
		strings.Contains(got.text, "secret-launch") {
		t.Errorf("%s: the instance has the row %q", path, row)
	}

	// Instances that need attention come first, and say why.
	if line := words(got.byID("fleet-line")); line != "1 of 2 in force · 1 clock wrong · 1 without Redis" {
		t.Errorf("%s: the line of the instances is %q", path, line)
	}
	if strings.Index(got.text, `id="look"`) > strings.Index(got.text, `id="tiles"`) {
		t.Errorf("%s: instances that need attention come after the figures", path)
	}
	if list := got.list("look"); strings.Join(list, "; ") != "here-1 abc: its clock is 1m30s behind; "+
		"decided by its memory: Redis is away; "+
		"here-2: refuses version 7-abc: a policy of another application is not valid for this instance" {
		t.Errorf("%s: what is wrong is %q", path, list)
	}

	if _, there := rows["there"]; there {
		t.Errorf("%s: an instance of another application is shown", path)
	}
}

// tile returns the number below a heading.
func (a *answer) tile(name string) (text string) {
	a.each(func(n *html.Node) {
		if n.Data == "dt" && words(n) == name {
			for s := range n.Parent.ChildNodes() {
				if s.Data == "dd" && text == "" {
					text = words(s)
				}
			}
		}
	})
	return text
}

// list returns the texts of the items of a list, or of the lists in an element.
func (a *answer) list(id string) (texts []string) {
	for n := range a.byID(id).Descendants() {
		if n.Data == "li" {
			texts = append(texts, words(n))
		}
	}
	return texts
}

// tables returns the cells of the table with an id by its first column.
func (a *answer) tables(id string) map[string]string {
	table := &answer{t: a.t, doc: a.byID(id)}
	if table.doc == nil {
		a.t.Fatalf("there is no table %s", id)
	}
	return table.rows()
}

func TestTrafficRanges(t *testing.T) {
	_, b := asAdmin(t)

	// A range that is missing or unknown is an hour.
	for name, want := range map[string]struct {
		bars int
		span string
	}{
		"15m": {15, "11:47:00"}, "1h": {60, "11:02:00"}, "": {60, "11:02:00"}, "x": {60, "11:02:00"},
		"6h":  {73, "06:00:00"},
		"24h": {49, "2026-02-28 12:00:00"}, "7d": {57, "2026-02-22 12:00:00"}, "30d": {61, "2026-01-30 12:00:00"},
	} {
		got := b.get("/?app=a&range=" + name).want(http.StatusOK)
		bars := 0
		got.each(func(n *html.Node) {
			if strings.HasPrefix(attr(n, "id"), "bar-") {
				bars++
			}
		})

		if sub := words(got.byID("tile-all")); bars != want.bars || !strings.Contains(sub, "41 in ") {
			t.Errorf("%s: there are %d bars, of %q", name, bars, sub)
		}

		// A page of days does not ask again.
		polls := attr(got.byID("live"), "data-refresh") != ""
		if polls == (strings.HasSuffix(name, "d") || name == "24h") {
			t.Errorf("%s: the page asks again: %v", name, polls)
		}

		if span := words(got.byID("span")); !strings.Contains(span, want.span) {
			t.Errorf("%s: it is %q", name, span)
		}
	}
}

// A chart adds up to its total, by each of its ways to tell it.
func TestChart(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	// Now is in the middle of the third minute, so its counts are of half a minute, and the fourth
	// is to come.
	traffic := service.Traffic{From: at, To: at.Add(4 * time.Minute), Step: time.Minute,
		Now: at.Add(2*time.Minute + 30*time.Second), Points: []service.Point{
			{At: at, Counts: stats.Counts{events.Allowed: 300, events.Refused: 300}},
			{At: at.Add(time.Minute), Counts: stats.Counts{events.Waited: 60, events.ShadowRefused: 60,
				events.Banned: 120, events.FailedOpen: 1}},
			{At: at.Add(2 * time.Minute), Counts: stats.Counts{events.Degraded: 30, events.Canceled: 30}},
			{At: at.Add(3 * time.Minute)},
		}}

	for _, p := range traffic.Points {
		traffic.Total.Add(p.Counts)
	}

	// Two changes of one minute share a mark, and one before the start has none.
	changes := []service.Marker{{At: at.Add(70 * time.Second), Policy: "q", Version: 2, Action: "update", Actor: "ann"},
		{At: at.Add(65 * time.Second), Policy: "p", Version: 1, Action: "create", Actor: "bob"},
		{At: at.Add(-time.Second)}}
	c := chartOf(traffic, changes, "requests")

	wantAreas(t, c)
	for i, b := range c.Bars {
		if b.Open != (i == 2) || b.ID != at.Unix()/60+int64(i) {
			t.Errorf("the bar %d is %+v", i, b)
		}
	}
	// Without a kind the others are as high as they can be.
	if c := chartOf(traffic, nil, "requests", "refused", "left"); c.Areas[len(c.Areas)-1].Path !=
		"M0 100V0H1V80H2V100H4V100z" || len(c.Areas) != 4 || c.Y[len(c.Y)-1].Words != "5" {
		t.Errorf("without the refused the areas are %+v, up to %s", c.Areas, c.Y[len(c.Y)-1].Words)
	}

	// A rate is of the time that has passed: 60 in half a minute are 2 a second.
	if got := c.Bars[0].Rate + " " + c.Bars[2].Rate + " " + c.Bars[3].Rate; got != "10.0 2 0" {
		t.Errorf("the rates are %s", got)
	}

	wantAxes(t, c)

	if len(c.Marks) != 1 || c.Marks[0].At != "37.50%" ||
		c.Marks[0].Words() != "2026-03-01 12:01 UTC: update of q to version 2 by ann, and 1 more" {
		t.Errorf("the marks are %+v", c.Marks)
	}

	// What never occurs has no column in the table.
	var shown []string
	for _, k := range c.Shown {
		shown = append(shown, k.Class)
	}
	if got := strings.Join(shown, " "); got != "passed degraded shadow refused failed left" {
		t.Errorf("the table has %s", got)
	}
}

func wantAreas(t *testing.T, c chart) {
	t.Helper()

	// The highest step is 600 requests a minute, so half of it is 300. The areas are stacked from
	// the bottom, those below drawn last, and the third step has lasted half a minute.
	var areas []string
	for _, a := range c.Areas {
		areas = append(areas, a.Class+" "+a.Path)
	}
	if got := strings.Join(areas, ", "); got != "left M0 100V0H1V59.4H2V80H3V100H4V100z, "+
		"failed M0 100V0H1V59.4H2V90H3V100H4V100z, refused M0 100V0H1V60H2V90H3V100H4V100z, "+
		"shadow M0 100V50H1V80H2V90H3V100H4V100z, degraded M0 100V50H1V90H3V100H4V100z, "+
		"passed M0 100V50H1V90H2V100H4V100z" {
		t.Errorf("the areas are %s", got)
	}
	if got := c.Scale() + " " + c.Kinds() + " " + c.Numbers(c.Bars[1]); got != "0.250000 .01 passed Passed,degraded "+
		"Degraded,shadow Shadow,refused Refused,failed Errors,left Left 60  60 120 1 " {
		t.Errorf("the script gets %q", got)
	}
}

func wantAxes(t *testing.T, c chart) {
	t.Helper()
	if len(c.Y) != 6 || c.Y[0].At != "100.00%" || c.Y[5] != (axisTick{At: "0.00%", Words: "10"}) || len(c.X) != 5 ||
		c.X[1].At != "25.00%" || c.X[1].Words != "12:01" || !c.X[1].Minor || c.X[1].Day ||
		c.X[1].When.Format(time.RFC3339) != "2026-03-01T12:01:00Z" {
		t.Errorf("the axes are %v and %v", c.Y, c.X)
	}
}

func TestChartOfNothing(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if empty := chartOf(service.Traffic{From: at, To: at.Add(time.Minute), Step: time.Minute,
		Points: []service.Point{{At: at}}}, nil, "requests"); len(empty.Bars) != 1 || len(empty.Areas) != 0 ||
		empty.Y[1].Words != "1" {
		t.Errorf("the chart of nothing is %+v", empty)
	}
}

// Each verdict is of exactly one kind.
func TestKindsHaveEachVerdict(t *testing.T) {
	for v := range events.Verdict(events.Verdicts) {
		var c stats.Counts
		c[v] = 1
		f, n := figuresOf(c), int64(0)
		for _, p := range f.Parts {
			n += p.N
		}
		if n != 1 {
			t.Errorf("%s counts %d times", v, n)
		}
	}
}

func TestFiguresInWords(t *testing.T) {
	// Rounding never makes none or all out of a share that is neither.
	for _, row := range []struct {
		n, all int64
		want   string
	}{{0, 0, ""}, {0, 9, "0%"}, {9, 9, "100%"}, {1, 1e6, "<0.01%"}, {1e6 - 1, 1e6, ">99.99%"}, {1, 1000, "0.10%"},
		{999, 1000, "99.90%"}, {1, 3, "33.3%"}} {
		if got := share(row.n, row.all); got != row.want {
			t.Errorf("%d of %d is %q", row.n, row.all, got)
		}
	}

	for v, want := range map[float64]string{0: "0", 0.001: "<0.01", 0.25: "0.25", 3: "3", 12.34: "12.3",
		1234.5: "1,235"} {
		if got := rate(v); got != want {
			t.Errorf("%v a second is %q", v, got)
		}
	}
}

// What did not change is not sent again, and what did is small after the server's compression.
func TestLiveIsSmall(t *testing.T) {
	_, b := asAdmin(t)
	plain := b.get("/live?app=a").want(http.StatusOK)
	tag := plain.header.Get("ETag")
	b.header = http.Header{"If-None-Match": {tag}}

	// The tag is of the content, so nothing is sent until it changes.
	if got := b.get("/live?app=a"); got.status != http.StatusNotModified || got.text != "" || tag == "" {
		t.Errorf("the answer to %q is %d of %d bytes", tag, got.status, len(got.text))
	}

	b.get("/live?app=b").want(http.StatusOK)

	sentLittle(t, plain)
}

// sentLittle checks what a part of a page costs that is fetched every second.
func sentLittle(t *testing.T, part *answer) {
	t.Helper()
	const most = 5000
	var small bytes.Buffer
	zip := gzip.NewWriter(&small)
	if _, err := io.WriteString(zip, part.text); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	if t.Logf("%d bytes became %d", len(part.text), small.Len()); small.Len() > most {
		t.Errorf("%d bytes became %d, more than %d", len(part.text), small.Len(), most)
	}
}

// So is that of a policy with other counts in every minute, and keys that it refuses.
func TestLivePolicyIsSmall(t *testing.T) {
	w, b := bansWorld(t)
	for m := range 61 {
		n := int64(m)
		w.must(w.Ledger().Record(t.Context(), "a", stats.Minute{Start: midday.Add(-time.Duration(m) * time.Minute),
			Policies: map[string]stats.Counts{"p": {events.Allowed: 100_000 + n*7919%9973,
				events.Refused: 10_000 + n*1009%997, events.FailedOpen: 100 + n*31%29}}}))
	}
	var list []topkeys.Key
	for i := range 2 * mostKeys {
		key := fmt.Sprintf("user-%d", 1_000_003*i%9_999_991)
		list = append(list, topkeys.Key{Key: key, Count: int64(10_000 - i), Error: int64(i)})
		w.ban("p", key)
	}
	w.fleet.top = stats.Top{Instances: 2, Rules: []topkeys.Rule{{Rule: "p", Refused: summary(0, list...)}}}

	part := b.get("/policies/p/live?range=1h").want(http.StatusOK)
	if n := strings.Count(part.text, `<i id="bar-`); n != 60 || !strings.Contains(part.text, "Reset…") {
		t.Errorf("%d steps: %s", n, part.text)
	}
	sentLittle(t, part)
}

// A policy's page begins with its decisions, and says where the newest policies are in force.
func TestPolicyTraffic(t *testing.T) {
	w := newWorld(t)
	w.policy("one", "5/1m")
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	b := w.as("viewer")
	line := func(path, id string) string {
		return strings.Join(strings.Fields(words(b.get(path).want(http.StatusOK).byID(id))), " ")
	}

	// Nothing is published yet, so no instance has it in force.
	for _, path := range []string{"/policies/one", "/policies/one/live?range=15m"} {
		if got := line(path, "force"); got != "in 0 of 2 instances" {
			t.Errorf("%s: before it is published it is %q", path, got)
		}
		if got := line(path, "totals"); got != "Share refused 24.2%, now 24.2% Passed 50 Refused 16" {
			t.Errorf("%s: the totals are %q", path, got)
		}
	}

	// Of the two instances of a, one has the version 7-abc.
	p, err := w.Publishing(t.Context(), w.admin)
	w.must(err)
	w.must(w.Outbox().Published(t.Context(), p.Version, "7-abc"))
	if got := line("/policies/one", "force"); got != "in 1 of 2 instances" {
		t.Errorf("afterwards it is %q", got)
	}

	w.fleet.away = http.ErrServerClosed
	if got := line("/policies/one", "force"); got != "Redis does not answer" {
		t.Errorf("without Redis it is %q", got)
	}

	b.get("/policies/none/live").want(http.StatusNotFound)
}
