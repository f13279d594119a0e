package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

func TestPolicyIsCreatedReadSavedAndDeleted(t *testing.T) {
	w := newWorld(t)

	// The limit comes back in its short form, and the version and the author are set by the
	// console.
	created := w.ask("owner", "PUT", "/api/policies/login", login(object{"limit": "60/60s",
		"match": object{"methods": []string{"POST"}, "path": "/login"}, "mode": "shadow", "priority": -3}),
		"If-None-Match", "*").want(201)

	if tag := created.header.Get("ETag"); tag != `"1"` {
		t.Errorf("the tag is %s", tag)
	}
	created.wantValue("login", "name").wantValue("60/1m", "limit").wantValue("shadow", "mode").
		wantValue(-3, "priority").
		wantValue(1, "version").wantValue("owner", "created_by").wantValue("2026-03-01T12:00:00Z", "created_at").
		wantValue("/login", "match", "path")

	read := w.ask("viewer", "GET", "/api/policies/login", nil).want(200)
	if read.text != created.text || read.header.Get("ETag") != `"1"` {
		t.Errorf("%s %s", read.header.Get("ETag"), read.text)
	}

	// What was read is sent back whole, with one change: fields that only the console sets are no
	// mistake.
	back := read.json.(object)
	back["description"] = "slow down guessing"
	saved := w.ask("owner", "PUT", "/api/policies/login", back, "If-Match", `"1"`).want(200).wantValue(2, "version").
		wantValue("slow down guessing", "description")

	if saved.header.Get("ETag") != `"2"` {
		t.Errorf("the tag is %s", saved.header.Get("ETag"))
	}

	// A deletion is a version of its own, the third, so a second one is stale.
	w.ask("owner", "DELETE", "/api/policies/login", nil, "If-Match", `"2"`).want(204)
	w.ask("owner", "GET", "/api/policies/login", nil).want(404)
	w.ask("owner", "DELETE", "/api/policies/login", nil, "If-Match", `"2"`).want(412).wantValue(true, "conflict",
		"deleted").wantValue(3, "conflict", "current").wantValue(nil, "conflict", "theirs")

	w.ask("owner", "DELETE", "/api/policies/none", nil, "If-Match", `"2"`).want(404)
}

func TestPreconditionInBodyOrQuery(t *testing.T) {
	w := newWorld(t)
	w.ask("owner", "PUT", "/api/policies/p", login(object{"version": 1, "priority": 1})).want(200).
		wantValue(2, "version")
	w.ask("owner", "PUT", "/api/policies/p", login(object{"version": 1, "priority": 2})).want(409).
		wantValue(1, "conflict", "based_on").wantValue(2, "conflict", "current")
	w.ask("owner", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 2}).want(200).wantValue(3, "version")
	w.ask("owner", "POST", "/api/policies/p/rollback", object{"to": 1, "version": 3}).want(200).wantValue(4, "version")
	w.ask("owner", "DELETE", "/api/policies/p?version=3", nil).want(409).
		wantValue(4, "conflict", "theirs", "version").wantValue(nil, "conflict", "mine")
	w.ask("owner", "DELETE", "/api/policies/p?version=4", nil).want(204)
}

