package web

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/policy"
)

// limitLines returns a table of limits as limitTable reads it. It is sorted, so that a form that is
// opened twice shows no difference.
func limitLines[L fmt.Stringer](limits map[string]L) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		list = append(list, quoted(name)+": "+limits[name].String())
	}
	return strings.Join(list, "\n")
}

// limitTable reads a table of a field, which has a name, a colon and a limit in each line. The
// last colon before an end counts, as keys may have some.
func limitTable[L any](
	m mistakes, field, text, form string, parse func(string) (L, error),
) (limits map[string]L) {
	for _, line := range lines(text) {
		end := len(line)
		if i := strings.LastIndex(line, " until "); i >= 0 && !strings.Contains(line[i+len(" until "):], " ") {
			end = i
		}
		colon := strings.LastIndexByte(line[:end], ':')
		if colon < 0 {
			m.add(field, strconv.Quote(clip(line))+" is not "+form)
			continue
		}

		name := unquoted(strings.TrimSpace(line[:colon]))
		if _, twice := limits[name]; twice {
			m.add(field, clip(name)+": it is in the table twice")
		}

		l, err := parse(strings.TrimSpace(line[colon+1:]))
		if err != nil {
			m.add(field, clip(name)+": "+err.Error())
		}

		// The entry is kept in spite of a mistake, so that the policy is checked for the others,
		// too.
		if limits == nil {
			limits = map[string]L{}
		}
		limits[name] = l
	}
	return limits
}

// quoted returns a text as lines and limitTable read it: in quotes if they would read another.
func quoted(text string) string {
	if got := lines(text); len(got) == 1 && got[0] == text && text[0] != '"' {
		return text
	}
	return strconv.Quote(text)
}

// unquoted returns a text without the quotes that it is written in. One that only begins with a
// quote is meant as it is.
func unquoted(text string) string {
	if s, err := strconv.Unquote(text); err == nil && text[0] == '"' {
		return s
	}
	return text
}

// tableLines returns a table of a match, sorted by name, with each value in a line of its own.
func tableLines(table map[string]policy.Values) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		written := quoted(name)
		if strings.Contains(name, ":") {
			written = strconv.Quote(name)
		}
		for _, value := range table[name] {
			list = append(list, written+": "+value)
		}
	}
	return strings.Join(list, "\n")
}

// table reads a table of a match, which has a name, a colon and a value in each line, and a name
// several times for several values. The first colon counts, unless the name is in quotes.
func table(m mistakes, field, text, example string) (table map[string]policy.Values) {
	for _, line := range rawLines(text) {
		name, value, found := strings.Cut(line, ":")
		if quoted, err := strconv.QuotedPrefix(line); err == nil && quoted[0] == '"' {
			name, _ = strconv.Unquote(quoted)
			value, found = strings.CutPrefix(strings.TrimSpace(line[len(quoted):]), ":")
		}
		if name = strings.TrimSpace(name); !found {
			m.add(field, strconv.Quote(clip(line))+" is not a name, a colon and a value, such as "+example)
			continue
		}
		if table == nil {
			table = map[string]policy.Values{}
		}
		table[name] = append(table[name], strings.TrimSpace(value))
	}
	return table
}

// statuses reads a list of statuses, or returns nil if it is empty.
func statuses(text string) policy.Statuses {
	if list := strings.FieldsFunc(text, isSeparator); len(list) > 0 {
		return list
	}
	return nil
}

// access reads the lists of callers.
func (d draft) access(m mistakes) policy.Access {
	callers := func(list string) policy.Callers {
		return policy.Callers{
			Networks: strings.FieldsFunc(d.Get(list+"_networks"), isSeparator), Keys: lines(d.Get(list + "_keys")),
		}
	}
	return policy.Access{
		Allow: callers("allow"), Deny: callers("deny"), DenyOthers: d.Get("deny_others") != "",
		DenyStatus: int(optional(m, "access", d.Get("deny_status"))),
	}
}

// unlines writes a text in each line.
func unlines(list []string) string {
	written := make([]string, len(list))
	for i, s := range list {
		written[i] = quoted(s)
	}
	return strings.Join(written, "\n")
}

// lines returns the lines that are not empty, without the spaces around them.
func lines(text string) []string {
	list := rawLines(text)
	for i, line := range list {
		list[i] = unquoted(line)
	}
	return list
}

// rawLines is lines with the quotes that texts are written in.
func rawLines(text string) (list []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}
