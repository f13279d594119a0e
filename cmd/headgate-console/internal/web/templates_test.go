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

// Each template leads to a form that needs no more than an application, and then makes the policy
// of the template, in shadow, which a program can follow.
func TestTemplates(t *testing.T) {
	w := newWorld(t)
	b := w.as("admin")

	page := b.get("/new").want(http.StatusOK)
	var names []string
	for _, k := range kindsOfUse() {
		names = append(names, k.Name)
		t.Run(k.Name, func(t *testing.T) {
			link := "/new?template=" + k.Name
			k.showsIn(t, page.card(link), b.get(link).want(http.StatusOK))

			// The application is all that the form still needs.
			b.submit(link, "/new", url.Values{"apps": {"b"}}).goes("/policies/" + k.Name + "?done=created")
			got, err := w.Policy(t.Context(), w.admin, k.Name)
			w.must(err)

			made := k.Policy
			made.Apps = []string{"b"}
			if d := service.Diff(made, got); len(d) != 0 || got.Mode != policy.Shadow {
				t.Errorf("the policy differs from the template: %v", d)
			}
			follows(t, got)
		})
	}

	// A template that is added or dropped has to be decided here as well.
	if want := []string{"public-api", "login", "report", "llm-tokens", "plans", "webhook"}; !slices.Equal(names, want) {
		t.Errorf("the templates are %v, want %v", names, want)
	}

	// A card counts tokens and not requests, as that policy does.
	if got, want := page.card("/new?template=llm-tokens"),
		"100000 tokens a minute to /v1/chat/completions for each API key, at most 50000 in debt; others are refused."; !strings.Contains(got, want) {
		t.Errorf("the card of tokens says %q", got)
	}

	if card := page.card("/new?template=none"); !strings.Contains(card, "Start from nothing") {
		t.Errorf("the last card says %q", card)
	}
}

// showsIn checks the card of a template, and its form.
func (k kindOfUse) showsIn(t *testing.T, card string, form *answer) {
	t.Helper()

	if !strings.Contains(card, k.Words()) || k.Words() == "not a valid policy" {
		t.Errorf("the card says %q and not %q", card, k.Words())
	}

	// Where the program has to do something, the card and the form say so.
	if k.Needs != "" && (!strings.Contains(card, k.Needs) || form.byID("needs") == nil ||
		words(form.byID("needs")) != k.Needs) {
		t.Errorf("the card or the form does not say what the program needs: %q", card)
	}

	text := words(form.byID("preview"))
	if !strings.Contains(text, k.Policy.Limit.String()) ||
		!strings.Contains(text, "Still to fill in: Applications") || !form.draws(k.Policy.Limit.String()) {
		t.Errorf("the preview is %q", text)
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

// card returns the text of the card with a link.
func (a *answer) card(link string) (text string) {
	a.each(func(n *html.Node) {
		if n.Data == "li" && strings.Contains(attr(n, "class"), "use") {
			for d := range n.Descendants() {
				if d.Data == "a" && attr(d, "href") == link {
					text = words(n)
				}
			}
		}
	})
	return text
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
		{admin, "/new?template=none&app=none", nil},
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
	w := newWorld(t)
	b := w.as("admin")

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

// The form asks in the order of the decision, and what few people need is closed until it has
// something or a mistake.
func TestFormOrderAndAdvanced(t *testing.T) {
	w := newWorld(t)
	b := w.as("admin")
	page := b.get("/new?template=none&app=a").want(http.StatusOK)

	// The places rise from one id to the next, which is the order on the page.
	at := -1
	for _, id := range []string{"name", "apps", "description", "methods", "path", "key", "quota", "period", "burst",
		"on_limit", "mode", "advanced-label", "algorithm", "plans", "access", "on_store_error", "priority"} {
		place := strings.Index(page.text, ` id="`+id+`"`)
		if place <= at {
			t.Errorf("%s is not after what comes before it", id)
		}
		at = place
	}

	parts := []string{"banning", "counting", "planned", "excepting", "failing"}
	opened := func(a *answer) (list []string) {
		for _, id := range parts {
			if has(a.byID(id), "open") {
				list = append(list, id)
			}
		}
		return list
	}

	// A part is open where the template fills something in.
	for name, want := range map[string][]string{
		"none": nil, "public-api": nil, "login": {"banning", "counting", "failing"}, "report": {"counting"},
		"llm-tokens": {"counting"},
		"plans":      {"planned"}, "webhook": {"failing"},
	} {
		if got := opened(b.get("/new?template=" + name)); !slices.Equal(got, want) {
			t.Errorf("of the template %s these are open: %v, want %v", name, got, want)
		}
	}

	// So it is where a mistake is, which is hard to find otherwise.
	for field, want := range map[string]string{
		"ban_for": "banning", "debt": "counting", "segments": "counting", "algorithm": "counting", "plans": "planned",
		"deny_status": "excepting",
		"priority":    "failing", "on_store_error": "failing",
	} {
		got := b.submit("/new?template=none&app=a", "/new", url.Values{"name": {"x"}, field: {"?"}}).
			want(http.StatusUnprocessableEntity)
		if list := opened(got); !slices.Equal(list, []string{want}) {
			t.Errorf("with a mistake in %s these are open: %v, want %s", field, list, want)
		}
	}
}

// The words do not wait for the name and the application, and the preview says what is missing.
func TestPreviewSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	b := w.as("admin")
	d := blank()

	// The rows change the same draft one after another.
	for _, row := range []struct {
		change func()
		says   string
		open   []string
	}{
		{func() {}, "100 requests a minute for each address; others are counted and pass (shadow).",
			[]string{"Name", "Applications"}},
		{func() { d.Name = "No Name" }, "100 requests a minute", []string{"Name", "Applications"}},
		{func() { d.Name, d.Apps = "x", []string{"a"} }, "100 requests a minute", nil},
		{func() { d.Period = "0" }, "This appears as soon as", []string{"Period"}},
		{func() { d.Quota, d.Path = "0", "x" }, "This appears as soon as", []string{"Path", "Requests", "Period"}},
	} {
		row.change()

		got := b.get("/validate?" + d.values().Encode()).want(http.StatusOK)

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
