package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/playground"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/store/memstore"
)

// root is the folder of the library.
const root = "../../.."

// board is a tab with the playground of docs/site.
type board struct {
	*tab
	url string
}

// TestPlayground builds the playground, serves it below a path as a server of files does, and opens
// it in a browser.
func TestPlayground(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	first := openBoard(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, board)
	}{
		{"explains", testExplains}, {"counts", testCounts}, {"faults", testFaults}, {"form", testForm}, {"fits", testFits},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // the browser has a process for each tab
			b := board{first.apart(t), first.url}
			b.start()
			c.test(t, b)
			b.quiet()
		})
	}
}

func openBoard(t *testing.T) board {
	t.Helper()
	browser, dir := chromium(t), t.TempDir()
	goRun(t, "./docs/site/playground", "-o", dir)

	// The header asks for the same policy as the page.
	files := http.StripPrefix("/below/a/path", http.FileServer(http.Dir(dir)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'")
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return board{browse(t, browser), server.URL + "/below/a/path/"}
}

// start opens the page and waits for its engine.
func (b board) start() {
	b.t.Helper()
	b.navigate(b.url)
	b.reads("Within 3m, 100/1m burst=20 admits 319 of 900 requests and 100/1m fixed-window admits 300 of 900 requests.")
}

// goRun runs a program of the library, and returns what it prints.
func goRun(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"run"}, args...)...)
	cmd.Dir = filepath.FromSlash(root)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go run %q: %v", args, err)
	}
	return out
}

// reading is what the page shows.
type reading struct {
	Status  string
	Old     bool // the results are those of an earlier form
	Sides   []explain.Explanation
	Figures [][]string // of each side: asked, admitted, refused, wait, first
	Faults  map[string]fault
}

// fault is what is said below a field, and the parts of its text that are marked.
type fault struct {
	Text  string
	Marks []string
}

// show has the page show a form by the fragment of its address.
func (b board) show(f playground.Form) reading {
	b.t.Helper()
	state := url.Values{"limit": {f.Limit}, "and": {f.And}, "requests": {f.Requests}, "for": {f.For}}
	settled[bool](b.tab, fmt.Sprintf(`new Promise((done) => {
		if (location.hash === %q) done(true);
		addEventListener("hashchange", () => done(true), { once: true });
		location.hash = %[1]q;
	})`, "#"+state.Encode()))
	return b.read()
}

func (b board) read() reading {
	b.t.Helper()
	return eval[reading](b.tab, `(() => {
		const texts = (e, what) => [...e.querySelectorAll(what)].map((x) => x.textContent);
		const rows = [...document.querySelectorAll("#figures tbody tr")];
		const result = document.getElementById("result");
		return {
			status: document.getElementById("status").textContent,
			old: result.hidden || result.classList.contains("old"),
			sides: [...document.querySelectorAll(".side")].map((e) => ({
				limit: e.querySelector("h2 code").textContent,
				words: e.querySelector(".words").textContent,
				at_most: e.querySelector(".most").textContent.replace(/^at most /, ""),
				admits: [...e.querySelectorAll(".admits div")].map((d) => ({
					after: d.firstChild.textContent, units: Number(d.lastChild.textContent) })),
			})),
			figures: [...rows[0].querySelectorAll("td")].map((_, i) => rows.map((r) => texts(r, "td")[i])),
			faults: Object.fromEntries([...document.querySelectorAll(".fault")].filter((e) => e.textContent).map((e) =>
				[e.id.replace("-fault", ""), { text: texts(e, ".mistake").join("\n"), marks: texts(e, "mark") }])),
		};
	})()`)
}

// limitsOfAll are limits of all algorithms.
var limitsOfAll = []string{
	"100/1m", "100/1m burst=20", "10/1h burst=1", "1000/1m debt=5000", "100/1m fixed-window",
	"50/1m fixed-window aligned", "5/1m sliding-log", "240/1h sliding-window segments=60", "30/10s sliding-window",
	"10/1s token-bucket burst=50", "1/100ms token-bucket", "20 concurrent ttl=30s", "100/day",
	"1000/month tz=Europe/Berlin start=15", "40/week tz=America/New_York start=7", "9000/year start=04-06", "7/400d",
}

