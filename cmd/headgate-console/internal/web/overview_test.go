package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// A policy that refuses now is shown with the key that it refuses most, which opens on Keys.
func TestRefusingNow(t *testing.T) {
	w := newWorld(t)
	w.policy("one", "5/1m")
	w.fleet.top = stats.Top{Rules: []topkeys.Rule{{Rule: "one", Refused: topkeys.Summary{
		Keys: []topkeys.Key{{Key: "203.0.113.7", Count: 9}, {Key: "<b>", Count: 2}, {Key: "x", Count: 1}}}}}}
	b := w.as("admin")

	// Of the 66 decisions of the last minutes 16 were refusals.
	got := b.get("/?app=a").want(http.StatusOK)
	if row := got.tables("refusing-now")["one"]; row != "24.2% | 16 | 203.0.113.7 and 2 others" {
		t.Errorf("the policy has the row %q", row)
	}
	if !got.links("/policies/one?range=1h") || !got.links("/keys?key=203.0.113.7&policy=one&view=one") {
		t.Error("the policy or its key does not open")
	}

	// A list that has an end says so, and a key that is cut cannot be looked up.
	cut := strings.Repeat("k", 64) + "…"
	w.fleet.top.Rules[0].Refused = topkeys.Summary{Floor: 3, Keys: []topkeys.Key{{Key: cut}, {Key: "x"}}}
	want := "/keys?key=" + strings.Repeat("k", 64) + "%E2%80%A6&policy=one&view=one"
	if service.IsShortened(cut) {
		want = "/keys?app=a&policy=one"
	}
	got = b.get("/?app=a").want(http.StatusOK)
	row := got.tables("refusing-now")["one"]
	if !strings.HasSuffix(row, "… and more than 1 other") || !got.links(want) {
		t.Errorf("the policy has the row %q", row)
	}

	// Redis that does not answer says nothing of now.
	w.fleet.away = http.ErrServerClosed
	if got := b.get("/?app=a").want(http.StatusOK); got.byID("in-refusing") != nil {
		t.Error("the page knows who refuses without Redis")
	}
}

// Instances that are as they should be are one line, below the chart.
func TestInstancesAreOneLine(t *testing.T) {
	w := newWorld(t)
	w.fleet.instances = []policy.Instance{{ID: "i1", App: "a", Version: "7-abc", Store: "store"},
		{ID: "i2", App: "a", Version: "7-abc", Store: "store"}}
	b := w.as("admin")

	got := b.get("/?app=a").want(http.StatusOK)
	if line := words(got.byID("fleet-line")); line != "2 of 2 in force · all clocks right · all ask Redis" ||
		strings.Index(got.text, `id="in-instances"`) < strings.Index(got.text, `id="chart"`) ||
		len(got.list("in-instances")) != 0 || got.tables("fleet")["i2"] == "" {
		t.Errorf("the line is %q", line)
	}

	// What an old instance does not report is not claimed of all.
	w.fleet.instances[1].Store = ""
	if line := words(b.get("/?app=a").byID("fleet-line")); line != "2 of 2 in force · all clocks right" {
		t.Errorf("the line is %q", line)
	}
}

// What is folded is sent with the whole page, and to the script only while it is open.
func TestFoldedPartsAreSentWhenOpen(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	for path, want := range map[string]string{"/?app=a": "bar-row fleet policies", "/live?app=a": "",
		"/live?app=a&open=numbers": "bar-row", "/live?app=a&open=sums&open=all-instances": "fleet policies",
		"/policies/p": "bar-row", "/policies/p/live": "", "/policies/p/live?open=numbers": "bar-row"} {
		got, has := b.get(path).want(http.StatusOK), []string{}
		if strings.Contains(got.text, `id="row-`) {
			has = append(has, "bar-row")
		}
		for _, id := range []string{"fleet", "policies"} {
			if got.byID(id) != nil {
				has = append(has, id)
			}
		}
		if strings.Join(has, " ") != want {
			t.Errorf("%s has %q, want %s", path, has, want)
		}
	}

	// What is folded has its heading all the same.
	for query, heading := range map[string]string{"app=": "By application and policy, in ", "app=a": "By policy, in "} {
		for _, path := range []string{"/?", "/live?"} {
			if got := words(b.get(path + query).byID("sums")); !strings.HasPrefix(strings.TrimSpace(got), heading) {
				t.Errorf("%s%s is headed %q", path, query, got)
			}
		}
	}
}

