// This file has the bans of policies.

package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/limiter"
)

// checkBan reports what is wrong with the ban of the policy.
func (p *Policy) checkBan(mistake func(field string, err error)) {
	if p.Ban == (core.Ban{}) {
		return
	}

	mistake("ban", p.Ban.Validate())
	if action, err := parseAction(p.OnLimit); err == nil && action != limiter.Reject {
		mistake("ban", fmt.Errorf("only a policy that refuses requests can ban, and on_limit is %q", p.OnLimit))
	}
	if p.Limit.Leased() {
		mistake("ban", errors.New("a concurrency limit cannot ban, because leases have to be renewed"))
	}
}

// banned describes the ban of a valid policy.
func (p *Policy) banned() string {
	b := p.Ban
	if b == (core.Ban{}) || p.Mode == Shadow {
		return ""
	}
	s := fmt.Sprintf("; after %d %s within %s banned for %s",
		b.Strikes, explain.Plural(b.Strikes, "refusal"), explain.Span(b.Within), explain.Span(b.For))
	if b.Max > b.For {
		s += ", then twice as long each time, at most " + explain.Span(b.Max)
	}
	return s
}

// BanText is a written ban: the text form of a core.Ban, or "" for none. It is read from that
// text in JSON, and also from the object of "after", "for" and "max" that was written before.
type BanText string

// UnmarshalJSON implements [json.Unmarshaler].
func (b *BanText) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, (*string)(b))
	}

	var parts struct {
		After string `json:"after"`
		For   string `json:"for"`
		Max   string `json:"max"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&parts); err != nil {
		return err
	}

	text := strings.TrimSuffix(parts.After, " fixed-window")
	if parts.For != "" {
		text += " for " + parts.For
	}
	if parts.Max != "" {
		text += " max " + parts.Max
	}
	*b = BanText(cmp.Or(text, "{}")) // which is no ban, as "" is none
	return nil
}
