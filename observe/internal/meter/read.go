package meter

import (
	"time"

	"github.com/headgate/headgate/observe/events"
)

// Cells calls f for each cell of a counter that is shown, the rules in no order.
func (m *Meter) Cells(f func(*Cell)) {
	m.syncRules()

	rules := m.shownRules()
	for _, r := range rules {
		r.foldSingle()
	}

	for i := range m.requests {
		f(&m.requests[i])
	}
	for i := range m.changes {
		f(&m.changes[i])
	}

	// f is called without the lock, so the list of stores is copied.
	m.mu.Lock()
	followed := m.followed
	var stores []*[events.ErrorTypes]Cell
	for _, errs := range m.stores {
		stores = append(stores, errs)
	}
	m.mu.Unlock()

	for i := range m.reloads {
		if followed {
			f(&m.reloads[i])
		}
	}

	for _, errs := range stores {
		for i := range errs[events.NoError+1:] {
			f(&errs[events.NoError+1:][i])
		}
	}

	for _, r := range rules {
		for i := range r.decisions {
			f(&r.decisions[i])
		}
		for i := range r.units {
			f(&r.units[i])
		}
		f(&r.cached)
		f(&r.near)
	}
}

// shownRules returns all rules, and the one of the others if there are any.
func (m *Meter) shownRules() []*rule {
	known := *m.rules.Load()
	list := make([]*rule, 0, len(known)+1)
	for _, r := range known {
		list = append(list, r)
	}
	if m.otherUsed.Load() {
		list = append(list, m.other)
	}
	return list
}

// namer is a limiter, which can name its rules.
type namer interface{ RuleNames() []string }

// syncRules adds the rules in force, so that their series begin at zero, and removes those
// that have not been in force for some time. Where there is no room for all of them, those that
// come first have it.
func (m *Meter) syncRules() {
	m.forgetter.Lock()
	defer m.forgetter.Unlock()

	var names []string
	for _, l := range m.openLimiters() {
		if n, ok := l.(namer); ok {
			names = append(names, n.RuleNames()...)
		}
	}

	// Those that are gone make room for the new ones.
	if m.o.Forget != nil {
		m.removeRules(names, time.Now())
	}

	for _, name := range names {
		m.ruleOf(name)
	}
}

// removeRules removes the rules that have not been in force for some time.
func (m *Meter) removeRules(names []string, now time.Time) {
	inForce := map[string]bool{}
	for _, name := range names {
		inForce[name] = true
	}

	// A rule with requests that wait or hold leases is still needed, for the end of these.
	var gone []string
	for name, r := range *m.rules.Load() {
		switch {
		case inForce[name] || r.queued.n.Load() != 0 || r.leases.n.Load() != 0:
			r.removed = time.Time{}
		case r.removed.IsZero():
			r.removed = now
		case now.Sub(r.removed) >= keepRemoved:
			gone = append(gone, name)
		}
	}

	if len(gone) == 0 {
		return
	}
	m.mu.Lock()
	m.replaceRulesLocked(func(rules map[string]*rule) {
		for _, name := range gone {
			delete(rules, name)
		}
	})
	m.mu.Unlock()

	// Without the lock, because Forget is a function of the package of metrics.
	for _, name := range gone {
		m.o.Forget(name)
	}
}

// Gauges calls f for each value that goes up and down, with the values of the attributes.
func (m *Meter) Gauges(f func(i *Instrument, v float64, values ...string)) {
	// A rule has a series of each kind from its first change on, so that most have none.
	bans := m.countBans()
	for _, r := range m.shownRules() {
		if r.queued.used.Load() {
			f(Queued, float64(r.queued.n.Load()), r.label)
		}
		if r.leases.used.Load() {
			f(Leases, float64(r.leases.n.Load()), r.label)
		}
		if r.bans.used.Load() {
			f(Bans, float64(bans[r]), r.label)
		}
	}

	m.mu.Lock()
	revision, inForce := m.revision, m.inForce
	m.mu.Unlock()

	if inForce {
		f(PolicyRevision, revision)
	}
	m.storeGauges(f)
}

// countBans returns the bans that have not ended, by rule.
func (m *Meter) countBans() map[*rule]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endBansLocked(time.Now())
	count := map[*rule]int{}
	for k := range m.bans {
		count[k.rule]++
	}
	return count
}

// storeGauges reports the stores of all limiters.
func (m *Meter) storeGauges(f func(i *Instrument, v float64, values ...string)) {
	limiters := m.openLimiters()

	var modes [events.Modes]float64
	var stores []events.StoreStatus
	for _, l := range limiters {
		list := l.Stores()
		modes[modeOf(list)] = 1
		stores = append(stores, list...)
	}

	// Without a limiter nothing decides, and no mode is shown.
	if len(limiters) > 0 {
		for mode := range events.Mode(events.Modes) {
			f(StoreMode, modes[mode], mode.String())
		}
	}

	s := m.sum(stores)
	if s.memory {
		f(Keys, float64(s.keys), "memory")
		f(KeysOverflow, float64(s.overflow), "memory")
	}

	for r, n := range s.held {
		f(PrefetchHeld, float64(n), r.label)
	}
}

// sums are of all stores. A store that several limiters share counts once.
type sums struct {
	memory         bool // there is a store in memory
	keys, overflow int64
	held           map[*rule]int64
}

// sum adds up what the stores report.
func (m *Meter) sum(stores []events.StoreStatus) sums {
	known, seen := *m.rules.Load(), map[any]bool{}
	s := sums{held: map[*rule]int64{}}
	for i := range stores {
		of := stores[i].Of
		if of != nil && seen[of] {
			continue
		}
		seen[of] = true

		if stores[i].Store == "memory" {
			s.memory = true
			s.keys, s.overflow = s.keys+stores[i].Keys, s.overflow+stores[i].Overflow
		}

		// Rules that the meter has no room for are counted together.
		for name, n := range stores[i].Held {
			r := known[name]
			if r == nil {
				r = m.other
			}
			s.held[r] += n
		}
	}
	return s
}
