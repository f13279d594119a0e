package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// A scenario is a case of a timeline file: steps on a new store and their
// expected answers.
type scenario struct {
	name  string
	steps []expectation
}

// An expectation is a step, how often it is carried out, and its answer: one
// for every op, or one for all together.
type expectation struct {
	step
	times   int
	fault   error // Apply has to return an error that wraps it
	answers []answer
}

// An answer is the expected decision on an op, or on a whole step.
type answer struct {
	allowed      bool
	refused      []string // of a whole step: the rules that refuse
	remaining    *int64
	taken        *int64
	credit, lent *int64
	ends         *time.Duration
	reset, retry *time.Duration
	wait         time.Duration
	banned       bool
}

// A parser reads a timeline file.
type parser struct {
	rules  map[string]core.Limit
	bans   map[string]*core.Ban
	labels map[string]bool
	at     time.Duration
	cases  []scenario
}

// parseTimelines reads every case of a file. The error names the file and line
// of everything that it cannot parse.
func parseTimelines(file, text string) ([]scenario, error) {
	var p parser
	var errs []error
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}

		// A mistake does not keep those in later lines from being found.
		if err := p.parseLine(i+1, words); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, i+1, err))
		}
	}
	return p.cases, errors.Join(errs...)
}

// parseLine reads a line that is not empty.
func (p *parser) parseLine(number int, words []string) error {
	switch {
	case words[0] == "case" && len(words) > 1:
		p.beginCase(strings.Join(words[1:], " "))
		return nil
	case words[0] == "rule" && len(words) > 2:
		if p.cases == nil {
			p.beginCase("timeline") // the only case of a text may have no name
		}
		limit, err := core.ParseLimit(strings.Join(words[2:], " "))
		p.rules[words[1]] = limit
		return err
	case words[0] == "ban" && len(words) > 2:
		ban, err := parseBan(words[2:])
		p.bans[words[1]] = ban
		return err
	// A step is kept even if it is wrong, for the error names its line and the parsing goes on.
	case words[0] == "at" && len(words) > 2 && p.cases != nil:
		e := expectation{times: 1}
		e.line = number
		err := p.step(&e, words[1], words[2:])
		c := &p.cases[len(p.cases)-1]
		c.steps = append(c.steps, e)
		return err
	}

	return fmt.Errorf("%q is not a case, a rule, a ban or a step", strings.Join(words, " "))
}

// beginCase begins a case, which knows no rules yet.
func (p *parser) beginCase(name string) {
	p.rules, p.bans = map[string]core.Limit{}, map[string]*core.Ban{}
	p.labels, p.at = map[string]bool{}, 0
	p.cases = append(p.cases, scenario{name: name})
}

// parseBan reads "3/1m for=10m max=1h", or "none".
func parseBan(words []string) (*core.Ban, error) {
	if len(words) == 1 && words[0] == "none" {
		return nil, nil
	}

	var within, span, most string
	var b core.Ban
	text := strings.NewReplacer("/", " ").Replace(strings.Join(words, " "))
	_, err := fmt.Sscanf(text, "%d %s for=%s max=%s", &b.Strikes, &within, &span, &most)
	if err != nil {
		return nil, err
	}

	for into, text := range map[*time.Duration]string{&b.Within: within, &b.For: span, &b.Max: most} {
		if *into, _, err = parseSpan(text); err != nil {
			return nil, err
		}
	}

	return &b, nil
}

// banText is the form that parseBan reads.
func banText(b *core.Ban) string {
	return fmt.Sprintf("%d/%s for=%s max=%s", b.Strikes, b.Within, b.For, b.Max)
}

func (p *parser) step(e *expectation, at string, words []string) error {
	span, relative, err := parseSpan(at)
	if err != nil {
		return err
	}
	if relative {
		span += p.at
	}
	p.at, e.at = span, span

	if len(words) > 2 && words[1] == "times" {
		if e.times, err = strconv.Atoi(words[0]); err != nil || e.times < 1 {
			return fmt.Errorf("%q is not a number of times", words[0])
		}
		words = words[2:]
	}

	// Ops stand before the arrow, with a plus between them, and answers behind it.
	arrow := slices.Index(words, "->")
	if arrow < 0 {
		return errors.New(`no "->" before an answer`)
	}
	for _, op := range split(words[:arrow], "+") {
		if err := p.calls(e, op); err != nil {
			return err
		}
	}
	return e.parseAnswers(words[arrow+1:])
}

// split cuts words at every separator.
func split(words []string, separator string) (parts [][]string) {
	for {
		i := slices.Index(words, separator)
		if i < 0 {
			return append(parts, words)
		}
		parts, words = append(parts, words[:i]), words[i+1:]
	}
}

// calls reads "[label:] verb rule[+rule…] words".
func (p *parser) calls(e *expectation, words []string) error {
	c := call{Op: core.Op{Key: "k", Cost: 1}}
	if len(words) > 0 && strings.HasSuffix(words[0], ":") {
		c.label, words = strings.TrimSuffix(words[0], ":"), words[1:]
	}

	if len(words) < 2 {
		return errors.New("an op needs a verb and a rule")
	}
	verb, ok := verbs[words[0]]
	if !ok {
		return fmt.Errorf("unknown verb %q", words[0])
	}
	c.Verb = verb

	// A call cannot undo itself: its label is known only after its words.
	if err := p.words(&c, words[2:]); err != nil {
		return err
	}
	if c.label != "" {
		p.labels[c.label] = true
	}

	// The rules of one call differ in nothing but their limits and bans.
	for _, rule := range strings.Split(words[1], "+") {
		limit, ok := p.rules[rule]
		if !ok {
			return fmt.Errorf("rule %q is not declared", rule)
		}
		c.Rule, c.Limit = rule, limit
		if !c.free {
			c.Ban = p.bans[rule]
		}
		e.ops = append(e.ops, c)
	}
	return nil
}

