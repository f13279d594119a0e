package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/test"
)

var thorough = flag.Bool("thorough", false,
	"check the colours on the desk in the dark and on the phone in the light as well, and whole tables")

// TestAccessible opens every page in every state, on a desk in the light and on a phone in the
// dark, and with -thorough the other way round. The check of accessibility finds no fault, and no
// page is wider than the phone. With -screenshots it writes the pictures of all pages.
func TestAccessible(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	check := axe(t)
	browser := chromium(t)
	console, _ := build(t)

	full, empty, shop := furnish(t, console), unfurnished(t, console), display(t, console)
	second := contested(t, console)
	c := &checker{check: check, faults: map[string][]string{}}
	first := browse(t, browser)

	t.Run("pages", func(t *testing.T) {
		for _, w := range []*scene{full, empty, shop, second} {
			for _, p := range w.parts {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel() // the browser has a process for each tab
					c.visit(first.apart(t), w, p.states)
				})
			}
		}
	})

	// These take Redis and tables away, so they come last, and only where the others have not
	// failed already.
	if !t.Failed() {
		t.Run("last", func(t *testing.T) {
			c.visit(first.apart(t), full, full.withoutRedis())
			c.visit(first.apart(t), full, full.withoutTables())

			// Each route of the console is in some state, or this test is not about all pages.
			for _, p := range unvisited(t, full.front, second.front) {
				t.Errorf("no state visits %s: add one in states_test.go", p)
			}
		})
	}
	c.report(t)
}

// axe returns the source of the check.
func axe(t testing.TB) string {
	t.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		test.Missing(t, "axe-core is missing; npm --prefix cmd/headgate-console/e2e ci --ignore-scripts brings it")
	}
	return string(source)
}

// scene is a console with what its pages show.
type scene struct {
	front    *front
	sessions map[string]string // the cookie of each user
	parts    []part

	withoutRedis, withoutTables func() []state // take something away first
}

// part is a number of states that follow each other. Parts have nothing to do with each other.
type part struct {
	name   string
	states []state
}

// state is a page in one of the states that it may have.
type state struct {
	name    string
	user    string        // who is signed in; "" is nobody
	path    string        // to open
	send    url.Values    // the form that is sent there; nil means none
	files   bool          // the form is sent as one with files
	then    func() string // a script that leads on to another page, say by a click
	on      string        // a script that changes the page, and returns a promise of true when that is done
	status  int           // 0 is 200
	picture string        // the name of its picture in the documentation, or ""
}

// checker checks states, and keeps the faults.
type checker struct {
	check string

	mu     sync.Mutex
	count  int
	spent  time.Duration
	faults map[string][]string // the states that have each
}

// visit checks states, one after the other.
func (c *checker) visit(b *tab, w *scene, states []state) {
	user := ""
	for _, s := range states {
		began := time.Now()

		// A state without a user begins without any cookie, also after another without one.
		if s.user == "" || s.user != user {
			b.signedIn(w, s.user)
			user = s.user
		}

		c.open(b, w, s)
		b.portray(s.picture)
		for _, fault := range c.look(b) {
			c.mu.Lock()
			c.faults[fault] = append(c.faults[fault], s.name)
			c.mu.Unlock()
		}

		if status := s.want(); status != http.StatusOK {
			b.refusedWith(status)
		}
		b.quiet()

		c.mu.Lock()
		c.count++
		c.spent += time.Since(began)
		c.mu.Unlock()
	}
}

func (s *state) want() int {
	if s.status == 0 {
		return http.StatusOK
	}
	return s.status
}

// open brings the tab into a state.
func (c *checker) open(b *tab, w *scene, s state) {
	b.t.Helper()
	status := b.visit(w.front.url, s)
	if s.then != nil {
		status = b.loads(chromedp.Evaluate[chromedp.Void](s.then()))
	}
	if s.on != "" && !settled[bool](b, s.on) {
		b.t.Errorf("%s: the page does not change", s.name)
	}
	if status != s.want() {
		b.t.Errorf("%s has status %d and not %d: %s", s.name, status, s.want(),
			eval[string](b, `[...document.querySelectorAll("h1, [role=alert], .error")].map((e) => e.innerText).join(" ")`))
	}
}

// visit opens the page of a state, and returns its status.
func (b *tab) visit(url string, s state) int {
	b.t.Helper()
	if s.send == nil {
		return b.loads(chromedp.Navigate(url + s.path))
	}
	if at := eval[string](b, `location.origin`); at != url {
		b.loads(chromedp.Navigate(url + "/login")) // a form from elsewhere is refused
	}
	kind := urlencoded
	if s.files {
		kind = "multipart/form-data"
	}
	return b.loads(chromedp.Evaluate[chromedp.Void](posting(fmt.Sprintf("%q", s.path), kind, s.send)))
}

