// This file has the bans of policies.

package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
)

// Ban turns a key away for a while after many refusals, as limiter.Ban does. The zero
// value bans no key. In Shadow mode a policy bans no key either.
type Ban struct {
	// After is how many refusals in how long begin a ban, such as "20/1m".
	After string `json:"after,omitempty" yaml:"after,omitempty"`

	// For is how long the first ban lasts, such as "10m", and Max how long any lasts at
	// most, such as "24h": each next ban lasts twice as long as the one before.
	For string `json:"for,omitempty" yaml:"for,omitempty"`
	Max string `json:"max,omitempty" yaml:"max,omitempty"`
}

// read returns the ban for a rule, and notes what is wrong with its fields.
func (b *Ban) read(note func(field string, err error)) limiter.Ban {
	if *b == (Ban{}) {
		return limiter.Ban{}
	}
	span := func(field, text string, otherwise time.Duration) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			note("ban."+field, fmt.Errorf("%q is not a duration such as 10m or 24h", textform.Clip(text)))
			return otherwise // so that the other fields are checked
		}
		return d
	}
	after, err := parseRefusals(b.After)
	note("ban.after", err)
	ban := limiter.Ban{After: after, For: span("for", b.For, time.Millisecond), Max: span("max", b.Max, core.MaxPeriod)}
	note("ban", core.Ban{Strikes: after.Quota, Within: after.Period, For: ban.For, Max: ban.Max}.Validate())
	return ban
}

// parseRefusals reads Ban.After. With an error it returns a limit that is valid.
func parseRefusals(text string) (core.Limit, error) {
	const window = " fixed-window"
	rate := strings.TrimSuffix(text, window)
	after, err := core.ParseLimit(rate + window)
	switch {
	case text == "":
		err = errors.New("it is missing; write how many refusals in how long begin a ban, such as 20/1m")
	case err != nil || after.Aligned || after.Debt != 0:
		err = fmt.Errorf("%q is not a number of refusals and a time, such as 20/1m", textform.Clip(text))
	default:
		return after, nil
	}
	return core.Limit{Algorithm: core.FixedWindow, Quota: 1, Period: time.Second}, err
}

// checkBan notes what is wrong with the ban of the policy.
func (p *Policy) checkBan(note func(field string, err error)) {
	if p.Ban == (Ban{}) {
		return
	}
	p.Ban.read(note)
	if action, err := parseAction(p.OnLimit); err == nil && action != limiter.Reject {
		note("ban", fmt.Errorf("only a policy that refuses requests can ban, and on_limit is %q", p.OnLimit))
	}
	if p.Limit.Leased() {
		note("ban", errors.New("a concurrency limit cannot ban, because leases have to be renewed"))
	}
}

// banned describes the ban of a valid policy.
func (p *Policy) banned() string {
	if p.Ban == (Ban{}) || p.Mode == Shadow {
		return ""
	}
	b := p.Ban.read(func(string, error) {})
	s := fmt.Sprintf("; after %d %s within %s banned for %s", b.After.Quota, plural(b.After.Quota, "refusal"), span(b.After.Period), span(b.For))
	if b.Max > b.For {
		s += ", then twice as long each time, at most " + span(b.Max)
	}
	return s
}

// Core returns the ban of a valid policy as stores know it, or nil for none.
func (b Ban) Core() *core.Ban {
	if b == (Ban{}) {
		return nil
	}
	ban := b.read(func(string, error) {})
	return &core.Ban{Strikes: ban.After.Quota, Within: ban.After.Period, For: ban.For, Max: ban.Max}
}
