package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

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

	if got := b.get("/users?search=nobody").want(http.StatusOK); !strings.Contains(got.text, "No user matches.") {
		t.Error("a search that finds none does not say so")
	}

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