func TestPreconditionIsRequired(t *testing.T) {
	w := newWorld(t)

	// Each row is a way to say nothing, or nothing certain, of the version that one has seen.
	for name, c := range map[string]struct {
		status  int
		code    string
		headers []string
	}{
		"nothing":            {428, "precondition-required", nil},
		"any version":        {400, "precondition", []string{"If-Match", "*"}},
		"a weak tag":         {400, "precondition", []string{"If-Match", `W/"1"`}},
		"no tag":             {400, "precondition", []string{"If-Match", "1"}},
		"two tags":           {400, "precondition", []string{"If-Match", `"1", "2"`}},
		"version 0":          {400, "precondition", []string{"If-Match", `"0"`}},
		"a version below 0":  {400, "precondition", []string{"If-Match", `"-1"`}},
		"a version too high": {400, "precondition", []string{"If-Match", `"99999999999999999999"`}},
		"a tag it is not":    {400, "precondition", []string{"If-None-Match", `"1"`}},
		"both":               {400, "precondition", []string{"If-Match", `"1"`, "If-None-Match", "*"}},
		"another version":    {412, "stale", []string{"If-Match", `"2"`}},
	} {
		for path, body := range map[string]object{
			"/api/policies/p":      login(object{"priority": 5}),
			"/api/policies/p/mode": {"mode": "off"},
		} {
			a := w.ask("owner", "PUT", path, body, c.headers...)
			if a.status != c.status || a.get("code") != c.code {
				t.Errorf("%s: %s: %d %v, want %d %s", name, path, a.status, a.get("code"), c.status, c.code)
			}
		}

		if a := w.ask("owner", "DELETE", "/api/policies/p", nil, c.headers...); a.status != c.status {
			t.Errorf("%s: the deletion: %d, want %d", name, a.status, c.status)
		}
	}

	// A version in the body and one in a header must agree.
	w.ask("owner", "PUT", "/api/policies/p", login(object{"version": 2}), "If-Match", `"1"`).wantField("version")
	w.ask("owner", "PUT", "/api/policies/new", login(object{"version": 2}), "If-None-Match", "*").wantField("version")
	w.ask("owner", "GET", "/api/policies/p", nil).want(200).wantValue(1, "version")
}

