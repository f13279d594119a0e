// This file has the conditions of alerts, and whether they hold.

package service

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// AlertKind is a kind of condition.
type AlertKind string

// The kinds. AlertRefused is about the last whole minutes of an application; the others hold if
// they were seen at each check for some minutes.
const (
	AlertRefused  AlertKind = "refused"  // requests are refused
	AlertBypassed AlertKind = "bypassed" // an application counts without Redis
	AlertPolicies AlertKind = "policies" // an application cannot carry out policies
	AlertRedis    AlertKind = "redis"    // Redis does not answer the console
)

// Condition is what an alert is about.
type Condition struct {
	Kind AlertKind `json:"kind"`

	// Over and Count are for AlertRefused alone: it holds if at least Count requests were
	// refused, and more than Over percent of all.
	Over  int   `json:"over,omitempty"`
	Count int64 `json:"count,omitempty"`

	// Minutes is how many whole minutes are counted, or for how long the condition has to hold.
	Minutes int `json:"minutes"`

	// Policy, for AlertRefused, is the policy whose decisions count, AnyPolicy, or "" for the
	// requests of the application.
	Policy string `json:"policy,omitempty"`
}

// AnyPolicy stands for each policy by itself.
const AnyPolicy = "*"

// Bounds of conditions.
const (
	MaxCounted = stats.Minutes - 1 // minutes of counts
	MaxHeld    = 24 * 60           // minutes for which a condition has to hold
	maxRefused = 1_000_000_000
)

// KindOfAlert says what a kind of condition has.
type KindOfAlert struct {
	Words   string // for people
	Counts  bool   // has Over, Count and Policy, and Minutes are those that are counted
	Common  bool   // concerns all applications
	Default Condition
}

// AlertKinds returns all kinds, in the order of a form.
func AlertKinds() []KindOfAlert { return slices.Clone(alertKinds) }

var alertKinds = []KindOfAlert{
	{Words: "Requests are refused", Counts: true, Default: Condition{AlertRefused, 20, 20, 5, ""}},
	{Words: "An application counts without Redis", Default: Condition{AlertBypassed, 0, 0, 1, ""}},
	{Words: "An application refuses policies", Default: Condition{AlertPolicies, 0, 0, 5, ""}},
	{Words: "Redis is away", Common: true, Default: Condition{AlertRedis, 0, 0, 1, ""}},
}

// rankOf returns the place of a kind in alertKinds, or -1.
func rankOf(kind AlertKind) int {
	return slices.IndexFunc(alertKinds, func(k KindOfAlert) bool { return k.Default.Kind == kind })
}

// checkConditions notes every mistake in the conditions of a webhook.
func checkConditions(f *faults, list []Condition) {
	if len(list) == 0 {
		f.add("conditions", errors.New("choose one"))
	}

	seen := map[AlertKind]bool{}
	for _, c := range list {
		i := rankOf(c.Kind)
		if i < 0 {
			f.add("conditions", fmt.Errorf("there is no condition %q", clip(string(c.Kind), MaxUserName)))
			continue
		}

		if seen[c.Kind] {
			f.add("conditions", fmt.Errorf("%s is listed twice", c.Kind))
		}

		seen[c.Kind] = true
		c.check(f, alertKinds[i].Counts)
	}
}

// check reports the mistakes in a condition, by the names of its fields.
func (c Condition) check(f *faults, counts bool) {
	field := func(name string) string { return "conditions." + string(c.Kind) + "." + name }
	bound := func(name string, n, least, most int64) {
		if n < least || n > most {
			f.add(field(name), fmt.Errorf("it is not a number from %d to %d", least, most))
		}
	}

	if !counts {
		if c.Over != 0 || c.Count != 0 || c.Policy != "" {
			f.add("conditions", fmt.Errorf("%s has minutes alone", c.Kind))
		}
		bound("minutes", int64(c.Minutes), 0, MaxHeld)
		return
	}

	bound("over", int64(c.Over), 0, 99)
	bound("count", c.Count, 1, maxRefused)
	bound("minutes", int64(c.Minutes), 1, MaxCounted)
	if c.Policy != "" && c.Policy != AnyPolicy && (len(c.Policy) > policy.MaxName || !isRuleName(c.Policy)) {
		f.add(field("policy"), errors.New("it is not the name of a policy"))
	}
}

// Subject is a policy or an instance that a condition is about.
type Subject struct {
	Name  string `json:"name"`
	Count int64  `json:"count,omitempty"` // of the requests that were refused
	Of    int64  `json:"of,omitempty"`    // of all of its requests
}

// page returns the address of the page that shows what was found: who is refused, or Traffic.
func (f *finding) page(kind AlertKind, app string) string {
	path, query := "/", url.Values{}
	if app != "" {
		query.Set("app", app)
	}
	if kind == AlertRefused {
		path = "/keys"
		if len(f.Subjects) == 1 {
			query.Set("policy", f.Subjects[0].Name)
		}
	}
	return path + strings.TrimSuffix("?"+query.Encode(), "?")
}

// finding is what a condition finds.
type finding struct {
	known, holds bool

	Text     string    `json:"text"`
	Subjects []Subject `json:"subjects,omitempty"`
	More     int       `json:"more,omitempty"` // subjects that are not listed
}

