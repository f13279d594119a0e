package e2e

import (
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
)

// mark ticks the box of a policy in the list, or of all policies.
func (b *tab) mark(name string) {
	b.t.Helper()
	b.steps++
	box := fmt.Sprintf(`//input[@aria-label="Tick %s"]`, name)
	b.do(b.hit(chromedp.Search(box)))
	b.until(name+" is ticked", func() bool {
		return eval[bool](b, fmt.Sprintf(`document.querySelector('[aria-label="Tick %s"]').checked`, name))
	})
}

// lines returns the names of the policies that the list shows.
func (b *tab) lines() string {
	b.t.Helper()
	return eval[string](b, `[...document.querySelectorAll(".lines tbody tr")].map((row) => row.id.replace("policy-", "")).join(" ")`)
}

// shown waits until the list shows these policies.
func (b *tab) shown(names ...string) {
	b.t.Helper()
	want := strings.Join(names, " ")
	b.until("the list shows "+want, func() bool { return b.lines() == want })
}

// maxHigh is the greatest height in pixels of a page of fifty policies at the width of a desk.
const maxHigh = 2500

func (j *journey) list() {
	b := j.tab
	b.navigate(j.url("/policies"))

	// The API adds what makes the policies fifty, faster than the form would.
	eval[bool](b, `(async () => {
		for (let i = 10; i < 57; i++) await fetch("/api/policies/many-" + i, {method: "PUT",
			headers: {"Content-Type": "application/json", "If-None-Match": "*"},
			body: JSON.stringify({apps: ["shop"], limit: i + "/1m burst=20", key: "ip", mode: "shadow", priority: i, match: {methods: ["GET"], path: "/many/" + i}})});
		document.title = "all are there";
	})(), true`)
	b.until("there are fifty policies", func() bool { return eval[string](b, `document.title`) == "all are there" })

	b.resize(1280, 900)
	b.navigate(j.url("/policies"))
	b.reads("50 policies")

	// Fifty policies take three windows at most.
	if high := eval[int](b, `document.documentElement.scrollHeight`); high > maxHigh {
		j.t.Errorf("fifty policies are %d pixels high, want %d at most", high, maxHigh)
	} else {
		j.t.Logf("fifty policies are %d pixels high", high)
	}

	if n := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); n > 0 {
		j.t.Errorf("the list is %d pixels too wide", n)
	}
	j.cards()

	b.press("Share refused")
	b.until("the policy that refused most comes first",
		func() bool { return strings.HasPrefix(b.lines(), "visitors ") })

	// The curve of a policy that refuses has the whole and the part in another ink.
	if drawn := eval[string](b, `(line => line.querySelector(".spark title").textContent + ": " + [...line.querySelectorAll(".spark path")].map((p) => p.getAttribute("class") + (p.getBBox().height > 0)).join(" "))(document.getElementById("policy-visitors"))`); !strings.HasSuffix(drawn, ": wholetrue parttrue") {
		j.t.Errorf("the line of a policy that refuses is drawn as %q", drawn)
	}

	b.fill("Search", "many-4")
	b.shown("many-49", "many-48", "many-47", "many-46", "many-45", "many-44", "many-43", "many-42", "many-41", "many-40") // the order stays
	b.fill("Search", "/many/42")
	b.shown("many-42")

	if got := eval[string](b, `document.activeElement.id + " " + location.search`); !strings.HasPrefix(got, "search ") || !strings.Contains(got, "many%2F42") {
		j.t.Errorf("while the user types, the focus and the address are %q", got)
	}

	b.mark("many-42")
	b.press("Switch off")
	b.reads("Switch 1 policy off?")
	j.fleet.follow("a change of one of many", func() { b.press("Switch them off") })
	b.reads("The policies were changed.")
	b.shown("many-42")

	// After the change the list is still filtered, and offers to take it back.
	j.fleet.follow("the undo of a change of many", func() { b.press("Undo the change of 1 policy") })
	b.reads("The change was undone.")

	b.press("In shadow")
	b.mark("all of this page")
	j.fleet.follow("a change of many", func() { b.press("Put in force") })
	b.reads("No policy matches.")
}

// cards checks that on a phone the list fits, and each policy is a card whose figures have names.
func (j *journey) cards() {
	j.t.Helper()
	b := j.tab
	j.fits(b)
	b.resize(phoneWidth, phoneHeight)
	for _, fault := range eval[[]string](b, `[...document.querySelectorAll(".lines tbody tr")].flatMap((card) => {
		const named = [...card.querySelectorAll("td[data-head]:not(.how)")].filter((cell) => getComputedStyle(cell, "::before").content === JSON.stringify(cell.dataset.head));
		const r = card.getBoundingClientRect();
		return r.width <= innerWidth && r.height > 100 && named.length === 8 ? [] : [card.id + " is " + r.width + " × " + r.height + " with " + named.length + " names"];
	})`) {
		j.t.Error(fault)
	}
	b.resize(width, height)
}