func TestPutRepeatedMakesOneRevision(t *testing.T) {
	w := newWorld(t)

	// A client that got no answer sends the same request again, and must not find its own change in
	// the way.
	repeat := func(method, path string, body object, headers ...string) {
		t.Helper()
		first := w.ask("owner", method, path, body, headers...)
		if first.status != 200 && first.status != 201 {
			t.Fatalf("%d %s", first.status, first.text)
		}

		for range 5 {
			again := w.ask("owner", method, path, body, headers...).want(200)
			if again.text != first.text || again.header.Get("ETag") != first.header.Get("ETag") {
				t.Errorf("%s %s: first\n%s\nand then\n%s", method, path, first.text, again.text)
			}
		}
	}

	// Each kind of change, one after another.
	repeat("PUT", "/api/policies/login", login(nil), "If-None-Match", "*")
	repeat("PUT", "/api/policies/login", login(object{"priority": 1}), "If-Match", `"1"`)
	repeat("PUT", "/api/policies/login", login(object{"priority": 2, "version": 2}))
	repeat("PUT", "/api/policies/login/mode", object{"mode": "shadow"}, "If-Match", `"3"`)
	repeat("POST", "/api/policies/login/rollback", object{"to": 1}, "If-Match", `"4"`)

	history := w.ask("owner", "GET", "/api/policies/login/history", nil).want(200)
	if got, want := history.names("revisions", "action"),
		[]string{"rollback", "update", "update", "update", "create"}; !slices.Equal(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
}

func TestPutStaleGetsBothVersions(t *testing.T) {
	w := newWorld(t)

	// The administrator was faster, so the owner's version 1 is stale.
	w.ask("administrator", "PUT", "/api/policies/p", login(object{"priority": 1}), "If-Match", `"1"`).want(200)
	// The version in a header is a precondition that fails, and the one in the body a conflict.
	for _, c := range []struct {
		status  int
		version int
		headers []string
	}{{412, 0, []string{"If-Match", `"1"`}}, {409, 1, nil}} {
		a := w.ask("owner", "PUT", "/api/policies/p", login(object{"priority": 2, "version": c.version}),
			c.headers...).want(c.status)
		a.wantValue("stale", "code").wantValue(1, "conflict", "based_on").wantValue(2, "conflict", "current").
			wantValue(false, "conflict", "deleted").
			wantValue(2, "conflict", "mine", "priority").wantValue(1, "conflict", "theirs", "priority").
			wantValue("admin", "conflict", "theirs", "updated_by")
	}

	// A creation is based on no version.
	w.ask("owner", "PUT", "/api/policies/p", login(nil), "If-None-Match", "*").want(412).
		wantValue(0, "conflict", "based_on").wantValue(2, "conflict", "current")

	// The stranger may not see p and hence gets no version of it, only that the name is taken.
	w.ask("stranger", "PUT", "/api/policies/p", login(object{"apps": []string{"b"}}), "If-None-Match", "*").
		wantField("name")

	// With a deletion in between, mine is all that is left to show.
	w.ask("administrator", "DELETE", "/api/policies/p", nil, "If-Match", `"2"`).want(204)
	w.ask("owner", "PUT", "/api/policies/p", login(object{"priority": 9}), "If-Match", `"2"`).want(412).
		wantValue(true, "conflict", "deleted").wantValue(nil, "conflict", "theirs").
		wantValue(9, "conflict", "mine", "priority")
}

func TestPoliciesAreFoundSortedAndPaged(t *testing.T) {
	w := newWorld(t)

	// The odd ones are of b and off, the even ones of a and in force.
	for i := range 5 {
		w.ask("administrator", "PUT", fmt.Sprintf("/api/policies/x%d", i), login(object{
			"apps": []string{[]string{"a", "b"}[i%2]}, "priority": i + 1, "mode": []string{"enforce", "off"}[i%2],
			"description": fmt.Sprintf("number %d", i),
		}), "If-None-Match", "*").want(201)
	}
	// A percent sign is a character and no pattern.
	for query, want := range map[string][]string{
		"":                     {"p", "x0", "x1", "x2", "x3", "x4"},
		"?sort=-priority":      {"x4", "x3", "x2", "x1", "x0", "p"},
		"?app=b":               {"x1", "x3"},
		"?mode=off&sort=-name": {"x3", "x1"},
		"?search=NUMBER+3":     {"x3"},
		"?page=2&per_page=4":   {"x3", "x4"},
		"?page=9":              {},
		"?search=%25":          {},
	} {
		a := w.ask("administrator", "GET", "/api/policies"+query, nil).want(200)
		if got := a.names("policies", "name"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}

	w.ask("administrator", "GET", "/api/policies?page=2&per_page=4", nil).wantValue(6, "total").wantValue(2, "page").
		wantValue(2, "pages").wantValue(4, "per_page")

	// A stranger sees what is of b.
	if got := w.ask("stranger", "GET", "/api/policies", nil).
		names("policies", "name"); !slices.Equal(got, []string{"x1", "x3"}) {
		t.Errorf("a stranger sees %q", got)
	}
	// A name that is written wrong, or twice, is a mistake: it would be ignored otherwise.
	for query, field := range map[string]string{
		"?page=x": "page", "?page=-1": "page", "?per_page=1.5": "per_page", "?sort=limit": "sort", "?mode=on": "mode",
		"?app=%20": "app", "?page=null": "page", "?page=2147483648": "page", "?refusing=2": "refusing", "?app=%ff": "app",
		"?serach=x": "serach", "?page=1&page=2": "page",
	} {
		w.ask("administrator", "GET", "/api/policies"+query, nil).wantField(field)
	}

	w.ask("administrator", "GET", "/api/policies?page=%zz", nil).want(400)
}

func TestCurrentTagGets304(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/api/policies", "/api/policies/p", "/api/policies/p/history", "/api/apps"} {
		first := w.ask("administrator", "GET", path, nil).want(200)
		tag := first.header.Get("ETag")
		if tag == "" {
			t.Fatalf("%s has no tag", path)
		}

		// The tag is found in a list, and counts as the same when it is weak.
		for _, have := range []string{tag, `"other", ` + tag, "W/" + strings.TrimPrefix(tag, "W/")} {
			if a := w.ask("administrator", "GET", path, nil, "If-None-Match", have); a.status != 304 || a.text != "" {
				t.Errorf("%s: %s: %d %s", path, have, a.status, a.text)
			}
		}
		w.ask("administrator", "GET", path, nil, "If-None-Match", `"other"`).want(200)
	}

	// A change gives another tag.
	before := w.ask("administrator", "GET", "/api/policies", nil).header.Get("ETag")
	w.ask("owner", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 1}).want(200)
	w.ask("administrator", "GET", "/api/policies", nil, "If-None-Match", before).want(200)
	w.ask("administrator", "GET", "/api/policies/p", nil, "If-None-Match", `"1"`).want(200)
}

