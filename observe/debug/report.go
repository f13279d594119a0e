package debug

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
)

// Report is what the page shows, and its JSON form. Texts that clients may have written are
// quoted in ASCII; [strconv.Unquote] restores keys. Times are in UTC, and zero times and empty
// lists are left out. Fields may be added.
type Report struct {
	At       time.Time `json:"at"`
	Limiters []Limiter `json:"limiters"`
}

// Limiter is the report of one limiter.
type Limiter struct {
	Name   string    `json:"name"`
	Since  time.Time `json:"since"`
	Closed bool      `json:"closed,omitempty"`

	// Answers are the first questions of an operator.
	Answers Answers `json:"answers"`

	Rules     []Rule    `json:"rules"`
	Stores    []Store   `json:"stores,omitempty"`
	Calls     Calls     `json:"calls"`
	Breakers  []Change  `json:"breaker_changes,omitempty"` // the latest first
	Troubles  []Trouble `json:"troubles,omitempty"`        // the latest first
	Findings  []Finding `json:"findings,omitempty"`
	Waiting   int       `json:"waiting"`
	MayWait   int       `json:"may_wait"`
	Leases    int64     `json:"leases"`
	TopIsKept bool      `json:"top_is_kept"` // limiter.Config.Top is not 0
}

// Answers say who is refused, whether the store is well, and what became of requests that it
// did not decide.
type Answers struct {
	// Refusing are the rules that refused requests in the last minutes.
	Refusing []Refusing `json:"refusing,omitempty"`

	// Store is "ok", "slow" if most of the recent calls took more than half of the time that a
	// call may take, "failing" if it did not decide about some request of the last minute,
	// "unsteady" if so, but the latest call succeeded, or "away" if it, or a shard of it, is
	// bypassed. StoreSince is when it began to fail or was bypassed, and Cause why.
	Store      string    `json:"store"`
	StoreSince time.Time `json:"store_since,omitzero"`
	Cause      string    `json:"cause,omitempty"`

	// FailedOpen is how many requests passed undecided, FailedClosed how many were turned
	// away for it, and Local how many the fallback decided, since the limiter was made.
	// OpenFirst and OpenLast are the first and the last of the latest errors, less than a
	// minute apart, under which requests passed.
	FailedOpen   int64     `json:"failed_open"`
	OpenFirst    time.Time `json:"open_first,omitzero"`
	OpenLast     time.Time `json:"open_last,omitzero"`
	FailedClosed int64     `json:"failed_closed"`
	Local        int64     `json:"decided_by_fallback"`
}

// Refusing is a rule that refused requests in the last minutes.
type Refusing struct {
	Rule     string    `json:"rule"`
	Requests int64     `json:"requests"`
	Since    time.Time `json:"since"` // that of the key that has been refused longest without a gap
	TopKey   string    `json:"top_key"`
}

// Rule is a rule in force.
type Rule struct {
	Name         string           `json:"name"`
	Limit        string           `json:"limit"`
	Words        string           `json:"words"` // the limit in words
	OnLimit      string           `json:"on_limit"`
	OnStoreError string           `json:"on_store_error"`
	Ban          string           `json:"ban,omitempty"`
	Own          bool             `json:"own_limits,omitempty"` // keys may have limits of their own
	Lists        bool             `json:"lists,omitempty"`      // lists allow or deny callers
	CountedSince time.Time        `json:"counted_since,omitzero"`
	Verdicts     map[string]int64 `json:"verdicts,omitempty"` // those that are not 0
	Refused      Keys             `json:"refused"`
	Admitted     Keys             `json:"admitted"`
}

// Keys are the top keys of a rule.
type Keys struct {
	From     time.Time `json:"from,omitzero"`
	Requests int64     `json:"requests"`
	Others   int64     `json:"others_at_most"` // how many requests a key had that is not listed, at most
	Keys     []Key     `json:"keys,omitempty"`
}

