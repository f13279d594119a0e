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
	"github.com/headgate/headgate/policy"
)

// ticks returns the values of the boxes of a list.
func (a *answer) ticks() (list []string) {
	a.each(func(n *html.Node) {
		if n.Data == "input" && attr(n, "name") == "policy" && attr(n, "type") == "checkbox" {
			list = append(list, attr(n, "value"))
		}
	})
	return list
}

// linked returns the targets of links by their text.
func (a *answer) linked() map[string]string {
	list := map[string]string{}
	a.each(func(n *html.Node) {
		if n.Data == "a" {
			list[words(n)] = attr(n, "href")
		}
	})
	return list
}

// cells returns the texts of the line of a policy by the heads of their columns.
func (a *answer) cells(name string) map[string]string {
	row := a.byID("policy-" + name)
	if row == nil {
		a.t.Fatalf("there is no line of %s", name)
	}
	list := map[string]string{}
	for n := range row.Descendants() {
		if n.Type == html.ElementNode && has(n, "data-head") {
			list[attr(n, "data-head")] = words(n)
		}
	}
	return list
}

func TestListHasALineForEachPolicy(t *testing.T) {
	w := newWorld(t)
	w.policy("one", "100/1m burst=20")

	// The second policy has a value in each column that the first leaves at its default.
	p := w.policy("two", "5/1h sliding-log")
	p.Match = policy.Match{Methods: []string{"POST", "PUT"}, Host: "api.example.com", Path: "/login"}
	p.Key, p.Mode, p.Priority = "api-key+route", policy.Shadow, 7
	_, err := w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)

	got := w.as("admin").get("/policies").want(http.StatusOK)
	one, two := got.cells("one"), got.cells("two")

	// Known keys are in words, and a key of several parts is as it is written.
	for head, want := range map[string][2]string{
		"Limit": {"100/1m burst=20", "5/1h sliding-log"}, "For": {"each address", "api-key+route"},
		"Requests": {"all requests", "POST, PUT api.example.com/login"},
		"Mode":     {"in force", "in shadow"}, "Priority": {"0", "7"},
	} {
		if one[head] != want[0] || two[head] != want[1] {
			t.Errorf("%s: %q and %q, want %q", head, one[head], two[head], want)
		}
	}

	// Without requests there is no share, which is not the same as none refused.
	if two["Share refused"] != "–" || two["Refused"] != "0" {
		t.Errorf("a policy without requests has %v", two)
	}

	// The list is in the order of names, so that head turns it round. Figures begin with the
	// highest.
	for sort, want := range map[string]string{"Name": "/policies?sort=-name",
		"Share refused": "/policies?sort=-share", "Refused": "/policies?sort=-refused",
		"Mode": "/policies?sort=mode", "Priority": "/policies?sort=priority", "Changed": "/policies?sort=-updated"} {
		if link := got.linked()[sort]; link != want {
			t.Errorf("the head %s leads to %q, want %q", sort, link, want)
		}
	}

	// The search is kept when the order changes, and a second click turns it round.
	sorted := w.as("admin").get("/policies?sort=-priority&search=o").want(http.StatusOK)
	if text := sorted.text; strings.Index(text, `id="policy-two"`) > strings.Index(text, `id="policy-one"`) {
		t.Error("the highest priority does not come first")
	}

	if link := sorted.linked()["Priority"]; link != "/policies?search=o&sort=priority" {
		t.Errorf("the head of the order leads to %q", link)
	}
}

