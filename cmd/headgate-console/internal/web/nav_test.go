package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// hrefs returns the addresses of the links in the first element with a class, in their order.
func (a *answer) hrefs(class string) (list []string) {
	var inside *html.Node
	a.each(func(n *html.Node) {
		if inside == nil && slices.Contains(strings.Fields(attr(n, "class")), class) {
			inside = n
		}
	})
	if inside == nil {
		return nil
	}
	for n := range inside.Descendants() {
		if n.Type == html.ElementNode && n.Data == "a" {
			list = append(list, attr(n, "href"))
		}
	}
	return list
}

// here returns the texts of the links and entries that lead to the page that is shown.
func (a *answer) here() (list []string) {
	a.each(func(n *html.Node) {
		if has(n, "aria-current") {
			list = append(list, words(n))
		}
	})
	return list
}

// Each page of the navigation is in one group, and a user is offered those that open.
func TestNavigationLeadsToPagesThatOpen(t *testing.T) {
	w := newWorld(t)
	w.person("vic", map[string]service.Role{"a": service.Viewer})

	for user, want := range map[string]int{"admin": 10, "vic": 7} {
		b, n := w.as(user), 0
		groups := b.get("/").hrefs("groups")
		if len(groups) != 5 {
			t.Fatalf("%s sees the groups %q", user, groups)
		}
		for _, g := range groups {
			pages := b.get(g).want(http.StatusOK).hrefs("pages-of")
			if len(pages) == 0 { // a group of one page has no second row
				pages = []string{g}
			}
			if pages[0] != g {
				t.Errorf("%s: the group leads to %s and its first page is %s", user, g, pages[0])
			}
			for _, p := range pages {
				n++
				b.get(p).want(http.StatusOK)
			}
		}
		if n != want {
			t.Errorf("%s is offered %d pages, want %d", user, n, want)
		}
	}

	b := w.as("admin")
	for page, want := range map[string]string{
		"/": "Traffic, All applications", "/new": "Policies, All applications",
		"/audit": "Activity, Audit log, All applications", "/account": "Account, All applications",
	} {
		got := b.get(page).want(http.StatusOK).here()
		for _, name := range strings.Split(want, ", ") {
			if !slices.Contains(got, name) {
				t.Errorf("%s: %q is not where the page is, but %q", page, name, got)
			}
		}
	}
}

// chosen returns the application that the head of a page shows.
func (b *browser) chosen(page string) (name string) {
	b.t.Helper()
	b.get(page).want(http.StatusOK).each(func(n *html.Node) {
		if name == "" && attr(n, "class") == "name" {
			name = words(n)
		}
	})
	return name
}

func TestApplicationIsChosenOnce(t *testing.T) {
	w := newWorld(t)
	w.must(w.CreateApp(t.Context(), w.admin, "c", ""))
	w.policy("of-a", "5/1m")
	w.add(policy.Policy{Name: "of-b", Apps: []string{"b"},
		Limit: core.MustParseLimit("5/1m"), Key: "ip"})
	w.person("both", map[string]service.Role{"a": service.Viewer, "b": service.Viewer})
	b := w.as("both")

	// policies returns those that the list shows.
	policies := func(page string) (list []string) {
		b.get(page).want(http.StatusOK).each(func(n *html.Node) {
			if name, ok := strings.CutPrefix(attr(n, "id"), "policy-"); ok {
				list = append(list, name)
			}
		})
		return list
	}
	check := func(page, app, list string) {
		t.Helper()
		if got := b.chosen(page); got != app {
			t.Errorf("%s: the head has %q, want %q", page, got, app)
		}
		if got := strings.Join(policies("/policies"), " "); got != list {
			t.Errorf("after %s the list has %s, want %s", page, got, list)
		}
	}

	check("/", "All applications", "of-a of-b")
	check("/account?app=b", "b", "of-b")
	check("/", "b", "of-b")

	// An address that names an application wins, and is the choice from then on.
	check("/policies?app=a", "a", "of-a")
	check("/keys", "a", "of-a")
	check("/policies?app=", "All applications", "of-a of-b")

	// A policy is made in an application without choosing it.
	check("/?app=b", "b", "of-b")
	admin := w.as("admin")
	admin.get("/?app=b").want(http.StatusOK)
	admin.get("/new?app=a").want(http.StatusOK)
	if got := admin.chosen("/"); got != "b" {
		t.Errorf("after a new policy the choice is %q", got)
	}

	// A part of a page has what its own address says, whatever was chosen in another tab.
	b.get("/live?range=1h").want(http.StatusOK).has("By application")
}

