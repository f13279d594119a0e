package e2e

import (
	"encoding/csv"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
)

var screenshots = flag.String("screenshots", "", "directory to write the pictures of the documentation to")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	programs.maria.Close()
	os.RemoveAll(programs.dir)
	test.Exit(code, test.SentinelLeak()...)
}

// journey is a user with a browser, and the programs that the browser uses.
type journey struct {
	t       *testing.T
	binary  string                     // of the console
	open    func(*testing.T) *database // that is empty
	console *program
	redis   *redistest.Server
	fleet   *fleet
	tab     *tab
	version string // of the policies that were in force last
	hooks   *receiver
	callers callers
}

// step is a part of a journey, which begins on the page where the one before ended.
type step struct {
	name string
	do   func(*journey)
}

// travel takes the steps on each engine. The user of the one that is named has a keyboard only,
// and the other one a mouse.
func travel(t *testing.T, keyboard string, steps []step) {
	browser := chromium(t)
	console, shop := build(t)
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel() // the test mostly waits for other programs

			d := e.open(t)
			j := &journey{t: t, binary: console, open: e.open, redis: redistest.Start(t, permitted(t)...)}
			j.fleet = openShops(t, shop, j.redis.Addr)
			j.console = d.serve(console, "-redis", "redis://console:password@"+j.redis.Addr,
				"-webhook-allow", "127.0.0.0/8")

			j.tab = browse(t, browser)
			j.tab.keyboard = e.name == keyboard

			for _, s := range steps {
				j.walk(s)
			}

			// Last, because a permission that is missing shows only once a step has needed it.
			j.deniedNothing()
		})
	}
}

