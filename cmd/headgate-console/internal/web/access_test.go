package web

import (
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Every field has a name for people who cannot see the page.
func TestFieldsHaveNames(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	hook := w.watch("http://127.0.0.1:1").ID
	b := w.as("admin")
	// Some addresses answer with parts of a page, files or redirects.
	parts := []string{"/drawing.svg", "/export", "/validate", "/banner", "/unable", "/takeover",
		"/audit/export"}
	for _, r := range routes {
		path, isGet := strings.CutPrefix(r.pattern, "GET ")
		if !isGet || slices.Contains(parts, path) || strings.HasSuffix(path, "/live") ||
			strings.HasPrefix(path, "/login/") {
			continue
		}

		path = strings.Replace(strings.TrimSuffix(path, "{$}"), "{name}", "p", 1)
		switch {
		case strings.HasPrefix(path, "/users/"):
			path = "/users/admin"
		case path == "/apps/delete":
			path = "/apps/delete?name=b"
		}

		b.get(path).want(http.StatusOK).legible(path)
	}

	// Templates, a policy in shadow and mistakes show elements that the pages above do not have.
	for _, name := range []string{"login", "plans", "webhook"} {
		b.get("/new?template=" + name).want(http.StatusOK).legible("the template " + name)
	}

	w.shadowed("s", "")
	b.get("/policies/s").want(http.StatusOK).legible("a policy in shadow")

	b.post("/new", nil).want(http.StatusUnprocessableEntity).legible("the form with mistakes")
	for _, open := range []string{"new", hook} {
		b.get("/alerts?webhook=" + open).want(http.StatusOK).legible("the webhook " + open)
	}
	b.post("/alerts", nil).want(http.StatusUnprocessableEntity).legible("the form of a webhook with mistakes")
	b.get("/nowhere").want(http.StatusNotFound).legible("a page that is not there")
}

// legible checks that a screen reader can read the page.
func (a *answer) legible(page string) {
	a.t.Helper()

	ids, labels, heads := map[string]bool{}, map[string]bool{}, 0

	// The first pass finds what can be referred to, as a reference may come before its target.
	a.each(func(n *html.Node) {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				a.t.Errorf("%s: the id %s is repeated", page, id)
			}
			ids[id] = true
		}
		if n.Data == "label" {
			labels[attr(n, "for")] = true
		}
		if n.Data == "h1" {
			heads++
		}
	})

	if heads != 1 {
		a.t.Errorf("%s: there are %d main headings", page, heads)
	}

	if !ids["main"] || !a.links("#main") {
		a.t.Errorf("%s: there is no link to the content", page)
	}

	// References without a target are silent, so a reader would notice nothing.
	a.each(func(n *html.Node) {
		for _, name := range []string{"aria-describedby", "aria-labelledby"} {
			for _, id := range strings.Fields(attr(n, name)) {
				if !ids[id] {
					a.t.Errorf("%s: %s of %s names %s, which is not there", page, name, n.Data, id)
				}
			}
		}

		if !named(n, labels) {
			a.t.Errorf("%s: the %s %q has no name", page, n.Data, attr(n, "name"))
		}
	})
}

// named reports whether an element for input has a name.
func named(n *html.Node, labels map[string]bool) bool {
	switch n.Data {
	case "input", "select", "textarea":
	case "button":
		return words(n) != "" || attr(n, "aria-label") != ""
	case "img":
		return has(n, "alt")
	default:
		return true
	}

	// What is hidden needs no name. Others have one of their own, or a label that names them.
	if attr(n, "type") == "hidden" || attr(n, "aria-label") != "" || labels[attr(n, "id")] && attr(n, "id") != "" {
		return true
	}

	for p := range n.Ancestors() {
		if p.Data == "label" {
			return true
		}
	}
	return false
}

// The two palettes of the style sheet are readable.
func TestColoursContrast(t *testing.T) {
	css, err := files.ReadFile("static/style.css")
	if err != nil {
		t.Fatal(err)
	}

	// The file begins with the light palette, and the dark one changes it.
	light, dark, _ := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	for name, text := range map[string]string{"light": light, "dark": dark} {
		c := palette(text)
		// Texts need 4.5, by the guidelines for readers with weak eyes.
		for _, pair := range [][2]string{
			{"text", "back"}, {"text", "card"}, {"soft", "back"}, {"soft", "card"}, {"main", "back"},
			{"main", "card"}, {"main-text", "main"},
			{"text", "main-soft"}, {"soft", "main-soft"}, {"bad", "card"}, {"bad", "bad-soft"}, {"text", "bad-soft"},
			{"good", "good-soft"}, {"good", "card"},
			{"text", "good-soft"}, {"warn", "warn-soft"}, {"text", "warn-soft"}, {"text", "line"},
		} {
			if got := contrast(c[pair[0]], c[pair[1]]); got < 4.5 {
				t.Errorf("%s: %s on %s has a contrast of %.2f", name, pair[0], pair[1], got)
			}
		}

		// Lines and the ring of the focus need only 3, as they are shapes.
		for _, pair := range [][2]string{{"edge", "card"}, {"edge", "back"}, {"focus", "back"}, {"focus", "card"}} {
			if got := contrast(c[pair[0]], c[pair[1]]); got < 3 {
				t.Errorf("%s: %s on %s has a contrast of %.2f", name, pair[0], pair[1], got)
			}
		}
	}
}

var colour = regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`)

// palette returns the colours of a style sheet by name. Of repeated names it returns
// the first colour.
func palette(css string) map[string]uint32 {
	list := map[string]uint32{}
	for _, m := range colour.FindAllStringSubmatch(css, -1) {
		v, err := strconv.ParseUint(m[2], 16, 32)
		if _, there := list[m[1]]; err == nil && !there {
			list[m[1]] = uint32(v)
		}
	}
	return list
}

// contrast returns the contrast ratio of WCAG 2.
func contrast(a, b uint32) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(c uint32) float64 {
	channel := func(v uint32) float64 {
		s := float64(v&0xff) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(c>>16) + 0.7152*channel(c>>8) + 0.0722*channel(c)
}