// posting returns a script that sends a form to the address that an expression has.
func posting(to, kind string, fields url.Values) string {
	list, _ := json.Marshal(fields) // texts can always be written
	return fmt.Sprintf(`(() => {
		const form = document.createElement("form");
		form.method = "post", form.action = %s, form.enctype = %q;
		for (const [name, values] of Object.entries(%s)) for (const value of values) {
			const field = document.createElement("textarea");
			field.name = name, field.value = value;
			form.append(field);
		}
		document.body.append(form);
		form.submit();
	})()`, to, kind, list)
}

// urlencoded is how forms without files are sent.
const urlencoded = "application/x-www-form-urlencoded"

// signedIn has the tab send the cookie of a user, and no other. It leaves the page of the user
// before, which may still ask for news.
func (b *tab) signedIn(w *scene, user string) {
	b.t.Helper()
	b.navigate("about:blank")
	b.quiet()
	b.do(call(network.ClearBrowserCookies, cdp.Empty{}))
	if user == "" {
		return
	}

	name, value := "headgate", w.sessions[user]
	if value == "" {
		name, value = proxied, user
	}

	b.do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{Name: name, Value: value,
			URL: w.front.url})
		return chromedp.Void{}, err
	})
}

// settled returns the value of a promise on the page.
func settled[T any](b *tab, expression string) T {
	b.t.Helper()
	var value T
	err := b.try(func(ctx context.Context) (err error) {
		value, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		return err
	})
	if err != nil {
		b.t.Fatalf("%.300s: %v", expression, err)
	}
	return value
}

// all is the choice of every rule for levels A and AA, of the best practices and of the
// experiments, and colours that of the rules that depend on the colours. The others depend on
// the elements and their places alone. Of a long table few has the first rows.
const (
	all     = `{type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"]}`
	colours = `{type: "rule", values: ["color-contrast", "link-in-text-block"]}`
	few     = `{include: document, exclude: ["tbody tr:nth-child(n+9)"]}`
)

// look returns the faults of the page. It opens what is closed before it looks at the phone.
func (c *checker) look(b *tab) (faults []string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](c.check + `; axe.setup && undefined`))

	run := func(window, where, rules string) {
		list := settled[[]string](b, fmt.Sprintf(`axe.run(%s, {runOnly: %s, resultTypes: ["violations"]}).then((r) => {
			axe.reset();
			const faults = r.violations.flatMap((v) => v.nodes.map((n) => v.id + " at " + n.target.join(" ") + ": " + n.failureSummary + " — " + n.html.slice(0, 200)));
			if (document.documentElement.scrollWidth > innerWidth) faults.push("it is " + document.documentElement.scrollWidth + " pixels wide in a window of " + innerWidth + ", because of " +
				[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth).slice(0, 3).map((e) => e.outerHTML.slice(0, 100)).join(" and "));
			return faults;
		})`, where, rules))
		for _, f := range list {
			faults = append(faults, window+": "+f)
		}
	}

	if *thorough {
		run("desk, light", "document", all)
	} else {
		run("desk, light", few, all)
	}

	// Closed parts are not on a page for the check, and on a phone they may be too wide as well. A
	// menu would cover the page.
	b.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelectorAll("details:not(.menu)").forEach((d) => { d.open = true; })`))
	b.prefer("dark")

	if *thorough {
		run("desk, dark", few, colours)
	}

	// The whole page is in the window, so that what sticks to its bottom hides nothing.
	b.resize(phoneWidth, phoneHeight)
	b.resize(phoneWidth, phoneHeight+eval[int64](b, bodyHigh))
	run("phone, dark", few, all)
	b.prefer("light")
	if *thorough {
		run("phone, light", few, colours)
	}
	b.resize(width, height)
	return faults
}

// report fails the test with all faults, each with the states that have it.
func (c *checker) report(t *testing.T) {
	t.Helper()
	t.Logf("%d states were checked in %s", c.count, c.spent.Round(time.Second))
	list := make([]string, 0, len(c.faults))
	for f := range c.faults {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b string) int { return len(c.faults[b]) - len(c.faults[a]) })
	for _, f := range list {
		t.Errorf("%s\n    in %s", f, strings.Join(c.faults[f], "; "))
	}
}