func TestListHasUsualFilters(t *testing.T) {
	w := newWorld(t)
	p := w.policy("one", "1/1s")
	w.policy("two", "1/1s")

	p.Mode = policy.Shadow
	_, err := w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)
	b := w.as("admin")

	links := b.get("/policies").want(http.StatusOK).linked()
	for name, want := range map[string]string{
		"All": "/policies", "Refusing now": "/policies?refusing=now&sort=-share", "In shadow": "/policies?mode=shadow",
		"Switched off": "/policies?mode=off", "Changed this week": "/policies?changed=week&sort=-updated",
	} {
		if links[name] != want {
			t.Errorf("%s leads to %q", name, links[name])
		}

		// The one that is shown is marked, and no other.
		_, filters, _ := strings.Cut(b.get(want).want(http.StatusOK).text, `class="filters"`)
		filters, _, _ = strings.Cut(filters, "</nav>")
		if n := strings.Count(filters, `aria-current="true">`); n != 1 {
			t.Errorf("%s: %d filters are marked", name, n)
		}
	}

	shadow := b.get("/policies?mode=shadow")
	if shadow.byID("policy-one") == nil || shadow.byID("policy-two") != nil {
		t.Error("the filter of policies in shadow shows others")
	}
	b.get("/policies?changed=year").want(http.StatusUnprocessableEntity)
}

func TestListBulkChangeAsksBeforeProtectionGoes(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two", "three"} {
		w.policy(name, "1/1s")
	}

	b := w.as("admin")
	page := "/policies?search=o&sort=-name"
	ticked := url.Values{"policy": {"1:one", "1:two"}, "do": {"off"}}
	asked := b.submit(page, "/policies/bulk", ticked).want(http.StatusOK)

	// Of these one has refused 10 requests and banned 6, and two has refused none.
	asked.has("Switch 2 policies off?", "In force now: one, two. In the last 24 hours they refused 16 requests.")

	if p, err := w.Policy(t.Context(), w.admin, "one"); err != nil || p.Version != 1 {
		t.Fatalf("it was changed before the confirmation: %+v %v", p, err)
	}

	form := asked.form("/policies/bulk")
	b.post("/policies/bulk", form).goesTo("/policies?search=o&sort=-name&done=bulk&at=")

	// Sent again, there is nothing left to change, and nothing to undo.
	b.post("/policies/bulk", form).goes("/policies?search=o&sort=-name&done=unchanged")

	for name, want := range map[string]policy.Mode{"one": policy.Off, "two": policy.Off, "three": policy.Enforce} {
		if p, err := w.Policy(t.Context(), w.admin, name); err != nil || p.Mode != want {
			t.Errorf("%s is %v, want %v (%v)", name, p.Mode, want, err)
		}
	}
}

func TestListBulkChangesAndTheirMistakes(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two", "three"} {
		w.policy(name, "1/1s")
	}

	b := w.as("admin")

	// These change what is there without a question, or with the confirmation that answers it.
	send := func(values url.Values) *answer { return b.submit("/policies", "/policies/bulk", values) }
	send(url.Values{"policy": {"1:one", "1:two"}, "do": {"off"}, "confirm": {"yes"}}).goesTo("/policies?done=bulk&at=")
	send(url.Values{"policy": {"2:one"}, "do": {"enforce"}}).
		goesTo("/policies?done=bulk&at=") // protects more, so there is no question

	// What takes protection away is asked about.
	if !strings.Contains(send(url.Values{"policy": {"3:one"}, "do": {"shadow"}}).want(http.StatusOK).text,
		"Put 1 policy in shadow?") {
		t.Error("shadow is not asked about")
	}

	// One stale policy refuses the change of both, and the list below has the versions of now.
	stale := send(url.Values{"policy": {"1:one", "1:three"}, "do": {"off"}}).want(http.StatusConflict)
	if !strings.Contains(stale.text, "one was changed in the meantime") ||
		strings.Contains(stale.text, "three was changed") || !slices.Contains(stale.ticks(), "3:one") {
		t.Error("a conflict is not shown above the list as it is now")
	}

	for name, values := range map[string]url.Values{
		"Tick the policies to change first.":   {"do": {"off"}},
		"Choose what to do with the policies.": {"policy": {"3:one"}, "do": {"explode"}},
		"is not a version and a policy":        {"policy": {"one"}, "do": {"off"}},
		"&#34;one&#34; is named twice":         {"policy": {"3:one", "3:one"}, "do": {"off"}},
	} {
		if got := send(values).want(http.StatusUnprocessableEntity); !strings.Contains(got.text, name) {
			t.Errorf("the page does not say %q", name)
		}
	}

	b.post("/policies/bulk", url.Values{"here": {"%zz"}}).want(http.StatusBadRequest)
}