// testExplains compares the words and the numbers of each limit with those that the
// command headgate prints.
func testExplains(t *testing.T, b board) {
	var want []explain.Explanation
	if err := json.Unmarshal(goRun(t, append([]string{"./cmd/headgate", "explain", "-json"}, limitsOfAll...)...),
		&want); err != nil {
		t.Fatal(err)
	}
	if len(want) != len(limitsOfAll) {
		t.Fatalf("%d of %d limits are explained", len(want), len(limitsOfAll))
	}

	for i := range limitsOfAll {
		other := (i + 1) % len(limitsOfAll)
		got := b.show(playground.Form{Limit: limitsOfAll[i], And: limitsOfAll[other],
			Requests: "steady 1/1s", For: "10s"})
		if pair := []explain.Explanation{want[i], want[other]}; fmt.Sprint(got.Sides) != fmt.Sprint(pair) {
			t.Errorf("the page says\n%v, and the command\n%v", got.Sides, pair)
		}
	}
}

// testCounts compares the numbers of the page with those of a store in memory, which gets
// the same requests by a clock of its own.
func testCounts(t *testing.T, b board) {
	for _, p := range []replayed{
		{text: "steady 5/1s", span: "3m", next: func(i, _ int64, _ core.Decision) int64 { return i * 200_000 }},
		{text: "steady 7/1m takes=20s", span: "2h", takes: 20 * time.Second,
			next: func(i, _ int64, _ core.Decision) int64 { return i * 60_000_000 / 7 }},
		{text: "bursts 50/20s takes=15s", span: "5m", takes: 15 * time.Second,
			next: func(i, _ int64, _ core.Decision) int64 { return i / 50 * 20_000_000 }},
		{text: "bursts 900/1d", span: "5d",
			next: func(i, _ int64, _ core.Decision) int64 { return i / 900 * 86_400_000_000 }},
		{text: "random 3/1s seed=7", span: "5m", next: randomly(7, 1e6/3.)},
		{text: "random 100/1d", span: "40d", next: randomly(1, 864e6)},
		{text: "eager 250ms", span: "10m", takes: 250 * time.Millisecond,
			next: func(i, _ int64, _ core.Decision) int64 { return i * 250_000 }},
		{text: "polite 50ms", span: "4m", takes: 50 * time.Millisecond,
			next: func(i, before int64, d core.Decision) int64 {
				switch {
				case i == 0:
					return 0
				case d.Allowed:
					return before + 50_000
				}
				return before + int64((d.RetryAfter+time.Second-1)/time.Second)*1_000_000
			}},
	} {
		for i, limit := range limitsOfAll {
			other := limitsOfAll[(i+3)%len(limitsOfAll)]
			got := b.show(playground.Form{Limit: limit, And: other, Requests: p.text, For: p.span})
			want := [][]string{p.figures(t, limit), p.figures(t, other)}
			if fmt.Sprint(got.Figures) != fmt.Sprint(want) {
				t.Errorf("%s for %s, %s and %s: the page says %v (%+v), want %v",
					p.text, p.span, limit, other, got.Figures, got.Faults, want)
			}
		}
	}
}

// replayed is a pattern as the page reads it, and the instants of its requests as microseconds.
type replayed struct {
	text, span string
	takes      time.Duration
	next       func(i, before int64, d core.Decision) int64
}

// randomly returns instants at distances of a Poisson process.
func randomly(seed uint64, mean float64) func(int64, int64, core.Decision) int64 {
	var dice *rand.Rand
	return func(i, before int64, _ core.Decision) int64 {
		if i == 0 {
			dice = rand.New(rand.NewPCG(seed, 0))
		}
		return before + int64(dice.ExpFloat64()*mean)
	}
}

