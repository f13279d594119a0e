package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// beside returns the part of a policy's page with the overrides as one line, or "".
func (a *answer) beside() string {
	if n := a.byID("overrides"); n != nil {
		return strings.Join(strings.Fields(words(n)), " ")
	}
	return ""
}

// byUser makes the policy p, which counts by users.
func (w *world) byUser() {
	w.t.Helper()
	p := w.policy("p", "5/1m")
	p.Key = "user"
	_, err := w.UpdatePolicy(w.t.Context(), w.admin, p)
	w.must(err)
}

// overrideForm is what the form of an override sends.
func overrideForm(key, limit, until string) url.Values {
	return url.Values{"key": {key}, "limit": {limit}, "until": {until}}
}

// One form gives a key a limit of its own until a time, and one button takes it away.
func TestOverridesOnThePageOfAPolicy(t *testing.T) {
	w := newWorld(t)
	w.byUser()
	b := w.as("admin")

	// There is nothing but the way to the first one.
	got := b.get("/policies/p").beside()
	if !strings.HasPrefix(got, "Give a single key a limit of its own Key") || strings.Contains(got, "Overrides") {
		t.Errorf("at first: %q", got)
	}

	form := overrideForm
	b.submit("/policies/p", "/policies/p/overrides", form("acme:*", " 9000/1h ", "2099-12-04T17:00")).
		goes("/policies/p?done=override")
	b.submit("/policies/p", "/policies/p/overrides", form("<b>", "7/1m", "")).goes("/policies/p?done=override")
	page := b.get("/policies/p?done=override")
	for _, want := range []string{"Overrides 2", "acme:* 9000/1h 2099-12-04 17:00:00", "<b> 7/1m no end",
		"by admin", "Remove the override of acme:*"} {
		if !strings.Contains(page.beside(), want) {
			t.Errorf("there is no %q in %q", want, page.beside())
		}
	}
	page.has("The override was saved.", "<code>&lt;b&gt;</code>")

	got = b.get("/policies/p?search=acme").beside()
	if !strings.Contains(got, "1 of 2 begin with acme") || strings.Contains(got, "7/1m") {
		t.Errorf("a search: %q", got)
	}
	if got = b.get("/policies/p?search=x").beside(); !strings.Contains(got, "No key begins so.") {
		t.Errorf("a search without a result: %q", got)
	}

	b.post("/policies/p/overrides", url.Values{"remove": {sentForm("acme:*")}}).goes("/policies/p?done=nooverride")
	b.post("/policies/p/overrides", url.Values{"remove": {"!"}}).want(http.StatusBadRequest)
	got = b.get("/policies/p").beside()
	if !strings.Contains(got, "Overrides 1") || strings.Contains(got, "acme:* 9000") {
		t.Errorf("after the removal: %q", got)
	}

	// Who may not change the policy sees them without a form.
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	if got = w.as("viewer").get("/policies/p").beside(); !strings.Contains(got, "<b> 7/1m") ||
		strings.Contains(got, "Remove") || strings.Contains(got, "Set the limit") {
		t.Errorf("a viewer: %q", got)
	}
}

// A mistake stands at its field, and what was typed stays.
func TestMistakesInTheFormOfAnOverride(t *testing.T) {
	w := newWorld(t)
	w.byUser()
	b := w.as("admin")
	for _, row := range []struct{ key, limit, until, want string }{
		{"k", "5", "", `limit "5"`},
		{"k", "", "", "it is empty; write a limit such as 100/1m"},
		{"k", "5/1m", "2020-01-01T00:00", "it has passed already"},
		{"k", "5/1m", "soon", "it is not a date and a time, such as 2030-01-31T09:00"},
		{"", "5/1m", "", "the key is empty"},
	} {
		form := overrideForm(row.key, row.limit, row.until)
		a := b.post("/policies/p/overrides", form).want(http.StatusUnprocessableEntity)
		if !strings.Contains(a.beside(), row.want) || !strings.Contains(a.text, `name="limit" value="`+row.limit+`"`) {
			t.Errorf("%+v: %q", row, a.beside())
		}
	}
}

// A policy that counts all callers together has none, and no form for one.
func TestNoOverridesOfAllCallers(t *testing.T) {
	w := newWorld(t)
	p := w.policy("p", "5/1m")
	p.Key = "global"
	_, err := w.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)
	if got := w.as("admin").get("/policies/p").beside(); got != "" {
		t.Errorf("%q", got)
	}
}

// More than go on a page are on several, in the order of the keys.
func TestOverridesOnSeveralPages(t *testing.T) {
	w := newWorld(t)
	w.byUser()
	var list []service.OverrideChange
	for i := range perPage + 1 {
		list = append(list, service.OverrideChange{Key: "k" + strings.Repeat("x", i), Limit: "5/1m"})
	}
	_, err := w.ChangeOverrides(t.Context(), w.admin, "p", list)
	w.must(err)

	b := w.as("admin")
	first := b.get("/policies/p?search=k")
	next := linkOf(first.text, "next")
	if next == "" || !strings.Contains(first.beside(), "101 of 101") {
		t.Fatalf("%q leads to %q", first.beside(), next)
	}
	second := b.get(next)
	next = linkOf(second.text, "next")
	if rows := strings.Count(second.beside(), "Remove the override of"); rows != 1 || next != "" {
		t.Errorf("the second page has %d rows, and leads to %q", rows, next)
	}
}
