package e2e

import (
	"flag"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/console/internal/mariadbtest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/test"
)

var screenshots = flag.String("screenshots", "", "directory to write the pictures of the documentation to")

func TestMain(m *testing.M) {
	flag.Parse()
	test.Exit(m.Run())
}

// TestJourney follows one user through the console, from the first start.
func TestJourney(t *testing.T) {
	browser := chromium(t)
	console, shop := build(t)
	databases := []struct {
		name string
		args func(*testing.T) (env, args []string)
	}{
		{"sqlite", func(t *testing.T) (env, args []string) { return nil, []string{"-data", t.TempDir()} }},
		{"mariadb", func(t *testing.T) (env, args []string) {
			test.Long(t, "it goes through the pages once more, on MariaDB")
			return []string{"HEADGATE_CONSOLE_DB=" + mariadbtest.Start(t).Database(t)}, nil
		}},
	}
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // the test mostly waits for other programs
			env, args := d.args(t)
			redis := redistest.Start(t).Addr
			j := &journey{t: t, fleet: openShops(t, shop, redis)}
			j.console = start(t, "console", console, env, append(args, "-redis", "redis://"+redis, "-listen", "127.0.0.1:0")...)
			j.tab = browse(t, browser)
			j.travel()
		})
	}
}

// journey is a user with a browser, and the programs that the browser uses.
type journey struct {
	t       *testing.T
	console *program
	fleet   *fleet
	tab     *tab
	version string // of the policies that were in force last
}

// travel takes all steps, each from the page where the one before ended.
func (j *journey) travel() {
	steps := []struct {
		name string
		do   func(*journey)
	}{
		{"the one-time password opens the console and has to be changed", (*journey).signIn},
		{"an application is added", (*journey).addApp},
		{"a policy that is created is in force at once, in all instances together", (*journey).create},
		{"the page of counts shows what happened, and both instances", (*journey).watch},
		{"a request can be tried and a key looked up", (*journey).ask},
		{"in shadow all pass and the counts say who would not", (*journey).shadow},
		{"a rollback enforces again, and forgets no count", (*journey).rollBack},
		{"who edits an old version sees both and loses nothing", (*journey).collide},
		{"the form tells mistakes while it is filled in", (*journey).mistake},
		{"policies are created and edited without JavaScript", (*journey).withoutScripts},
		{"a change can be undone, made later, and made for a time", (*journey).changeSafely},
		{"a second factor is set up, required, asked for and removed", (*journey).secondFactors},
		{"every page fits a phone", (*journey).shrink},
		{"the list of many policies is found in, sorted, kept as a filter and changed together", (*journey).list},
	}
	for _, s := range steps {
		began := time.Now()
		s.do(j)
		j.tab.quiet()
		j.t.Logf("%s: %s", s.name, time.Since(began).Round(time.Millisecond))
		if j.t.Failed() {
			j.t.Fatalf("this failed: %s", s.name)
		}
	}
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
	b.navigate(j.url("/policies"))
	b.reads("Choose a password")
	b.fill("One-time password", first)
	b.fill("New password", password)
	b.fill("New password again", password)
	b.press("Change the password")
	b.press("Policies")
	b.reads("There are no policies yet")
}

func (j *journey) addApp() {
	b := j.tab
	b.press("Applications")
	b.fill("Name", "shop")
	b.press("Add it")
	b.until("the application is listed", func() bool {
		return eval[bool](b, `document.querySelector('main a[href="/policies?app=shop"]') !== null`)
	})
}

// create makes the policy of the other steps. Its limit is exact to the request for
// as long as the test takes.
func (j *journey) create() {
	b := j.tab
	b.press("Policies")
	b.steps = 0
	b.press("Create the first policy")
	b.press("Start from nothing")
	b.fill("Name", "visitors")
	b.fill("Requests", "5")
	b.choose("Unit of the period", "hour")
	b.unfold("How requests are counted")
	b.tick("Sliding log")
	b.tick("Enforce")
	b.reads("5 requests")
	b.top()
	j.take(b, "policy")
	j.version, _ = j.fleet.follow("a new policy", func() { b.press("Create the policy") })
	j.t.Logf("to create a policy took %d fields and clicks", b.steps)
	if b.steps > 9 {
		j.t.Errorf("to create a policy took %d fields and clicks, want 9 at most", b.steps)
	}
	b.reads("visitors", "5/1h sliding-log")
	j.fleet.meets(10, 5)
}

func (j *journey) watch() {
	b := j.tab
	b.press("Traffic")
	b.shows("Passed", "5")
	b.shows("Refused", "5")
	b.reads("Published: " + j.version)
	if n := strings.Count(b.text(), "up to date"); n != len(j.fleet.shops) {
		j.t.Errorf("%d instances are up to date, want %d\n%s", n, len(j.fleet.shops), b.text())
	}
	for _, s := range j.fleet.shops {
		b.reads(s.name + "@" + s.address)
	}
}