func TestHistoryDiffAndRollback(t *testing.T) {
	w := newWorld(t)

	// Three versions: the creation, an update and a deletion.
	w.ask("owner", "PUT", "/api/policies/p", login(object{"limit": "7/1m", "version": 1})).want(200)
	w.ask("owner", "DELETE", "/api/policies/p?version=2", nil).want(204)
	history := w.ask("owner", "GET", "/api/policies/p/history", nil).want(200)
	if got := history.names("revisions", "action"); !slices.Equal(got, []string{"delete", "update", "create"}) {
		t.Fatal(got)
	}

	// Paging goes on below a version.
	older := w.ask("owner", "GET", "/api/policies/p/history?before=2&per_page=1", nil).want(200)
	if got := older.names("revisions", "action"); !slices.Equal(got, []string{"create"}) {
		t.Error(got)
	}

	w.ask("owner", "GET", "/api/policies/p/history/2", nil).want(200).wantValue("owner", "by").
		wantValue("100/1m", "before", "limit").wantValue("7/1m", "after", "limit")
	want := []any{object{"field": "limit", "before": "100/1m", "after": "7/1m"}}
	if got := w.ask("owner", "GET", "/api/policies/p/diff?from=1&to=2", nil).want(200).
		get("changes"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}

	// A deletion has no policy, so every field differs from it.
	if got := w.ask("owner", "GET", "/api/policies/p/diff?from=3&to=2", nil).want(200).
		names("changes", "field"); !slices.Contains(got, "name") {
		t.Errorf("against a deletion: %q", got)
	}

	w.ask("owner", "GET", "/api/policies/p/diff?from=1", nil).wantField("to")
	w.ask("owner", "GET", "/api/policies/p/diff?from=1&to=9", nil).want(404)
	w.ask("owner", "GET", "/api/policies/p/history/x", nil).want(404)
	w.ask("owner", "GET", "/api/policies/p/history/9", nil).want(404)

	// A roll-back brings back what is deleted, on top of the version 3.
	w.ask("owner", "POST", "/api/policies/p/rollback", object{"to": 1}, "If-Match", `"2"`).want(412).
		wantValue(3, "conflict", "current")
	w.ask("owner", "POST", "/api/policies/p/rollback", object{"to": 3}, "If-Match", `"3"`).wantField("to")
	w.ask("owner", "POST", "/api/policies/p/rollback", object{"to": 0}, "If-Match", `"3"`).wantField("to")
	w.ask("owner", "POST", "/api/policies/p/rollback", object{"to": 1}, "If-Match", `"3"`).want(200).
		wantValue(4, "version").wantValue("100/1m", "limit")
}

func TestValidateNamesEveryMistake(t *testing.T) {
	w := newWorld(t)

	// Every field has a mistake, and fields of the match are named with it.
	bad := object{"name": "Bad Name", "apps": []string{}, "limit": "many", "key": "x",
		"match":    object{"methods": []string{"get"}, "host": "A:1", "path": "x"},
		"on_limit": "panic", "on_store_error": "maybe", "mode": "on", "priority": 2_000_000,
		"description": strings.Repeat("x", policy.MaxText+1)}
	want := []string{"apps", "description", "key", "limit", "match.host", "match.methods", "match.path", "mode",
		"name", "on_limit", "on_store_error", "priority"}

	a := w.ask("viewer", "POST", "/api/validate", bad).want(200).wantValue(false, "valid").wantValue("", "sentence").
		wantValue("", "limit")
	got := a.fields()
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the mistakes are in %q, want %q", got, want)
	}

	// A save finds the same ones.
	got = w.ask("owner", "PUT", "/api/policies/new", bad, "If-None-Match", "*").want(422).fields()
	if slices.Sort(got); !slices.Equal(slices.Compact(got), want) {
		t.Errorf("the mistakes of a save are in %q, want %q", got, want)
	}

	// The limit is shown in its short form, and may_save depends on who asks.
	good := login(object{"name": "x", "limit": "60/60000ms burst=60"})
	w.ask("owner", "POST", "/api/validate", good).want(200).wantValue(true, "valid").wantValue(true, "may_save")
	a = w.ask("viewer", "POST", "/api/validate", good).want(200).wantValue(false, "may_save")
	if a.get("limit") == "60/60000ms burst=60" || a.get("limit") == "" ||
		!strings.HasPrefix(a.get("sentence").(string), "60 requests a minute") {
		t.Error(a.text)
	}
}