// A series is left out of the chart by a link, and not out of the figures.
func TestSeriesAreLeftOut(t *testing.T) {
	_, b := asAdmin(t)
	drawn := func(path string) string {
		var list []string
		got := b.get(path).want(http.StatusOK)
		for n := range got.doc.Descendants() {
			if attr(n, "class") == "area" {
				list = append(list, attr(n, "fill"))
			}
		}
		if got.tile("Refused") != "7.3% now" {
			t.Errorf("%s: refused is %q", path, got.tile("Refused"))
		}
		return strings.Join(list, " ")
	}

	if got := drawn("/?app=a"); got != "url(#k-refused) url(#k-shadow) url(#k-passed)" {
		t.Errorf("all are %s", got)
	}
	for _, path := range []string{"/?app=a&range=1h&without=passed%2Crefused", "/live?app=a&without=refused,passed,x"} {
		if got := drawn(path); got != "url(#k-shadow)" {
			t.Errorf("%s: the rest is %s", path, got)
		}
	}

	// Each link adds its kind to those left out, or takes it away, and the ranges keep them.
	got := b.get("/?app=a&without=shadow").want(http.StatusOK)
	if !got.links("/?app=a&range=1h") || !got.links("/?app=a&range=1h&without=shadow%2Cpassed") ||
		!got.links("/?app=a&range=6h&without=shadow") {
		t.Errorf("the links are %q", got.text)
	}
}

// Patterns are a choice that is remembered, on all pages.
func TestPatternsAreRemembered(t *testing.T) {
	_, b := asAdmin(t)
	patterned := func(path string) bool {
		return strings.Contains(b.get(path).want(http.StatusOK).text, `<html lang="en" class="patterned">`)
	}

	if patterned("/") {
		t.Error("there are patterns without a choice")
	}
	b.get("/?app=a&patterns=on&range=6h").goes("/?app=a&range=6h")
	if !patterned("/") || !patterned("/policies") {
		t.Error("the choice is forgotten")
	}
	b.get("/?patterns=off").goes("/?")
	if patterned("/") {
		t.Error("the choice cannot be taken back")
	}
}

func TestTopFigures(t *testing.T) {
	counts := func(allowed, refused, failed int64) figures {
		return figuresOf(stats.Counts{events.Allowed: allowed, events.Refused: refused, events.FailedOpen: failed})
	}
	now := service.Lately{Span: 10 * time.Second, Counts: counts(1000, 650, 0).Counts}

	for _, row := range []struct {
		total, before figures
		now           service.Lately
		want          string
	}{
		{counts(0, 0, 0), counts(0, 0, 0), service.Lately{}, "Requests 0 /s on average 0 in 1 hour!; " +
			"Refused none  !; Errors none  !"},
		{counts(2700, 900, 2), counts(1800, 0, 0), now, "Requests 165 /s now 3,602 in 1 hour, 100% more than before; " +
			"Refused 39.4% now 900 in 1 hour, 25.0% (0% before); Errors 2 in 1 hour 2 let through"},
		{counts(90, 0, 0), counts(98, 2, 0), service.Lately{}, "Requests 0.03 /s on average 90 in 1 hour, " +
			"10% fewer than before; Refused none  !; Errors none  !"},
		{counts(100, 0, 0), counts(100, 0, 0), service.Lately{Span: time.Minute}, "Requests 0 /s now " +
			"100 in 1 hour, as before; Refused none  !; Errors none  !"},
		{counts(1100, 0, 0), counts(100, 0, 0), service.Lately{}, "Requests 0.31 /s on average 1,100 in 1 hour, " +
			"more than ten times as many as before; Refused none  !; Errors none  !"},
	} {
		var list []string
		for _, f := range topFigures(row.total, row.before, row.now, time.Hour, "1 hour") {
			text := f.Words + " " + f.Value + " " + f.Unit + " " + f.Sub
			if f.Quiet {
				text += "!"
			}
			list = append(list, text)
		}
		if got := strings.Join(list, "; "); got != row.want {
			t.Errorf("the figures are %s\nwant %s", got, row.want)
		}
	}
}

