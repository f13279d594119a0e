package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// draft is the form of a policy as the user typed it, so that the page can show it again: the
// values by the names of the inputs. Several stand at apps alone.
type draft url.Values

// Get returns the value of an input, "" for none.
func (d draft) Get(name string) string { return url.Values(d).Get(name) }

// blank returns the form of a new policy, which still needs a name and an application. A new
// policy begins in shadow, so that its author sees what it would refuse before it does.
func blank() draft {
	return draftFrom(policy.Policy{Limit: core.Limit{Quota: 100, Period: time.Minute}, Key: "ip", Mode: policy.Shadow})
}

// draftOf returns the form that was sent.
func draftOf(sent url.Values) draft {
	d := draft{"apps": sent["apps"]}
	for _, in := range vocabulary.Inputs {
		if in.Name != "apps" {
			d[in.Name] = []string{strings.TrimSpace(strings.ReplaceAll(sent.Get(in.Name), "\r\n", "\n"))}
		}
	}
	return d
}

// draftFrom returns the form of a policy.
func draftFrom(p policy.Policy) draft {
	w, d := policy.WrittenOf(&p), draft{"apps": p.Apps}
	for name, text := range map[string]string{
		"version": strconv.FormatInt(p.Version, 10), "name": p.Name, "description": p.Description,
		"methods": strings.Join(p.Match.Methods, " "), "path": p.Match.Path, "host": p.Match.Host,
		"except": unlines(p.Match.Except), "headers": tableLines(p.Match.Headers), "query": tableLines(p.Match.Query),
		"claims": tableLines(p.Match.Claims), "cost": costText(p.Cost),
		"refund": strings.Join(p.Refund, " "), "count_only": strings.Join(p.CountOnly, " "),
		"plans": limitLines(p.Plans), "plan_by": p.PlanBy, "overrides": limitLines(p.Overrides),
		"allow_networks": unlines(p.Access.Allow.Networks), "allow_keys": unlines(p.Access.Allow.Keys),
		"deny_networks": unlines(p.Access.Deny.Networks), "deny_keys": unlines(p.Access.Deny.Keys),
		"deny_others": yes(p.Access.DenyOthers), "deny_status": number(int64(p.Access.DenyStatus)),
		"enforce": w.Enforce, "warn": w.Warn, "on_store_error": p.OnStoreError,
		"mode": p.Mode.String(), "priority": number(int64(p.Priority)),
	} {
		d.set(name, text)
	}

	d.setLimit(p.Limit)
	d.setKey(p.Key)
	d.setOnLimit(p.OnLimit)
	d.setBan(string(w.Ban))
	return d
}

func (d draft) set(name, text string) { d[name] = []string{text} }

// unit is a unit of time that people choose.
type unit struct {
	Name string
	One  string // its word for one, to which "s" is added for more
	size time.Duration
}

// units are all units. A period is a whole number of the first.
func units() []unit {
	return []unit{
		{"us", "microsecond", time.Microsecond}, {"ms", "millisecond", time.Millisecond}, {"s", "second", time.Second},
		{"m", "minute", time.Minute}, {"h", "hour", time.Hour}, {"d", "day", 24 * time.Hour},
	}
}

// setLimit fills in the fields of the limit: those of a calendar, or those of a period.
func (d draft) setLimit(l core.Limit) {
	d.set("quota", strconv.FormatInt(l.Quota, 10))
	d.set("algorithm", l.Algorithm.String())
	d.set("burst", number(l.Burst))
	d.set("debt", number(l.Debt))
	d.set("segments", number(int64(l.Segments)))
	d.set("aligned", yes(l.Aligned))

	// A user who then chooses another algorithm finds the fields of the other kind filled in.
	calendar := strings.Fields(cmp.Or(l.Calendar, "month"))
	d.set("calendar", calendar[0])
	for _, word := range calendar[1:] {
		name, value, _ := strings.Cut(word, "=")
		d.set(name, value)
	}

	// The largest unit that divides the period makes the shortest number.
	period := cmp.Or(l.Period, time.Minute)
	for _, u := range slices.Backward(units()) {
		if period%u.size == 0 {
			d.set("period", strconv.FormatInt(int64(period/u.size), 10))
			d.set("unit", u.Name)
			return
		}
	}
}

// setKey fills in the recipe of the key. One that the list does not have is typed as a text.
func (d draft) setKey(recipe string) {
	if !slices.ContainsFunc(recipes(), func(c choice) bool { return c.Value == recipe }) {
		d.set("key_other", recipe)
		recipe = "other"
	}
	d.set("key", recipe)
}

// setOnLimit fills in the action over the limit, and for how long it waits.
func (d draft) setOnLimit(s string) {
	action, span, _ := strings.Cut(s, " ")
	d.set("on_limit", cmp.Or(action, "reject"))
	d.set("wait", span)
}

// setBan fills in the fields of a ban, whose text is "20/1m for 10m max 24h".
func (d draft) setBan(text string) {
	if words := strings.Fields(text); len(words) == 5 {
		after, within, _ := strings.Cut(words[0], "/")
		for name, text := range map[string]string{
			"ban_after": after, "ban_within": within, "ban_for": words[2], "ban_max": words[4],
		} {
			d.set(name, text)
		}
	}
}

// number returns the text of an option, which is "" for 0.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// yes returns what a box sends that is ticked, or else "".
func yes(ticked bool) string {
	if ticked {
		return "yes"
	}
	return ""
}

// costText returns a cost as the form has it: a number, or a table in JSON.
func costText(c policy.Cost) string {
	if c.IsZero() {
		return ""
	}
	return c.String()
}

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
