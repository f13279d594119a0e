package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// draft is the form of a policy with the values as the user typed them, so that
// the page can show them again.
//
// The limit is given by fields or as text, and the key by a choice or as text.
// LimitBy and KeyBy determine which is used, and the other is ignored.
type draft struct {
	Version     int64 // the change is based on; 0 for a new policy
	Name        string
	Description string
	Apps        []string

	LimitBy   string // "fields" or "text"
	Algorithm string
	Quota     string
	Period    string
	Unit      string // of Period
	Calendar  string // the unit of a calendar, which has no Period
	Zone      string // of a calendar
	Start     string // of a calendar
	Burst     string
	Debt      string
	Segments  string
	Aligned   bool
	LimitText string

	KeyBy    string // a recipe that has words of its own, or "other"
	KeyOther string

	Methods      []string
	OtherMethods string
	Host         string
	Path         string
	Except       string // a path in each line
	Headers      string // a name, a colon and a value in each line
	Query        string // likewise
	Claims       string // likewise

	Cost      string
	Refund    string // statuses, separated by spaces
	CountOnly string // statuses, separated by spaces

	Plans         string // a name, a colon and a limit in each line
	PlanBy        string
	Overrides     string // a key, a colon and a limit in each line
	AllowNetworks string // one in each line, as all lists
	AllowKeys     string
	DenyNetworks  string
	DenyKeys      string
	DenyOthers    bool
	DenyStatus    string // "" is 403

	OnLimit      string // "reject", "degrade" or "wait"
	Wait         string
	Enforce      string // "" is all keys
	Warn         string
	BanAfter     string
	BanFor       string
	BanMax       string
	OnStoreError string
	Mode         string
	Priority     string
}

// blank returns the form of a new policy, which still needs a name and an
// application. A new policy begins in shadow, so that its author sees what it would refuse
// before it does.
func blank() draft {
	return draft{
		LimitBy: "fields", Algorithm: "gcra", Quota: "100", Period: "1", Unit: "m", Calendar: "month",
		LimitText: "100/1m", KeyBy: "ip", OnLimit: "reject", Mode: "shadow", Priority: "0",
	}
}

// draftOf returns the form that was sent.
func draftOf(f url.Values) draft {
	text := func(name string) string { return strings.TrimSpace(f.Get(name)) }
	version, _ := strconv.ParseInt(f.Get("version"), 10, 64) // 0 is no version, and so stale

	return draft{
		Version: version, Name: text("name"), Apps: f["apps"],
		Description: strings.TrimSpace(strings.ReplaceAll(f.Get("description"), "\r\n", "\n")),
		LimitBy:     text("limit_by"), Algorithm: text("algorithm"), Quota: text("quota"),
		Period: text("period"), Unit: text("unit"),
		Calendar: text("calendar"), Zone: text("tz"), Start: text("start"),
		Burst: text("burst"), Debt: text("debt"), Segments: text("segments"), Aligned: f.Get("aligned") != "",
		LimitText: text("limit"), KeyBy: text("key"), KeyOther: text("key_other"),
		Methods: f["methods"], OtherMethods: text("other_methods"), Host: text("host"), Path: text("path"),
		Except: text("except"), Headers: text("headers"), Query: text("query"), Claims: text("claims"),
		Cost: text("cost"), Refund: text("refund"), CountOnly: text("count_only"),
		Plans: text("plans"), PlanBy: text("plan_by"), Overrides: text("overrides"),
		AllowNetworks: text("allow_networks"), AllowKeys: text("allow_keys"),
		DenyNetworks: text("deny_networks"), DenyKeys: text("deny_keys"),
		DenyOthers: f.Get("deny_others") != "", DenyStatus: text("deny_status"),
		OnLimit: text("on_limit"), Wait: text("wait"), Enforce: text("enforce"), Warn: text("warn"),
		BanAfter: text("ban_after"), BanFor: text("ban_for"),
		BanMax: text("ban_max"), OnStoreError: text("on_store_error"), Mode: text("mode"), Priority: text("priority"),
	}
}

// values returns the form to send, which draftOf reads.
func (d *draft) values() url.Values {
	f := url.Values{
		"version": {strconv.FormatInt(d.Version, 10)}, "name": {d.Name}, "description": {d.Description}, "apps": d.Apps,
		"limit_by": {d.LimitBy}, "algorithm": {d.Algorithm}, "quota": {d.Quota}, "period": {d.Period}, "unit": {d.Unit},
		"calendar": {d.Calendar}, "tz": {d.Zone}, "start": {d.Start},
		"burst": {d.Burst}, "debt": {d.Debt}, "segments": {d.Segments}, "limit": {d.LimitText},
		"key": {d.KeyBy}, "key_other": {d.KeyOther},
		"methods": d.Methods, "other_methods": {d.OtherMethods}, "host": {d.Host}, "path": {d.Path},
		"except": {d.Except}, "headers": {d.Headers}, "query": {d.Query}, "claims": {d.Claims},
		"cost": {d.Cost}, "refund": {d.Refund}, "count_only": {d.CountOnly},
		"plans": {d.Plans}, "plan_by": {d.PlanBy}, "overrides": {d.Overrides},
		"allow_networks": {d.AllowNetworks}, "allow_keys": {d.AllowKeys},
		"deny_networks": {d.DenyNetworks}, "deny_keys": {d.DenyKeys}, "deny_status": {d.DenyStatus},
		"on_limit": {d.OnLimit}, "wait": {d.Wait}, "enforce": {d.Enforce}, "warn": {d.Warn},
		"ban_after": {d.BanAfter}, "ban_for": {d.BanFor},
		"ban_max": {d.BanMax}, "on_store_error": {d.OnStoreError}, "mode": {d.Mode}, "priority": {d.Priority},
	}

	// A box that is not ticked is not sent, and so has no value here.
	if d.Aligned {
		f.Set("aligned", "yes")
	}
	if d.DenyOthers {
		f.Set("deny_others", "yes")
	}

	return f
}

