// This file has the conditions of alerts, and whether they hold.

package service

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// AlertKind is a kind of condition.
type AlertKind string

// The kinds. Conditions of counts are about the last whole minutes of an application; the others
// hold if they were seen at each check for some minutes.
const (
	AlertRefused    AlertKind = "refused"     // a share of the requests is refused
	AlertFailedOpen AlertKind = "failed-open" // requests pass without a decision
	AlertBanned     AlertKind = "banned"      // requests are refused because of bans
	AlertNear       AlertKind = "near"        // a key comes near its limit
	AlertBypassed   AlertKind = "bypassed"    // an instance decides without Redis
	AlertBehind     AlertKind = "behind"      // an instance does not run the newest policies
	AlertLost       AlertKind = "lost"        // fewer instances report than before
	AlertRedis      AlertKind = "redis"       // Redis does not answer the console
	AlertFull       AlertKind = "full"        // the memory of Redis is nearly full
)

// Condition is what an alert is about.
type Condition struct {
	Kind AlertKind `json:"kind"`

	// Over is the share in percent over which AlertRefused and AlertFull hold.
	Over int `json:"over,omitempty"`

	// AtLeast is the smallest number of requests: of those that AlertRefused looks at, and of
	// those that AlertFailedOpen and AlertBanned count.
	AtLeast int64 `json:"at_least,omitempty"`

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
	maxAtLeast = 1_000_000_000
)

// KindOfAlert says what a kind of condition has.
type KindOfAlert struct {
	Kind    AlertKind
	Words   string // for people, as in "an instance …"
	Share   bool   // has Over
	Counts  bool   // has AtLeast, and Minutes are those that are counted
	Policy  bool   // may have Policy
	Keys    bool   // is about single keys, each of which is told once, and has no numbers
	Common  bool   // concerns all applications
	Default Condition
}

// AlertKinds returns all kinds, in the order of a form.
func AlertKinds() []KindOfAlert { return slices.Clone(alertKinds) }

var alertKinds = []KindOfAlert{
	{Kind: AlertRefused, Words: "Many requests are refused", Share: true, Counts: true, Policy: true,
		Default: Condition{AlertRefused, 20, 100, 5, ""}},
	{Kind: AlertFailedOpen, Words: "Requests pass without a decision", Counts: true,
		Default: Condition{AlertFailedOpen, 0, 1, 1, ""}},
	{Kind: AlertBanned, Words: "Requests are refused because of a ban", Counts: true,
		Default: Condition{AlertBanned, 0, 1, 1, ""}},
	{Kind: AlertNear, Words: "A key comes near its limit", Keys: true, Default: Condition{AlertNear, 0, 0, 0, ""}},
	{Kind: AlertBypassed, Words: "An instance decides without Redis", Default: Condition{AlertBypassed, 0, 0, 1, ""}},
	{Kind: AlertBehind, Words: "An instance does not run the newest policies",
		Default: Condition{AlertBehind, 0, 0, 5, ""}},
	{Kind: AlertLost, Words: "Fewer instances report than before", Default: Condition{AlertLost, 0, 0, 2, ""}},
	{Kind: AlertRedis, Words: "Redis does not answer the console", Common: true,
		Default: Condition{AlertRedis, 0, 0, 1, ""}},
	{Kind: AlertFull, Words: "The memory of Redis is nearly full", Share: true, Common: true,
		Default: Condition{AlertFull, 90, 0, 1, ""}},
}

// rankOf returns the place of a kind in alertKinds, or a greater number.
func rankOf(kind AlertKind) int {
	if i := slices.IndexFunc(alertKinds, func(k KindOfAlert) bool { return k.Kind == kind }); i >= 0 {
		return i
	}
	return len(alertKinds)
}

func checkConditions(f *faults, list []Condition) {
	if len(list) == 0 {
		f.add("conditions", errors.New("choose one"))
	}

	seen := map[AlertKind]bool{}
	for _, c := range list {
		i := rankOf(c.Kind)
		if i == len(alertKinds) {
			f.add("conditions", fmt.Errorf("there is no condition %q", clip(string(c.Kind), MaxUserName)))
			continue
		}

		if seen[c.Kind] {
			f.add("conditions", fmt.Errorf("%s is listed twice", c.Kind))
		}

		seen[c.Kind] = true
		c.check(f, alertKinds[i])
	}
}

