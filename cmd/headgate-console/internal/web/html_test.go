package web

import (
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// each calls f for every element of a page.
func (a *answer) each(f func(*html.Node)) {
	for n := range a.doc.Descendants() {
		if n.Type == html.ElementNode {
			f(n)
		}
	}
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// words returns the text of an element, without the space around it.
func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// byID returns the element with an id, or nil.
func (a *answer) byID(id string) (found *html.Node) {
	a.each(func(n *html.Node) {
		if attr(n, "id") == id {
			found = n
		}
	})
	return found
}

// mistake returns the text beside a field.
func (a *answer) mistake(field string) string {
	if n := a.byID(field + "-error"); n != nil {
		return words(n)
	}
	return ""
}

// form returns the fields that a browser sends for the unchanged form with an action,
// with its button do. It returns nil if there is no such form.
func (a *answer) form(action string) url.Values {
	var form url.Values
	a.each(func(n *html.Node) {
		if n.Data == "form" && form == nil && sendsTo(n, action) {
			form = fieldsOf(n)
		}
	})
	return form
}

// sendsTo reports whether a form, or one of its buttons, sends it to an address.
func sendsTo(form *html.Node, action string) bool {
	for n := range form.Descendants() {
		if n.Data == "button" && attr(n, "formaction") == action {
			return true
		}
	}
	return attr(form, "action") == action
}

func fieldsOf(form *html.Node) url.Values {
	v := url.Values{}
	for n := range form.Descendants() {
		name := attr(n, "name")
		if n.Type != html.ElementNode || name == "" {
			continue
		}

		// The values are those that a browser sends: what is not ticked, and files, are left out.
		switch n.Data {
		case "textarea":
			v.Add(name, words(n))
		case "select":
			v.Add(name, selected(n))
		case "input":
			kind := attr(n, "type")
			if kind == "file" || (kind == "checkbox" || kind == "radio") && !has(n, "checked") {
				continue
			}
			v.Add(name, attr(n, "value"))
		}
	}
	return v
}

func selected(n *html.Node) string {
	first, chosen := "", ""
	found := false
	for o := range n.Descendants() {
		if o.Type != html.ElementNode || o.Data != "option" {
			continue
		}

		// A browser sends the first option where none is selected.
		if first == "" && !found {
			first = attr(o, "value")
		}
		if has(o, "selected") {
			chosen, found = attr(o, "value"), true
		}
	}
	if found {
		return chosen
	}
	return first
}

// submit sends the form with an action of a page, with some fields changed.
func (b *browser) submit(page, action string, changes url.Values) *answer {
	b.t.Helper()
	form := b.get(page).want(200).form(action)
	if form == nil {
		b.t.Fatalf("%s has no form to %s", page, action)
	}
	for name, values := range changes {
		form[name] = values
	}
	return b.post(action, form)
}

// agree submits a form, and then the confirmation that it is answered with.
func (b *browser) agree(page, action string, changes url.Values) *answer {
	b.t.Helper()
	question := b.submit(page, action, changes).want(200)
	form := question.form(action)
	if form.Get("confirm") != "yes" {
		b.t.Fatalf("%s is not answered with a confirmation: %s", action, question.text)
	}
	return b.post(action, form)
}

// shape returns the kinds of elements of a page with their attributes.
func (a *answer) shape() map[string]bool {
	kinds := map[string]bool{}
	a.each(func(n *html.Node) {
		kinds[n.Data] = true
		for _, at := range n.Attr {
			kinds[n.Data+" "+at.Key] = true
		}
	})
	return kinds
}

// outline returns a line for each element with its attributes, in their order.
func (a *answer) outline() string {
	var b strings.Builder
	a.each(func(n *html.Node) {
		b.WriteString(n.Data)
		for _, at := range n.Attr {
			b.WriteString(" " + at.Key)
		}
		b.WriteByte('\n')
	})
	return b.String()
}