// Changes that are alike are one line, and a line says what changed.
func TestChangeGroups(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	change := func(ago time.Duration, policy, action, by string, of ...string) service.Marker {
		m := service.Marker{At: at.Add(-ago), Policy: policy, Action: action, Actor: by,
			Created: slices.Contains(of, "created"), Deleted: slices.Contains(of, "deleted")}
		for f := range slices.Chunk(of, 3) {
			if len(f) == 3 {
				m.Changes = append(m.Changes, service.Change{Field: f[0], Before: f[1], After: f[2]})
			}
		}
		return m
	}

	got := ""
	for _, g := range changeGroups([]service.Marker{
		change(time.Minute, "login", "update", "ann", "limit", "5/1m", "8/1m"),
		change(2*time.Minute, "login", "update", "ann", "limit", "5/1m", "8/1m"), // the same policy again
		change(3*time.Minute, "p", "update", "ann", "mode", "shadow", "enforce"),
		change(4*time.Minute, "q", "update", "ann", "mode", "shadow", "enforce"),
		change(5*time.Minute, "r", "update", "bob", "mode", "shadow", "enforce"), // another person
		change(6*time.Minute, "p", "rollback", "ann", "description", "", strings.Repeat("é", 50)),
		change(7*time.Minute, "p", "update", "ann", "limit", "1/1s", "2/1s", "ban", "", "x", "key", "ip", "user",
			"mode", "off", "enforce"),
		change(8*time.Minute, "p", "update", "ann"),
		change(20*time.Minute, "z", "delete", "ann", "deleted"),
		change(21*time.Minute, "c", "import", "ann", "created"),
		change(22*time.Minute, "b", "import", "ann", "created"),
		change(23*time.Minute, "a", "import", "ann", "created"),
		change(40*time.Minute, "d", "import", "ann", "created"), // too long before
	}) {
		got += g.Policy + " " + number(g.Many) + " " + g.What + " " + g.By + " " + g.At.Format("15:04") + "\n"
	}
	if want := "login 1 5/1m → 8/1m ann 11:59\nlogin 1 5/1m → 8/1m ann 11:58\np 2 in shadow → in force ann 11:57\n" +
		"r 1 in shadow → in force bob 11:55\n" +
		"p 1 Description: none → " + strings.Repeat("é", 39) + "… by a rollback ann 11:54\n" +
		"p 1 Limit, Ban, For and 1 more changed ann 11:53\np 1 changed ann 11:52\nz 1 deleted ann 11:40\n" +
		"c 3 created by import ann 11:39\nd 1 created by import ann 11:20\n"; got != want {
		t.Errorf("the groups are\n%swant\n%s", got, want)
	}
}

// Steps of ten seconds are open until their counts have come, and are as high as their counts are
// now.
func TestChartOfTens(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	traffic := service.Traffic{From: at, To: at.Add(time.Minute), Step: stats.Ten, Now: at.Add(22 * time.Second)}
	for ten := range stats.Tens {
		traffic.Points = append(traffic.Points, service.Point{At: at.Add(time.Duration(ten) * stats.Ten),
			Counts: stats.Counts{events.Allowed: int64(max(0, 30-10*ten))}})
		traffic.Total.Add(traffic.Points[ten].Counts)
	}

	c := chartOf(traffic, nil, "requests")
	got := c.Step + " " + c.Areas[0].Path
	for _, b := range c.Bars {
		got += " " + number(b.ID-at.Unix()/10+1) + ":" + b.Rate
		if b.Open {
			got += "!"
		}
	}
	if got != "10 seconds M0 100V0H1V33.3H2V66.7H3V100H6V100z 1:3 2:2! 3:1! 4:0 5:0 6:0" {
		t.Errorf("the chart has %s", got)
	}
	if link := csvPath("a", "", traffic); !strings.Contains(link, "step=1m") {
		t.Errorf("the file is at %s", link)
	}
}

// Changes whose marks would lie on each other have one, with their number.
func TestMarksAreApart(t *testing.T) {
	from := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	traffic := service.Traffic{From: from, To: from.Add(100 * time.Minute), Step: time.Minute}
	var changes []service.Marker
	for _, minute := range []int{90, 88, 87, 86, 50, 50} {
		changes = append(changes, service.Marker{At: from.Add(time.Duration(minute) * time.Minute), Policy: "p"})
	}
	changes[5].Policy = "q"

	got := ""
	for _, m := range marksOf(traffic, changes) {
		got += m.At + "=" + number(int64(len(m.Changes))) + m.Link() + " "
	}
	if want := "90.50%=2/policies/p/history 87.50%=2/policies/p/history 50.50%=2#changes "; got != want {
		t.Errorf("the marks are %s, want %s", got, want)
	}
}