// Key is a key, quoted in ASCII, that was counted from AtLeast to AtMost times.
type Key struct {
	Key     string    `json:"key"`
	AtLeast int64     `json:"at_least"`
	AtMost  int64     `json:"at_most"`
	Since   time.Time `json:"since"`
}

// Store is a store, of which there may be several, one over another.
type Store struct {
	Store   string           `json:"store"`
	Servers string           `json:"servers,omitempty"`
	Decides string           `json:"decides,omitempty"` // of one with a breaker: "store", "local", "open" or "closed"
	Away    []Away           `json:"away,omitempty"`
	Cause   string           `json:"cause,omitempty"` // the latest for which the fallback decided
	Counts  map[string]int64 `json:"counts,omitempty"`
	Held    map[string]int64 `json:"held_ahead,omitempty"` // units, by rule
}

// Away is a shard that is bypassed, or the whole store if its name is "".
type Away struct {
	Shard string    `json:"shard"`
	Since time.Time `json:"since,omitzero"`
}

// Calls are the calls of the store to its server.
type Calls struct {
	Calls  uint64       `json:"calls"`
	Failed uint64       `json:"failed"`
	Recent int          `json:"recent"`         // how many calls of the last minute the times are of
	Median float64      `json:"median_seconds"` // as are the next ones
	P99    float64      `json:"p99_seconds"`
	Max    float64      `json:"max_seconds"`
	AtMost float64      `json:"at_most_seconds"` // how long a call may take; 0 if that is not known
	Last   time.Time    `json:"last,omitzero"`
	Errors []StoreError `json:"errors,omitempty"` // the latest first
}

// StoreError is an error of calls in a row.
type StoreError struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Times int64     `json:"times"`
	Type  string    `json:"type"`
	Error string    `json:"error"`
}

// Change is a change of a breaker.
type Change struct {
	At    time.Time `json:"at"`
	Shard string    `json:"shard"`
	State string    `json:"state"` // "open" or "closed"
	Cause string    `json:"cause,omitempty"`
}

