package main

import (
	"flag"
	"fmt"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
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
		return func(e *env, limits []string) int { return explain(e, limits, *svg, *asJSON) }
	},
}

// explanation is what a limit does.
type explanation struct {
	Limit   string     `json:"limit"`
	Words   string     `json:"words"`
	AtMost  string     `json:"at_most"`
	Admits  []admitted `json:"admits"`
	drawing string
}

// admitted is what the limit has admitted a caller that never stops asking.
type admitted struct {
	After string `json:"after"`
	Units int64  `json:"units"`
}

func explain(e *env, limits []string, svg, asJSON bool) int {
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
		list[i] = explanationOf(l)
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

// explanationOf explains a valid limit.
func explanationOf(l core.Limit) explanation {
	x := explanation{Limit: l.String(), Words: policy.DescribeLimit(l), AtMost: atMost(l), Admits: []admitted{}}
	for _, row := range drawing.Table(l) {
		after := "at once"
		if row.After > 0 {
			after = "after " + textform.Duration(row.After)
		}
		x.Admits = append(x.Admits, admitted{after, row.Units})
	}
	x.drawing, _ = drawing.Text(l) // the limit is valid
	return x
}

// atMost says what the limit admits at most in any span of one period.
func atMost(l core.Limit) string {
	period := textform.Duration(l.Period)
	if l.NeedsWindows() {
		period, _, _ = strings.Cut(l.Calendar, " ")
	}

	// The order is that of the traits: a window is known before its parts.
	switch {
	case l.Leased():
		return fmt.Sprintf("%d at any time; one that is not renewed ends after %s", l.Quota, period)
	case l.NeedsWindows(), l.Windowed():
		return fmt.Sprintf("%d in any span of one %s, around the end of a window", 2*l.Quota, period)
	case l.SegmentCount() > 0:
		return fmt.Sprintf("%d in any span of %s, and what one of its %d parts held", l.Quota, period, l.SegmentCount())
	case l.Rolling():
		return fmt.Sprintf("%d in any span of %s", l.Quota, period)
	}

	return fmt.Sprintf("%d in any span of %s: %d at once, and %d that come back meanwhile",
		l.Capacity()+l.Quota, period, l.Capacity(), l.Quota)
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
