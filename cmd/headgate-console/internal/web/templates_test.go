package web

import (
	"context"
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

// Each start leads to a form that needs no more than an application, and then makes the policy of
// the start, in shadow, which a program can follow.
func TestStarts(t *testing.T) {
	w, b := asAdmin(t)

	page := b.get("/new").want(http.StatusOK)
	var names []string
	for _, s := range vocabulary.Starts {
		name := s.Policy.Name
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			link := "/new?template=" + name
			if !page.links(link) {
				t.Error("the form of a new policy does not lead to it")
			}
			form := b.get(link).want(http.StatusOK)
			text := words(form.byID("preview"))
			if !strings.Contains(text, "Still to fill in: Applications") || !form.draws(s.Policy.Limit.String()) {
				t.Errorf("the preview is %q", text)
			}

			// Where the program has to do something, the form says so.
			if n := form.byID("needs"); (n != nil) != (s.Needs != "") || n != nil && words(n) != s.Needs {
				t.Error("the form does not say what the program needs, or says it in vain")
			}

			// The application is all that the form still needs.
			b.submit(link, "/new", url.Values{"apps": {"b"}}).goes("/policies/" + name + "?done=created")
			got, err := w.Policy(t.Context(), w.admin, name)
			w.must(err)

			made := s.Policy
			made.Apps = []string{"b"}
			if d := service.Diff(made, got); len(d) != 0 || got.Mode != policy.Shadow {
				t.Errorf("the policy differs from the start: %v", d)
			}
			follows(t, got)
		})
	}

	// A start that is added or dropped has to be decided here as well.
	if want := []string{"public-api", "login", "report", "llm-tokens", "plans", "webhook"}; !slices.Equal(names, want) {
		t.Errorf("the starts are %v, want %v", names, want)
	}
}

// follows checks that a program can follow a policy, once it is enforced. Only that of plans needs
// something of the program.
func follows(t *testing.T, p policy.Policy) {
	t.Helper()
	p.Mode = policy.Enforce

	if err := p.Validate(); err != nil {
		t.Error(err)
	}

	bindings := policy.Bindings{
		User:  func(core.Request) (string, bool) { return "ada", true },
		Plans: map[string]policy.PlanFunc{"user": func(context.Context, string) (string, error) { return "", nil }},
	}
	if _, err := policy.Compile("b", []policy.Policy{p}, bindings); err != nil {
		t.Error(err)
	}
	// Plans are a function of the program, which a program without bindings lacks.
	if _, err := policy.Compile("b", []policy.Policy{p}, policy.Bindings{}); (err != nil) != (p.Name == "plans") {
		t.Errorf("a program without bindings: %v", err)
	}
}

// A name that is taken gets a number, and that of a policy which the user may not see does not.
func TestTemplateNamesAreFree(t *testing.T) {
	w := newWorld(t)
	w.person("owner", map[string]service.Role{"b": service.Owner})
	admin, owner := w.as("admin"), w.as("owner")

	name := func(b *browser, page string) string { return b.get(page).want(http.StatusOK).form("/new").Get("name") }

	// Each name is taken by the policy that is made under it.
	for _, want := range []string{"login", "login-2", "login-3"} {
		if got := name(admin, "/new?template=login"); got != want {
			t.Errorf("the name is %q, want %q", got, want)
		}
		w.policy(want, "5/1m")
	}

	// The owner of b does not see the policy of a: a number would reveal that the name is taken.
	before := w.refusals()
	if got := name(owner, "/new?template=login"); got != "login" {
		t.Errorf("the name %q reveals a policy of others", got)
	}
	if w.refusals() != before {
		t.Error("to open a template is a refusal in the audit log")
	}

	// A copy of the longest name is cut, and then once more for its number.
	long := strings.Repeat("x", policy.MaxName)
	for _, p := range []string{long, long[:policy.MaxName-5] + "-copy"} {
		w.policy(p, "5/1m")
	}
	if got, want := name(admin, "/new?from="+long), long[:policy.MaxName-5]+"-co-2"; got != want {
		t.Errorf("the copy is called %q, want %q", got, want)
	}
}

// The form has the application that the link names, or the only one of the user.
func TestTemplateApplication(t *testing.T) {
	w := newWorld(t)
	w.person("owner", map[string]service.Role{"b": service.Owner, "a": service.Viewer})
	admin, owner := w.as("admin"), w.as("owner")

	// Of two applications, the owner of b may create policies in b alone, so it is chosen.
	for _, row := range []struct {
		b    *browser
		page string
		want []string
	}{
		{admin, "/new?template=login", nil}, {admin, "/new?template=login&app=b", []string{"b"}},
		{admin, "/new?app=none", nil},
		{owner, "/new?template=login", []string{"b"}}, {owner, "/new?template=login&app=a", []string{"b"}},
	} {
		if got := row.b.get(row.page).want(http.StatusOK).form("/new")["apps"]; !slices.Equal(got, row.want) {
			t.Errorf("%s: the applications are %v, want %v", row.page, got, row.want)
		}
	}

	if !admin.get("/new?app=b").want(http.StatusOK).links("/new?app=b&template=webhook") {
		t.Error("the templates do not keep the application")
	}

	if !admin.get("/apps").links("/new?app=b") || owner.get("/apps").links("/new?app=a") {
		t.Error("the applications do not lead to a new policy for those, and only those, who may create one")
	}
}