func (c Condition) check(f *faults, kind KindOfAlert) {
	field := func(name string) string { return "conditions." + string(c.Kind) + "." + name }
	// there reports whether conditions of this kind have the number.
	bound := func(name string, there bool, n, least, most int64) {
		switch {
		case !there && n != 0:
			f.add(field(name), errors.New("the condition has none"))
		case there && (n < least || n > most):
			f.add(field(name), fmt.Errorf("it is not a number from %d to %d", least, most))
		}
	}

	bound("over", kind.Share, int64(c.Over), 0, 99)
	bound("at_least", kind.Counts, c.AtLeast, 1, maxAtLeast)

	if kind.Counts {
		bound("minutes", true, int64(c.Minutes), 1, MaxCounted)
	} else {
		bound("minutes", !kind.Keys, int64(c.Minutes), 0, MaxHeld)
	}

	switch {
	case c.Policy == "":
	case !kind.Policy:
		f.add(field("policy"), errors.New("the condition has none"))
	case c.Policy != AnyPolicy && (len(c.Policy) > policy.MaxName || !isRuleName(c.Policy)):
		f.add(field("policy"), errors.New("it is not the name of a policy"))
	}
}

// Subject is a policy or an instance that a condition is about.
type Subject struct {
	Name  string `json:"name"`
	Key   string `json:"key,omitempty"`   // under the policy Name, of AlertNear
	Count int64  `json:"count,omitempty"` // of the requests that the condition counts
	Of    int64  `json:"of,omitempty"`    // of all of its requests
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

// addSubjects adds subjects to a finding. The worst come first.
func (f *finding) addSubjects(all []Subject) {
	slices.SortFunc(all, func(a, b Subject) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	n := min(len(all), maxSubjects)
	f.Subjects, f.More, f.holds = all[:n], len(all)-n, len(all) > 0
}

// names returns the subjects in words.
func (f *finding) names() string {
	var list []string
	for _, s := range f.Subjects {
		name := inertName(s.Name)
		if s.Key != "" {
			name += " " + inertName(s.Key)
		}
		switch {
		case s.Of > 0:
			name += fmt.Sprintf(" (%s of %d)", percent(s.Count, s.Of), s.Of)
		case s.Count > 0:
			name += fmt.Sprintf(" (%d)", s.Count)
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

// seen is what is known of the instances at one time.
type seen struct {
	blind     bool  // the console has not asked Redis
	away      error // Redis did not answer the console
	label     string
	instances map[string][]policy.Instance // by application
	minutes   map[string][]stats.Minute
	near      map[string][]stats.NearKey // of the last hour, by application
	used      int64                      // bytes of the fullest server's memory
	limit     int64                      // of that server; 0 means that it has none, or does not tell
	expected  map[string]int64
	sums      map[sumKey]sumOfMinutes
	found     map[conditionOf]finding // many webhooks have the same conditions
}

// conditionOf is a condition for an application.
type conditionOf struct {
	Condition
	app string
}

type sumKey struct {
	app     string
	minutes int
}

type sumOfMinutes struct {
	requests stats.Counts
	policies map[string]stats.Counts
}

// sum adds up the last whole minutes of an application.
func (s *seen) sum(app string, minutes int) (sumOfMinutes, bool) {
	key := sumKey{app, minutes}
	if known, ok := s.sums[key]; ok {
		return known, true
	}

	all, ok := s.minutes[app]
	if !ok || len(all) == 0 {
		return sumOfMinutes{}, false
	}

	// The last minute has not ended, and would lower each number and shift each share.
	whole := all[:len(all)-1]
	whole = whole[max(0, len(whole)-minutes):]

	var total sumOfMinutes
	total.requests, _ = stats.Requests(whole)
	total.policies = stats.Total(whole)

	s.sums[key] = total
	return total, true
}

// judge reports whether a condition holds for an application, or for all if it is common to them.
func (s *seen) judge(c Condition, app string) finding {
	if s.blind {
		return finding{}
	}

	// How many instances are expected is read at the end of a check, so that it is not kept here.
	if c.Kind == AlertLost {
		return s.lookLost(app)
	}

	// Many webhooks have the same conditions, which are looked at once.
	key := conditionOf{c, app}
	f, ok := s.found[key]
	if !ok {
		f = s.lookAt(c, app)
		s.found[key] = f
	}
	return f
}

func (s *seen) lookAt(c Condition, app string) finding {
	switch c.Kind {
	case AlertRedis:
		return finding{
			known: true, holds: s.away != nil,
			Text: "Redis does not answer the console. What the instances do is not known",
		}
	case AlertFull:
		return s.lookFull(c)
	case AlertRefused, AlertFailedOpen, AlertBanned:
		return s.lookCounts(c, app)
	case AlertNear:
		list, known := s.near[app]
		return finding{known: known, holds: len(list) > 0, Text: nearText(app, list)}
	}
	if s.away != nil {
		return finding{}
	}
	return s.lookInstances(c, app)
}

func (s *seen) lookFull(c Condition) finding {
	if s.away != nil || s.limit <= 0 {
		return finding{known: s.away == nil}
	}
	return finding{
		known: true, holds: float64(s.used) > float64(s.limit)*float64(c.Over)/100,
		Text: fmt.Sprintf("Redis uses %s of its memory, more than %d %%. When it is full it refuses writes",
			percent(s.used, s.limit), c.Over),
	}
}

func (s *seen) lookLost(app string) finding {
	if s.away != nil {
		return finding{}
	}
	have, want := int64(len(s.instances[app])), s.expected[app]
	return finding{
		known: true, holds: have < want,
		Text: fmt.Sprintf("%s: %s, and there were %d",
			app, counted(have, "instance reports", "instances report"), want),
	}
}

func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (s *seen) lookInstances(c Condition, app string) finding {
	f := finding{known: true}
	var list []Subject
	for _, i := range s.instances[app] {
		// An instance is behind if it has another version, or refuses a newer one or a part.
		bad := i.Version != s.label || i.Refused != "" || len(i.LeftOut) > 0
		if c.Kind == AlertBypassed {
			bad = i.Store == "local" || i.Store == "open" || i.Store == "closed"
		}
		if bad {
			list = append(list, Subject{Name: sanitize(i.ID, policy.MaxText)})
		}
	}

	f.addSubjects(list)

	what := counted(int64(len(list)), "instance does not run", "instances do not run") + " the newest policies"
	if c.Kind == AlertBypassed {
		what = counted(int64(len(list)), "instance decides", "instances decide") + " without Redis"
	}

	f.Text = fmt.Sprintf("%s: %s: %s", app, what, f.names())
	return f
}

// nearText says how many keys came near their limits.
func nearText(app string, list []stats.NearKey) string {
	return fmt.Sprintf("%s: %s", app, counted(int64(len(list)), "key has come near its limit",
		"keys have come near their limits"))
}

// A check names at most maxNearTold keys, and a message at most nearInMessage of them. A key is cut
// to maxNearKey bytes. So a message fits into its row, also where each byte is escaped.
const (
	maxNearTold   = 100
	nearInMessage = 20
	maxNearKey    = 256
)

// tellNear returns what is told of keys, a finding for each message.
func tellNear(app string, list []stats.NearKey) (messages []finding) {
	more := max(0, len(list)-maxNearTold)
	for part := range slices.Chunk(list[:len(list)-more], nearInMessage) {
		var f finding
		for _, k := range part {
			subject := Subject{Name: sanitize(k.Policy, policy.MaxName), Key: sanitize(k.Key, maxNearKey)}
			f.Subjects = append(f.Subjects, subject)
		}
		f.Text = nearText(app, part) + ": " + f.names()
		messages = append(messages, f)
	}

	last := &messages[len(messages)-1]
	if last.More = more; more > 0 {
		last.Text += fmt.Sprintf(", and %d more", more)
	}
	return messages
}

// lookCounts reports whether a condition of counts holds.
func (s *seen) lookCounts(c Condition, app string) finding {
	total, ok := s.sum(app, c.Minutes)
	if !ok {
		return finding{}
	}

	f := finding{known: true}
	within := "in the last minute"
	if c.Minutes > 1 {
		within = fmt.Sprintf("in the last %d minutes", c.Minutes)
	}

	switch c.Kind {
	case AlertRefused:
		s.lookRefused(&f, c, app, total, within)
		return f
	case AlertFailedOpen:
		n := total.requests[events.FailedOpen]
		f.holds = n >= c.AtLeast
		f.Text = fmt.Sprintf("%s: %s without a decision %s",
			app, counted(n, "request passed", "requests passed"), within)
		return f
	}

	// Of bans the number of requests decides. The subjects are the policies that ban.
	var list []Subject
	for name, counts := range total.policies {
		if n := counts[events.Banned]; n > 0 && isRuleName(name) {
			list = append(list, Subject{Name: name, Count: n})
		}
	}

	f.addSubjects(list)

	sum := total.requests[events.Banned]
	f.holds = sum >= c.AtLeast
	f.Text = fmt.Sprintf("%s: %s because of bans %s, under: %s",
		app, counted(sum, "request was refused", "requests were refused"), within, f.names())
	return f
}

func (s *seen) lookRefused(f *finding, c Condition, app string, total sumOfMinutes, within string) {
	over := func(counts stats.Counts) bool {
		all := counts.Total()
		return all >= c.AtLeast && 100*refusedOf(counts) > int64(c.Over)*all
	}

	if c.Policy == "" {
		n, all := refusedOf(total.requests), total.requests.Total()
		f.holds = over(total.requests)
		f.Text = fmt.Sprintf("%s: %s of %d requests were refused %s, more than %d %%",
			app, percent(n, max(all, 1)), all, within, c.Over)
		return
	}

	// With a policy its decisions count, and not the requests.
	named := total.policies
	if c.Policy != AnyPolicy {
		named = map[string]stats.Counts{c.Policy: total.policies[c.Policy]}
	}

	var list []Subject
	for name, counts := range named {
		if over(counts) && isRuleName(name) {
			list = append(list, Subject{Name: name, Count: refusedOf(counts), Of: counts.Total()})
		}
	}

	f.addSubjects(list)
	f.Text = fmt.Sprintf("%s: %s more than %d %% of their requests %s: %s", app,
		counted(int64(len(list)), "policy refused", "policies refused"), c.Over, within, f.names())
}
