package playground

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// The ways in which requests come, by their names in the text form.
const (
	steady = "steady" // evenly
	bursts = "bursts" // many at once
	random = "random" // at random instants, as those of many independent callers do
	eager  = "eager"  // from one client, which asks again at once
	polite = "polite" // from one client, which waits after a refusal as Retry-After says
)

// pattern is how requests come.
type pattern struct {
	kind  string
	n     int64         // so many requests come
	every time.Duration // in each of these, if the pattern has a rate
	takes time.Duration // how long a request runs
	dice  *rand.Rand
}

// parsePattern reads the text form of a pattern. The error names every mistake.
//
//	steady 10/1s
//	bursts 50/10s takes=2s
//	random 5/1s seed=2
//	eager 100ms
//	polite 100ms
func parsePattern(text string) (p pattern, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return p, errors.New(`it is empty; write, say, "steady 10/1s"`)
	}
	p = pattern{kind: words[0], takes: 100 * time.Millisecond}

	example := "10/1s"
	switch {
	case p.kind == eager || p.kind == polite:
		example = "100ms"
	case !p.hasRate():
		return p, fmt.Errorf("%q is none of the patterns, which are %s, %s, %s, %s and %s",
			textform.Clip(p.kind), steady, bursts, random, eager, polite)
	}
	if len(words) == 1 {
		return p, fmt.Errorf("%q says too little; write, say, \"%s %s\"", p.kind, p.kind, example)
	}

	// The second word is a rate, or how long a client waits for an answer.
	if p.hasRate() {
		p.n, p.every, err = parseRate(words[1])
	} else {
		p.takes, err = parseSpan("time", words[1])
	}
	return p, errors.Join(err, p.parseOptions(words[2:]))
}

// parseOptions reads the words behind the rate or the time.
func (p *pattern) parseOptions(words []string) error {
	var errs []error
	seed, seen := uint64(1), map[string]bool{}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		var err error
		switch {
		case seen[name]:
			err = fmt.Errorf("a second %q, %q", textform.Clip(name), textform.Clip(w))
		case name == "takes" && p.hasRate():
			p.takes, err = parseSpan(name, value)
		case name == "seed" && p.kind == random:
			if seed, err = strconv.ParseUint(value, 10, 64); err != nil {
				err = fmt.Errorf("seed %q is not a whole number", textform.Clip(value))
			}
		default:
			err = fmt.Errorf("%q means nothing to %s", textform.Clip(w), p.kind)
		}
		errs, seen[name] = append(errs, err), true
	}

	// Equal seeds are equal instants, on every machine.
	p.dice = rand.New(rand.NewPCG(seed, 0))
	return errors.Join(errs...)
}

func (p *pattern) hasRate() bool { return p.kind == steady || p.kind == bursts || p.kind == random }

// parseRate reads a number of requests and the time in which they come.
func parseRate(s string) (n int64, every time.Duration, err error) {
	number, span, _ := strings.Cut(s, "/")
	n, err = strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		return 0, 0, fmt.Errorf("rate %q does not begin with a positive whole number", textform.Clip(s))
	}

	// More than can be replayed are as many as that, so that no product is too large.
	every, err = parseSpan("rate", span)
	return min(n, MaxRequests+1), every, err
}

// parseSpan reads a duration as the text of a limit has it.
func parseSpan(name, s string) (time.Duration, error) {
	l, err := core.ParseLimit("1/" + s)
	if err != nil || l.NeedsWindows() || len(strings.Fields(s)) != 1 {
		return 0, fmt.Errorf("%s %q is not a duration such as 10s, 1m or 24h, from 1ms to 400d", name, textform.Clip(s))
	}
	return l.Period, nil
}

// next returns the instant of request i in microseconds. The one before was at the instant before,
// with the decision d.
func (p *pattern) next(i, before int64, d core.Decision) int64 {
	every, takes := p.every.Microseconds(), p.takes.Microseconds()
	switch p.kind {
	case steady:
		return i/p.n*every + i%p.n*every/p.n
	case bursts:
		return i / p.n * every
	case random:
		return before + int64(p.dice.ExpFloat64()*float64(every)/float64(p.n))
	}

	switch {
	case i == 0:
		return 0
	case p.kind == polite && !d.Allowed:
		// The header has whole seconds.
		return before + (d.RetryAfter + time.Second - 1).Truncate(time.Second).Microseconds()
	}
	return before + takes
}
