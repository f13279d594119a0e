package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestFirstPolicy follows a stranger from the first start to a policy in force: from a template,
// by way of what it saw in shadow. Then a key is banned, the ban is lifted, and the policy is
// rolled back. With SQLite the stranger has a keyboard only, and with MariaDB a mouse.
func TestFirstPolicy(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	travel(t, "sqlite", []step{
		{"from the first start to a policy in force", (*journey).firstPolicy},
		{"a key is banned, the ban is lifted, and the policy is rolled back", (*journey).banAndRollBack},
		{"who is refused most is shown, reset, and gets another limit or none", (*journey).who},
		{"the form is short, on a desk and on a phone", (*journey).shortForm},
		{"the preview stays in sight, and hides no field", (*journey).previewInSight},
		{"mistakes are beside the fields and summed up above", (*journey).mistakesOfTheForm},
		{"a policy from a template without JavaScript", (*journey).templateWithoutScripts},
		{"an export restores an empty console as it is", (*journey).moveHouse},
	})
}

// These are how many clicks and fields a stranger needs at most to a policy in force, and with a
// ban, its end and a roll-back.
const mostSteps, mostOfAll = 15, 30

func (j *journey) firstPolicy() {
	b, first := j.tab, j.console.await(0, oneTime)[1]
	b.navigate(j.url("/"))
	b.steps = 0
	b.fill("Name", "admin")
	b.fill("Password", first)
	b.press("Sign in")

	b.fill("One-time password", first)
	b.fill("New password", password)
	b.fill("New password again", password)
	b.press("Change the password")

	b.turnTo("Settings", "Applications")
	b.fill("Name", "shop")
	b.press("Add it")

	b.press("New policy of shop")
	j.fits(b)
	b.press("Log-in")
	b.reads("5 POST requests within any minute to /login for each address; others are counted and pass (in shadow)")

	j.fleet.follow("a policy from a template", func() { b.press("Create in shadow") })
	b.reads("In shadow: nothing is refused yet", "It has seen no request yet.")
	j.logsIn(12, 12)

	// All pass in shadow, and the limit of five would have refused seven of them.
	b.reads("It has seen 12 requests, of which 7 (58.3%) would have been refused")
	j.logsIn(1, 1) // the page goes on to count by itself
	b.reads("It has seen 13 requests, of which 8 (61.5%) would have been refused")
	j.fits(b)
	j.take(b, "shadow")

	j.fleet.follow("Enforce now", func() { b.press("Enforce now") })
	if strings.Contains(b.text(), "In shadow") {
		j.t.Error("a policy in force is called one in shadow")
	}

	// None passes: the address has long used its five, and enforcing resets nothing.
	j.logsIn(10, 0)

	j.t.Logf("from the first start to a policy in force took %d fields and clicks", b.steps)
	if b.steps > mostSteps {
		j.t.Errorf("from the first start to a policy in force took %d fields and clicks, want %d at most",
			b.steps, mostSteps)
	}
}

// banAndRollBack goes on from the page of the policy.
func (j *journey) banAndRollBack() {
	b := j.tab
	b.press("All on Keys")
	b.fill("Key or address", "127.0.0.1")
	b.press("Show")
	b.reads("5 of 5, 0 left")

	j.act("Ban for…")
	b.press("Ban the key")
	b.reads("The key was banned.", "banned until")
	b.press("Banned")

	// The console reads bans again by itself, without which the list would stay empty.
	b.until("the ban is listed", func() bool { // by itself
		return eval[string](b, `document.querySelector("tbody th")?.textContent ?? ""`) == "127.0.0.1"
	})
	j.fits(b)

	j.act("Lift the ban…")
	b.press("Lift the ban")
	b.reads("The ban was lifted.", "No key of shop is banned under login.")

	b.press("Policies")
	b.press("login")
	b.press("All versions")
	b.press("Roll back to version 1")
	b.reads("Roll back login to version 1?", "in force", "in shadow")

	j.fleet.follow("a roll-back to shadow", func() { b.press("Roll back to version 1") })
	b.reads("In shadow: nothing is refused yet")
	j.logsIn(4, 4)

	j.t.Logf("with a ban, its end and a roll-back it took %d fields and clicks", b.steps)
	if b.steps > mostOfAll {
		j.t.Errorf("with a ban, its end and a roll-back it took %d fields and clicks, want %d at most",
			b.steps, mostOfAll)
	}
}

