// This file tells the Observer and the Hooks of a Config.

package limiter

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/waitline"
	"github.com/headgate/headgate/observe/events"
)

var _ events.Inspector = (*Limiter)(nil)

// listen has the hooks told, by the store too.
func (l *Limiter) listen(h *events.Hooks) {
	var one events.Listeners
	one.Add(h)
	l.hooks = one.Hooks()
	l.records.New = func() any { return new(events.Request) }
	if s, ok := l.store.(events.Source); ok {
		s.Listen(l.storeLog.hooks())
		s.Listen(h)
	}
	if l.hooks.Open != nil {
		l.hooks.Open(l)
	}
}

// Hooks returns Config.Hooks in a form that is never nil and does not panic, for parts of a
// program that tell more events.
func (l *Limiter) Hooks() *events.Hooks { return l.hooks }

// RuleNames returns the names of the rules in force, in order.
func (l *Limiter) RuleNames() []string {
	set := l.set.Load()
	names := make([]string, len(set.rules))
	for i, r := range set.rules {
		names[i] = r.Name
	}
	return names
}

// Stores implements [events.Inspector]. It lists the stores that are an [events.Source].
func (l *Limiter) Stores() []events.StoreStatus {
	s, ok := l.store.(events.Source)
	if !ok {
		return nil
	}
	list := s.Status(nil)
	for i := range list {
		if len(list[i].Away) > 0 {
			list[i].Mode = l.fallbacks.mode(list[i].Mode)
		}
	}
	return list
}

// mode returns what decides under a store that is away, where rules say nothing else.
func (f *fallbacks) mode(byStore events.Mode) events.Mode {
	switch {
	case f.otherwise == FailClosed:
		return events.FailsUndecided
	case f.otherwise == FailOpen:
		return events.PassesUndecided
	}
	return byStore
}

func (l *Limiter) tellClosed() {
	if l.hooks.Closed != nil {
		l.hooks.Closed(l)
	}
}

func (l *Limiter) tellRules(err error) {
	if l.hooks.Rules != nil {
		l.hooks.Rules(events.Rules{Count: len(l.set.Load().rules), Err: err})
	}
}

func (l *Limiter) tellQueue(k waitline.Key, change int) {
	if l.hooks.Queue != nil {
		l.hooks.Queue(events.Queue{Rule: k.Rule, Change: change})
	}
}

// tellUnits tells of units that were given back or charged by ops, of which the first settle a
// request.
func (l *Limiter) tellUnits(ops []core.Op, out []core.Decision, settled int) {
	if l.hooks.Units == nil {
		return
	}
	for i := range ops {
		op := &ops[i]
		e := events.Units{Rule: op.Rule, Key: op.Key, Flow: events.Refunded, Units: op.Cost}
		switch {
		case op.Limit.Leased():
			continue
		case op.Verb == core.Debit:
			e.Flow, e.Units = events.Debited, out[i].Taken
		case i < settled:
			e.Flow = events.Settled
		}
		l.hooks.Units(e)
	}
}

// giveCounters gives each rule of the set what counts its decisions on plain requests, if the
// Observer has that.
func (l *Limiter) giveCounters(set *ruleSet) {
	if l.counter != nil {
		for _, r := range set.rules {
			r.counter = l.counterOf(r.Name)
		}
	}
}

// counterOf returns what counts the decisions of the rule on plain requests, nil after a panic.
func (l *Limiter) counterOf(rule string) (counter events.RuleCounter) {
	defer func() {
		if v := recover(); v != nil {
			l.report(context.Background(), fmt.Errorf("the observer: %w", panicked(v)))
		}
	}()
	return l.counter.RuleCounter(rule)
}

// maxBanLog is how many bans a limiter remembers to have told.
const maxBanLog = 4096

// bannedKey is a key under the ban of a rule.
type bannedKey struct{ rule, key string }

// banLog knows the bans that were told. The zero value is ready for use.
type banLog struct {
	mu    sync.Mutex
	until map[bannedKey]int64 // by the clock of the store
}

// begins reports whether the ban is told for the first time.
func (b *banLog) begins(k bannedKey, now, until int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if end, known := b.until[k]; known && now < end {
		return false
	}
	if b.until == nil || len(b.until) >= maxBanLog {
		b.until = map[bannedKey]int64{}
	}
	k.key = strings.Clone(k.key)
	b.until[k] = until
	return true
}

// ends forgets a ban, and reports whether it was told.
func (b *banLog) ends(k bannedKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.until[k]
	delete(b.until, k)
	return known
}
