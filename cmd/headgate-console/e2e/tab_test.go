package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// do lets the browser do something, within patience.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := b.try(func(ctx context.Context) error { return chromedp.Do(ctx, actions...) }); err != nil {
		b.t.Fatal(err)
	}
}

// try calls f with a bound on its time, for a browser that has started.
func (b *tab) try(f func(context.Context) error) error {
	if err := chromedp.Do(b.ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return f(ctx)
}

// eval returns the value of an expression on the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	var value T
	err := b.try(func(ctx context.Context) (err error) {
		value, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression))
		return err
	})
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// navigate opens a page by its address.
func (b *tab) navigate(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// loads runs an action that opens a page, and returns the status of the page.
func (b *tab) loads(action chromedp.Action[chromedp.Void]) (status int) {
	b.t.Helper()
	err := b.try(func(ctx context.Context) error {
		r, err := chromedp.RunResponse(ctx, action)
		if err == nil {
			status = int(r.Status)
		}
		return err
	})
	if err != nil {
		b.t.Fatalf("no page opens: %v\n%s", err, b.text())
	}
	return status
}

// press follows a link or presses a button that opens a page, and returns the status of the
// page. The name is the text or the accessible name of the control.
func (b *tab) press(name string) (status int) {
	b.t.Helper()
	b.steps++
	return b.loads(b.hit(named(name)))
}

// turnTo follows the navigation to a page of a group.
func (b *tab) turnTo(group, page string) {
	b.t.Helper()
	b.press(group)
	b.press(page)
}

// signOut signs the user out.
func (b *tab) signOut() {
	b.t.Helper()
	b.pick("Sign out")
}

// pick opens the menu of the user, and presses an entry of it.
func (b *tab) pick(name string) {
	b.t.Helper()
	b.steps++
	b.do(b.hit(`//summary[starts-with(normalize-space(),"Signed in as")]`))
	b.press(name)
}

// named returns the selector of a link or button.
func named(name string) chromedp.Search {
	return chromedp.Search(fmt.Sprintf(`//*[local-name()="a" or local-name()="button"][normalize-space()=%q or @aria-label=%[1]q]`, name))
}

// hit returns an action that presses an element with the user's device. By the keyboard the
// focus goes there first.
func (b *tab) hit(where chromedp.Search) chromedp.Action[chromedp.Void] {
	b.t.Helper()
	if b.keyboard {
		return struck(b.reach(where))
	}
	return chromedp.Click(where, chromedp.NodeVisible)
}

// goTo has the focus go to an input.
func (b *tab) goTo(where chromedp.Search) {
	b.t.Helper()
	if b.keyboard {
		b.reach(where)
		return
	}
	b.do(chromedp.Focus(where, chromedp.NodeVisible))
}

// control returns the selector of the first input of a label.
func control(label string) chromedp.Search {
	return chromedp.Search(fmt.Sprintf(`(//*[@id=//label[normalize-space(text()[1])=%q]/@for] | //select[@aria-label=%[1]q])[1]`, label))
}

// fill replaces the text in the input of a label.
func (b *tab) fill(label, text string) {
	b.t.Helper()
	b.steps++
	b.goTo(control(label))
	b.key("a", chromedp.ModifierCtrl)
	b.key(cmp.Or(text, kb.Backspace))
}

// date types a day into the input of a label.
func (b *tab) date(label string, day time.Time) {
	b.t.Helper()
	b.typeTime(label, day.Format("01022006"), day.Format(time.DateOnly))
}

// typeTime types into the parts of a time, in the order that Americans are used to.
func (b *tab) typeTime(label, keys, want string) {
	b.t.Helper()
	b.steps++
	b.goTo(control(label))
	b.key(keys)
	if got := eval[string](b, `document.activeElement.value`); got != want {
		b.t.Fatalf("%s is %q, want %s", label, got, want)
	}
}

// choose picks from a list by typing the beginning of an entry.
func (b *tab) choose(label, text string) {
	b.t.Helper()
	b.steps++
	b.goTo(control(label))
	b.key(text)
	if got := eval[string](b, `document.activeElement.selectedOptions[0].text`); !strings.HasPrefix(got, text) {
		b.t.Fatalf("%s is %q, want %s", label, got, text)
	}
}

// tick presses the box or radio button whose label begins with the text.
func (b *tab) tick(text string) {
	b.t.Helper()
	b.steps++
	b.do(b.hit(chromedp.Search(fmt.Sprintf(`//label[starts-with(normalize-space(),%q)]//input`, text))))
}

// unfold opens the part of a page that is closed at first, or closes it.
func (b *tab) unfold(summary string) {
	b.t.Helper()
	b.steps++
	b.do(b.hit(chromedp.Search(fmt.Sprintf(`//summary[normalize-space()=%q]`, summary))))
}

// download presses a link to a file, and returns the name and the text of the file.
func (b *tab) download(name string) (file, text string) {
	b.t.Helper()
	b.steps++
	dir := b.t.TempDir()

	b.do(call(browser.SetDownloadBehavior,
		browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir}))
	b.do(b.hit(named(name)))

	b.until("the file of "+name+" is there", func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "*.*"))
		if err != nil {
			b.t.Fatal(err)
		}
		for _, f := range files {
			info, err := os.Stat(f)
			// The browser keeps the name by an empty file, which the whole one replaces.
			if err == nil && filepath.Ext(f) != ".crdownload" && info.Size() > 0 {
				file = filepath.Base(f)
			}
		}
		return file != ""
	})

	got, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		b.t.Fatal(err)
	}
	return file, string(got)
}

// top scrolls to the beginning of the page.
func (b *tab) top() {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
}

// text returns the visible text of the page.
func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, `document.title + "\n" + (document.body?.innerText ?? "")`)
}

// says reports whether the page has a text, whatever space is between its words.
func (b *tab) says(text string) bool {
	b.t.Helper()
	return strings.Contains(strings.Join(strings.Fields(b.text()), " "), text)
}

// reads checks that the page says all of this, at once or soon.
func (b *tab) reads(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("the page says %q", text), func() bool { return b.says(text) })
	}
}

// figure returns the sum of a kind of requests in the legend of the chart, or "".
func (b *tab) figure(name string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`[...document.querySelectorAll("#series a")]
		.filter((a) => a.innerText.trim().startsWith(%q))
		.map((a) => a.querySelector("b").textContent)
		.join()`, name+" "))
}

// shows checks that a figure has a value, at once or soon.
func (b *tab) shows(name, value string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q is %s", name, value), func() bool { return b.figure(name) == value })
}

// until calls done again and again until it returns true.
func (b *tab) until(what string, done func() bool) {
	b.t.Helper()
	deadline, tick := time.NewTimer(patience), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			b.t.Fatalf("not within %s: %s\n%s", patience, what, b.text())
		case <-tick.C:
		}
	}
}