// logsIn tries n log-ins at the instances in turn, and checks how many of them pass.
func (j *journey) logsIn(n, pass int) {
	j.t.Helper()

	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()
	got := map[int]int{}

	for i := range n {
		r, err := client.Post("http://"+j.fleet.shops[i%len(j.fleet.shops)].address+"/login", "text/plain", nil)
		if err != nil {
			j.t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		got[r.StatusCode]++
	}

	if got[http.StatusOK] != pass || got[http.StatusTooManyRequests] != n-pass {
		j.t.Errorf("of %d log-ins these have each status: %v; want %d that pass and the others refused", n, got, pass)
	}
}

// The form of a log-in is at most this high, on a desk and on a phone.
const mostOnDesk, mostOnPhone = 1400, 2200

// shortForm measures the form of a new log-in and that of the saved one, in light and dark.
func (j *journey) shortForm() {
	b := j.tab
	for _, path := range []string{"/new?template=login&app=shop", "/policies/login/edit"} {
		for _, size := range [][2]int{{width, mostOnDesk}, {phoneWidth, mostOnPhone}} {
			for _, scheme := range []string{"dark", "light"} {
				b.prefer(scheme)
				b.resize(int64(size[0]), phoneHeight)
				b.navigate(j.url(path))

				high, wide := eval[int](b, bodyHigh), eval[int](b, `document.documentElement.scrollWidth`)
				if high > size[1] || wide > size[0] {
					j.t.Errorf("%s is %d pixels high, want %d at most, and %d wide of %d",
						path, high, size[1], wide, size[0])
				}
				if n := eval[int](b, `document.querySelectorAll(".fold[open]").length`); n != 0 {
					j.t.Errorf("%s has %d parts that are open", path, n)
				}
				b.quiet()
				j.t.Logf("%s is %d pixels high, %d wide, %s", path, high, size[0], scheme)
			}
		}
	}
	b.resize(width, height)
}

// sight is a function that says what is wrong with where the focused element and the preview are,
// or "".
const sight = `(() => {
	const at = (e) => { const r = e.getBoundingClientRect(); return { left: r.left, top: r.top, right: r.right, bottom: r.bottom }; };
	const field = document.activeElement, preview = document.getElementById("preview");
	const whole = (e) => { const r = at(e); return r.top >= -1 && r.left >= -1 && r.right <= innerWidth + 1 && r.bottom <= innerHeight + 1 && r.bottom > r.top; };
	const overlap = (a, b) => { a = at(a); b = at(b); return a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1; };
	const faults = [];
	if (!document.querySelector(".composer").contains(field)) return "";
	const second = preview.querySelector(matchMedia("(min-width: 60rem)").matches ? "img" : "summary");
	if (!whole(preview.querySelector("p")) || !whole(second)) {
		faults.push("the preview is out of sight: " + JSON.stringify([at(preview), at(second),
			at(preview.querySelector("p"))]));
	}
	if (at(field).bottom < 0 || at(field).top > innerHeight) faults.push("the field is out of sight");
	if (!preview.contains(field) && overlap(field, preview)) faults.push("the preview covers the field: " + JSON.stringify([at(field), at(preview)]));
	return faults.length ? (field.id || field.name || field.textContent.trim()) + ": " + faults.join("; ") : "";
})`

// previewInSight goes through all fields by the keyboard, in small and large windows, forwards and
// backwards. The page itself looks whenever a key is let go.
func (j *journey) previewInSight() {
	b := j.tab
	for _, size := range [][2]int64{{phoneWidth, phoneHeight}, {width, height}, {700, 500}} {
		for _, template := range []string{"", "login", "plans"} {
			b.resize(size[0], size[1])
			b.navigate(j.url("/new?template=" + template))
			eval[bool](b,
				`document.querySelectorAll(".fold").forEach((d) => { d.open = true; }),
				document.getElementById("name").focus(), true`)

			// The page looks at itself at each key, as the test would be too late to see what
			// moves.
			eval[bool](b, `window.faults = [], window.met = new Set(), document.addEventListener("keyup", () => { const fault = `+sight+`(); if (fault) faults.push(fault); met.add(document.activeElement); }), true`)

			// Forwards to the last control, and back to the first.
			b.reach(chromedp.Search(`//form//a[normalize-space()="Cancel"]`))
			b.reach(control("Name"))
			for _, fault := range eval[[]string](b, `faults`) {
				j.t.Errorf("%d × %d, template %q: %s", size[0], size[1], template, fault)
			}

			n := eval[int](b, `met.size`)
			if n < 40 {
				j.t.Errorf("the keyboard reaches %d fields", n)
			}

			if w := eval[int](b, `document.documentElement.scrollWidth`); int64(w) > size[0] {
				j.t.Errorf("the form is %d pixels wide in a window of %d", w, size[0])
			}
			j.t.Logf("%d × %d, template %q: the preview is in sight from %d fields", size[0], size[1], template, n)
		}
	}

	// The bar opens, and then has the drawing.
	b.resize(phoneWidth, phoneHeight)
	b.navigate(j.url("/new?template=login"))
	b.unfold("Preview")
	b.until("the drawing is in sight", func() bool {
		return eval[bool](b, `(() => {
			const r = document.querySelector("#preview img").getBoundingClientRect();
			return r.height > 50 && r.top >= 0 && r.bottom <= innerHeight;
		})()`)
	})
	b.resize(width, height)
}

// mistakesOfTheForm changes fields at the end of the form on a phone, with their mistakes.
func (j *journey) mistakesOfTheForm() {
	b := j.tab

	b.resize(phoneWidth, phoneHeight)
	b.navigate(j.url("/new?app=shop"))
	b.fill("Requests", "7")
	b.reads("7 requests a minute for each address")
	j.take(b, "form-phone")

	if fault := eval[string](b, sight+"()"); fault != "" {
		j.t.Error(fault)
	}

	b.fill("Period", "0")
	b.until("the mistake is beside the field", func() bool {
		text := eval[string](b, `document.getElementById("period-error").textContent`)
		return text == "0 is too small; write 1 or more"
	})
	b.reads("Still to fill in: Name, Period")

	// The unit is a plural but for one, also while the number is wrong.
	b.until("the unit agrees", func() bool {
		return eval[string](b, `document.querySelector("[name=unit]").selectedOptions[0].text`) == "minutes"
	})

	if status := b.press("Create in shadow"); status != http.StatusUnprocessableEntity {
		j.t.Errorf("the form with mistakes has status %d", status)
	}
	b.refusedWith(http.StatusUnprocessableEntity)
	b.reads("There are 2 mistakes, and nothing was saved")

	// Who does not see the page learns from the focus that nothing was saved.
	if got := eval[string](b, `document.activeElement.getAttribute("role")`); got != "alert" {
		j.t.Errorf("the focus is on %q and not on the summary", got)
	}

	b.do(b.hit(chromedp.Search(`//*[@role="alert"]//a[normalize-space()="Period"]`)))
	b.until("the link leads to the field", func() bool {
		return eval[bool](b, `(() => {
			const r = document.getElementById("period").getBoundingClientRect();
			const p = document.getElementById("preview").getBoundingClientRect();
			return r.top >= 0 && r.bottom <= p.top;
		})()`)
	})

	b.fill("Period", "1")
	b.fill("Name", "seven")
	b.until("the mistakes go away", func() bool {
		return eval[string](b, `document.getElementById("period-error").textContent + document.getElementById("name-error").textContent`) == ""
	})

	// A part says on its line what was filled in, and the bar of the preview stays as it is.
	b.unfold("+ ban callers who go on")
	b.fill("Ban after", "20")
	b.until("the line of the ban says so", func() bool {
		return eval[string](b, `document.querySelector("#banning .has")?.textContent ?? ""`) ==
			"Ban after 20 refusals in 1m for 10m, up to 24h"
	})
	if eval[bool](b, `document.querySelector("#preview details").open`) {
		j.t.Error("the bar of the preview has opened by itself")
	}

	if text := eval[string](b, `document.querySelector("[name=unit]").selectedOptions[0].text`); text != "minute" {
		j.t.Errorf("the unit of 1 is %q", text)
	}
	b.resize(width, height)
}

// moveHouse exports the policies, and imports them into another console, which is empty.
func (j *journey) moveHouse() {
	b := j.tab
	b.navigate(j.url("/import"))

	name, file := b.download("Export as JSON")
	if name != "policies.json" || strings.Count(file, `"name":`) != 2 {
		j.t.Errorf("%s has the policies %s", name, file)
	}

	j.console = j.open(j.t).serve(j.binary, "-redis", "redis://"+redistest.Start(j.t).Addr)
	b.navigate("about:blank") // the page of a console asks for news, for which the session would not do
	j.signIn()

	b.turnTo("Settings", "Import and export")
	eval[bool](b, fmt.Sprintf(`document.getElementById("data").value = %q, true`, file))

	b.choose("Format", "JSON")
	b.press("Show what would change")
	b.reads("It adds the applications shop.", "Created 2", "Deleted 0")
	b.press("Do it")
	b.turnTo("Settings", "Import and export")

	// The times of the copy are its own.
	_, again := b.download("Export as JSON")
	own := regexp.MustCompile(`"(created|updated)_at": "[^"]*"`)
	if own.ReplaceAllString(again, "") != own.ReplaceAllString(file, "") {
		j.t.Errorf("the policies\n%s\nbecame\n%s", file, again)
	}

	b.press("Policies")
	b.press("login")
	b.press("All versions")
	b.reads("import by admin")
}

func (j *journey) templateWithoutScripts() {
	b := j.tab.another()
	b.withoutScripts()
	b.focus()
	b.navigate(j.url("/policies"))
	b.press("New policy")
	b.press("Expensive report")
	b.press("Preview")
	b.reads("2 requests at a time to /reports/ for each address")
	j.fleet.follow("a template without JavaScript", func() { b.press("Create in shadow") })
	b.reads("In shadow: nothing is refused yet")

	j.fleet.follow("Enforce now without JavaScript", func() { b.press("Enforce now") })
	if strings.Contains(b.text(), "In shadow") {
		j.t.Error("the policy is still in shadow")
	}

	// The menu of the mode is a form as well.
	j.fleet.follow("back to shadow without JavaScript", func() { b.switchTo("In shadow", "") })
	b.reads("The mode was changed.", "Mode: in shadow")

	b.quiet()
	j.tab.focus()
}
