package main

import (
	"flag"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/textform"
)

var explainCommand = command{
	name: "explain", args: "LIMIT…",
	does: "says in words what a limit does, with a table and a drawing",
	examples: []string{
		`headgate explain "100/1m burst=20"`,
		`headgate explain "5/1m sliding-log" "5/1m fixed-window"`,
		`headgate explain -svg "10/1s token-bucket burst=50" > limit.svg`,
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		asJSON := f.Bool("json", false, "print JSON")
		svg := f.Bool("svg", false, "print the drawing as an SVG document, of one limit")
		return func(e *env, limits []string) int { return explainLimits(e, limits, *svg, *asJSON) }
	},
}

// explanation is what a limit does, with its drawing in characters.
type explanation struct {
	explain.Explanation
	drawing string
}

func explainLimits(e *env, limits []string, svg, asJSON bool) int {
	if len(limits) == 0 {
		return e.fail(`explain: no limit is named; write, say, headgate explain "100/1m burst=20"`)
	}
	if svg && (len(limits) != 1 || asJSON) {
		return e.fail("explain: -svg is for one limit, and not together with -json")
	}

	// All limits are read before anything is printed.
	list := make([]explanation, len(limits))
	for i, text := range limits {
		l, err := core.ParseLimit(text)

		if err == nil {
			err = l.Validate()
		}
		if err != nil {
			return e.fail("explain: %s", safe(textform.Line(err)))
		}

		// A document is of one limit.
		if svg {
			picture, err := drawing.SVG(l)
			if err != nil {
				return e.fail("explain: %s", safe(textform.Line(err)))
			}
			fmt.Fprintln(e.out, picture)
			return fine
		}
		list[i].Explanation = explain.Limit(l)
		list[i].drawing, _ = drawing.Text(l) // the limit is valid
	}

	if asJSON {
		return e.printJSON(list)
	}

	// A blank line stands between two of them.
	for i := range list {
		if i > 0 {
			fmt.Fprintln(e.out)
		}
		list[i].print(e)
	}

	return fine
}

func (e *explanation) print(to *env) {
	fmt.Fprintf(to.out, "%s\n  %s\n  at most %s\n", to.paint(bold, e.Limit), e.Words, e.AtMost)
	if len(e.Admits) > 0 {
		fmt.Fprintln(to.out)
		t := table{head: []string{"a caller that never stops asking", "#has been admitted"}}
		for _, row := range e.Admits {
			t.add(row.After, count(row.Units))
		}
		t.print(to)
	}
	fmt.Fprintf(to.out, "\n%s", e.drawing)
}