// figures replays the pattern on a store, and returns what the table of the page has to say.
func (p replayed) figures(t *testing.T, text string) []string {
	t.Helper()
	now := playground.Start.UnixMicro()
	store, err := memstore.New(memstore.Options{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	limit := core.MustParseLimit(text)
	end := now + core.MustParseLimit("1/"+p.span).Period.Microseconds()

	apply := func(op core.Op) core.Decision {
		var out [1]core.Decision
		op.Windows = limit.Windows(now)
		if err := store.Apply(context.Background(), []core.Op{op}, out[:]); err != nil {
			t.Fatal(err)
		}
		return out[0]
	}

	// Leases end in the order in which they began, as all requests take as long.
	type ending struct {
		at int64
		op core.Op
	}
	var held []ending
	takes := p.takes
	if takes == 0 {
		takes = 100 * time.Millisecond
	}

	var admitted, refused int
	wait, first := time.Duration(0), "none"
	var d core.Decision
	before := int64(0)
	for i := int64(0); ; i++ {
		before = p.next(i, before, d)
		if playground.Start.UnixMicro()+before >= end {
			break
		}
		for at := playground.Start.UnixMicro() + before; len(held) > 0 && held[0].at <= at; held = held[1:] {
			now = held[0].at
			apply(held[0].op)
		}

		now = playground.Start.UnixMicro() + before
		op := core.Op{Key: "a", Limit: limit, Cost: 1, Lease: strconv.FormatInt(i, 10)}
		if d = apply(op); d.Allowed {
			admitted++
			if limit.Leased() {
				held = append(held, ending{now + takes.Microseconds(), op.Refund(d)})
			}
			continue
		}
		if refused++; refused == 1 {
			first = textform.Duration(time.Duration(before) * time.Microsecond)
		}
		wait = max(wait, d.RetryAfter)
	}

	longest := "none"
	if refused > 0 {
		longest = textform.Duration(wait)
	}
	return []string{strconv.Itoa(admitted + refused), strconv.Itoa(admitted), strconv.Itoa(refused), longest, first}
}

// testFaults types what cannot be read or replayed. Each has one clear fault at its field,
// and no text becomes markup.
func testFaults(t *testing.T, b board) {
	const markup = `<img src=x onerror="document.title='taken'">`
	novel := strings.Repeat("100/1m ", 150_000)
	good := playground.Form{Limit: "100/1m", Requests: "steady 1/1s", For: "10s"}

	for _, c := range []struct {
		field, text, want string
		marks             []string
	}{
		{"limit", "100/1m brust=20", `character 8: unknown word "brust=20"; the words are gcra, fixed-window, sliding-log, ` +
			`sliding-window, token-bucket, concurrent, calendar, aligned, burst=, debt=, segments=, start=, ttl= and tz=`,
			[]string{"brust=20"}},
		{"limit", "", `it is empty; write, say, "100/1m"`, nil},
		{"limit", "NaN/1m", `character 1: quota "NaN" is not a whole number`, []string{"NaN/1m"}},
		{"and", "5/500d", `character 1: period "500d" is not a number of days up to 400`, []string{"5/500d"}},
		{"and", "100/1m  gcra gcra", `character 14: a second "algorithm", "gcra"`, []string{"gcra"}},
		{"and", novel, "1050000 bytes are more than 200", nil},
		{"limit", markup, "character 1: quota \"<img\" is not a whole number\n" +
			`character 6: unknown word "src=x"; the words are gcra, fixed-window, sliding-log, ` +
			"sliding-window, token-bucket, concurrent, calendar, aligned, burst=, debt=, segments=, start=, ttl= and tz=\n" +
			`character 12: unknown word "onerror=\"document.title='taken'\">"` + "\n" +
			`character 1: "<img" has no period; write, say, "100/1m"`,
			[]string{"<img", "src=x", `onerror="document.title='taken'">`}},
		{"requests", "steady NaN/1s", `character 8: rate "NaN/1s" does not begin with a positive whole number`, []string{"NaN/1s"}},
		{"requests", "steady 5/NaN", `character 8: rate "NaN" is not a duration such as 10s, 1m or 24h, from 1ms to 400d`,
			[]string{"5/NaN"}},
		{"requests", "steady 1000000/1s", "more than 10000 requests come within 10s; ask for fewer, or a shorter time", nil},
		{"requests", "bursts 9223372036854775807/400d",
			"more than 10000 requests come within 10s; ask for fewer, or a shorter time", nil},
		{"requests", "eager 1s seed=2", `character 10: "seed=2" means nothing to eager`, []string{"seed=2"}},
		{"requests", markup, `character 1: "<img" is none of the patterns, which are steady, bursts, random, eager and polite`,
			[]string{"<img"}},
		{"for", "401d", `character 1: time "401d" is not a duration such as 10s, 1m or 24h, from 1ms to 400d`, []string{"401d"}},
		{"for", "", `time "" is not a duration such as 10s, 1m or 24h, from 1ms to 400d`, nil},
	} {
		f := good
		*map[string]*string{"limit": &f.Limit, "and": &f.And, "requests": &f.Requests, "for": &f.For}[c.field] = c.text
		got := b.show(f)
		is := got.Faults[c.field]
		if len(got.Faults) != 1 || !got.Old || is.Text != c.want || !slices.Equal(is.Marks, c.marks) {
			t.Errorf("%s %.60q: the faults are %+v, want %q and the marks %q",
				c.field, c.text, got.Faults, c.want, c.marks)
		}

		// The results are back at once with a form that can be read.
		if got = b.show(good); len(got.Faults) != 0 || got.Old || got.Figures[0][0] != "10" {
			t.Errorf("after %.60q the page is %+v", c.text, got)
		}
	}
	if title := eval[string](b.tab, `document.title + document.images.length`); title != "headgate playground1" {
		t.Errorf("the page has become %q", title)
	}

	// All four fields may be wrong at once.
	if got := b.show(playground.Form{Limit: "1", And: "2", Requests: "3", For: "4"}); len(got.Faults) != 4 {
		t.Errorf("the faults are %+v", got.Faults)
	}

	// A year of a limit is none, and the longest pattern is replayed whole.
	got := b.show(playground.Form{Limit: "9/year", And: "1000/20s sliding-log", Requests: "steady 10000/1s", For: "1s"})
	want := `[[10000 9 9991 8414h19m39.9991s 900µs] [10000 1000 9000 19.9s 100ms]]`
	if fmt.Sprint(got.Figures) != want {
		t.Errorf("the figures are %v, want %s", got.Figures, want)
	}
}

// testForm types into the form, follows an example and reads the address.
func testForm(t *testing.T, b board) {

	// The fields follow each other by the keyboard, each with a ring.
	for _, s := range []struct{ id, keys string }{
		{"limit", "5/10s"}, {"and", kb.Backspace}, {"preset", "in bursts"}, {"requests", ""}, {"for", "1m"},
	} {
		b.key("\t")
		at := eval[string](b.tab, `document.activeElement.id + " " + getComputedStyle(document.activeElement).outlineStyle`)
		if at != s.id+" solid" {
			t.Fatalf("the keyboard is at %s, want %s", at, s.id)
		}
		if s.keys != "" {
			b.key(s.keys)
		}
	}
	b.reads("Within 1m, 5/10s admits 15 of 150 requests.")

	const hash = "#limit=5/10s&and=&requests=bursts+50/20s&for=1m"
	if got := eval[string](b.tab, "location.hash"); got != hash {
		t.Errorf("the fragment is %s, want %s", got, hash)
	}

	// The address shows the same in another tab, and an example replaces it.
	other := board{b.another(), b.url}
	other.navigate(b.url + hash)
	other.reads("Within 1m, 5/10s admits 15 of 150 requests.")
	other.do(other.hit(named("Five log-ins a minute")))
	other.reads("Within 5m, 5/1m sliding-log admits")
	if got := other.read(); len(got.Sides) != 2 || len(got.Faults) != 0 {
		t.Errorf("the example shows %+v", got)
	}

	// Each example can be read.
	for _, href := range eval[[]string](other.tab, `[...document.querySelectorAll(".examples a")].map((a) => a.getAttribute("href"))`) {
		v, err := url.ParseQuery(href[1:])
		if err != nil {
			t.Fatal(err)
		}
		f := playground.Form{Limit: v.Get("limit"), And: v.Get("and"), Requests: v.Get("requests"), For: v.Get("for")}
		if got := other.show(f); len(got.Faults) != 0 || got.Figures[0][2] == "0" {
			t.Errorf("%s shows %+v", href, got)
		}
	}
	other.quiet()
}

// testFits opens the page in windows of both widths and without scripts.
func testFits(t *testing.T, b board) {
	fits := func(what string) {
		t.Helper()
		b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("details").open = true`))
		for _, wide := range []int64{360, 1280, 800} {
			b.resize(wide, 900)
			if got := eval[int64](b.tab, "document.documentElement.scrollWidth"); got != wide {
				t.Errorf("%s: the page is %d pixels wide in a window of %d", what, got, wide)
			}
		}
		b.resize(width, height)
	}

	fits("two limits")
	b.portray("playground")
	long := strings.Repeat("x", 150)
	b.show(playground.Form{Limit: "100/1m " + long, And: long, Requests: long, For: long})
	b.portray("playground-faults")
	fits("long words")
	b.show(playground.Form{Limit: "240/1h sliding-window segments=60 debt=100000000",
		And:      "1000/month tz=America/Argentina/ComodRivadavia start=15",
		Requests: "polite 1s", For: "1h"})
	b.portray("playground-long")
	fits("long limits")

	b.withoutScripts()
	b.navigate(b.url)
	b.reads("needs scripts, which are off")
	fits("without scripts")
	b.portray("playground-still")

	// The picture has loaded, and there is no form.
	got := eval[string](b.tab, `document.querySelector(".still").naturalWidth + " " + document.forms[0].hidden`)
	if got != "480 true" {
		t.Errorf("without scripts the picture is %s", got)
	}
}

// TestAccessiblePlayground has the check of accessibility look at the page with a picture, with
// faults, and without scripts.
func TestAccessiblePlayground(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	c := &checker{check: axe(t)}
	b := openBoard(t)
	b.start()
	look := func(what string) {
		t.Helper()
		for _, f := range c.look(b.tab) {
			t.Errorf("%s: %s", what, f)
		}
	}

	look("two limits")
	b.show(playground.Form{Limit: "x", And: "y", Requests: "z", For: "0"})
	look("faults")
	b.navigate("about:blank")
	b.navigate(b.url + "#limit=x")
	b.reads("is not a whole number")
	look("nothing but faults")
}
