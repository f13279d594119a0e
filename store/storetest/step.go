package storetest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// A step is one call of Apply at one instant.
type step struct {
	line int           // where it stands in its file
	at   time.Duration // since Epoch
	ops  []call
}

// A call is an op of a step. Its key has no prefix yet. A Refund that names the
// call it undoes gets the repeated fields from that call when it is played.
type call struct {
	core.Op
	label string // by which a later refund names this call
	of    string // the label of the call that a refund undoes, or ""
	whole bool   // the refund gives back all that the call charged
	free  bool   // the call has no ban though its rule has one

	skew time.Duration // by which the program's clock, which has the windows, is ahead
}

// A player plays steps on a store and remembers the calls that have a label.
type player struct {
	store  core.Store
	clock  *Clock
	prefix string // of every key and lease
	given  map[string]given
	ops    []core.Op
	out    []core.Decision
}

type given struct {
	op       core.Op
	decision core.Decision
}

// unset is an Origin that no store sets.
const unset = math.MaxUint32

// same reports whether two decisions are equal but for their origins, which only
// their stores understand.
func same(a, b core.Decision) bool {
	if a.Origin != unset && b.Origin != unset {
		a.Origin = b.Origin
	}
	return a == b
}

func newPlayer(s core.Store, c *Clock, prefix string) *player {
	return &player{store: s, clock: c, prefix: prefix, given: map[string]given{}}
}

// play sets the clock, carries out the step and returns its decisions, which
// are valid until the next play.
func (p *player) play(s *step) ([]core.Decision, error) {
	p.clock.Set(Epoch + int64(s.at/time.Microsecond))
	p.ops, p.out = p.ops[:0], p.out[:0]
	for i := range s.ops {
		p.ops = append(p.ops, p.resolve(&s.ops[i]))
		// A store has to overwrite every field of out.
		p.out = append(p.out, core.Decision{Allowed: true, Banned: true, Taken: -7, Remaining: -7, Wait: -7,
			RetryAfter: -7, ResetAfter: -7, At: -7, Credit: -7, FromCredit: -7, CreditUntil: -7,
			Origin: unset, Fallback: true})
	}

	if err := p.store.Apply(context.Background(), p.ops, p.out); err != nil {
		return nil, err
	}
	for i := range s.ops {
		if label := s.ops[i].label; label != "" {
			p.given[label] = given{p.ops[i], p.out[i]}
		}
	}
	return p.out, nil
}

func (p *player) resolve(c *call) core.Op {
	op := c.Op
	op.Key = p.prefix + op.Key
	op.Windows = windowsAt(&op.Limit, p.clock.Now()+c.skew.Microseconds())
	if c.of == "" {
		return op
	}

	// The refund of a decision has the instant and the units that the store has to know.
	g := p.given[c.of]
	op = op.Refund(g.decision)
	op.Key, op.Lease, op.Windows = g.op.Key, g.op.Lease, nil
	if c.whole {
		op.Cost = g.op.Refund(g.decision).Cost
	}
	return op
}

// timeline writes steps as a text that [Play] reads, with their answers as far
// as there are any.
func timeline(steps []step, answers [][]core.Decision) string {
	var b strings.Builder
	limits, bans := map[string]core.Limit{}, map[string]core.Ban{}
	for i := range steps {
		calls := make([]string, len(steps[i].ops))
		for j := range steps[i].ops {
			c := &steps[i].ops[j]
			// A rule is declared anew before the step by which it has changed.
			if limits[c.Rule] != c.Limit {
				limits[c.Rule] = c.Limit
				fmt.Fprintf(&b, "rule %s %s\n", c.Rule, c.Limit)
			}
			if c.Ban != nil && bans[c.Rule] != *c.Ban {
				bans[c.Rule] = *c.Ban
				fmt.Fprintf(&b, "ban %s %s\n", c.Rule, banText(c.Ban))
			}
			calls[j] = c.text()
		}

		fmt.Fprintf(&b, "at %s %s", steps[i].at, strings.Join(calls, " + "))
		if i < len(answers) {
			fmt.Fprintf(&b, " -> %s", decisionsText(answers[i]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// text returns the call in the form of a timeline.
func (c *call) text() string {
	var b strings.Builder
	if c.label != "" {
		fmt.Fprintf(&b, "%s: ", c.label)
	}
	fmt.Fprintf(&b, "%s %s", c.Verb, c.Rule)
	if c.of != "" {
		fmt.Fprintf(&b, " of=%s", c.of)
	} else {
		fmt.Fprintf(&b, " key=%s", c.Key)
	}

	// What has its default is left out.
	if !c.whole && c.Verb != core.Reset {
		fmt.Fprintf(&b, " cost=%d", c.Cost)
	}
	if c.skew != 0 {
		fmt.Fprintf(&b, " clock=%s", c.skew)
	}
	if c.MaxWait != 0 {
		fmt.Fprintf(&b, " wait=%s", c.MaxWait)
	}
	if c.Lease != "" && c.of == "" {
		fmt.Fprintf(&b, " lease=%s", c.Lease)
	}

	if c.Verb == core.Grant {
		fmt.Fprintf(&b, " until=%s", time.Duration(c.CreditUntil-Epoch)*time.Microsecond)
	}
	if c.Soft {
		b.WriteString(" soft")
	}
	if c.UpTo {
		b.WriteString(" upto")
	}
	if c.Ban == nil {
		b.WriteString(" noban")
	}
	return b.String()
}

func decisionsText(ds []core.Decision) string {
	texts := make([]string, len(ds))
	for i, d := range ds {
		texts[i] = decisionText(d)
	}
	return strings.Join(texts, ", ")
}

func decisionText(d core.Decision) string {
	text := "yes"
	switch {
	case !d.Allowed && d.RetryAfter == core.Never:
		text = "no retry=never"
	case !d.Allowed:
		text = "no retry=" + d.RetryAfter.String()
	case d.RetryAfter != 0:
		text = "yes with retry=" + d.RetryAfter.String()
	}
	if d.Banned {
		text += " banned"
	}

	text += fmt.Sprintf(" remaining=%d reset=%s", d.Remaining, d.ResetAfter)
	if d.Wait != 0 {
		text += " wait=" + d.Wait.String()
	}
	if d.Taken != 0 {
		text += fmt.Sprintf(" taken=%d", d.Taken)
	}
	if d.Credit != 0 {
		text += fmt.Sprintf(" credit=%d", d.Credit)
	}
	if d.FromCredit != 0 {
		text += fmt.Sprintf(" lent=%d ends=%s", d.FromCredit, time.Duration(d.CreditUntil-Epoch)*time.Microsecond)
	}

	// A timeline cannot expect these two, which only a difference shows.
	if d.Fallback {
		text += " by a fallback"
	}
	if d.Origin == unset { // every other value is the store's own business
		text += " without an origin"
	}
	return text
}