func (j *journey) ask() {
	b := j.tab
	b.press("Try a request")
	b.press("Try it")
	b.reads("1 policy matches", "it would pass: 5 of 5 are left")
	b.fill("Caller's address", "127.0.0.1")
	b.press("Try it")
	b.reads("it is over the limit")
	j.fits(b)
	b.press("Look up this key")
	b.reads("127.0.0.1 under visitors")
	b.shows("Used", "5")
	b.shows("Left", "0 of 5")
	if got := eval[string](b, `document.querySelector("time[data-moment]").textContent`); regexp.MustCompile(`UTC|ago|second`).MatchString(got) || !strings.Contains(got, ":") {
		j.t.Errorf("the key is fresh at %q, which is no time of the reader's clock", got)
	}
	j.fits(b)
}

func (j *journey) shadow() {
	b := j.tab
	b.press("Policies")
	b.mark("visitors")
	b.press("Shadow")
	b.reads("Switch 1 policy to shadow?", "In force now: visitors. In the last 24 hours they refused 5 requests.")
	j.fleet.follow("shadow", func() { b.press("Switch them to shadow") })
	b.press("Traffic")
	eval[bool](b, `document.querySelector("#numbers > summary").click(), document.querySelector("#numbers > summary").focus(), true`)
	j.fleet.meets(10, 10)
	b.shows("Shadow", "10")
	if !eval[bool](b, `document.activeElement.matches("#numbers[open] > summary")`) {
		j.t.Error("a refresh loses the focus, or closes what was open")
	}
	if !eval[bool](b, `(times => times.length > 0 && times.every(t => / ago$|^now$/.test(t.textContent)))([...document.querySelectorAll("main time:not([data-moment])")])`) {
		j.t.Error("after a refresh the times are not those of the reader")
	}
	eval[bool](b, `document.activeElement.click(), document.activeElement.blur(), true`)
	b.prefer("dark")
	j.take(b, "traffic")
	b.prefer("light")
	b.shows("Passed", "5")
	b.shows("Refused", "5")
}

func (j *journey) rollBack() {
	b := j.tab
	b.press("Policies")
	b.press("visitors")
	b.press("History")
	b.press("Roll back to version 1")
	b.reads("Roll back visitors to version 1?", "shadow", "enforce")
	j.version, _ = j.fleet.follow("a rollback", func() { b.press("Roll back to version 1") })
	b.reads("enforce")
	j.fleet.meets(10, 0)
}

// collide has two tabs edit the same version.
func (j *journey) collide() {
	b, other := j.tab, j.tab.another()
	b.navigate(j.url("/policies/visitors/edit"))
	other.navigate(j.url("/policies/visitors/edit"))
	b.focus()
	b.fill("Requests", "8")
	j.fleet.follow("a higher limit", func() { b.press("Save the changes") })
	j.fleet.meets(10, 3)
	other.focus()
	other.fill("Description", "Nobody reads the shop to pieces")
	if status := other.press("Save the changes"); status != http.StatusConflict {
		j.t.Errorf("to save an old version has status %d, want %d", status, http.StatusConflict)
	}
	other.reads("visitors was changed in the meantime", "Before (version 3)", "Yours", "Theirs (version 4)",
		"5/1h sliding-log", "8/1h sliding-log", "Nobody reads the shop to pieces")
	other.refusedWith(http.StatusConflict)
	j.fits(other)
	j.take(other, "conflict")
	j.fleet.follow("mine on top", func() { other.press("Save mine on top of version 4") })
	other.reads("5/1h sliding-log", "Nobody reads the shop to pieces")
	other.quiet()
	j.fleet.meets(10, 0)
	b.focus()
}

func (j *journey) mistake() {
	b := j.tab
	b.navigate(j.url("/new?template=none"))
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
	b.press("Start from nothing")
	b.fill("Name", "search")
	b.fill("Path", "/products/")
	if _, n := j.fleet.follow("a policy without JavaScript", func() { b.press("Create the policy") }); n != "2" {
		j.t.Errorf("%s policies are in force, want 2", n)
	}
	b.reads("search", "100/1m")
	b.press("Edit")
	b.fill("Requests", "50")
	b.press("Preview")
	b.reads("50 requests")
	j.fleet.follow("an edit without JavaScript", func() { b.press("Save the changes") })
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
		"/policies/visitors/delete", "/policies/visitors/diff", "/scheduled", "/deleted", "/", "/tester", "/keys", "/who", "/import", "/apps", "/users", "/users/admin", "/audit", "/settings", "/account", "/account/second-factor"} {
		b.navigate(j.url(path))
		j.fits(b)
	}
	b.navigate(j.url("/policies"))
	b.resize(phoneWidth, phoneHeight)
	j.take(b, "phone")
	b.navigate(j.url("/settings")) // the last tab
	const inSight = `(() => { const r = document.querySelector(".top nav [aria-current]").getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth })()`
	if !eval[bool](b, inSight) {
		j.t.Error("on a phone the tab of the page is out of sight")
	}
	b.navigate(j.url("/policies/visitors"))
	if text := eval[string](b, `document.querySelector("time").textContent`); !strings.Contains(text, "ago") && text != "now" {
		j.t.Errorf("a time is shown as %q", text)
	}
	if title := eval[string](b, `document.querySelector("time").title`); !strings.HasSuffix(title, " UTC") || !strings.Contains(title, " · ") {
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