// What was chosen never shows more than the actor may see.
func TestChosenApplicationWidensNoRights(t *testing.T) {
	w := newWorld(t)
	w.must(w.CreateApp(t.Context(), w.admin, "c", ""))
	w.policy("of-a", "5/1m")
	w.person("bob", map[string]service.Role{"b": service.Owner, "c": service.Viewer})
	b := w.as("bob")

	if got := b.chosen("/?app=b"); got != "b" {
		t.Fatalf("the choice is %q", got)
	}

	// An application of others is as one that does not exist, in an address and in the cookie.
	for _, app := range []string{"a", "none", "<b>"} {
		b.get("/?app=" + url.QueryEscape(app)).want(http.StatusNotFound)
		b.get("/account?app=" + url.QueryEscape(app)).want(http.StatusOK)
		if got := b.chosen("/"); got != "b" {
			t.Errorf("after %s the choice is %q", app, got)
		}
		b.keep(app)
		if got := b.chosen("/"); got != "All applications" {
			t.Errorf("the cookie %s chooses %q", app, got)
		}
		if got := b.get("/policies").want(http.StatusOK); strings.Contains(got.text, "of-a") {
			t.Errorf("the cookie %s shows a policy of others", app)
		}
		b.chosen("/?app=b")
	}

	// One that is deleted chooses nothing.
	admin := w.as("admin")
	admin.get("/?app=c").want(http.StatusOK)
	w.must(w.DeleteApp(t.Context(), w.admin, "c"))
	if got := admin.chosen("/"); got != "All applications" {
		t.Errorf("a deleted application is chosen: %q", got)
	}
}

// keep gives the browser a cookie of a chosen application.
func (b *browser) keep(app string) {
	b.t.Helper()
	u, err := url.Parse(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.client.Jar.SetCookies(u, []*http.Cookie{{Name: "headgate-app", Value: app, Path: "/"}})
}

func TestSearchFindsPoliciesAndOffersTheKey(t *testing.T) {
	w := newWorld(t)
	for name, path := range map[string]string{
		"checkout": "/login/pay", "login": "/x", "slow-login": "/y", "other": "/z",
	} {
		w.add(policy.Policy{Name: name, Apps: []string{"a"}, Key: "ip",
			Limit: core.MustParseLimit("5/1m"), Match: policy.Match{Path: path}})
	}
	w.person("eve", map[string]service.Role{"b": service.Owner})
	b := w.as("admin")
	b.get("/?app=b").want(http.StatusOK) // the search is in all applications

	got := b.get("/search?q=+LOGIN+").want(http.StatusOK).hrefs("results")
	want := []string{"/policies/login", "/policies/slow-login", "/policies/checkout", "/keys?key=LOGIN"}
	if !slices.Equal(got, want) {
		t.Errorf("the search finds %q, want %q", got, want)
	}
	if got := w.as("eve").get("/search?q=login").want(http.StatusOK).hrefs("results"); len(got) != 1 {
		t.Errorf("eve finds %q", got)
	}

	if got := b.get("/search?q=%3Ci%3E%26+x").want(http.StatusOK); !slices.Equal(got.hrefs("results"),
		[]string{"/keys?key=%3Ci%3E%26+x"}) || strings.Contains(got.text, "<i>") {
		t.Errorf("a hostile text is answered %s", got.text)
	}
	if got := b.get("/search").want(http.StatusOK).hrefs("results"); got != nil {
		t.Errorf("nothing finds %q", got)
	}
	b.get("/search?q=" + strings.Repeat("x", 500)).want(http.StatusUnprocessableEntity)
}

// The letters are a file that a browser keeps, and no page asks another host for any.
func TestLettersAreServedHere(t *testing.T) {
	w := newWorld(t)
	got := w.browser().get("/static/inter-v20.woff2").want(http.StatusOK)
	if kind := got.header.Get("Content-Type"); kind != "font/woff2" {
		t.Errorf("the file is a %q", kind)
	}
	if keep := got.header.Get("Cache-Control"); keep != "public, max-age=31536000, immutable" {
		t.Errorf("it is kept as %q", keep)
	}
	css := w.browser().get("/static/style.css").want(http.StatusOK).text
	if !strings.Contains(css, `url("inter-v20.woff2")`) || strings.Contains(css, "//") {
		t.Error("the style sheet asks for other letters")
	}
	if policy := got.header.Get("Content-Security-Policy"); !strings.Contains(policy, "font-src 'self'") {
		t.Errorf("the browser may not load it: %s", policy)
	}
}

// The policy that is called exactly so comes first, also where more are found than are read.
func TestSearchFindsTheExactNameAmongMany(t *testing.T) {
	w := newWorld(t)
	for i := range service.MaxPerPage + 1 {
		w.policy(fmt.Sprintf("a%d-zz", i), "5/1m")
	}
	for _, name := range []string{"zz-more", "zz"} {
		w.policy(name, "5/1m")
	}
	got := w.as("admin").get("/search?q=zz").want(http.StatusOK).hrefs("results")
	if len(got) != maxResults+2 || got[0] != "/policies/zz" || slices.Contains(got[1:], "/policies/zz") {
		t.Errorf("the search finds %d: %q", len(got), got)
	}
}