func TestTemplatesOfHostileNames(t *testing.T) {
	_, b := asAdmin(t)

	// A template is a path of nothing: names of files and a zero byte are templates that are not
	// there.
	for _, text := range append(injections(), "../../etc/passwd", "login\x00", strings.Repeat("x", 5000)) {
		q := url.QueryEscape(text)
		b.get("/new?template=" + q).want(http.StatusNotFound).harmless("the template " + text)

		got := b.get("/new?app=" + q).want(http.StatusOK)
		got.harmless("the application " + text)
		if !got.links("/new?" + url.Values{"app": {text}, "template": {"login"}}.Encode()) {
			t.Errorf("the links lose the application %q", text)
		}

		// An application that does not exist is not ticked.
		if f := b.get("/new?template=login&app=" + q).want(http.StatusOK).form("/new"); f["apps"] != nil {
			t.Errorf("the form has the applications %q", f["apps"])
		}
	}
}

// The form asks in the order of its sentences. What is rare is folded to a line that says what is
// there, and open where something is wrong.
func TestFormOrderAndFolds(t *testing.T) {
	_, b := asAdmin(t)
	page := b.get("/new?app=a").want(http.StatusOK)

	// The places rise from one id to the next, which is the order on the page.
	at := -1
	for _, id := range []string{"name", "apps", "description", "methods", "path", "narrowed", "key", "quota", "period",
		"counting", "burst", "plans", "on_limit", "banning", "access", "on_store_error", "mode", "priority", "comment",
		"preview"} {
		place := strings.Index(page.text, ` id="`+id+`"`)
		if place <= at {
			t.Errorf("%s is not after what comes before it", id)
		}
		at = place
	}

	folds := func(a *answer) (open []string, said map[string]string) {
		said = map[string]string{}
		for _, p := range vocabulary.Parts {
			n := a.byID(p.ID)
			if has(n, "open") {
				open = append(open, p.ID)
			}
			said[p.ID] = words(n.FirstChild)
		}
		return open, said
	}

	for name, want := range map[string]map[string]string{
		"": {"counting": "+ burst, debt, exact window, calendar, at the same time",
			"banning": "+ ban callers who go on"},
		"login":   {"counting": "Sliding log Change", "banning": "Ban after 20 refusals in 1m for 10m, up to 24h Change"},
		"plans":   {"planned": "Plans free: 1000/1h, pro: 100000/1h burst=500 · Plan by user Change"},
		"webhook": {"counting": "At once at most 50 Change"},
	} {
		open, said := folds(b.get("/new?template=" + name).want(http.StatusOK))
		if len(open) > 0 {
			t.Errorf("%s: these are open: %v", name, open)
		}
		for id, text := range want {
			if said[id] != text {
				t.Errorf("%s: %s says %q, want %q", name, id, said[id], text)
			}
		}
	}

	// A mistake would be hard to find in a part that is closed.
	for field, want := range map[string]string{
		"ban_for": "banning", "debt": "counting", "segments": "counting", "algorithm": "counting", "plans": "planned",
		"deny_status": "excepting", "priority": "gradual", "warn": "gradual", "host": "narrowed", "cost": "priced",
		"headers": "narrowed",
	} {
		got := b.submit("/new?app=a", "/new", url.Values{"name": {"x"}, field: {"? ?"}}).
			want(http.StatusUnprocessableEntity)
		if open, _ := folds(got); !slices.Equal(open, []string{want}) {
			t.Errorf("with a mistake in %s these are open: %v, want %s", field, open, want)
		}
	}
}

// The words do not wait for the name and the application, and the preview says what is missing.
func TestPreviewSaysWhatIsMissing(t *testing.T) {
	_, b := asAdmin(t)
	form := filled()

	// The rows change the same draft one after another.
	for _, row := range []struct {
		change func()
		says   string
		open   []string
	}{
		{func() {}, "100 requests a minute for each address; others are counted and pass (in shadow).",
			[]string{"Name", "Applications"}},
		{func() { form.Set("name", "No Name") }, "100 requests a minute", []string{"Name", "Applications"}},
		{func() { form["name"], form["apps"] = []string{"x"}, []string{"a"} }, "100 requests a minute", nil},
		{func() { form.Set("period", "0") }, "This appears as soon as", []string{"Period"}},
		{func() { form["quota"], form["path"] = []string{"0"}, []string{"x"} }, "This appears as soon as",
			[]string{"Path", "Requests", "Period"}},
	} {
		row.change()

		got := b.get("/validate?" + form.Encode()).want(http.StatusOK)

		// The links of the paragraph lead to the fields that are still open.
		var open []string
		got.each(func(n *html.Node) {
			if n.Data == "p" && attr(n, "class") == "open" {
				for a := range n.Descendants() {
					if a.Data == "a" {
						open = append(open, words(a))
					}
				}
			}
		})

		if !got.says(row.says) || !slices.Equal(open, row.open) {
			t.Errorf("%+v: the preview is %s", row.open, got.text)
		}
	}
}

// says reports whether a paragraph begins with a text.
func (a *answer) says(text string) (found bool) {
	a.each(func(n *html.Node) { found = found || n.Data == "p" && strings.HasPrefix(words(n), text) })
	return found
}
