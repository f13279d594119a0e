package meter

import (
	"time"

	"github.com/headgate/headgate/events"
)

// Cells calls f for each cell of a counter that is shown, the rules in no order.
func (m *Meter) Cells(f func(*Cell)) {
	m.knowRules()
	for i := range m.requests {
		f(&m.requests[i])
	}
	for i := range m.changes {
		f(&m.changes[i])
	}
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
	for _, r := range m.shown() {
		r.fold()
		for i := range r.decisions {
			f(&r.decisions[i])
		}
		for i := range r.units {
			f(&r.units[i])
		}
		f(&r.cached)
	}
}

// shown returns all rules, and the one of the others if it has counted.
func (m *Meter) shown() []*rule {
	known := *m.rules.Load()
	list := make([]*rule, 0, len(known)+1)
	for _, r := range known {
		list = append(list, r)
	}
	if m.otherHasCounted(len(known)) {
		list = append(list, m.other)
	}
	return list
}

// otherHasCounted reports whether the rule of the others is shown, beside n rules.
func (m *Meter) otherHasCounted(n int) bool {
	if n >= m.o.MaxRules {
		return true
	}
	for i := range m.other.decisions {
		if m.other.decisions[i].Value() > 0 {
			return true
		}
	}
	return false
}

// namer is a limiter, which can name its rules.
type namer interface{ RuleNames() []string }

// knowRules adds the rules in force, so that their series begin at zero, and removes those
// that have not been in force for some time.
func (m *Meter) knowRules() {
	m.forgetter.Lock()
	defer m.forgetter.Unlock()
	inForce := map[string]bool{}
	for _, l := range m.open() {
		if n, ok := l.(namer); ok {
			for _, name := range n.RuleNames() {
				inForce[name] = true
			}
		}
	}
	if m.o.Forget != nil {
		m.removeRules(inForce, time.Now())
	}
	for name := range inForce {
		m.of(name)
	}
}

func (m *Meter) removeRules(inForce map[string]bool, now time.Time) {
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
	m.replace(func(rules map[string]*rule) {
		for _, name := range gone {
			delete(rules, name)
		}
	})
	m.mu.Unlock()
	for _, name := range gone {
		m.o.Forget(name)
	}
}

// Gauges calls f for each value that goes up and down, with the values of the attributes.
func (m *Meter) Gauges(f func(i *Instrument, v float64, values ...string)) {
	bans := m.countBans()
	for _, r := range m.shown() {
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

func (m *Meter) countBans() map[*rule]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endBans(time.Now())
	count := map[*rule]int{}
	for k := range m.bans {
		count[k.rule]++
	}
	return count
}

// storeGauges tells of the stores of all limiters. A store that several share counts once.
func (m *Meter) storeGauges(f func(i *Instrument, v float64, values ...string)) {
	limiters := m.open()
	var modes [events.Modes]float64
	var keys, overflow int64
	memory := false
	held := map[*rule]int64{}
	seen := map[events.Source]bool{}
	for _, l := range limiters {
		stores := l.Stores()
		modes[modeOf(stores)] = 1
		for i := range stores {
			s := &stores[i]
			if s.Of != nil {
				if seen[s.Of] {
					continue
				}
				seen[s.Of] = true
			}
			if s.Store == "memory" {
				memory = true
				keys, overflow = keys+s.Keys, overflow+s.Overflow
			}
			for name, n := range s.Held {
				held[m.find(name)] += n
			}
		}
	}
	if len(limiters) > 0 {
		for mode := range events.Mode(events.Modes) {
			f(StoreMode, modes[mode], mode.String())
		}
	}
	if memory {
		f(Keys, float64(keys), "memory")
		f(KeysOverflow, float64(overflow), "memory")
	}
	for r, n := range held {
		f(PrefetchHeld, float64(n), r.label)
	}
}
