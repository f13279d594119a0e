package e2e

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

//go:embed keyboard.js
var wayTo string

// way is what keyboard.js returns.
type way struct {
	Missing, Away, Main bool
	Tabs, Arrows        int
	Key, Fault          string
}

// maxTurns is how many times reach presses keys and looks where the focus is. The parts of a
// date, and areas that scroll, are stops that the page does not list.
const maxTurns = 20

// reach has the focus go to an element by the keyboard alone, and returns the key that presses
// the element. The focus has to be seen there.
func (b *tab) reach(where chromedp.Search) (key string) {
	b.t.Helper()

	// A page may change at each key, so the way is asked for again after it.
	var w way
	for range maxTurns {
		b.until(fmt.Sprintf("%s is on the page", where), func() bool {
			w = eval[way](b, fmt.Sprintf(`(%s)(%q)`, wayTo, where))
			return !w.Missing
		})

		switch {
		case w.Away:
			b.focus()
		case w.Tabs > 0:
			b.key(strings.Repeat(kb.Tab, w.Tabs))
		case w.Tabs < 0:
			b.key(strings.Repeat(kb.Tab, -w.Tabs), chromedp.ModifierShift)
		case w.Main:
			b.skip()
		case w.Arrows > 0:
			b.key(strings.Repeat(kb.ArrowDown, w.Arrows))
		case w.Arrows < 0:
			b.key(strings.Repeat(kb.ArrowUp, -w.Arrows))
		default:
			if w.Fault != "" {
				b.t.Errorf("the focus on %s cannot be seen on %s: %s", where,
					eval[string](b, `location.pathname`), w.Fault)
			}
			return w.Key
		}
	}

	b.t.Fatalf("the keyboard does not reach %s: %+v, and the focus is on %s\n%s", where, w,
		eval[string](b, `document.activeElement.outerHTML.slice(0, 200)`), b.text())
	return ""
}

// skip follows the link to the content, which has to be the first of the page and has the focus.
func (b *tab) skip() {
	b.t.Helper()
	b.key(kb.Enter)
	if got := eval[string](b, `document.activeElement.id`); got != "main" {
		b.t.Fatalf("the first link of %s leads to %q and not to the content", eval[string](b, `location.pathname`), got)
	}
}

// key presses keys, with modifiers such as Shift.
func (b *tab) key(keys string, with ...chromedp.Modifier) {
	b.t.Helper()
	b.do(struck(keys, with...))
}

// struck returns an action that presses keys as a keyboard does: a page that has dealt with a key
// does not get its character as well.
func struck(keys string, with ...chromedp.Modifier) chromedp.Action[chromedp.Void] {
	return chromedp.KeyEvent(keys, chromedp.KeyModifiers(with...), func(p *input.DispatchKeyEventParams) {
		if p.Type == kb.KeyDown {
			p.Type = kb.KeyRawDown
		}
	})
}