var verbs = map[string]core.Verb{"take": core.Take, "peek": core.Peek, "refund": core.Refund, "reset": core.Reset,
	"debit": core.Debit, "lift": core.Lift, "impose": core.Impose, "grant": core.Grant, "revoke": core.Revoke}

func (p *parser) words(c *call, words []string) (err error) {
	cost := false

	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case w == "soft":
			c.Soft = true
		case w == "noban":
			c.free = true
		case w == "upto":
			c.UpTo = true
		case name == "cost":
			cost = true
			c.Cost, err = strconv.ParseInt(value, 10, 64)
		case name == "key":
			c.Key = value
		case name == "lease":
			c.Lease = value
		case name == "wait":
			c.MaxWait, _, err = parseSpan(value)
		case name == "until":
			var span time.Duration
			span, _, err = parseSpan(value)
			c.CreditUntil = Epoch + span.Microseconds()
		case name == "clock":
			c.skew, _, err = parseSpan(value)
		case name == "of" && p.labels[value]:
			c.of = value
		default:
			err = fmt.Errorf("unknown word %q", w)
		}
		if err != nil {
			return err
		}
	}

	// A refund without a cost gives back all that its take was charged.
	c.whole = c.of != "" && !cost
	return nil
}

// parseSpan reads "3s", "3s-1us" or, relative to the step before, "+1us".
func parseSpan(s string) (d time.Duration, relative bool, err error) {
	relative = strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-")

	for rest := s; rest != ""; {
		end := strings.IndexAny(rest[1:], "+-") + 1
		if end == 0 {
			end = len(rest)
		}
		part, err := time.ParseDuration(rest[:end])
		if err != nil {
			return 0, false, fmt.Errorf("%q is not a span of time", s)
		}
		d, rest = d+part, rest[end:]
	}
	return d, relative, nil
}

// errorAnswers are the errors that a step may have, by their answers.
var errorAnswers = map[string]error{"error": core.ErrOp, "outside": core.ErrWindows}

func (e *expectation) parseAnswers(words []string) error {
	if len(words) == 1 && errorAnswers[words[0]] != nil {
		e.fault = errorAnswers[words[0]]
		return nil
	}

	text := strings.ReplaceAll(strings.Join(words, " "), ",", " , ")
	for _, part := range split(strings.Fields(text), ",") {
		a, err := parseAnswer(part)
		if err != nil {
			return err
		}
		e.answers = append(e.answers, a)
	}
	if len(e.answers) == len(e.ops) {
		return nil
	}

	// One answer to several ops says of a no which rules refuse, and nothing of a single rule.
	a := &e.answers[0]
	if len(e.answers) > 1 || a.remaining != nil || a.reset != nil || a.allowed != (a.refused == nil) {
		return fmt.Errorf("%d answers to %d ops", len(e.answers), len(e.ops))
	}
	return nil
}

func parseAnswer(words []string) (a answer, err error) {
	text := strings.Join(words, " ")

	if before, rest, ok := strings.Cut(text, "("); ok {
		rules, after, closed := strings.Cut(rest, ")")
		if !closed {
			return a, fmt.Errorf("no %q in %q", ")", text)
		}
		a.refused = strings.Fields(rules)
		words = strings.Fields(before + after)
	}

	if len(words) == 0 || words[0] != "yes" && words[0] != "no" {
		return a, fmt.Errorf("answer %q is neither yes nor no", text)
	}
	a.allowed = words[0] == "yes"
	for _, w := range words[1:] {
		if err := a.field(w); err != nil {
			return a, err
		}
	}

	if a.allowed == (a.retry != nil) {
		return a, fmt.Errorf("answer %q: a no needs a retry, and a yes has none", text)
	}
	return a, nil
}

func (a *answer) field(word string) error {
	name, value, _ := strings.Cut(word, "=")
	switch {
	case word == "retry=never":
		never := core.Never
		a.retry = &never
		return nil
	case word == "banned":
		a.banned = true
		return nil
	case name == "remaining":
		n, err := strconv.ParseInt(value, 10, 64)
		a.remaining = &n
		return err
	case name == "taken":
		n, err := strconv.ParseInt(value, 10, 64)
		a.taken = &n
		return err
	case name == "credit":
		n, err := strconv.ParseInt(value, 10, 64)
		a.credit = &n
		return err
	case name == "lent":
		n, err := strconv.ParseInt(value, 10, 64)
		a.lent = &n
		return err
	}

	// The others are spans of time.
	d, _, err := parseSpan(value)
	switch name {
	case "reset":
		a.reset = &d
	case "retry":
		a.retry = &d
	case "wait":
		a.wait = d
	case "ends":
		a.ends = &d
	default:
		return fmt.Errorf("unknown field %q", word)
	}
	return err
}