// draftFrom returns the form of an existing policy.
func draftFrom(p policy.Policy) draft {
	d := draft{
		Version: p.Version, Name: p.Name, Description: p.Description, Apps: p.Apps,
		Host: p.Match.Host, Path: p.Match.Path, Except: unlines(p.Match.Except), Headers: tableLines(p.Match.Headers),
		Query: tableLines(p.Match.Query), Claims: tableLines(p.Match.Claims),
		Cost: costText(p.Cost), Refund: strings.Join(p.Refund, " "), CountOnly: strings.Join(p.CountOnly, " "),
		OnStoreError: p.OnStoreError, Mode: p.Mode.String(), Priority: strconv.Itoa(p.Priority),
		Enforce: shareText(p.Enforce), Warn: shareText(p.Warn),
	}

	// Some fields are written in more than one way, or are several fields of the form.
	d.setExceptions(&p)
	d.setLimit(p.Limit)
	d.setKey(p.Key)
	d.setMethods(p.Match.Methods)
	d.setOnLimit(p.OnLimit)
	d.setBan(p.Ban)
	return d
}

// setBan fills in the fields of a ban, of which the text form names two.
func (d *draft) setBan(b core.Ban) {
	if words := strings.Fields(b.String()); len(words) == 5 {
		d.BanAfter, d.BanFor, d.BanMax = words[0], words[2], words[4]
	}
}

// unit is a unit of time that people choose.
type unit struct {
	Name string
	One  string // its word for one, to which "s" is added for more
	size time.Duration
}

func units() []unit {
	return []unit{
		{"ms", "millisecond", time.Millisecond}, {"s", "second", time.Second}, {"m", "minute", time.Minute},
		{"h", "hour", time.Hour}, {"d", "day", 24 * time.Hour},
	}
}

// calendarUnits are the units of a calendar.
func calendarUnits() []string { return []string{"day", "week", "month", "year"} }

// setLimit fills in the fields and the text of the limit. A period that is not a
// whole number of any unit has only the text.
func (d *draft) setLimit(l core.Limit) {
	// The text can write every limit, so it is the choice until the fields turn out to suffice.
	d.LimitBy, d.LimitText = "text", l.String()
	d.Algorithm, d.Quota, d.Aligned = l.Algorithm.String(), strconv.FormatInt(l.Quota, 10), l.Aligned
	d.Burst, d.Debt, d.Segments = number(l.Burst), number(l.Debt), number(int64(l.Segments))

	if d.Calendar = "month"; l.NeedsWindows() {
		d.setCalendar(l.Calendar)
		return
	}

	// The largest unit that divides the period makes the shortest number.
	for _, u := range slices.Backward(units()) {
		if l.Period%u.size == 0 {
			d.LimitBy, d.Period, d.Unit = "fields", strconv.FormatInt(int64(l.Period/u.size), 10), u.Name
			return
		}
	}
}

// setCalendar fills in the fields of a calendar, and a period for a user who then chooses
// another algorithm.
func (d *draft) setCalendar(text string) {
	words := strings.Fields(text)
	d.LimitBy, d.Period, d.Unit, d.Calendar = "fields", "1", "d", words[0]
	for _, word := range words[1:] {
		if name, value, _ := strings.Cut(word, "="); name == "tz" {
			d.Zone = value
		} else {
			d.Start = value
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

// costText returns a cost as the form has it: a number, or a table in JSON.
func costText(c policy.Cost) string {
	if c.IsZero() {
		return ""
	}
	return c.String()
}

func (d *draft) setKey(recipe string) {
	for _, c := range recipes() {
		if c.Value == recipe {
			d.KeyBy = recipe
			return
		}
	}
	d.KeyBy, d.KeyOther = "other", recipe
}

func (d *draft) setMethods(methods []string) {
	var others []string
	for _, m := range methods {
		if slices.Contains(usualMethods(), m) {
			d.Methods = append(d.Methods, m)
			continue
		}
		others = append(others, m)
	}

	d.OtherMethods = strings.Join(others, " ")
}

func usualMethods() []string { return []string{"GET", "POST", "PUT", "PATCH", "DELETE"} }

func (d *draft) setOnLimit(s string) {
	span, waits := strings.CutPrefix(s, "wait ")
	switch {
	case waits:
		d.OnLimit, d.Wait = "wait", span
	case s == "":
		d.OnLimit = "reject"
	default:
		d.OnLimit = s
	}
}
