// This file keeps who is refused and who is admitted; see Config.Top.

package limiter

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
)

// TopKeys has the keys that a rule refused and admitted most often in the last minutes,
// in this process. Keys are as the key functions of the rules return them, so that secrets
// are digests, but hold whatever clients sent; they have to be escaped where they are
// shown. A request counts once, whatever its cost.
type TopKeys struct {
	Rule string

	// Refused counts requests over the limit of the rule: those that it refused,
	// and those that passed because it is a Degrade or a Shadow rule. Callers whom
	// Access denies are among them.
	Refused topkeys.Summary

	// Admitted counts requests that passed within the limit, at once or after a wait.
	Admitted topkeys.Summary
}

// TopKeys returns the top keys of every rule in force, in the order of the rules. It
// returns nil if Config.Top is 0.
func (l *Limiter) TopKeys() []TopKeys {
	if l.top == 0 {
		return nil
	}
	rules := l.set.Load().rules
	list := make([]TopKeys, len(rules))
	for i, r := range rules {
		list[i] = r.tally.topKeys(r.Name)
	}
	return list
}

// Top returns the top keys of one rule. ok is false if no rule in force has the name,
// or Config.Top is 0.
func (l *Limiter) Top(rule string) (top TopKeys, ok bool) {
	r := l.set.Load().named(rule)
	if r == nil || r.tally == nil {
		return TopKeys{}, false
	}
	return r.tally.topKeys(r.Name), true
}

// tally counts what became of the requests under one rule, and their keys.
type tally struct {
	since             time.Time
	refused, admitted *topkeys.Sketch
	stripes           [tallyStripes]stripe
}

// tallyStripes is the number of counters for each verdict, a power of two, so that
// processors seldom write to the same one.
const tallyStripes = 8

// stripe is one counter for each verdict, on cache lines of its own.
type stripe struct {
	verdicts [events.Verdicts]atomic.Int64
	_        [128 - 8*events.Verdicts%128]byte
}

func newTally(top int) *tally {
	t := &tally{since: time.Now()}
	t.refused, _ = topkeys.New(topkeys.Options{Top: top}) // which Config.faults has checked
	t.admitted, _ = topkeys.New(topkeys.Options{Top: top})
	return t
}

// note counts a request.
func (t *tally) note(v events.Verdict, key string) {
	t.stripes[rand.Uint32()%tallyStripes].verdicts[v].Add(1)
	switch v {
	case events.Allowed, events.Waited:
		t.admitted.Add(key)
	case events.Refused, events.Banned, events.Impossible, events.Denied, events.QueueFull, events.Degraded, events.ShadowRefused:
		t.refused.Add(key)
	}
}

// counts returns how many requests had each verdict.
func (t *tally) counts() (n [events.Verdicts]int64) {
	for i := range t.stripes {
		for v := range n {
			n[v] += t.stripes[i].verdicts[v].Load()
		}
	}
	return n
}

func (t *tally) topKeys(rule string) TopKeys {
	return TopKeys{Rule: rule, Refused: t.refused.Summary(), Admitted: t.admitted.Summary()}
}

// keepTallies gives each rule of the set its tally. Rules that keep their name keep it.
func (l *Limiter) keepTallies(set *ruleSet) {
	if l.top == 0 {
		return
	}
	before := l.set.Load()
	for _, r := range set.rules {
		if before != nil {
			if old := before.named(r.Name); old != nil {
				r.tally = old.tally
				continue
			}
		}
		r.tally = newTally(l.top)
	}
}
