package e2e

import (
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// who goes on from a policy in shadow that has seen 27 log-ins, of which 22 were refused or would
// have been, and 5 admitted. It enforces the policy again, for an hour so that no request is too
// old to count while the test goes on.
func (j *journey) who() {
	b := j.tab

	// An hour, so that no unit comes back while the test runs.
	b.press("Edit")
	b.choose("Unit of the period", "hour")
	b.tick("in force")
	j.fleet.follow("an hour", func() { b.press("Save") })

	b.press("Keys")
	b.reads("No key of shop is banned now.", "in 2 instances")
	j.row(b, "127.0.0.1 login 22 refused")
	j.fits(b)
	b.press("127.0.0.1")
	b.reads("22 refused", "5 of 5, 0 left")

	b.press("Keys")
	j.act("Reset…")
	b.reads("Reset this key?", "Under login the key will be fresh: its used units are forgotten.")
	b.press("Reset the key")
	b.reads("The key was reset.", "Refused now")
	b.press("127.0.0.1")
	b.reads("0 of 5, 5 left")

	// Seven after a reset of five: two are refused, as for a key that is new.
	b.press("Keys")
	j.keepsStill("22 refused", "24 refused", func() { j.logsIn(7, 5) })

	j.act("Own limit…")
	b.reads("Which limit for this key?",
		"Under login the limit of this key is now 5/1h sliding-log: 5 requests within any hour.")
	b.fill("Limit of its own", "8/1h sliding-log")
	b.press("Show what changes")
	b.reads("Give this key a limit of its own?", "8/1h sliding-log: 8 requests within any hour")
	b.fill("Comment", "the office")
	j.fleet.follow("a limit of its own", func() { b.press("Give it this limit") })
	b.reads("The key has a limit of its own.", "Refused now")

	j.logsIn(4, 3) // 5 of 8 were used
	b.press("127.0.0.1")
	b.reads("a limit of its own: 8 requests within any hour", "8 of 8, 0 left")

	j.act("Never limit…")
	b.reads("Never limit this key?",
		"login will not limit the key any longer: all of its requests pass, however many, and a ban does not stop them.")
	j.fleet.follow("a key that is not limited", func() { b.press("Never limit it") })
	b.reads("The policy does not limit the key any longer.")
	j.logsIn(6, 6)

	// With the undo the limit is back, and what was used up before still counts.
	j.fleet.follow("an undo", func() { b.press("Undo the change of login") })
	b.reads("The change was undone.")
	j.logsIn(1, 0)
	j.banFromWho()

	b.press("login")
	b.press("All versions")
	b.reads("the office")
}

// banFromWho bans the key that is refused most, and lifts its ban, on the page that lists it.
func (j *journey) banFromWho() {
	b := j.tab
	b.press("Keys")
	j.act("Ban for…")
	b.reads("Ban this key?", "Every request of the key will be refused under login, in all instances, until the ban ends or is lifted.")
	b.fill("For", "12m")
	b.press("Ban the key")
	b.reads("The key was banned.", "1 key of shop is banned now.")
	j.act("Lift the ban…")
	b.press("Lift the ban")
	b.reads("The ban was lifted.", "No key of shop is banned now.")
}

// keepsStill opens the menu of the key that is refused under login, and checks that the page leaves
// its row as it is below the menu when f has changed what the row should say. When the menu is
// closed the row says it, and is still the one that the page began with.
func (j *journey) keepsStill(row, news string, f func()) {
	j.t.Helper()
	b := j.tab
	eval[bool](b, `(() => {
		window.began = document.querySelector("tbody tr");
		window.answers = 0;
		const ask = window.fetch;
		window.fetch = (...request) => ask(...request).finally(() => window.answers++);
		return true;
	})()`)

	b.do(b.hit(named("Actions on 127.0.0.1 under login")))
	f()

	// What a page asks after the console knows brings the news.
	b.until("the console knows "+news, func() bool {
		return strings.Contains(eval[string](b, `(() => {
			const request = new XMLHttpRequest();
			request.open("GET", document.getElementById("live").dataset.refresh, false);
			request.send();
			return request.responseText;
		})()`), news)
	})
	answers := eval[int](b, `window.answers`)
	b.until("the page has asked twice", func() bool { return eval[int](b, `window.answers`) >= answers+2 })

	j.row(b, "127.0.0.1 login "+row)
	if !eval[bool](b, `Boolean(document.querySelector("form:popover-open"))`) {
		j.t.Error("the menu has closed")
	}

	b.key(kb.Escape)
	j.row(b, "127.0.0.1 login "+news)
	if !eval[bool](b, `window.began.isConnected`) {
		j.t.Error("another row has taken the place of the one that the page began with")
	}
}

// row checks how the first row of the page of keys begins.
func (j *journey) row(b *tab, want string) {
	j.t.Helper()
	b.until("the row is "+want, func() bool {
		return eval[string](b, `[...document.querySelector("tbody tr").children].slice(0, 3)
			.map((c) => c.innerText.trim().split("\n")[0]).join(" ")`) == want
	})
}

// act presses an entry of the menu of the key that is refused under login.
func (j *journey) act(name string) {
	j.t.Helper()
	b := j.tab
	b.steps += 2
	b.do(b.hit(named("Actions on 127.0.0.1 under login")))
	const entry = `//form[@popover][input[@name="policy"][@value="login"]]//button[normalize-space()=%q]`
	b.loads(b.hit(chromedp.Search(fmt.Sprintf(entry, name))))
}
