// This file has what a request costs.

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/textform"
)

// Cost is how many units a request takes: a number, or a table that says where the number is. A
// table has one of Header, AnswerHeader and Usage:
//
//	cost: 5
//	cost: {header: X-Cost, default: 1}
//	cost: {answer_header: X-Cost, estimate: 10, at_most: 100}
//	cost: {usage: tokens, estimate: 1000, at_most: 8000}
//	cost: {usage: cost, estimate: 5000, prices: {gpt-5: {input: 1.25, output: 10}}}
//
// An estimate is charged before the answer, and settled by it. Where the answer does not say what
// was used, the estimate stays, as it does where no answer is seen. Answers that Policy.Refund or
// Policy.CountOnly give units back for are not settled but give all of them back.
//
// The zero value is 1.
type Cost struct {
	// Units is the number; 0 means 1. It is 0 in a table.
	Units int64 `json:"-" yaml:"-"`

	// Header is a header of the request that names the units, a whole number. It is believed only
	// if it comes from a proxy that the program trusts (see Bindings.Trusted), which has to
	// replace what a client has sent. Default is charged otherwise, and if the header is missing,
	// not a whole number, or has lines that differ; 0 means 1.
	Header  string `json:"header,omitempty" yaml:"header,omitempty"`
	Default int64  `json:"default,omitempty" yaml:"default,omitempty"`

	// AnswerHeader is a header of the answer that names the units. The proxy of the gateway takes
	// it out of the answer.
	AnswerHeader string `json:"answer_header,omitempty" yaml:"answer_header,omitempty"`

	// Usage settles by what the answer of a language model says about its tokens: "tokens" by
	// their number, and "cost" by their Prices.
	Usage string `json:"usage,omitempty" yaml:"usage,omitempty"`

	// Estimate is charged before the answer. With Usage it is the tokens, or the price, of one
	// answer whose largest number the request does not name: see llmusage.Request.Tokens.
	Estimate int64 `json:"estimate,omitempty" yaml:"estimate,omitempty"`

	// AtMost is the largest number of units that Header, AnswerHeader or the body of a request may
	// name; a larger one is lowered to it. What Usage counts is charged as it is. 0 means any, or
	// with Usage the capacity of the limit, which a request is charged whose body has more than
	// MaxRead bytes or an unknown length.
	AtMost int64 `json:"at_most,omitempty" yaml:"at_most,omitempty"`

	// Prices are those of a million tokens of each model, in any currency; a unit is a millionth
	// of it. "*" is any other model. There are at most MaxPrices.
	Prices map[string]Price `json:"prices,omitempty" yaml:"prices,omitempty"`
}

// Bounds of a Cost.
const (
	// MaxPrices is the maximum number of models of Cost.Prices.
	MaxPrices = 1000

	// MaxRead is the maximum number of bytes of the body of a request that Cost.Usage reads.
	MaxRead = 1 << 20
)

// The values of Cost.Usage.
const (
	usageTokens = "tokens"
	usageCost   = "cost"
)

// maxUnits is the largest number of units, as in the rest of headgate.
const maxUnits = 1<<53 - 1

// costTable is a Cost in a table.
type costTable Cost

// IsZero reports whether the cost is the zero value.
func (c Cost) IsZero() bool { return c.Units == 0 && !c.isTable() }

// isTable reports whether the cost is more than a number.
func (c *Cost) isTable() bool {
	return c.Header != "" || c.Default != 0 || c.AnswerHeader != "" || c.Usage != "" || c.Estimate != 0 ||
		c.AtMost != 0 || c.Prices != nil
}

// IsOne reports whether each request costs 1.
func (c Cost) IsOne() bool { return c.Units <= 1 && !c.isTable() }

// SettledByAnswer reports whether the answer says what a request has cost.
func (c Cost) SettledByAnswer() bool { return c.AnswerHeader != "" || c.Usage != "" }

// MarshalJSON writes a number or a table.
func (c Cost) MarshalJSON() ([]byte, error) {
	if c.isTable() {
		return json.Marshal(costTable(c))
	}
	return json.Marshal(c.Units)
}

