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
	var plans []string
	for _, name := range slices.Sorted(maps.Keys(p.Plans)) {
		plans = append(plans, name+": "+p.Plans[name].String())
	}
	d.Plans, d.PlanBy = strings.Join(plans, "\n"), p.PlanBy
	a := &p.Access
	d.AllowNetworks, d.AllowKeys = unlines(a.Allow.Networks), unlines(a.Allow.Keys)
	d.DenyNetworks, d.DenyKeys = unlines(a.Deny.Networks), unlines(a.Deny.Keys)
	d.DenyOthers = a.DenyOthers
	if a.DenyStatus != 403 { // which 0 means too
		d.DenyStatus = number(int64(a.DenyStatus))
	}
}

// plans reads the table of plans, which has a name, a colon and a limit in each line.
func (d *draft) plans(m mistakes) (plans map[string]core.Limit) {
	for _, line := range lines(d.Plans) {
		name, text, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok {
			m.add("plans", strconv.Quote(clip(line))+" is not a name, a colon and a limit, such as pro: 9000/1h")
			continue
		}
		if _, twice := plans[name]; twice {
			m.add("plans", clip(name)+": it is in the table twice")
		}
		l, err := core.ParseLimit(strings.TrimSpace(text))
		if err != nil {
			m.add("plans", clip(name)+": "+err.Error())
		}
		if plans == nil {
			plans = map[string]core.Limit{}
		}
		plans[name] = l
	}
	return plans
}

// access reads the lists of callers.
func (d *draft) access(m mistakes) policy.Access {
	a := policy.Access{
		Allow:      policy.Callers{Networks: strings.FieldsFunc(d.AllowNetworks, isSeparator), Keys: lines(d.AllowKeys)},
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