// Trouble is a kind of error.
type Trouble struct {
	What    string    `json:"what"`
	Rule    string    `json:"rule,omitempty"`
	Active  bool      `json:"active"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Passed  int64     `json:"passed"`
	Refused int64     `json:"refused"`
	Local   int64     `json:"decided_by_fallback"`
	Other   int64     `json:"met_no_request"`
	Error   string    `json:"error"`
}

// Finding is a likely mistake in the set-up.
type Finding struct {
	At   time.Time `json:"at"`
	Code string    `json:"code"`
	Rule string    `json:"rule,omitempty"`
	Text string    `json:"text"`
}

// Report returns what the page shows now.
func (p *Page) Report() Report {
	r := Report{At: time.Now().UTC(), Limiters: []Limiter{}}
	for i, l := range p.Limiters {
		if l == nil {
			continue
		}

		st, name := l.Status(), ""
		if i < len(p.Names) {
			name = p.Names[i]
		}
		name = cmp.Or(name, st.Name, strconv.Itoa(i+1))
		r.Limiters = append(r.Limiters, reportOf(name, st))
	}
	return r
}

// reportOf returns the report of one limiter.
func reportOf(name string, st limiter.Status) Limiter {
	l := Limiter{
		Name: name, Since: st.Since.UTC(), Closed: st.Closed, Rules: []Rule{},
		Waiting: st.Waiting, MayWait: st.MaxWaiting, Leases: st.Leases, Calls: callsOf(st.Calls),
	}

	for i := range st.Rules {
		l.Rules = append(l.Rules, ruleOf(&st.Rules[i]))
		l.TopIsKept = l.TopIsKept || !st.Rules[i].Since.IsZero()
	}

	for i := range st.Stores {
		l.Stores = append(l.Stores, storeOf(&st.Stores[i], st.Away))
	}

	for _, c := range st.Breakers {
		change := Change{At: c.At.UTC(), Shard: inert(c.Shard), State: "closed", Cause: inert(c.Cause)}
		if c.Open {
			change.State = "open"
		}
		l.Breakers = append(l.Breakers, change)
	}

	for _, t := range st.Troubles {
		l.Troubles = append(l.Troubles, Trouble{
			What: t.What, Rule: t.Rule, Active: t.Active, First: t.First.UTC(), Last: t.Last.UTC(),
			Passed: t.Passed, Refused: t.Refused, Local: t.Local, Other: t.Other, Error: inert(t.Err),
		})
	}

	for _, f := range st.Findings {
		l.Findings = append(l.Findings, Finding{f.At.UTC(), f.Code, f.Rule, inert(f.Text)})
	}

	// The answers are derived from all of the above.
	l.Answers = l.answer()
	return l
}

// ruleOf returns the report of a rule.
func ruleOf(st *limiter.RuleStatus) Rule {
	r := Rule{
		Name: st.Rule.Name, Limit: st.Rule.Limit.String(), Words: policy.DescribeLimit(st.Rule.Limit),
		OnLimit: st.Rule.OnLimit.String(), OnStoreError: st.OnStoreError.String(), Ban: banOf(st.Rule.Ban),
		Own: st.Rule.Override != nil, Lists: st.Rule.Access != nil,
		Refused: keysOf(st.Top.Refused), Admitted: keysOf(st.Top.Admitted),
	}

	// Without Top nothing is counted, and zeros would look like a rule that no request meets.
	if st.Since.IsZero() {
		return r
	}

	r.CountedSince, r.Verdicts = st.Since.UTC(), map[string]int64{}
	for v, n := range st.Verdicts {
		if n > 0 {
			r.Verdicts[events.Verdict(v).String()] = n
		}
	}
	return r
}

// banOf returns a ban in words.
func banOf(b core.Ban) string {
	if b == (core.Ban{}) {
		return ""
	}
	return fmt.Sprintf("after %d refusals within %v, for %v, at most %v", b.Strikes, b.Within, b.For, b.Max)
}

// keysOf returns the report of keys, which are quoted.
func keysOf(s topkeys.Summary) Keys {
	k := Keys{From: s.From, Requests: s.Total, Others: s.Floor}
	for _, one := range s.Keys {
		k.Keys = append(k.Keys, Key{strconv.QuoteToASCII(one.Key), one.Least(), one.Count, one.Since})
	}
	return k
}

// callsOf returns the report of the calls of a store.
func callsOf(c events.StoreCalls) Calls {
	calls := Calls{
		Calls: c.Calls, Failed: c.Failed, Recent: c.Recent, Median: c.Median.Seconds(),
		P99: c.P99.Seconds(), Max: c.Max.Seconds(), AtMost: c.AtMost.Seconds(),
	}
	if !c.Last.IsZero() {
		calls.Last = c.Last.UTC()
	}
	for _, e := range c.Errors {
		calls.Errors = append(calls.Errors,
			StoreError{e.First.UTC(), e.Last.UTC(), e.Times, e.Type.String(), inert(e.Text)})
	}
	return calls
}

// storeOf returns the report of a store. since is when each shard began to be bypassed.
func storeOf(st *events.StoreStatus, since map[string]time.Time) Store {
	s := Store{Store: st.Store, Servers: st.Servers, Held: st.Held, Counts: map[string]int64{}}

	// Only a store with a breaker has something else that may decide.
	if st.Store == "failover" {
		s.Decides = st.Mode.String()
	}

	for _, shard := range st.Away {
		away := Away{Shard: inert(shard)}
		if at, known := since[shard]; known {
			away.Since = at.UTC()
		}
		s.Away = append(s.Away, away)
	}

	if st.Cause != nil {
		s.Cause = inert(st.Cause.Error())
	}
	if st.Store == "memory" {
		s.Counts["keys"] = st.Keys
	}

	// Most counts are of stores of another kind, and zero.
	for name, n := range map[string]int64{
		"overflow_buckets": st.Overflow, "bytes": st.Bytes, "counted_in_overflow": st.Shared,
		"refused_for_lack_of_room": st.Refused, "cached_refusals": int64(st.CachedRefusals),
		"breaker_opened": int64(st.Opened), "decided_by_fallback": int64(st.Local),
		"refunds_waiting": int64(st.Waiting), "refunds_lost": int64(st.Lost),
	} {
		if n > 0 {
			s.Counts[name] = n
		}
	}

	return s
}

// answer derives the answers from the rest.
func (l *Limiter) answer() Answers {
	a := Answers{Store: "ok"}

	for i := range l.Rules {
		r := &l.Rules[i]
		if r.Refused.Requests == 0 {
			continue
		}

		// The keys are in the order of their counts. The one refused longest may be any of them.
		first := slices.MinFunc(r.Refused.Keys, func(x, y Key) int { return x.Since.Compare(y.Since) })
		a.Refusing = append(a.Refusing, Refusing{r.Name, r.Refused.Requests, first.Since, r.Refused.Keys[0].Key})
	}
	slices.SortStableFunc(a.Refusing, func(x, y Refusing) int { return cmp.Compare(y.Requests, x.Requests) })

	for i := range l.Troubles {
		t := &l.Troubles[i]
		a.FailedOpen, a.FailedClosed, a.Local = a.FailedOpen+t.Passed, a.FailedClosed+t.Refused, a.Local+t.Local

		// The times are those of the latest errors under which requests passed.
		if t.Passed > 0 && t.Last.After(a.OpenLast) {
			a.OpenFirst, a.OpenLast = t.First, t.Last
		}
	}

	l.answerStore(&a)
	return a
}

// answerStore says how the store is.
func (l *Limiter) answerStore(a *Answers) {
	// What is found later takes precedence: away over failing, and failing over slow.
	if l.Calls.AtMost > 0 && l.Calls.Median > l.Calls.AtMost/2 {
		a.Store = "slow"
	}
	for _, t := range l.Troubles {
		if t.Active && t.Rule == "" && t.Passed+t.Refused+t.Local > 0 {
			a.Store, a.StoreSince, a.Cause = "failing", t.First, t.Error
			break
		}
	}

	if a.Store == "failing" && len(l.Calls.Errors) > 0 {
		latest := &l.Calls.Errors[0]
		a.Cause = latest.Error // as the client of the server reports it
		if l.Calls.Last.After(latest.Last) {
			a.Store = "unsteady"
		}
	}

	for _, s := range l.Stores {
		for _, away := range s.Away {
			if a.Store != "away" || away.Since.Before(a.StoreSince) {
				a.Store, a.StoreSince = "away", away.Since
				a.Cause = cmp.Or(l.causeOf(away.Shard), a.Cause, s.Cause)
			}
		}
	}
}

// causeOf returns why the breaker of the shard opened last.
func (l *Limiter) causeOf(shard string) string {
	for _, c := range l.Breakers {
		if c.Shard == shard && c.State == "open" {
			return c.Cause
		}
	}
	return ""
}

// maxPlain is the length of the longest text that is shown of an error, in bytes.
const maxPlain = 1000

// inert returns a text that is mostly the program's own so that it is inert: without the
// quotes of [strconv.QuoteToASCII], and cut if it is very long.
func inert(s string) string {
	ellipsis := ""
	if len(s) > maxPlain {
		s, ellipsis = s[:maxPlain], "..."
	}
	q := quote(s)
	return q[1:len(q)-1] + ellipsis
}

// quote returns s inert: quoted, in ASCII.
func quote(s string) string { return strconv.QuoteToASCII(s) }

// seconds writes a number of seconds for readers.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

// clock writes a time for readers: "-" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