// MarshalYAML returns a number or a table, for encoders of YAML.
func (c Cost) MarshalYAML() (any, error) {
	if c.isTable() {
		return costTable(c), nil
	}
	return c.Units, nil
}

// UnmarshalJSON reads a number or a table. The values are not checked; see [Policy.Validate].
func (c *Cost) UnmarshalJSON(text []byte) error {
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		*c = Cost{}
		return json.Unmarshal(text, &c.Units)
	}

	var t costTable
	if err := strictjson.Decode(text, &t); err != nil {
		if unknown, is := strings.CutPrefix(err.Error(), "json: "); is {
			return fmt.Errorf("cost: %s", unknown)
		}
		return fmt.Errorf("cost.%w", err)
	}
	*c = Cost(t)
	if !c.isTable() {
		return errors.New("cost: the table is empty; write a number, or header, answer_header or usage")
	}
	return nil
}

// String returns the number, or the table as JSON, which ParseCost reads.
func (c Cost) String() string {
	text, err := c.MarshalJSON()
	if err != nil { // no field fails
		return err.Error()
	}
	return string(text)
}

// ParseCost reads a number, or a table in JSON. It checks the form alone; see [Policy.Validate].
func ParseCost(text string) (Cost, error) {
	var c Cost
	if err := strictjson.Check("the cost", []byte(text), maxDepth, checkField); err != nil {
		return c, err
	}
	err := strictjson.Decode([]byte(text), &c)
	return c, err
}

// first returns what a request is charged at least before its answer.
func (c *Cost) first() int64 { return max(1, c.Units, c.Default, c.Estimate) }

// checkCost reports what is wrong with Cost.
func checkCost(p *Policy, mistake func(field string, err error)) {
	c := &p.Cost
	if c.Units < 0 {
		mistake("cost", fmt.Errorf("%d is negative", c.Units))
		return
	}

	if c.isTable() {
		c.checkTable(mistake)
		c.checkNumbers(mistake)
		c.checkPrices(mistake)
	}

	// A lease is given back as a whole, and no answer can say that it was more.
	if c.SettledByAnswer() {
		mistake("cost", checkDebt(p))
	} else if c.isTable() && p.Limit.Leased() {
		mistake("cost", errors.New("a concurrency limit counts requests, and not what they cost"))
	}

	field, name := "cost", ""
	switch {
	case c.Default > 0:
		field, name = "cost.default", "the default "
	case c.Estimate > 0:
		field, name = "cost.estimate", "the estimate "
	}
	checkFits(p, c.first(), field, name, mistake)
}

// checkTable reports what is wrong with the choice of the table.
func (c *Cost) checkTable(mistake func(field string, err error)) {
	if c.Units != 0 {
		mistake("cost", errors.New("it is a number and a table; one of both must say what a request costs"))
	}

	// Exactly one of these says where the number is.
	var named []string
	for _, f := range []struct{ field, value string }{
		{"header", c.Header}, {"answer_header", c.AnswerHeader}, {"usage", c.Usage},
	} {
		if f.value != "" {
			named = append(named, f.field)
		}
	}

	switch len(named) {
	case 0:
		mistake("cost", errors.New("it names no header, answer_header or usage that says what a request costs"))
	case 1:
	default:
		mistake("cost."+named[1], fmt.Errorf("%s says already what a request costs; write one of both", named[0]))
	}

	if c.Header != "" {
		mistake("cost.header", checkHeader(c.Header))
	}
	if c.AnswerHeader != "" {
		mistake("cost.answer_header", checkAnswerHeader(c.AnswerHeader))
	}
	if c.Usage != "" && c.Usage != usageTokens && c.Usage != usageCost {
		mistake("cost.usage", fmt.Errorf(`%q is not "tokens" or "cost"`, textform.Clip(c.Usage)))
	}
}

// ownHeaders are headers of answers with another meaning to the client, which would not get them.
var ownHeaders = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Date",
	"Etag", "Location", "Ratelimit", "Ratelimit-Policy", "Retry-After", "Set-Cookie", "Upgrade", "Www-Authenticate"}

