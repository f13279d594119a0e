package web

import (
	"cmp"
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
	d := draft{"apps": p.Apps}
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
		"enforce": shareText(p.Enforce), "warn": shareText(p.Warn), "on_store_error": p.OnStoreError,
		"mode": p.Mode.String(), "priority": number(int64(p.Priority)),
	} {
		d.set(name, text)
	}

	d.setLimit(p.Limit)
	d.setKey(p.Key)
	d.setOnLimit(p.OnLimit)
	d.setBan(p.Ban)
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

// calendarUnits are the units of a calendar.
func calendarUnits() []string { return []string{"day", "week", "month", "year"} }

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
func (d draft) setBan(b core.Ban) {
	if words := strings.Fields(b.String()); len(words) == 5 {
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

// shareText returns a share, or "" for none.
func shareText(s core.Share) string {
	if s == 0 {
		return ""
	}
	return s.String()
}
