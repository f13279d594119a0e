package e2e

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// site is a tab with the web site of the documentation.
type site struct {
	*tab
	url string
}

// below is the path under which the site is served.
const below = "/below/a/path/"

func openSite(t *testing.T) site {
	t.Helper()
	browser, dir := chromium(t), t.TempDir()

	// It is a module of its own, with the playground beside it.
	build := exec.Command("go", "run", ".", "-o", dir, "-url", below)
	build.Dir = filepath.FromSlash(root + "/docs/site/pages")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	// The site is served below a path, as a server of files does.
	server := httptest.NewServer(http.StripPrefix(below, http.FileServer(http.Dir(dir))))
	t.Cleanup(server.Close)
	return site{browse(t, browser), server.URL + below}
}

// pages returns the addresses of all pages but the playground.
func (s site) pages() []string {
	s.t.Helper()
	s.navigate(s.url)
	list := eval[[]string](s.tab, `[...document.querySelectorAll("#pages a")].map((a) => a.href)`)
	return slices.DeleteFunc(list, func(href string) bool { return strings.Contains(href, "/playground/") })
}

// search opens a page and types into its search.
func (s site) search(page, words string) {
	s.t.Helper()
	s.navigate(s.url + page)
	eval[bool](s.tab, `document.querySelector("#search input").focus(), true`)
	s.do(chromedp.KeyEvent(words))
}

// TestSite opens every page of the documentation in a window of a phone, and searches.
func TestSite(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	s := openSite(t)
	all := s.pages()
	if len(all) < 35 {
		t.Fatalf("only %d pages", len(all))
	}

	// Tables and code scroll by themselves, and not the page.
	s.resize(360, 900)
	for _, page := range all {
		s.navigate(page)
		if got := eval[int64](s.tab, "document.documentElement.scrollWidth"); got != 360 {
			t.Errorf("%s is %d pixels wide in a window of 360", page, got)
		}
	}

	// What is typed is found, and the arrows and Enter lead to it.
	s.resize(width, height)
	s.search("docs/limits.html", "preflight cors")
	s.reads("Put the CORS middleware around the limiter")
	s.do(chromedp.KeyEvent(kb.ArrowDown))
	if got := eval[string](s.tab, "document.activeElement.getAttribute('href')"); got != "../docs/keys.html#cors" {
		t.Errorf("the first hit leads to %s", got)
	}

	s.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(" nowhere"))
	s.reads("Nothing found")
	s.loads(chromedp.KeyEvent(strings.Repeat(kb.Backspace, len(" nowhere")) + kb.Enter))
	s.quiet()
	if got := eval[string](s.tab, "location.href"); got != s.url+"docs/keys.html#cors" {
		t.Errorf("Enter leads to %s", got)
	}

	// Without scripts there is all but the search.
	s.withoutScripts()
	s.navigate(s.url + "docs/limits.html")
	s.reads("Choosing a limit", "Which limit for what")
	if !eval[bool](s.tab, `document.getElementById("search").hidden`) {
		t.Error("without scripts there is a search")
	}
}

// TestAccessibleSite has the check of accessibility look at each form of a page.
func TestAccessibleSite(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	c := &checker{check: axe(t)}
	s := openSite(t)

	look := func(what string) {
		t.Helper()
		for _, f := range c.look(s.tab) {
			t.Errorf("%s: %s", what, f)
		}
	}

	for _, page := range []string{
		"index.html", "docs/index.html", "docs/limits.html", "docs/clients.html", "docs/console/pages.html",
		"docs/gateway-settings.html", "docs/policies.html", "404.html",
	} {
		s.navigate(s.url + page)
		look(page)
	}

	// The list of hits is over the page.
	s.search("docs/limits.html", "burst")
	s.reads("Choosing a limit After a pause both admit the burst")
	look("a search")
}