// checkAnswerHeader refuses headers that cannot say what a request has cost.
func checkAnswerHeader(name string) error {
	if !isToken(name) {
		return fmt.Errorf("%q is not the name of a header", textform.Clip(name))
	}
	if canonical := textproto.CanonicalMIMEHeaderKey(name); slices.Contains(ownHeaders, canonical) {
		return fmt.Errorf("the header %s has another meaning", canonical)
	}
	return checkReadable(name)
}

// checkNumbers reports what is wrong with the units of a table.
func (c *Cost) checkNumbers(mistake func(field string, err error)) {
	for _, f := range []struct {
		field string
		n     int64
	}{{"cost.default", c.Default}, {"cost.estimate", c.Estimate}, {"cost.at_most", c.AtMost}} {
		switch {
		case f.n < 0:
			mistake(f.field, fmt.Errorf("%d is negative", f.n))
		case f.n > maxUnits:
			mistake(f.field, fmt.Errorf("%d is not below 2^53", f.n))
		}
	}

	switch {
	case c.SettledByAnswer() && c.Estimate == 0:
		mistake("cost.estimate", errors.New("it is missing; write the units that are charged before the answer"))
	case c.Header != "" && c.Estimate != 0:
		mistake("cost.estimate", errors.New("a header of the request is no estimate; write default"))
	}

	if c.Default != 0 && c.Header == "" {
		mistake("cost.default", errors.New("it means something with header alone; write estimate"))
	}
	if c.AtMost > 0 && c.AtMost < c.first() {
		mistake("cost.at_most", fmt.Errorf("%d is less than the %d that are charged without more being known", c.AtMost,
			c.first()))
	}
}

// checkPrices reports what is wrong with Prices.
func (c *Cost) checkPrices(mistake func(field string, err error)) {
	switch {
	case c.Usage == usageCost && len(c.Prices) == 0:
		mistake("cost.prices", errors.New("there are none; write those of a million tokens of each model"))
	case c.Prices != nil && c.Usage != usageCost:
		mistake("cost.prices", errors.New("they mean something with usage: cost alone"))
	case len(c.Prices) > MaxPrices:
		mistake("cost.prices", fmt.Errorf("%d models are more than %d", len(c.Prices), MaxPrices))
	default:
		for _, model := range slices.Sorted(maps.Keys(c.Prices)) {
			price := c.Prices[model]
			price.check("cost.prices."+textform.Clip(model), model, mistake)
		}
	}
}

// checkDebt refuses limits under which more cannot be charged than was estimated.
func checkDebt(p *Policy) error {
	switch {
	case p.Limit.Validate() != nil:
		return nil
	case p.Limit.Leased():
		return errors.New("a concurrency limit counts requests, and not what their answers cost")
	case p.Limit.MaxDebt() == 0:
		return fmt.Errorf("the limit %s has no debt, so no more can be charged than was estimated; "+
			"write another algorithm, such as fixed-window", p.Limit)
	}
	return nil
}

// checkFits reports units that no limit of the policy could ever admit. name says which.
func checkFits(p *Policy, units int64, field, name string, mistake func(field string, err error)) {
	// A limit that is not valid is a mistake of its own.
	if p.Limit.Validate() == nil && units > p.Limit.Capacity() {
		mistake(field, fmt.Errorf("%s%d is more than the limit %s ever has, so every request would be refused",
			name, units, p.Limit))
	}

	for _, plan := range p.planNames() {
		if l := p.Plans[plan]; l.Validate() == nil && units > l.Capacity() {
			mistake(field, fmt.Errorf("%s%d is more than the limit %s of the plan %q ever has", name, units, l,
				textform.Clip(plan)))
		}
	}

	// Keys may be secrets, and are many: one mistake is for all.
	for _, o := range p.Overrides {
		if o.Limit.Validate() == nil && units > o.Limit.Capacity() {
			mistake(field, fmt.Errorf("%s%d is more than a limit of a single key ever has", name, units))
			return
		}
	}
}
