package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// TestNavigation finds its way by the mouse, by the keyboard alone, on a phone and without scripts:
// the application is chosen once, and a search leads to policies and keys.
func TestNavigation(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	browser := chromium(t)
	console, _ := build(t)
	w := display(t, console)
	first := browse(t, browser)

	for name, keyboard := range map[string]bool{"mouse": false, "keyboard": true} {
		t.Run(name, func(t *testing.T) {
			b := first.apart(t)
			b.keyboard = keyboard
			b.signedIn(w, "admin")
			b.navigate(w.front.url + "/")
			b.wander(w)
			b.quiet()
		})
	}

	for _, scheme := range []string{"light", "dark"} {
		t.Run("phone, "+scheme, func(t *testing.T) {
			b := first.apart(t)
			b.signedIn(w, "vic")
			b.prefer(scheme)
			b.resize(phoneWidth, phoneHeight)
			b.onPhone(w)
			b.quiet()
		})
	}

	t.Run("without scripts", func(t *testing.T) {
		b := first.apart(t)
		b.signedIn(w, "admin")
		b.withoutScripts()
		b.navigate(w.front.url + "/policies")
		b.chooses("All applications", "partners")
		b.goTo(`//*[@id="find"]`)
		b.key("login" + kb.Enter)
		b.reads("POST /login")
		b.press("login")
		b.reads("Times are in UTC.")
		b.at("/policies/login")
	})
}

// at checks where the tab is.
func (b *tab) at(path string) {
	b.t.Helper()
	const address = `location.pathname + location.search`
	b.until("the tab is at "+path, func() bool { return eval[string](b, address) == path })
}

// chooses opens the menu of applications, in which one is chosen, and chooses another.
func (b *tab) chooses(now, app string) {
	b.t.Helper()
	b.unfold("Application: " + now)
	b.press(app)
	b.until("the head has "+app, func() bool {
		return eval[string](b, `document.querySelector(".apps .name").textContent`) == app
	})
}

// listed returns the policies of the list.
func (b *tab) listed() string {
	b.t.Helper()
	return eval[string](b, `[...document.querySelectorAll("tbody tr")].map((row) => row.id).join(" ")`)
}

// wander goes through the groups, chooses applications and searches.
func (b *tab) wander(w *scene) {
	b.t.Helper()
	b.turnTo("Activity", "Audit log")
	b.at("/audit")
	b.turnTo("Settings", "Users")
	b.at("/users")

	// The choice stays on the way to other pages, and an address that names another one wins.
	b.press("Policies")
	b.chooses("All applications", "partners")
	b.press("Traffic")
	b.press("Policies")
	if got := b.listed(); got != "policy-partner-quota policy-public-api" {
		b.t.Errorf("the list of partners has %s", got)
	}
	b.navigate(w.front.url + "/policies?app=shop")
	if got := b.listed(); strings.Contains(got, "partner-quota") || !strings.Contains(got, "policy-login") {
		b.t.Errorf("the list of the shop has %s", got)
	}

	// A key that is typed elsewhere is no search, and Escape leaves the search.
	const focused = `document.activeElement.id`
	b.key("/")
	if got := eval[string](b, focused); got != "find" {
		b.t.Fatalf("the key / leads to %q", got)
	}
	b.key("partner-q")
	hits := func() string {
		return eval[string](b, `[...document.querySelectorAll("#hits:not([hidden]) a")].map((a) => a.textContent).join(", ")`)
	}
	b.until("the search finds a policy", func() bool { return hits() == "partner-quota, Look up the key partner-q" })
	b.key(kb.Escape)
	if got := eval[string](b, focused); got != "" || hits() != "" {
		b.t.Errorf("after Escape the focus is on %q, and the search shows %q", got, hits())
	}

	b.key("/")
	b.until("what was found is shown again", func() bool { return hits() != "" })
	b.key(kb.ArrowDown)
	b.loads(struck(kb.Enter))
	b.at("/policies/partner-quota")
	b.reads("each API key")

	b.key("/")
	b.key("a/b")
	b.until("the text is offered as a key", func() bool { return hits() == "Look up the key a/b" })
	b.key(kb.ArrowUp)
	b.loads(struck(kb.Enter))
	b.at("/keys?key=a%2Fb")

	// A menu closes at Escape.
	b.unfold("Application: shop")
	b.key(kb.Escape)
	if eval[bool](b, `!!document.querySelector(".menu[open]")`) {
		b.t.Error("Escape does not close the menu")
	}
}

// onPhone presses each button of the bar at the bottom.
func (b *tab) onPhone(w *scene) {
	b.t.Helper()
	b.navigate(w.front.url + "/")
	for name, path := range map[string]string{"Traffic": "/", "Policies": "/policies", "Keys": "/keys",
		"Activity": "/alerts", "Settings": "/apps"} {
		b.press(name)
		b.at(path)
		if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > phoneWidth {
			b.t.Errorf("%s is %d pixels wide", path, wide)
		}
		const foot = `Math.round(document.querySelector(".groups").getBoundingClientRect().bottom) === innerHeight`
		if !eval[bool](b, foot) {
			b.t.Errorf("%s: the bar is not at the bottom", path)
		}
	}
	b.press("Search")
	b.fill("A policy, a path or a key", "login")
	b.press("Search")
}