func TestListTicksOnlyWhatMayBeChanged(t *testing.T) {
	w := newWorld(t)
	w.policy("mine", "1/1s")

	// The policy of two applications needs an owner of both.
	p := w.policy("shared", "1/1s")
	p.Apps = []string{"a", "b"}
	_, err := w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)

	w.person("owner", map[string]service.Role{"a": service.Owner})
	w.person("viewer", map[string]service.Role{"a": service.Viewer, "b": service.Viewer})
	for user, want := range map[string][]string{"owner": {"1:mine"}, "viewer": nil, "admin": {"1:mine", "2:shared"}} {
		got := w.as(user).get("/policies").want(http.StatusOK)
		if !slices.Equal(got.ticks(), want) {
			t.Errorf("%s may tick %v, want %v", user, got.ticks(), want)
		}

		if form := got.form("/policies/bulk"); (form != nil && has(got.byID("bulk"), "method")) != true {
			t.Errorf("%s has no list", user)
		}

		// Without anything to tick there are no buttons.
		buttons := strings.Contains(got.text, `name="do"`)
		if buttons != (want != nil) {
			t.Errorf("%s has buttons for a change: %v", user, buttons)
		}
	}

	// The form of another policy is refused, not cut down to what is permitted.
	w.as("owner").post("/policies/bulk", url.Values{"policy": {"1:mine", "2:shared"}, "do": {"off"}}).
		want(http.StatusForbidden)
}

// A page of fifty policies is small enough for a phone's connection.
func TestListIsSmall(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		w.policy(fmt.Sprintf("policy-%02d", i), "100/1m burst=20")
	}
	got := w.as("admin").get("/policies").want(http.StatusOK)
	if n := len(got.ticks()); n != 50 {
		t.Errorf("%d lines, want 50", n)
	}
	if n := len(got.text); n > 100<<10 {
		t.Errorf("the page has %d bytes", n)
	}
	t.Logf("50 policies: %d bytes", len(got.text))
}

