package apply

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// printer writes lines, and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) writeLine(format string, args ...any) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, printable(fmt.Sprintf(format, args...))+"\n")
	}
}

// difference writes the fields of a policy that differ.
func (p *printer) difference(s *step) {
	if s.Action == keep {
		return
	}
	p.writeLine("%s %s", s.Action, s.Name)

	for _, c := range s.Changes {
		p.change(c.Field, c.Before, c.After)
	}
}

// change writes what something was and is, where it was or is anything.
func (p *printer) change(what, before, after string) {
	if before != "" {
		p.writeLine("  - %s: %s", what, before)
	}
	if after != "" {
		p.writeLine("  + %s: %s", what, after)
	}
}

// summary writes what a plan does, and the changes and deletions in full.
func (p *printer) summary(plan *plan) {
	p.writeLine("To create: %d, to change: %d, to delete: %d, unchanged: %d.",
		plan.count(create), plan.count(update), plan.count(remove), plan.count(keep))

	if len(plan.Apps) > 0 {
		p.writeLine("Applications to add: %s.", strings.Join(plan.Apps, ", "))
	}

	for i := range plan.Steps {
		p.difference(&plan.Steps[i])
	}
}

var results = map[string]string{create: "created", update: "changed", remove: "deleted", keep: "unchanged"}

// result writes what became of a policy, or would become of it.
func (p *printer) result(s *step, dry bool) {
	after := ""
	if dry && s.Action != keep {
		after = " (dry run)"
	}
	p.writeLine("%-9s  %s%s", results[s.Action], s.Name, after)
}

// printable returns a line that cannot steer a terminal.
func printable(s string) string {
	var b strings.Builder
	for _, c := range s {
		if strconv.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		quoted := strconv.QuoteRune(c)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
