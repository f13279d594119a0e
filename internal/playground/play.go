// Package playground replays patterns of requests under limits, and says and draws what the limits
// admit. It is what the page in docs/site/playground shows. [Play] does all of it.
package playground

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/textform"
)

// Form is what the fields of the page have: a limit, another to compare or "", a pattern of
// requests, and how long they come.
type Form struct{ Limit, And, Requests, For string }

// Side is what one limit did.
type Side struct {
	explain.Explanation
	Asked, Admitted, Refused int
	Wait, First              string // the longest Retry-After, and when the first refusal came, or "none"
}

// Picture is what the page shows of a form without faults.
type Picture struct {
	Sides   []Side
	Summary string // one sentence
	SVG     string // made of numbers, durations and constants, and of limits, which are escaped
	Bar     string // the time that a bar of the picture stands for
}

// Fault is what is wrong with the text of a field.
type Fault struct {
	Field string   // limit, and, requests or for
	Text  string   // a line for each mistake
	Parts []string // the text, cut into what is right and what is wrong by turns; may be nil
}

// maxText is the maximum number of bytes in a field.
const maxText = 200

// Play replays the pattern of a form under its limits, and draws the result in so many pixels from
// left to right. It returns a fault for each field that cannot be read.
func Play(f Form, width int) (Picture, []Fault) {
	var faults []Fault
	read := func(field, text string, parse func() error) {
		err := textform.Check(text, maxText)
		if err != nil {
			faults = append(faults, Fault{Field: field, Text: err.Error()})
			return
		}
		if err = parse(); err != nil {
			faults = append(faults, faultIn(field, text, err))
		}
	}

	// All fields are read before anything is replayed.
	limits := make([]core.Limit, 1, 2)
	var span time.Duration
	read("limit", f.Limit, func() (err error) { limits[0], err = core.ParseLimit(f.Limit); return err })
	if strings.TrimSpace(f.And) != "" {
		limits = append(limits, core.Limit{})
		read("and", f.And, func() (err error) { limits[1], err = core.ParseLimit(f.And); return err })
	}
	read("requests", f.Requests, func() error { _, err := parsePattern(f.Requests); return err })
	read("for", f.For, func() (err error) { span, err = parseSpan("time", strings.TrimSpace(f.For)); return err })

	// Nothing is replayed under one limit while another cannot be read.
	var replays []*replay
	for _, l := range limits {
		if len(faults) > 0 {
			return Picture{}, faults
		}
		read("requests", f.Requests, func() error {
			p, _ := parsePattern(f.Requests) // each limit gets the same random numbers
			r, err := p.replay(l, span)
			replays = append(replays, r)
			return err
		})
	}
	if len(faults) > 0 {
		return Picture{}, faults
	}

	return picture(limits, replays, span, width), nil
}

// picture puts into words and into a drawing what limits did.
func picture(limits []core.Limit, replays []*replay, span time.Duration, width int) (p Picture) {
	var admitted []string
	for i, r := range replays {
		s := Side{explain.Limit(limits[i]), len(r.requests), r.admitted, len(r.requests) - r.admitted, "none", "none"}
		if s.Refused > 0 {
			s.Wait, s.First = textform.Duration(r.wait), textform.Duration(r.first)
		}
		p.Sides = append(p.Sides, s)
		admitted = append(admitted, fmt.Sprintf("%s admits %d of %d requests", s.Limit, s.Admitted, s.Asked))
	}

	p.Summary = "Within " + textform.Duration(span) + ", " + strings.Join(admitted, " and ") + "."
	d := drawingOf(replays, span, width)
	p.SVG, p.Bar = d.svg(p.Sides, p.Summary), short(d.bar)
	return p
}

// faultIn says what is wrong with the text of a field, and where.
func faultIn(field, text string, err error) Fault {
	// The error of a limit repeats the text, which stands in the field.
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}

	mistakes := strings.Split(err.Error(), "\n")
	words := wordsOf(text)
	wrong := map[int]bool{}
	for i, m := range mistakes {
		if w := blamed(m, text, words); w >= 0 {
			wrong[w] = true
			at := utf8.RuneCountInString(text[:words[w].from]) + 1
			mistakes[i] = "character " + strconv.Itoa(at) + ": " + m
		}
	}

	// The words at fault are cut out of the text.
	f := Fault{Field: field, Text: strings.Join(mistakes, "\n")}
	done := 0
	for i, w := range words {
		if wrong[i] {
			f.Parts = append(f.Parts, text[done:w.from], text[w.from:w.to])
			done = w.to
		}
	}
	if f.Parts != nil {
		f.Parts = append(f.Parts, text[done:])
	}
	return f
}

// word is the place of a word in a text, in bytes.
type word struct{ from, to int }

func wordsOf(text string) (list []word) {
	from := -1
	for i, c := range text + " " {
		switch space := unicode.IsSpace(c); {
		case space && from >= 0:
			list, from = append(list, word{from, i}), -1
		case !space && from < 0:
			from = i
		}
	}
	return list
}

// blamed returns the word that a mistake is about, or -1 if it is about all of them. A mistake
// quotes the word, or begins with the name of its option, or with that of the number in front.
func blamed(mistake, text string, words []word) (found int) {
	name, _, _ := strings.Cut(mistake, " ")
	var quoted []string
	for rest := mistake; ; {
		_, rest, _ = strings.Cut(rest, `"`)
		q, err := strconv.QuotedPrefix(`"` + rest)
		if err != nil {
			break
		}
		s, _ := strconv.Unquote(q)
		quoted, rest = append(quoted, s), rest[len(q)-1:]
	}

	found = -1
	for i, w := range words {
		s := text[w.from:w.to]
		option, value, _ := strings.Cut(s, "=")
		is := option == name || strings.Contains(mistake, " "+option+" "+strconv.Quote(value))
		for _, q := range quoted {
			begin, clipped := strings.CutSuffix(q, "…")
			is = is || s == q || clipped && strings.HasPrefix(s, begin)
		}
		// Of two that are the same the second is blamed where the mistake says so.
		if is && (found < 0 || strings.HasPrefix(mistake, "a second ")) {
			found = i
		}
	}

	// The numbers in front have no name in the text.
	if at, has := map[string]int{"quota": 0, "period": 0, "rate": 1}[name]; has && found < 0 {
		return at
	}
	return found
}
