package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
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

// press clicks a link or button that opens a page, and returns the status of the
// page. The name is the text or the accessible name of the control.
func (b *tab) press(name string) (status int64) {
	b.t.Helper()
	b.steps++
	where := fmt.Sprintf(`//*[self::a or self::button][normalize-space()=%q or @aria-label=%[1]q]`, name)
	err := b.try(func(ctx context.Context) error {
		r, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.Search(where), chromedp.NodeVisible))
		if err == nil {
			status = r.Status
		}
		return err
	})
	if err != nil {
		b.t.Fatalf("%q cannot be pressed: %v\n%s", name, err, b.text())
	}
	return status
}

// control returns the selector of the input of a label.
func control(label string) chromedp.Search {
	return chromedp.Search(fmt.Sprintf(`//*[@id=//label[normalize-space(text()[1])=%q]/@for] | //select[@aria-label=%[1]q]`, label))
}

// fill replaces the text in the input of a label.
func (b *tab) fill(label, text string) {
	b.t.Helper()
	b.steps++
	b.do(chromedp.Focus(control(label), chromedp.NodeVisible),
		chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`), chromedp.KeyEvent(text))
}

// choose picks from a list by typing the beginning of an entry.
func (b *tab) choose(label, text string) {
	b.t.Helper()
	b.steps++
	b.do(chromedp.SendKeys(control(label), text, chromedp.NodeVisible))
}

// tick clicks the box or button whose label begins with the text.
func (b *tab) tick(text string) {
	b.t.Helper()
	b.steps++
	where := fmt.Sprintf(`//label[starts-with(normalize-space(),%q)]//input`, text)
	b.do(chromedp.Click(chromedp.Search(where), chromedp.NodeVisible))
}

// unfold opens the part of a page that is closed at first.
func (b *tab) unfold(summary string) {
	b.t.Helper()
	b.steps++
	b.do(chromedp.Click(chromedp.Search(fmt.Sprintf(`//summary[normalize-space()=%q]`, summary)), chromedp.NodeVisible))
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

// reads checks that the page says all of this, at once or soon.
func (b *tab) reads(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("the page says %q", text), func() bool { return strings.Contains(b.text(), text) })
	}
}

// figure returns the value under a heading, or "".
func (b *tab) figure(name string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`[...document.querySelectorAll("dl > div")]
		.filter((d) => d.querySelector("dt").textContent.trim() === %q).map((d) => d.querySelector("dd").textContent).join()`, name))
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
