package web

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// setExceptions fills in the plans and the lists of callers.
func (d *draft) setExceptions(p *policy.Policy) {
	// The tables are sorted, so that a form that is opened twice shows no difference.
	var plans []string
	for _, name := range slices.Sorted(maps.Keys(p.Plans)) {
		plans = append(plans, name+": "+p.Plans[name].String())
	}
	d.Plans, d.PlanBy = strings.Join(plans, "\n"), p.PlanBy

	var own []string
	for _, key := range slices.Sorted(maps.Keys(p.Overrides)) {
		own = append(own, quotedKey(key)+": "+p.Overrides[key].String())
	}
	d.Overrides = strings.Join(own, "\n")

	a := &p.Access
	d.AllowNetworks, d.AllowKeys = unlines(a.Allow.Networks), unlines(a.Allow.Keys)
	d.DenyNetworks, d.DenyKeys = unlines(a.Deny.Networks), unlines(a.Deny.Keys)
	d.DenyOthers = a.DenyOthers
	if a.DenyStatus != 403 { // which 0 means too
		d.DenyStatus = number(int64(a.DenyStatus))
	}
}

// plans reads the table of plans.
func (d *draft) plans(m mistakes) map[string]core.Limit {
	return limitTable(m, "plans", d.Plans, "a name, a colon and a limit, such as pro: 9000/1h", core.ParseLimit)
}

// overrides reads the table of single keys.
func (d *draft) overrides(m mistakes) map[string]policy.Override {
	return limitTable(m, "overrides", d.Overrides, "a key, a colon and a limit, such as user:42: 9000/1h",
		policy.ParseOverride)
}

// limitTable reads a table of a field, which has a name, a colon and a limit in each line. The
// last colon before an end counts, as keys may have some.
func limitTable[L any](
	m mistakes, field, table, form string, parse func(string) (L, error),
) (limits map[string]L) {
	for _, line := range lines(table) {
		end := len(line)
		if i := strings.LastIndex(line, " until "); i >= 0 && !strings.Contains(line[i+len(" until "):], " ") {
			end = i
		}
		colon := strings.LastIndexByte(line[:end], ':')
		if colon < 0 {
			m.add(field, strconv.Quote(clip(line))+" is not "+form)
			continue
		}

		// A key that is written in quotes is meant without them. One that only begins with a quote
		// is meant as it is.
		name := strings.TrimSpace(line[:colon])
		if s, err := strconv.Unquote(name); err == nil && name[0] == '"' {
			name = s
		}

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

// quotedKey returns a key as limitTable reads it.
func quotedKey(key string) string {
	if got := lines(key); len(got) == 1 && got[0] == key && key[0] != '"' {
		return key
	}
	return strconv.Quote(key)
}

// tableLines returns a table of a match, sorted by name, with each value in a line of its own.
func tableLines(table map[string]policy.Values) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		quoted := name
		if strings.Contains(name, ":") || strings.HasPrefix(name, `"`) {
			quoted = strconv.Quote(name)
		}
		for _, value := range table[name] {
			list = append(list, quoted+": "+value)
		}
	}
	return strings.Join(list, "\n")
}

// table reads a table of a match, which has a name, a colon and a value in each line, and a name
// several times for several values. The first colon counts, unless the name is in quotes.
func table(m mistakes, field, text, example string) (table map[string]policy.Values) {
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}

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
func (d *draft) access(m mistakes) policy.Access {
	a := policy.Access{
		Allow: policy.Callers{
			Networks: strings.FieldsFunc(d.AllowNetworks, isSeparator), Keys: lines(d.AllowKeys),
		},
		Deny:       policy.Callers{Networks: strings.FieldsFunc(d.DenyNetworks, isSeparator), Keys: lines(d.DenyKeys)},
		DenyOthers: d.DenyOthers,
	}

	if d.DenyStatus != "" {
		a.DenyStatus = int(d.count(m, "access", d.DenyStatus, 100, 999))
	}
	return a
}

// unlines writes a text in each line. One that lines would read as another is quoted as
// in Go.
func unlines(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		if got := lines(s); len(got) != 1 || got[0] != s {
			s = strconv.Quote(s)
		}
		quoted[i] = s
	}
	return strings.Join(quoted, "\n")
}

// lines returns the lines that are not empty, without the spaces around them.
func lines(text string) (list []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}

		if s, err := strconv.Unquote(line); err == nil && line[0] == '"' {
			line = s
		}
		list = append(list, line)
	}
	return list
}
