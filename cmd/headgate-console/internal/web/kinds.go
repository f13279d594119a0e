package web

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// kind is what became of requests, as charts and tables tell it apart. Each verdict is of one
// kind.
type kind struct {
	Class    string // of its pattern and its colour
	Words    string
	Help     string
	verdicts []events.Verdict
}

// kinds are all kinds, in the order in which they are stacked.
var kinds = [...]kind{
	{"passed", "Passed", "within the limit, at once or after a wait", []events.Verdict{events.Allowed, events.Waited}},
	{"degraded", "Degraded", "over the limit, passed with a cheaper answer", []events.Verdict{events.Degraded}},
	{"shadow", "Shadow", "passed, and would have been refused by a policy in shadow",
		[]events.Verdict{events.ShadowRefused}},
	{"overruled", "Refused by others", "within this policy's limit, refused by another one",
		[]events.Verdict{events.Overruled}},
	{"refused", "Refused", "over the limit, banned or denied",
		[]events.Verdict{events.Refused, events.Banned, events.Denied, events.Impossible, events.QueueFull}},
	{"failed", "Errors", "not decided, and let through or turned away",
		[]events.Verdict{events.FailedOpen, events.FailedClosed}},
	{"left", "Left", "the caller left while it waited", []events.Verdict{events.Canceled}},
}

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
	for _, k := range kinds {
		p := kindCount{kind: k}
		for _, v := range k.verdicts {
			p.N += c[v]
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

// Why says what the refused were refused for, beside their limit.
func (f figures) Why() string {
	return f.said(verdictWords{events.Banned, "banned"}, verdictWords{events.Denied, "denied"},
		verdictWords{events.Impossible, "too costly"}, verdictWords{events.QueueFull, "queue full"})
}

// How says what became of requests that were not decided.
func (f figures) How() string {
	return f.said(verdictWords{events.FailedOpen, "let through"}, verdictWords{events.FailedClosed, "turned away"})
}

// verdictWords are the words for a verdict after a number.
type verdictWords struct {
	events.Verdict
	words string
}

// said says how many had each of the verdicts, apart from those that none had.
func (f figures) said(of ...verdictWords) string {
	var list []string
	for _, v := range of {
		if n := f.Counts[v.Verdict]; n > 0 {
			list = append(list, digits(n)+" "+v.words)
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