// maxSubjects is how many subjects a message lists.
const maxSubjects = 10

// findingAbout returns a finding about subjects, which holds if there are some. The worst come
// first.
func findingAbout(all []Subject) finding {
	slices.SortFunc(all, func(a, b Subject) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	n := min(len(all), maxSubjects)
	return finding{known: true, holds: len(all) > 0, Subjects: all[:n], More: len(all) - n}
}

// names returns the subjects in words.
func (f finding) names() string {
	var list []string
	for _, s := range f.Subjects {
		name := inertName(s.Name)
		if s.Of > 0 {
			name += fmt.Sprintf(" (%s of %d)", percent(s.Count, s.Of), s.Of)
		}
		list = append(list, name)
	}

	if f.More > 0 {
		list = append(list, fmt.Sprintf("%d more", f.More))
	}
	return strings.Join(list, ", ")
}

func percent(n, of int64) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of)) }

// maxPlain is the largest number of bytes of a name in the text of a message.
const maxPlain = 80

// inertName returns a name without characters that a receiver may take for markup, for a link or
// for a group of people. The data of a message has the name as it is.
func inertName(name string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || c == ' ' || c == '.' || c == '-' || c == '_' {
			return c
		}
		return '?'
	}, sanitize(name, maxPlain))
}

// seen is what is known of the applications at one time.
type seen struct {
	blind     bool                         // Redis was not asked, and nothing is known
	away      error                        // Redis did not answer the console
	instances map[string][]policy.Instance // by application
	minutes   map[string][]stats.Minute
	found     map[conditionOf]finding // many webhooks have the same conditions
}

// conditionOf is a condition for an application.
type conditionOf struct {
	Condition
	app string
}

// judge reports whether a condition holds for an application, or for all if it is common to them.
// It looks once at what many webhooks watch.
func (s *seen) judge(c Condition, app string) finding {
	key := conditionOf{c, app}
	f, ok := s.found[key]
	if !ok {
		f = s.lookAt(c, app)
		s.found[key] = f
	}
	return f
}

// lookAt returns what a condition finds in an application, or in Redis for all of them.
func (s *seen) lookAt(c Condition, app string) finding {
	switch {
	case s.blind:
		return finding{}
	case c.Kind == AlertRedis:
		return finding{
			known: true, holds: s.away != nil,
			Text: "Redis does not answer the console. What the instances do is not known",
		}
	case s.away != nil:
		return finding{}
	case c.Kind == AlertRefused:
		return s.lookRefused(c, app)
	}
	return s.lookInstances(c, app)
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// lookInstances is lookAt for conditions about the instances.
func (s *seen) lookInstances(c Condition, app string) finding {
	var list []Subject
	for _, i := range s.instances[app] {
		bad := i.Refused != "" || len(i.LeftOut) > 0
		if c.Kind == AlertBypassed {
			bad = i.Store == "local" || i.Store == "open" || i.Store == "closed"
		}
		if bad {
			list = append(list, Subject{Name: sanitize(i.ID, policy.MaxText)})
		}
	}

	what := counted(len(list), "instance refuses policies", "instances refuse policies")
	if c.Kind == AlertBypassed {
		what = counted(len(list), "instance decides without Redis", "instances decide without Redis")
	}

	f := findingAbout(list)
	f.Text = fmt.Sprintf("%s: %s: %s", app, what, f.names())
	return f
}

// lookRefused reports whether too many of the requests in the last whole minutes were refused.
func (s *seen) lookRefused(c Condition, app string) finding {
	minutes := s.minutes[app]
	if len(minutes) == 0 {
		return finding{}
	}

	// The last minute has not ended, and would lower each number and shift each share.
	whole := minutes[:len(minutes)-1]
	whole = whole[max(0, len(whole)-c.Minutes):]

	within := "in the last minute"
	if c.Minutes > 1 {
		within = fmt.Sprintf("in the last %d minutes", c.Minutes)
	}
	over := func(counts stats.Counts) bool {
		n := refusedOf(counts)
		return n >= c.Count && 100*n > int64(c.Over)*counts.Total()
	}

	if c.Policy == "" {
		total, _ := stats.Requests(whole)
		n, all := refusedOf(total), total.Total()
		text := fmt.Sprintf("%s: %d of %d requests were refused %s", app, n, all, within)
		if c.Over > 0 {
			text = fmt.Sprintf("%s: %s of %d requests were refused %s, more than %d %%",
				app, percent(n, max(all, 1)), all, within, c.Over)
		}
		return finding{known: true, holds: over(total), Text: text}
	}

	// With a policy its decisions count, and not the requests.
	var list []Subject
	for name, counts := range stats.Total(whole) {
		if (c.Policy == AnyPolicy || c.Policy == name) && over(counts) && isRuleName(name) {
			list = append(list, Subject{Name: name, Count: refusedOf(counts), Of: counts.Total()})
		}
	}

	what := fmt.Sprintf("more than %d %% of their requests", c.Over)
	if c.Over == 0 {
		what = counted(int(c.Count), "request or more", "requests or more")
	}
	f := findingAbout(list)
	f.Text = fmt.Sprintf("%s: %s %s %s: %s", app,
		counted(len(list), "policy refused", "policies refused"), what, within, f.names())
	return f
}