func TestPutNameMustMatchThePath(t *testing.T) {
	w := newWorld(t)
	w.ask("owner", "PUT", "/api/policies/x", login(object{"name": "y"}), "If-None-Match", "*").wantField("name")
	w.ask("owner", "PUT", "/api/policies/x", login(object{"name": "x"}), "If-None-Match", "*").want(201)
}

func TestTesterListsApplyingPolicies(t *testing.T) {
	w := newWorld(t)

	put := func(name string, change object) {
		t.Helper()
		w.ask("administrator", "PUT", "/api/policies/"+name, login(change), "If-None-Match", "*").want(201)
	}

	put("login", object{"match": object{"methods": []string{"POST"}, "path": "/login"}, "priority": 5})
	put("host", object{"match": object{"host": "*.example.com"}, "priority": 9, "mode": "shadow"})
	put("off", object{"mode": "off"})
	put("other", object{"apps": []string{"b"}})
	put("export", object{"match": object{"query": object{"x": []string{"1", "2"}}, "claims": object{"plan": "free"}}})

	// The policy p of newWorld applies to all requests of the application a, and off to none. other
	// is of b, of which the stranger is an owner. The administrator sees all. The highest priority
	// comes first, and then the name decides.
	for _, c := range []struct {
		as   string
		ask  object
		want []string
	}{
		// Paths match in any case and with a slash at the end.
		{"owner", object{"app": "a", "method": "POST", "path": "/LOGIN/"}, []string{"login", "p"}},
		{"owner", object{"app": "a", "path": "/login"}, []string{"p"}},
		{"owner", object{"app": "a", "path": "/", "host": "www.example.com:8080"}, []string{"host", "p"}},
		// The route, where the program names it, takes the place of the path.
		{"owner", object{"app": "a", "method": "POST", "path": "/x", "route": "/login"}, []string{"login", "p"}},
		{"owner", object{"path": "/?x=2", "claims": object{"plan": []string{"a", "free"}}}, []string{"export", "p"}},
		{"owner", object{"path": "/?x=3", "claims": object{"plan": "free"}}, []string{"p"}},
		{"administrator", object{"path": "/"}, []string{"other", "p"}},
		{"stranger", object{"path": "/"}, []string{"other"}},
		{"stranger", object{"app": "a", "path": "/"}, []string{}},
	} {
		a := w.ask(c.as, "POST", "/api/test", c.ask).want(200)
		if got := a.names("policies", "name"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v: %q, want %q", c.as, c.ask, got, c.want)
		}
	}

	w.ask("owner", "POST", "/api/test", object{"path": "x", "app": " "}).wantField("path").wantField("app")
}

func TestTesterReadsEveryPage(t *testing.T) {
	w := newWorld(t)
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range service.MaxPerPage + 3 {
		fmt.Fprintf(&text, "- name: n%d\n  apps: [a]\n  limit: 1/1s\n  key: ip\n", i)
	}
	w.ask("owner", "POST", "/api/import", text.String(), "Content-Type", "application/yaml").want(200)
	a := w.ask("owner", "POST", "/api/test", object{"path": "/"}).want(200)
	if n := len(a.names("policies", "name")); n != service.MaxPerPage+4 {
		t.Errorf("%d apply, want %d", n, service.MaxPerPage+4)
	}
}