// A mode has one name on all pages, and another one in files and in the API.
func TestModesHaveOneName(t *testing.T) {
	for _, c := range choices("mode") {
		if got := modeWords(c.Value); got != c.Words {
			t.Errorf("the form says %q of %s, and the chips say %q", c.Words, c.Value, got)
		}
	}
	if got := shown("mode", "enforce") + shown("limit", "off") + modeWords("<x>"); got != "in forceoff<x>" {
		t.Errorf("%q", got)
	}

	w := newWorld(t)
	w.shadowed("p", "")
	b := w.as("admin")
	b.agree("/policies/p", "/policies/p/mode", url.Values{"mode": {"off"}}).goes("/policies/p?done=mode")
	for path, want := range map[string]string{"/policies": "off", "/policies/p": "off",
		"/policies/p/history": "in shadow", "/policies/p/diff?from=1&to=2": "in shadow"} {
		page := b.get(path).want(http.StatusOK)
		if text := strings.Join(strings.Fields(words(page.byID("main"))), " "); !strings.Contains(text, want) ||
			strings.Contains(text, "Mode shadow") || strings.Contains(text, "Modeshadow") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// pagesOf follows the links to the next page from an address on, and returns the page on which each
// of the rows is. Links to the page before lead back.
func (w *world) pagesOf(b *browser, path, row string) (on map[string]int) {
	w.t.Helper()
	on = map[string]int{}
	previous := ""
	for page := 1; path != ""; page++ {
		got := b.get(path).want(http.StatusOK)
		for _, part := range strings.Split(got.text, row)[1:] {
			name, _, _ := strings.Cut(part, "<")
			on[name] = page
		}

		// From the second page a link leads to the first, whose address may be written in two ways.
		if back := linkOf(got.text, "prev"); (back == "") != (page == 1) || page > 2 && back != previous {
			w.t.Errorf("page %d leads back to %q", page, back)
		}

		previous, path = path, linkOf(got.text, "next")
	}
	return on
}

// linkOf returns the address of a link with a relation, or "".
func linkOf(text, rel string) string {
	_, rest, _ := strings.Cut(text, `<a rel="`+rel+`" href="`)
	address, _, _ := strings.Cut(rest, `"`)
	return strings.ReplaceAll(address, "&amp;", "&")
}

func TestUsersAreOnPages(t *testing.T) {
	w := newWorld(t)

	// With the administrator these are 231 users: two full pages of 100, and 31.
	for i := range 230 {
		_, err := w.CreateUser(t.Context(), w.admin, fmt.Sprintf("user-%03d", i))
		w.must(err)
	}

	b := w.as("admin")
	on := w.pagesOf(b, "/users", `<th scope="row"><a href="/users/`)
	if len(on) != 231 {
		t.Errorf("%d users are on the pages, want 231", len(on))
	}

	// The administrator comes first by name, so each page begins one user later.
	for name, want := range map[string]int{"admin": 1, "user-098": 1, "user-099": 2, "user-198": 2, "user-199": 3,
		"user-229": 3} {
		if got := on[name+`">`+name]; got != want {
			t.Errorf("%s is on page %d, want %d", name, got, want)
		}
	}

	// The search does not look at the case of letters: user-100 to user-199.
	if on := w.pagesOf(b, "/users?search=SER-1", `<th scope="row"><a href="/users/`); len(on) != 100 {
		t.Errorf("a search finds %d users, want 100", len(on))
	}

	if on := w.pagesOf(b, "/users?search=0", `<th scope="row"><a href="/users/`); len(on) != 131 ||
		on[`user-220">user-220`] != 2 {
		t.Errorf("a search finds %d users, want 131 on two pages", len(on))
	}

	// An address of a page that is not there is no error, as users may be gone.
	for _, path := range []string{"/users?page=0", "/users?page=4", "/users?page=x", "/users?page=-1"} {
		if got := b.get(path).want(http.StatusOK); !strings.Contains(got.text, ">admin<") ||
			!strings.Contains(got.text, "231 users") {
			t.Errorf("%s is not the first page", path)
		}
	}

	b.get("/users?search=nobody").want(http.StatusOK).has("No user matches.")

	// A mistake shows the first page again, and not all users.
	if got := b.post("/users", url.Values{"name": {"no way"}}).
		want(http.StatusUnprocessableEntity); len(got.text) > 60_000 || linkOf(got.text, "next") != "/users?page=2" {
		t.Errorf("the page of a mistake has %d bytes and leads to %q", len(got.text), linkOf(got.text, "next"))
	}
}

func TestApplicationsAreOnPages(t *testing.T) {
	w := newWorld(t)
	for i := range 99 {
		w.must(w.CreateApp(t.Context(), w.admin, fmt.Sprintf("app-%03d", i), ""))
	}
	if on := w.pagesOf(w.as("admin"), "/apps", `<th scope="row"><a href="/policies?app=`); len(on) != 101 ||
		on[`b">b`] != 2 {
		t.Errorf("%d applications are on the pages: %v", len(on), on)
	}
}

func TestHookShowsItsFirstAlerts(t *testing.T) {
	h := hook{}
	for i := range 3 {
		if got := len(h.First(2)); got != min(i, 2) || h.Further(2) != max(0, i-2) {
			t.Errorf("of %d alerts %d are shown, and %d others counted", i, got, h.Further(2))
		}
		h.Standing = append(h.Standing, service.Alert{})
	}
}
