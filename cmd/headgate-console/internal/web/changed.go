package web

import (
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// changeGroup are changes of policies that are alike and follow each other.
type changeGroup struct {
	Policy string // of a single change
	Many   int64  // policies, of several
	What   string // such as "5/1m → 8/1m" or "created"
	By     string
	At     time.Time // of the newest
}

// alikeWithin is how far the changes of a group are from the newest of them at most.
const alikeWithin = 10 * time.Minute

// changeGroups groups changes, the newest first.
func changeGroups(changes []service.Marker) (list []changeGroup) {
	seen := map[string]bool{} // the policies of the last group

	for _, m := range changes {
		g := changeGroup{Policy: m.Policy, Many: 1, What: whatChanged(m), By: m.Actor, At: m.At}
		if n := len(list); n > 0 && !seen[m.Policy] {
			last := &list[n-1]
			if last.What == g.What && last.By == g.By && last.At.Sub(g.At) <= alikeWithin {
				last.Many++
				seen[m.Policy] = true
				continue
			}
		}

		list, seen = append(list, g), map[string]bool{m.Policy: true}
	}
	return list
}

// howChanged are the words for changes that were not typed into a form, after what they did.
var howChanged = map[string]string{"import": " by import", "rollback": " by a rollback", "undo": " by undo"}

// whatChanged says what a change did.
func whatChanged(m service.Marker) string {
	how := howChanged[m.Action]
	switch {
	case m.Created:
		return "created" + how
	case m.Deleted:
		return "deleted" + how
	case len(m.Changes) != 1:
		return fieldsChanged(m.Changes) + how
	}

	// A limit and a mode need no name of their field.
	c := m.Changes[0]
	before, after := valueWords(c.Field, c.Before), valueWords(c.Field, c.After)
	text := before + " → " + after
	if !slices.Contains([]string{"limit", "mode"}, c.Field) {
		text = label(c.Field) + ": " + text
	}
	return text + how
}

// fieldsChanged names the first fields that differ.
func fieldsChanged(changes []service.Change) string {
	if len(changes) == 0 {
		return "changed"
	}
	var names []string
	for _, c := range changes {
		names = append(names, label(c.Field))
	}
	return firstOf(names, 3) + " changed"
}

// valueRunes is how many characters of a value are shown in a line.
const valueRunes = 40

// valueWords returns the value of a field in a line.
func valueWords(field, value string) string {
	switch {
	case value == "":
		return "none"
	case field == "mode":
		return modeWords(value)
	}
	if runes := []rune(value); len(runes) > valueRunes {
		return string(runes[:valueRunes-1]) + "…"
	}
	return value
}