// permitted returns arguments of a redis-server by which the user console has the permissions that
// docs/redis.md lists for the management page, and no others.
func permitted(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^    (\+eval [^~]*)(~\S+ &\S+)\n`).FindStringSubmatch(string(text))
	more := regexp.MustCompile("(?m)^The management page, .* `(.*)`").FindStringSubmatch(string(text))
	if all == nil || more == nil {
		t.Fatal("docs/redis.md lists no permissions")
	}
	return slices.Concat([]string{"--user", "console", "on", ">password"}, strings.Fields(all[1]),
		strings.Fields(more[1]), strings.Fields(all[2]))
}

// deniedNothing checks that the console's user in Redis had all permissions that it needed.
func (j *journey) deniedNothing() {
	client := redis.NewClient(&redis.Options{Addr: j.redis.Addr})
	defer client.Close()
	if denied, err := client.Do(j.t.Context(), "ACL", "LOG").Slice(); err != nil || len(denied) != 0 {
		j.t.Errorf("Redis denied %v, %v", denied, err)
	}
}

// walk takes a step.
func (j *journey) walk(s step) {
	began := time.Now()
	s.do(j)
	j.tab.quiet()
	j.t.Logf("%s: %s", s.name, time.Since(began).Round(time.Millisecond))
	if j.t.Failed() {
		j.t.Fatalf("this failed: %s", s.name)
	}
}

// TestJourney follows one user through the console, from the first start: by the mouse with
// SQLite, and by the keyboard with MariaDB.
func TestJourney(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	travel(t, "mariadb", []step{
		{"the one-time password opens the console and has to be changed", (*journey).signIn},
		{"an application is added", (*journey).addApp},
		{"a policy that is created is in force at once, in all instances together", (*journey).create},
		{"the page of counts shows what happened, and both instances", (*journey).watch},
		{"the page of a policy shows its own counts, and in how many instances it is in force", (*journey).watchPolicy},
		{"a request can be tried and a key looked up", (*journey).ask},
		{"in shadow all pass and the counts say who would not", (*journey).shadow},
		{"a rollback enforces again, and forgets no count", (*journey).rollBack},
		{"the history has comments, and compares versions", (*journey).compare},
		{"who edits an old version sees both and loses nothing", (*journey).collide},
		{"a webhook is added, and gets a test message", (*journey).addWebhook},
		{"the form tells mistakes while it is filled in", (*journey).mistake},
		{"policies are created and edited without JavaScript", (*journey).withoutScripts},
		{"a change can be undone, and is asked about if it takes protection away", (*journey).changeSafely},
		{"a policy is off for some hours, and then stays so", (*journey).pause},
		{"a policy is deleted and restored", (*journey).restore},
		{"a second factor is set up, required, asked for and removed", (*journey).secondFactors},
		{"a token serves a program that applies files, until it is revoked", (*journey).tokens},
		{"sessions and tokens end, and a backup is downloaded", (*journey).account},
		{"the audit log is filtered and exported", (*journey).audit},
		{"every page fits a phone", (*journey).shrink},
		{"the list of many policies is found in, sorted and changed together", (*journey).list},
		{"the webhook was told what was refused", (*journey).alerted},
		{"while Redis is away a banner says so, and afterwards the change is in force", (*journey).withoutRedis},
	})
}

func (j *journey) url(path string) string { return "http://" + j.console.address + path }

var oneTime = regexp.MustCompile(`^      ([a-z2-7]{26})$`)

const password = "seven green canals in winter"

func (j *journey) signIn() {
	first := j.console.await(0, oneTime)[1]
	b := j.tab
	b.navigate(j.url("/"))
	b.fill("Name", "admin")
	b.fill("Password", first)
	b.press("Sign in")
	b.reads("Choose a password")

	// No other page opens before the password is changed.
	b.navigate(j.url("/policies"))
	b.reads("Choose a password")

	b.fill("One-time password", first)
	b.fill("New password", password)
	b.fill("New password again", password)
	b.press("Change the password")

	b.press("Policies")
	b.reads("No application yet.")
}

func (j *journey) addApp() { j.addAppCalled("shop") }

func (j *journey) addAppCalled(name string) {
	b := j.tab
	b.turnTo("Settings", "Applications")
	b.fill("Name", name)
	b.press("Add it")
	b.reads("The application was added.", "New policy of "+name)
}

// create makes the policy of the other steps. Its limit is exact to the request for
// as long as the test takes.
func (j *journey) create() {
	b := j.tab
	b.press("Policies")
	b.steps = 0
	b.press("Create the first")

	b.fill("Name", "visitors")
	b.fill("Requests", "5")
	b.choose("Unit of the period", "hour")
	b.unfold("+ burst, debt, exact window, calendar, at the same time")
	b.tick("Sliding log")
	b.tick("in force")

	// The picture has the beginning of the form, so the tab scrolls there.
	b.reads("5 requests")
	b.top()
	j.take(b, "policy")

	j.version, _ = j.fleet.follow("a new policy", func() { b.press("Create in force") })
	j.t.Logf("to create a policy took %d fields and clicks", b.steps)

	// A ninth step would be one more for each policy that anybody ever creates.
	if b.steps > 8 {
		j.t.Errorf("to create a policy took %d fields and clicks, want 8 at most", b.steps)
	}

	// Of ten requests the limit of five lets five pass, whichever instance they come to.
	b.reads("visitors", "5/1h sliding-log")
	j.fleet.meets(10, 5)
}

func (j *journey) watch() {
	b := j.tab

	b.press("Traffic")
	b.shows("Passed", "5")
	b.shows("Refused", "5")

	b.unfold("2 of 2 in force · all clocks right · all ask Redis")
	b.reads("Published: " + j.version)
	if n := strings.Count(b.text(), "up to date"); n != len(j.fleet.shops) {
		j.t.Errorf("%d instances are up to date, want %d\n%s", n, len(j.fleet.shops), b.text())
	}

	for _, s := range j.fleet.shops {
		row := eval[string](b, fmt.Sprintf(`[...document.querySelectorAll("#fleet tbody tr")].map((row) => row.innerText.replace(/\s+/g, " ").trim()).find((text) => text.startsWith(%q))`, s.name+"@"+s.address))
		if !strings.HasSuffix(row, " shop "+j.version+" right Redis up to date") {
			j.t.Errorf("an instance has the row %q", row)
		}
	}

	j.tellApart()
	j.leaveOut()
	j.exact()

	// The bars of each range are of another length, and all of them have
	// the same ten requests.
	for _, r := range []struct{ words, step string }{
		{"15 minutes", "10 seconds"}, {"6 hours", "5 minutes"}, {"24 hours", "30 minutes"}, {"7 days", "3 hours"},
		{"30 days", "12 hours"}, {"1 hour", "a minute"},
	} {
		b.press(r.words)
		if here := eval[string](b, `document.querySelector(".ranges [aria-current]").textContent`); here != r.words {
			j.t.Errorf("the range is %q, want %s", here, r.words)
		}
		b.reads("each step is " + r.step)
		b.shows("Refused", "5")
	}
}

// tellApart checks that the kinds of requests have different colours, and different patterns when
// the reader chooses them.
func (j *journey) tellApart() {
	j.t.Helper()
	b := j.tab

	const fills = `[...document.querySelectorAll(".patterns pattern")].map((p) =>
		p.getAttribute("patternTransform") + [...p.children]
			.filter((shape) => getComputedStyle(shape).display !== "none")
			.map((shape) => shape.outerHTML).join(""))`

	// Without a choice the areas are solid.
	plain := eval[[]string](b, fills)
	b.press("With patterns")
	b.reads("Without patterns")
	patterns := eval[[]string](b, fills)

	// The style sheet has the colours, so they are read as computed.
	inks := eval[[]string](b,
		`[...document.querySelectorAll(".patterns .ink")].map((ink) => getComputedStyle(ink).fill)`)
	for _, list := range [][]string{patterns, inks} {
		different := map[string]bool{}
		for _, s := range list {
			different[s] = true
		}
		if len(list) != 7 || len(different) != len(list) {
			j.t.Errorf("the kinds are drawn as %q", list)
		}
	}
	if strings.Contains(strings.Join(plain, ""), "gap") {
		j.t.Errorf("without patterns the areas are %q", plain)
	}

	b.press("Without patterns")
	b.reads("With patterns")
}

// leaveOut leaves a series out of the chart by a click, and shows it again.
func (j *journey) leaveOut() {
	j.t.Helper()
	b := j.tab
	areas := func(want string) {
		b.until("the chart has "+want, func() bool {
			const drawn = `[...document.querySelectorAll(".area")].map((a) => a.getAttribute("fill")).join(" ")`
			return eval[string](b, drawn) == want
		})
	}

	// What is left out is so in the address, and not in the sums of the legend.
	areas("url(#k-refused) url(#k-passed)")
	b.do(b.hit(named("Passed 5: leave it out")))
	areas("url(#k-refused)")
	if at := eval[string](b, `location.search`); !strings.Contains(at, "without=passed") {
		j.t.Errorf("the address is %q", at)
	}
	b.shows("Passed", "5")
	b.do(b.hit(named("Passed 5, left out: show it")))
	areas("url(#k-refused) url(#k-passed)")
}

// exact checks the numbers of the bars, which add up to five requests that passed and five that
// were refused.
func (j *journey) exact() {
	j.t.Helper()

	// A page that is renewed meanwhile may have a bar without its row for a moment.
	b := j.tab
	b.until("the bars have the numbers of the ten requests", func() bool {
		const open = `document.getElementById("numbers").open`
		if b.keyboard && !eval[bool](b, open) {
			b.unfold("The numbers, by a minute")
			return false
		}

		// Requests may fall into two minutes, so only the sum is certain.
		sum := map[string]int{}
		for _, minute := range eval[[]string](b,
			`[...document.querySelectorAll(".bars i")].filter((bar) => /\d/.test(bar.dataset.n)).
				map((bar) => bar.id.replace("bar-", ""))`) {
			for kind, n := range j.numbers(minute) {
				sum[kind] += n
			}
		}
		return sum["Passed"] == 5 && sum["Refused"] == 5
	})
}

// numbers returns the numbers of a minute that are in sight: those beside its bar, on which the
// mouse is, and with the keyboard those of the table.
func (j *journey) numbers(minute string) map[string]int {
	j.t.Helper()

	b := j.tab
	if b.keyboard {
		return eval[map[string]int](b, fmt.Sprintf(`((row) => Object.fromEntries(
			[...document.querySelectorAll("#numbers thead th")].flatMap((head, i) => row?.checkVisibility() && i > 1
				? [[head.textContent, Number(row.children[i].textContent)]] : [])
		))(document.getElementById("row-%s"))`, minute))
	}

	var list map[string]int
	// The bar moves on at the end of a minute, so the mouse follows it.
	b.until("the numbers of the bar below the mouse are in sight", func() bool {
		at := eval[[2]float64](b, fmt.Sprintf(`((r) => [r.left + r.width / 2, r.bottom - 5])(
			document.getElementById("bar-%s").getBoundingClientRect())`, minute))
		b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))

		list = eval[map[string]int](b, `Object.fromEntries(
			[...document.querySelectorAll(".tip b")].flatMap((n) => n.checkVisibility()
				? [[n.parentElement.innerText.match(/[A-Z][a-z]+/)[0], Number(n.textContent)]] : [])
		)`)
		return len(list) > 0
	})
	return list
}

// watchPolicy looks at the counts of a policy, and follows the mark of its change.
func (j *journey) watchPolicy() {
	b := j.tab
	if name, text := b.download("Download CSV"); name != "traffic.csv" {
		j.t.Errorf("the file is called %q", name)
	} else {
		j.counted(text, "requests ", 5, 5)
		j.counted(text, "decisions visitors", 5, 5)
	}

	mark := eval[string](b, `document.querySelector(".lane a title").textContent`)
	if !strings.HasSuffix(mark, " UTC: create of visitors to version 1 by admin") {
		j.t.Errorf("the mark says %q", mark)
	}

	// The mark leads to the history, and the history back to the policy.
	b.press(mark)
	b.reads("History of visitors")
	b.press("visitors")
	b.reads("in 2 of 2 instances", "Passed 5", "Refused 5", "Share refused 50.0%")
	j.green(b)

	// The order of the parts is what a reader meets first: what happens, then what is set.
	got := eval[string](b, `[...document.querySelectorAll("#chart, main h2, img.drawing")].map((e) =>
		e.id === "chart" || e.complete && e.naturalWidth ? e.id || e.alt : e.textContent).join("; ")`)
	if !strings.HasPrefix(got, "Decisions a second; chart; Refused most; Definition; History; "+
		"What it lets through; Drawing of what 5/1h sliding-log lets through over time") {
		j.t.Errorf("the page of a policy has the parts %q", got)
	}

	b.press("15 minutes")
	b.reads("in 2 of 2 instances", "Passed 5", "Refused 5")
	_, text := b.download("download CSV")
	j.counted(text, "decisions visitors", 5, 5)
}

// green waits until the page of a policy says in green that all instances have it in force.
func (j *journey) green(b *tab) {
	j.t.Helper()
	b.until("the policy is in force in green", func() bool {
		const green = `document.querySelector("#force .mode.enforce")?.textContent ?? ""`
		return eval[string](b, green) == "in 2 of 2 instances"
	})
}

// counted checks what the rows of a file of counts add up to for a series.
func (j *journey) counted(file, series string, allowed, refused int) {
	j.t.Helper()

	rows, err := csv.NewReader(strings.NewReader(file)).ReadAll()
	if err != nil || len(rows) == 0 {
		j.t.Fatalf("%v: %q", err, file)
	}

	column := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	sum := map[string]int{}
	for _, row := range rows[1:] {
		if column(row, "counted")+" "+column(row, "policy") != series {
			continue
		}
		for _, name := range []string{"allowed", "refused"} {
			n, err := strconv.Atoi(column(row, name))
			if err != nil {
				j.t.Fatal(err)
			}
			sum[name] += n
		}
	}

	if sum["allowed"] != allowed || sum["refused"] != refused {
		j.t.Errorf("the file has %d %s allowed and %d refused, want %d and %d:\n%s", sum["allowed"], series,
			sum["refused"], allowed, refused, file)
	}
}

func (j *journey) ask() {
	b := j.tab

	b.press("Keys")
	b.reads("in 2 instances")

	// The reader's clock is meant, and not a span of time. The server writes the year first.
	got := eval[string](b, `document.querySelector("time[data-moment]").textContent`)
	if !regexp.MustCompile(`^(\d+ \w{3,4}(\d{4})?, )?\d\d:\d\d$`).MatchString(got) {
		j.t.Errorf("the counts are from %q, which is no time of the reader's clock", got)
	}

	b.press("One key")
	b.press("Try it")
	b.reads("It would pass. 1 policy matches", "passes: 5 of 5 left")

	// The instances have used up the five of this address; the first try was of another.
	b.fill("Caller's address", "127.0.0.1")
	b.press("Try it")
	b.reads("It would be refused, by visitors.", "over the limit for")
	j.fits(b)

	b.press("127.0.0.1")
	b.reads("5 of 5, 0 left")
	j.fits(b)
}

func (j *journey) shadow() {
	b := j.tab

	b.press("Policies")
	b.mark("visitors")
	b.press("Put in shadow")
	b.reads("Put 1 policy in shadow?", "In force now: visitors. In the last 24 hours they refused 5 requests.")
	j.fleet.follow("shadow", func() { b.press("Put them in shadow") })

	b.press("Traffic")
	b.unfold("The numbers, by a minute")

	// What the user has in view must stay where it is when the page refreshes its counts.
	const place = `Math.round(document.activeElement.getBoundingClientRect().top)`
	before := eval[int](b, `scrollTo(0, 300), `+place)

	// All ten pass although the five of the limit are used: in shadow nothing is refused.
	j.fleet.meets(10, 10)
	b.shows("Shadow", "10")

	if now := eval[int](b, place); now != before {
		j.t.Errorf("a refresh scrolls from %d to %d", before, now)
	}

	if !eval[bool](b, `document.activeElement.matches("#numbers[open] > summary")`) {
		j.t.Error("a refresh loses the focus, or closes what was open")
	}

	if !eval[bool](b, `(times => times.length > 0 && times.every(t => / ago$|^now$/.test(t.textContent)))(
		[...document.querySelectorAll("main time:not([data-moment], [data-hour])")])`) {
		j.t.Error("after a refresh the times are not those of the reader")
	}

	b.unfold("The numbers, by a minute")
	eval[bool](b, `document.activeElement.blur(), true`) // the picture has no focus ring
	b.prefer("dark")
	j.take(b, "traffic")
	b.prefer("light")

	// The counts from before the shadow are still there.
	b.shows("Passed", "5")
	b.shows("Refused", "5")
}

func (j *journey) rollBack() {
	b := j.tab
	b.press("Policies")
	b.press("visitors")
	b.press("All versions")
	b.press("Roll back to version 1")
	b.reads("Roll back visitors to version 1?", "in shadow", "in force")
	b.fill("Comment", "the night is over")
	j.version, _ = j.fleet.follow("a rollback", func() { b.press("Roll back to version 1") })
	b.reads("The policy was rolled back.", "in force")
	j.fleet.meets(10, 0)
}

// compare looks at the history and at what two versions differ in.
func (j *journey) compare() {
	b := j.tab
	b.press("All versions")
	steps := eval[string](b, `[...document.querySelectorAll(".history > li")].map((step) => [...step.querySelectorAll("h2, .by > strong, .comment, td, tbody th")].map((e) => e.textContent.trim()).join(" ")).join("\n")`)
	want := "Version 3 newest admin the night is over Mode in shadow in force\n" +
		"Version 2 admin Mode in force in shadow\nVersion 1 admin "
	if !strings.HasPrefix(steps, want) {
		j.t.Errorf("the history is\n%s\nwant\n%s…", steps, want)
	}

	b.fill("Compare version", "1")
	b.fill("with version", "2")
	b.press("Compare")
	b.reads("Compare versions of visitors")
	got := eval[string](b, `document.querySelector(".diff").innerText.replace(/\s+/g, " ").trim()`)
	if got != "Field Before After Mode in force in shadow" {
		j.t.Errorf("versions 1 and 2 differ in %q", got)
	}

	// Version 3 is the roll-back to version 1, so these two are the same.
	b.fill("with version", "3")
	b.press("Compare")
	b.reads("Nothing differs.")
}

// collide has two tabs edit the same version.
func (j *journey) collide() {
	b, other := j.tab, j.tab.another()
	b.navigate(j.url("/policies/visitors/edit"))
	other.navigate(j.url("/policies/visitors/edit"))

	// The first tab saves version 4, while the other still has version 3 in its form.
	b.focus()
	b.fill("Requests", "8")
	j.fleet.follow("a higher limit", func() { b.press("Save") })

	// Five of eight were used, so three are left.
	j.fleet.meets(10, 3)

	// A save on top of version 4 is refused, and both texts are shown.
	other.focus()
	other.unfold("+ description")
	other.fill("Description", "Nobody reads the shop to pieces")
	if status := other.press("Save"); status != http.StatusConflict {
		j.t.Errorf("to save an old version has status %d, want %d", status, http.StatusConflict)
	}
	other.reads("visitors was changed in the meantime", "Before (version 3)", "Yours", "Theirs (version 4)",
		"5/1h sliding-log", "8/1h sliding-log", "Nobody reads the shop to pieces")

	other.refusedWith(http.StatusConflict)
	j.fits(other)
	j.take(other, "conflict")

	// The limit of the other tab is 5 again, and was used up.
	j.fleet.follow("mine on top", func() { other.press("Save mine on top of version 4") })
	other.reads("5/1h sliding-log", "Nobody reads the shop to pieces")
	other.quiet()
	j.fleet.meets(10, 0)

	b.focus()
}

func (j *journey) mistake() {
	b := j.tab
	b.navigate(j.url("/new"))
	b.fill("Requests", "many")
	b.reads("is not a whole number")
	b.fill("Requests", "7")
	b.until("the mistake goes away", func() bool { return !strings.Contains(b.text(), "is not a whole number") })
	b.reads("7/1m")
}

func (j *journey) withoutScripts() {
	b := j.tab.another()

	b.withoutScripts()
	b.focus()
	b.navigate(j.url("/policies"))

	b.press("New policy")
	b.fill("Name", "search")
	b.fill("Path", "/products/")

	if _, n := j.fleet.follow("a policy without JavaScript", func() { b.press("Create in shadow") }); n != "2" {
		j.t.Errorf("%s policies are in force, want 2", n)
	}
	b.reads("search", "100/1m")

	b.press("Edit")
	b.fill("Requests", "50")
	b.press("Preview")
	b.reads("50 requests")
	j.fleet.follow("an edit without JavaScript", func() { b.press("Save") })
	b.reads("50/1m")

	b.press("Traffic")
	b.reads("Refresh every 5 seconds") // which a script would hide
	b.quiet()
	j.tab.focus()
}

// shrink checks every page at the size of a phone.
func (j *journey) shrink() {
	b := j.tab

	for _, path := range []string{"/policies", "/new", "/new?template=plans", "/policies/visitors", "/policies/visitors/edit", "/policies/visitors/history",
		"/policies/visitors/delete", "/policies/visitors/diff", "/deleted", "/", "/keys", "/keys?view=banned",
		"/keys?view=one", "/import", "/apps", "/users", "/users/admin", "/audit", "/settings", "/account",
		"/account/second-factor"} {
		b.navigate(j.url(path))
		j.fits(b)
	}

	b.navigate(j.url("/policies"))
	b.resize(phoneWidth, phoneHeight)
	eval[bool](b, `document.getElementById("count").scrollIntoView(), true`)
	j.take(b, "phone")

	// The navigation is a bar at the bottom of a phone.
	b.navigate(j.url("/settings"))
	const bar = `JSON.stringify([...document.querySelectorAll(".groups a")].map((a) => {
		const r = a.getBoundingClientRect();
		return [a.textContent.trim(), Math.round(r.width), r.left >= 0 && r.right <= innerWidth && r.bottom === innerHeight];
	}))`
	if got, want := eval[string](b, bar), `[["Traffic",72,true],["Policies",72,true],["Keys",72,true],`+
		`["Activity",72,true],["Settings",72,true]]`; got != want {
		j.t.Errorf("the bar of a phone is %s, want %s", got, want)
	}

	// The text of a time is a span, and its title has the instant.
	b.navigate(j.url("/policies/visitors"))
	const span = `document.querySelector("main time:not([data-moment], [data-hour])")`
	text := eval[string](b, span+`.textContent`)
	if !strings.Contains(text, "ago") && text != "now" {
		j.t.Errorf("a time is shown as %q", text)
	}
	if title := eval[string](b, span+`.title`); !strings.HasSuffix(title, " UTC") ||
		!strings.Contains(title, " · ") {
		j.t.Errorf("the title of a time is %q", title)
	}

	b.resize(width, height)
}

// The window of a small phone.
const phoneWidth, phoneHeight = 360, 740

// fits checks that the page fits the width of a phone.
func (j *journey) fits(b *tab) {
	j.t.Helper()
	b.resize(phoneWidth, phoneHeight)
	if w := eval[int](b, `document.documentElement.scrollWidth`); w > phoneWidth {
		j.t.Errorf("%s is %d pixels wide on a phone of %d", eval[string](b, `location.pathname`), w, phoneWidth)
	}
	b.resize(width, height)
}
