package web

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

// figure is a number on top of the page.
type figure struct {
	Class, Words string
	Value, Unit  string // such as "165" and "/s now"
	Sub          string // the sum of the range, and that of the range before
	Quiet        bool   // it is none
}

// topFigures returns the figures on top: requests, refused, errors, and each other kind that
// occurs. past is how much of the range has passed, and long the range in words.
func topFigures(total, before figures, now service.Lately, past time.Duration, long string) []figure {
	all := figure{Class: "all", Words: "Requests", Quiet: total.All == 0}
	all.Value, all.Unit = rate(float64(total.All)/past.Seconds()), "/s on average"
	if now.Span > 0 {
		all.Value, all.Unit = rate(float64(now.Counts.Total())/now.Span.Seconds()), "/s now"
	}
	all.Sub = digits(total.All) + " in " + long + compared(total.All, before.All)

	refused, n := figure{Class: "refused", Words: "Refused"}, total.Of("refused")
	refused.Value, refused.Unit = total.Share(), "in "+long
	if now := figuresOf(now.Counts); now.All > 0 {
		refused.Value, refused.Unit = now.Share(), "now"
	}
	refused.Sub = digits(n) + " in " + long + ", " + total.Share()
	if was := before.Share(); was != "" {
		refused.Sub += " (" + was + " before)"
	}
	if refused.Quiet = n == 0; refused.Quiet {
		refused.Value, refused.Unit, refused.Sub = "none", "", ""
	}

	list := []figure{all, refused}
	for _, p := range total.Parts {
		switch {
		case p.Class == "failed":
			f := figure{Class: p.Class, Words: p.Words, Value: "none", Quiet: p.N == 0}
			if p.N > 0 {
				f.Value, f.Unit, f.Sub = digits(p.N), "in "+long, total.Why(p.Class)
			}
			list = append(list, f)
		case p.Class != "passed" && p.Class != "refused" && p.N > 0:
			list = append(list, figure{Class: p.Class, Words: p.Words, Value: digits(p.N), Unit: "in " + long,
				Sub: share(p.N, total.All) + " of all"})
		}
	}
	return list
}

// compared says how much more a sum is than the one before, or "" if that was nothing.
func compared(now, before int64) string {
	if before == 0 {
		return ""
	}
	switch more := math.Round(float64(now-before) / float64(before) * 100); {
	case more == 0:
		return ", as before"
	case more >= 1000:
		return ", more than ten times as many as before"
	case more > 0:
		return fmt.Sprintf(", %.0f%% more than before", more)
	default:
		return fmt.Sprintf(", %.0f%% fewer than before", -more)
	}
}

// refusing is a policy that refuses requests now.
type refusing struct {
	sumRow
	Key, KeyLink string // that it refuses most, "" if it is not known
	Others       string // keys that it refuses, in words
}

// addRefusing adds the policies that refuse requests now, with the key that each refuses most.
func (r *request) addRefusing(o *overview, sums []*service.Sum) error {
	tops := map[string]stats.Top{}
	o.MoreRefusing = int64(max(0, len(sums)-maxRefusing))

	for _, s := range sums[:min(len(sums), maxRefusing)] {
		top, known := tops[s.App]
		if !known {
			var err error
			top, err = r.Service.Top(r.req.Context(), r.actor, s.App)
			if err != nil && !errors.Is(err, service.ErrNoFleet) {
				return err
			}
			tops[s.App] = top
		}

		row := refusing{sumRow: sumRowOf(*s, policyPath(s.Policy)+"?range="+o.Range)}
		for _, rule := range top.Rules {
			if rule.Rule == s.Policy {
				row.addKey(rule.Refused)
			}
		}
		o.Refusing = append(o.Refusing, row)
	}
	return nil
}

// addKey says which key is refused most.
func (r *refusing) addKey(s topkeys.Summary) {
	if len(s.Keys) == 0 {
		return
	}

	// A key that was cut in reports cannot be looked up.
	key := s.Keys[0].Key
	r.Key, r.KeyLink = readable(key), keysPath(r.Policy, key)
	if service.IsShortened(key) {
		r.KeyLink = "/keys?" + given(map[string]string{"app": r.App, "policy": r.Policy}).Encode()
	}

	// The list has an end, behind which there may be more.
	others := int64(len(s.Keys) - 1)
	switch {
	case s.Floor > 0:
		r.Others = "and more than " + plural(others, "other", "others")
	case others > 0:
		r.Others = "and " + plural(others, "other", "others")
	}
}

// kind is what became of requests, as charts and tables tell it apart. Each verdict is of one
// kind.
type kind struct {
	Class    string // of its pattern and its colour
	Words    string
	Help     string
	Verdicts []struct {
		Name  string
		Words string // after a number, beside the kind; or ""
	}
}

// verdicts are all verdicts by their names.
var verdicts = func() map[string]events.Verdict {
	named := map[string]events.Verdict{}
	for v := range events.Verdict(events.Verdicts) {
		named[v.String()] = v
	}
	return named
}()

// kindCount is how many requests are of a kind.
type kindCount struct {
	kind
	N int64
}

// figures are counts by kind.
type figures struct {
	Parts []kindCount // one for each kind, in order
	All   int64
	stats.Counts
}

func figuresOf(c stats.Counts) figures {
	f := figures{All: c.Total(), Counts: c}
	for _, k := range vocabulary.Kinds {
		p := kindCount{kind: k}
		for _, v := range k.Verdicts {
			p.N += c[verdicts[v.Name]]
		}
		f.Parts = append(f.Parts, p)
	}
	return f
}

// Through returns how many passed within the limit, those that other policies refused included.
func (f figures) Through() int64 { return f.Of("passed") + f.Of("overruled") }

// Of returns the count of a kind by its class.
func (f figures) Of(class string) int64 {
	for _, p := range f.Parts {
		if p.Class == class {
			return p.N
		}
	}
	return 0
}

// Share says which part of all was refused, "" without requests.
func (f figures) Share() string { return share(f.Of("refused"), f.All) }

// Why says what those of a kind were, beside it: "4 banned, 2 denied" of the refused.
func (f figures) Why(class string) string {
	var list []string
	for _, p := range f.Parts {
		for _, v := range p.Verdicts {
			if n := f.Counts[verdicts[v.Name]]; n > 0 && p.Class == class && v.Words != "" {
				list = append(list, digits(n)+" "+v.Words)
			}
		}
	}
	return strings.Join(list, ", ")
}

// share returns a part of all in percent, so that it is neither 0 nor 100 unless it is nothing
// or all.
func share(n, all int64) string {
	if all <= 0 {
		return ""
	}

	v := float64(n) / float64(all) * 100

	// More digits near both ends, where the difference between little and nothing matters.
	switch {
	case n == 0:
		return "0%"
	case n == all:
		return "100%"
	case v < 0.01:
		return "<0.01%"
	case v > 99.99:
		return ">99.99%"
	case v < 1 || v > 99:
		return strconv.FormatFloat(v, 'f', 2, 64) + "%"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + "%"
}

// rate writes a number of requests a second.
func rate(v float64) string {
	switch {
	case v >= 100:
		return digits(int64(v + 0.5))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.01 || v == 0:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), ".00")
	}
	return "<0.01"
}

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
