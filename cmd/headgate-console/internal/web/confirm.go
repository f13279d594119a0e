package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// confirmation is a page that says what a change does before it is made. It works without
// JavaScript. A form without confirm=yes is answered with it.
type confirmation struct {
	Title        string           // "Delete the policy login?"
	Key          string           // the key that it is about, or ""
	Consequences []string         // one paragraph each, with numbers where there are some
	Changes      []service.Change // the fields that differ after it, or nil
	Action       string           // where the form is sent by POST, with confirm=yes
	Fields       []hidden
	Inputs       []input // further fields, which the user fills in
	Asks         bool    // it only asks for the inputs: another page follows before the change
	Button       string  // "Delete the policy"
	Danger       bool
	Back         string // the page to return to without the change
	Comment      bool   // offer a comment on the change
	Mistakes     mistakes
}

// input is a field of a confirmation. Kind is the type that HTML has for it; "" is a line of text.
type input struct{ Name, Label, Value, Help, Kind string }

// away is the mistake of a Redis that does not answer, which may have done what was asked for.
const away = "away"

// confirmationOf returns a question about something that is called it, or the zero value.
func confirmationOf(name, it string) confirmation {
	c := vocabulary.Questions[name]
	of := func(text string) string { return strings.ReplaceAll(text, "{it}", it) }
	c.Title, c.Button, c.Consequences = of(c.Title), of(c.Button), slices.Clone(c.Consequences)
	for i, text := range c.Consequences {
		c.Consequences[i] = of(text)
	}
	return c
}

// confirm answers with the page of a confirmation.
func (r *request) confirm(c confirmation) error {
	status := http.StatusOK
	switch {
	case c.Mistakes[away] != nil:
		status = http.StatusServiceUnavailable
	case c.Mistakes != nil:
		status = http.StatusUnprocessableEntity
	}
	return r.show(status, "confirm", c.Title, c)
}

// confirmed reports whether the user has seen the page of the confirmation.
func (r *request) confirmed() bool { return r.field("confirm") == "yes" }

// saying returns the actor with the comment of the form.
func (r *request) saying() service.Actor { return r.actor.Saying(r.field("comment")) }

// keepComment has a confirmation keep the comment of the form before it, or else offer one.
func (r *request) keepComment(c *confirmation) {
	if text := r.field("comment"); text != "" {
		c.Fields = append(c.Fields, hidden{"comment", text})
		return
	}
	c.Comment = true
}

// decide acts once the user has confirmed it, and asks before that. What is wrong with the form is
// shown with the question.
func (r *request) decide(ask func() (confirmation, error), act, then func() error) error {
	var m mistakes
	if r.confirmed() {
		err := act()
		if m = mistakesOf(err); m == nil {
			return after(err, nil, then)
		}
	}

	c, err := ask()
	if err != nil {
		return err
	}
	c.Mistakes = m
	return r.confirm(c)
}

// asks returns a question about something that is called it, whose form is sent here again.
func (r *request) asks(name, it, back string, fields ...hidden) confirmation {
	c := confirmationOf(name, it)
	c.Action, c.Back, c.Fields = r.req.URL.EscapedPath(), back, fields
	return c
}

// inForce says where a policy is in force.
func inForce(p policy.Policy) string {
	if len(p.Apps) == 1 {
		return "the instances of " + p.Apps[0]
	}
	return "the instances of " + strings.Join(p.Apps[:len(p.Apps)-1], ", ") + " and " + p.Apps[len(p.Apps)-1]
}

// lastHour says what a policy did in the last hour.
func (r *request) lastHour(p policy.Policy) (string, error) {
	f, err := r.decided(p.Name, time.Hour)
	if err != nil {
		return "", err
	}
	refused := f.Of("refused")

	if p.Mode == policy.Shadow {
		return fmt.Sprintf("It is in shadow. In the last hour it would have refused %s of %s requests.",
			digits(f.Of("shadow")), digits(f.All)), nil
	}

	if refused == 0 {
		return fmt.Sprintf("In the last hour it refused none of %s requests.", digits(f.All)), nil
	}

	return fmt.Sprintf("In the last hour it refused %s of %s requests. Such requests will pass, "+
		"unless another policy refuses them.", digits(refused), digits(f.All)), nil
}

// confirmOff asks before a policy is turned off. when says when, such as "now".
func (r *request) confirmOff(p policy.Policy, when string) error {
	lastHour, err := r.lastHour(p)
	if err != nil {
		return err
	}
	c := r.asks("off", p.Name, policyPath(p.Name), r.sent()...)
	c.Consequences = []string{"From " + when + " " + inForce(p) + " do not apply it: it refuses no request, " +
		"and counts none. Its settings and its history stay.", lastHour}
	r.keepComment(&c)
	return r.confirm(c)
}

// confirmMore asks before a policy is saved that is known to refuse more requests than it does, and
// reports whether it has asked. The service refuses the change of a policy that the actor may not
// make.
func (r *request) confirmMore(p policy.Policy) (bool, error) {
	if r.confirmed() || p.Mode != policy.Enforce || !r.access.CanEdit(p.Apps) {
		return false, nil
	}
	w, err := r.Service.WouldRefuse(r.req.Context(), r.actor, p)
	if err != nil || w == nil || w.Unknown != "" || w.Least <= w.Before {
		return false, err
	}

	c := r.asks("more", p.Name, policyPath(p.Name), r.sent()...)
	c.Consequences = []string{w.Sentence()}
	r.keepComment(&c)
	return true, r.confirm(c)
}

// sent returns the fields of the form without those that the page of the confirmation has
// itself; see keepComment.
func (r *request) sent() []hidden {
	var list []hidden
	for _, h := range hiddenOf(r.req.PostForm) {
		if h.Name != "confirm" && h.Name != "comment" {
			list = append(list, h)
		}
	}
	return list
}