// Plans and lists are saved, answered and sent back unchanged, and their mistakes are named.
func TestPoliciesHavePlansAndAccess(t *testing.T) {
	w := newWorld(t)

	p := login(object{"key": "user", "plans": object{"pro-2": "9000/1h"}, "plan_by": "claim",
		"access": object{"allow": object{"networks": []string{"10.0.0.0/8"}},
			"deny": object{"keys": []string{"mallory"}}, "deny_others": true, "deny_status": 429}})

	w.ask("owner", "PUT", "/api/policies/planned", p, "If-None-Match", "*").want(201).
		wantValue("9000/1h", "plans", "pro-2").wantValue(429, "access", "deny_status")
	w.ask("owner", "GET", "/api/policies/planned", nil).want(200).wantValue("claim", "plan_by").
		wantValue(true, "access", "deny_others")

	// An empty name of the function, plans in another algorithm and with a bad name, and all
	// networks denied.
	p["plans"], p["plan_by"], p["access"] = object{"pro": "1/1h sliding-log", "Big": "x"}, "",
		object{"deny": object{"networks": []string{"::/0"}}}
	got := w.ask("owner", "PUT", "/api/policies/planned", p, "If-Match", `"1"`).want(422).fields()
	if slices.Sort(got); !slices.Equal(slices.Compact(got), []string{"access", "plan_by", "plans.Big", "plans.pro"}) {
		t.Errorf("the mistakes are in %q", got)
	}

	// Of the wrong type, they are mistakes of the body and not of the policy.
	p["plans"], p["access"] = []string{"pro"}, object{"deny_others": 1}
	got = w.ask("owner", "PUT", "/api/policies/planned", p, "If-Match", `"1"`).want(422).fields()
	if slices.Sort(got); !slices.Equal(slices.Compact(got), []string{"access.deny_others", "plans"}) {
		t.Errorf("the mistakes are in %q", got)
	}
}

// A policy that refuses more than the saved one of its name says what it would have refused, to
// those who see that.
func TestValidateSaysWhatWouldBeRefused(t *testing.T) {
	w := newWorld(t)
	w.api.o.Service = newService(w.db, nil)
	tighter := login(object{"name": "p", "limit": "99/1m"}) // p has 100/1m

	// Whose policy it is not is told as if there were none.
	for as, told := range map[string]bool{"owner": true, "viewer": true, "stranger": false} {
		a := w.ask(as, "POST", "/api/validate", tighter).want(200)
		text, _ := a.get("consequence").(string)
		if a.get("would_refuse") != nil != told ||
			told != strings.HasSuffix(text, " is not known: the console was started without Redis.") {
			t.Errorf("%s is told %v, %q", as, a.get("would_refuse"), text)
		}
	}
	for _, change := range []object{{"name": "p", "limit": "100/1m"}, {"name": "p", "limit": "101/1m"},
		{"name": "other", "limit": "1/1m"}} {
		draft := login(change)
		a := w.ask("owner", "POST", "/api/validate", draft).want(200)
		if got := a.get("would_refuse"); got != nil {
			t.Errorf("%v: %v", draft, got)
		}
	}
}

func TestChangesHaveComments(t *testing.T) {
	w := newWorld(t)

	w.ask("owner", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 1, "comment": "repair"}).
		want(200)
	w.ask("owner", "GET", "/api/policies/p/history/2", nil).wantValue("repair", "comment")

	w.ask("owner", "DELETE", "/api/policies/p?version=2&comment=gone", nil).want(204)
	w.ask("owner", "GET", "/api/policies/p/history/3", nil).wantValue("gone", "comment")
}

func TestListIsFiltered(t *testing.T) {
	w := newWorld(t)
	w.ask("owner", "PUT", "/api/policies/p/mode", object{"mode": "off", "version": 1}).want(200)

	w.ask("owner", "GET", "/api/policies?mode=off&changed=day&sort=-share", nil).want(200).wantValue(1, "total")
	w.ask("owner", "GET", "/api/policies?mode=enforce", nil).want(200).wantValue(0, "total")
	w.ask("owner", "GET", "/api/policies?refusing=true", nil).want(200).wantValue(0, "total")
	w.ask("owner", "GET", "/api/policies?refusing=yes&changed=x", nil).want(422).wantField("refusing")
}
