// This file charges requests, and settles them by their answers.

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/textproto"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

// setCost puts the cost of a valid policy into its rule.
func (c *Cost) setCost(rule *limiter.Rule, b *Bindings) error {
	switch {
	case c.Units > 1:
		units := c.Units
		rule.Cost = func(core.Request) int64 { return units }
	case c.Header != "":
		if b.Trusted == nil {
			return errors.New(
				"it cannot be used here: the program does not set Bindings.Trusted, so it believes no proxy")
		}
		rule.Charge = c.byHeader(b.Trusted)
		rule.CostAtMost = c.AtMost > 0
	case c.AnswerHeader != "":
		rule.Charge = c.byAnswerHeader()
	case c.Usage != "":
		rule.Charge = c.byUsage()
		rule.ReadsUsage, rule.CostAtMost = true, true
	}
	return nil
}

// used is what settles a request.
type used = func(limiter.Seen) (int64, error)

// charge is a limiter.Rule's Charge.
type charge = func(core.Request) (int64, used, error)

// byHeader charges what a header of the request says.
func (c *Cost) byHeader(trusted func(core.Request) bool) charge {
	name, without, most := textproto.CanonicalMIMEHeaderKey(c.Header), max(1, c.Default), c.most()
	return func(r core.Request) (int64, used, error) {
		if !trusted(r) {
			return without, nil, nil
		}

		// A proxy may leave the header out, which is no mistake.
		lines := r.Header(name)
		if len(lines) == 0 {
			return without, nil, nil
		}

		units, err := readUnits(name, lines)
		if err != nil {
			return without, nil, err
		}
		return min(units, most), nil, nil
	}
}

// most returns the largest number of units that may be named.
func (c *Cost) most() int64 { return cmp.Or(c.AtMost, maxUnits) }

// byAnswerHeader charges the estimate, and settles by a header of the answer.
func (c *Cost) byAnswerHeader() charge {
	name, estimate, most := textproto.CanonicalMIMEHeaderKey(c.AnswerHeader), c.Estimate, c.most()
	settle := func(s limiter.Seen) (int64, error) {
		if s.Header == nil {
			return 0, fmt.Errorf("the headers of the answer are not seen, so neither is %s", name)
		}

		// An answer that a server makes in place of the handler, or none, says nothing.
		lines := s.Header(name)
		if len(lines) == 0 && (!s.Ended || s.Status >= 400) {
			return s.Charged, nil
		}

		units, err := readUnits(name, lines)
		if err == nil && units > most {
			return most, nil
		}
		return units, err
	}
	return func(core.Request) (int64, used, error) { return estimate, settle, nil }
}

// readUnits reads the lines of a header. A number that is too large for any limit is the largest
// one.
func readUnits(name string, lines []string) (int64, error) {
	if len(lines) == 0 {
		return 0, fmt.Errorf("there is no header %s", name)
	}
	text := strings.TrimSpace(lines[0])
	for _, line := range lines[1:] {
		if strings.TrimSpace(line) != text {
			return 0, fmt.Errorf("the lines of the header %s differ", name)
		}
	}

	if text == "" {
		return 0, fmt.Errorf("the header %s is empty", name)
	}

	// Digits alone: no sign, no exponent, and no list.
	n := int64(0)
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("the header %s has %q, which is no whole number from 0", name, textform.Clip(text))
		}
		n = min(10*n+int64(c-'0'), maxUnits)
	}
	return n, nil
}

// reader is the view of a request whose body can be read ahead: all of it, or nothing if it has
// more than max bytes or an unknown length.
type reader interface {
	ReadAhead(max int64) (text []byte, whole bool)
}

// byUsage charges what the body of a request says that it may use, and settles by the usage that
// its answer reports.
func (c *Cost) byUsage() charge {
	m := pricesOf(c)
	return func(r core.Request) (int64, used, error) {
		var asked llmusage.Request
		units := m.estimate
		if view, ok := r.(reader); ok {
			if text, whole := view.ReadAhead(m.bytes); whole {
				asked = llmusage.ReadRequest(text)
				units = m.before(asked)
			} else {
				units = m.most
			}
		}

		model := asked.Model
		return min(units, m.most), func(s limiter.Seen) (int64, error) { return m.after(s, model) }, nil
	}
}

// metered is what Cost.Usage is compiled to.
type metered struct {
	estimate, most int64
	bytes          int64             // of the body of a request that are read
	tariffs        map[string]tariff // by model; nil for tokens
}

func pricesOf(c *Cost) *metered {
	m := &metered{estimate: c.Estimate, most: c.most(), bytes: MaxRead}
	if c.Usage != usageCost {
		// A longer body is charged as many as may be anyway, as four bytes are a token.
		m.bytes = min(m.bytes, 4*min(m.most, MaxRead))
		return m
	}
	m.tariffs = make(map[string]tariff, len(c.Prices))
	for model, price := range c.Prices {
		m.tariffs[model] = price.tariff()
	}
	return m
}

// before returns what a request may use, as it says.
func (m *metered) before(asked llmusage.Request) int64 {
	if m.tariffs == nil {
		return asked.Tokens(m.estimate)
	}

	// Without the largest number of tokens, or a price of the model, the estimate is that of each
	// answer.
	t, err := m.tariffOf(asked.Model, "")
	answers := max(1, asked.Answers)
	if err != nil || asked.Output == 0 {
		if m.estimate > maxUnits/answers {
			return maxUnits
		}
		return m.estimate * answers
	}

	u := llmusage.Usage{Input: asked.Prompt, Output: asked.Tokens(0) - asked.Prompt}
	return max(1, t.units(u))
}

// after returns what the answer has used. Of one that was left before its end nothing or only the
// beginning is known, so the charge stays unless that beginning is more.
func (m *metered) after(s limiter.Seen, model string) (int64, error) {
	if s.Usage == nil {
		return 0, errors.New("the body of the answer is not seen, as of a stream that is sent after the handler")
	}
	if s.Header != nil && isEncoded(s.Header("Content-Encoding")) {
		return 0, llmusage.ErrCompressed
	}

	u, err := s.Usage.Final(s.Ended)
	if errors.Is(err, llmusage.ErrNoUsage) {
		if !s.Ended || s.Status >= 400 {
			return s.Charged, nil
		}
		return 0, errors.New("the answer has reported no usage of tokens: " +
			"a request for a stream has to ask for it, such as by stream_options.include_usage")
	}

	partial := errors.Is(err, llmusage.ErrPartial)
	if err != nil && !partial {
		return 0, err
	}

	units := min(u.Total, maxUnits)
	if m.tariffs != nil {
		t, err := m.tariffOf(s.Usage.Model(), model)
		if err != nil {
			return 0, err
		}
		units = t.units(u)
	}
	if partial {
		units = max(units, s.Charged)
	}
	return units, nil
}

// tariffOf returns the tariff of the model that the answer names, or that the request names, or of
// any other.
func (m *metered) tariffOf(answered, asked string) (tariff, error) {
	for _, model := range []string{answered, asked, anyModel} {
		if r, ok := m.tariffs[model]; ok && model != "" {
			return r, nil
		}
	}
	return tariff{}, fmt.Errorf("the model %q has no price", textform.Clip(cmp.Or(answered, asked)))
}

// anyModel is the model of Prices that stands for all others.
const anyModel = "*"

// isEncoded reports whether the lines of Content-Encoding name a coding.
func isEncoded(lines []string) bool {
	for _, line := range lines {
		if line != "" && line != "identity" {
			return true
		}
	}
	return false
}
