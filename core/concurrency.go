package core

import (
	"fmt"
	"slices"
	"strings"
)

// concurrency admits at most Quota units held at once. They are held by leases,
// each with an id. A lease ends by Refund, or one Period after the last Take
// that made or renewed it. Twin: lua/concurrency.lua.
type concurrency struct{}

func (*concurrency) name() string     { return "concurrent" }
func (*concurrency) letter() string   { return "c" }
func (*concurrency) options() options { return options{} }

func (*concurrency) check(l *Limit) error {
	if l.Quota > maxLeases {
		return fmt.Errorf("quota %d is above %d, the most leases of a key", l.Quota, maxLeases)
	}
	return nil
}

func (*concurrency) scriptArgs(l *Limit) (period, quota, extra int64) { return l.period(), l.Quota, 0 }

// settle leaves every lease its expiry, whatever the period of l: its holder counts on
// it. State.Limit is the limit with the longest period among those under which the held
// leases were taken.
func (*concurrency) settle(s *State, l *Limit, now int64) bool {
	for len(s.Leases) > 0 && s.Leases[0].Expiry <= now {
		s.Leases = s.Leases[1:]
	}
	if len(s.Leases) == 0 {
		s.Limit = *l
		return false
	}

	// Only a clock that was set back leaves a lease that lasts longer than the longest period
	// allows. A store may keep the old list, so the pulled back ones go to a new one.
	latest := now + s.Limit.period()
	if s.Leases[len(s.Leases)-1].Expiry <= latest {
		return false
	}
	s.Leases = slices.Clone(s.Leases)
	for i := len(s.Leases) - 1; i >= 0 && s.Leases[i].Expiry > latest; i-- {
		s.Leases[i].Expiry = latest
	}
	return true
}

// find returns the index of the lease among the held ones, or -1.
func (*concurrency) find(s *State, id string) int {
	for i := range s.Leases {
		if s.Leases[i].ID == id {
			return i
		}
	}
	return -1
}

// held returns the units of all leases that are held.
func (*concurrency) held(s *State) int64 {
	var n int64
	for i := range s.Leases {
		n += s.Leases[i].Units
	}
	return n
}

func (c *concurrency) delay(s *State, l *Limit, now, n, _ int64, lease string) int64 {
	// A renewal needs no units: the lease holds them already.
	if c.find(s, lease) >= 0 {
		return 0
	}

	excess := c.held(s) + n - l.Quota
	if excess <= 0 {
		return 0
	}

	// Leases are in the order of their expiry, so these are the first units to come back.
	for i := range s.Leases {
		if excess -= s.Leases[i].Units; excess <= 0 {
			return s.Leases[i].Expiry - now
		}
	}
	panic("headgate: a cost above the capacity reached the leases")
}

func (c *concurrency) take(s *State, l *Limit, now, n int64, lease string) {
	// A renewed lease keeps its units whatever the cost, and moves to its new place. The id of a
	// new one is copied, because the text of a request may not outlive it.
	next := Lease{Expiry: now + l.period(), Units: n}
	if i := c.find(s, lease); i >= 0 {
		next.ID, next.Units = s.Leases[i].ID, s.Leases[i].Units
		s.Leases = append(s.Leases[:i], s.Leases[i+1:]...)
	} else {
		next.ID = strings.Clone(lease)
	}

	if len(s.Leases) == 0 || s.Limit.period() < l.period() {
		s.Limit = *l
	}

	i := len(s.Leases)
	for i > 0 && s.Leases[i-1].Expiry > next.Expiry {
		i--
	}
	s.Leases = slices.Insert(s.Leases, i, next)
}

func (c *concurrency) refund(s *State, _ *Limit, _ int64, op *Op) {
	if i := c.find(s, op.Lease); i >= 0 {
		s.Leases = append(s.Leases[:i], s.Leases[i+1:]...)
	}
}

func (c *concurrency) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	if len(s.Leases) == 0 {
		return l.Quota, 0
	}
	return max(0, l.Quota-c.held(s)), s.Leases[len(s.Leases)-1].Expiry - now
}

func (*concurrency) maxRecords(l *Limit) int64            { return l.Quota }
func (*concurrency) leased() bool                         { return true }
func (*concurrency) books() bool                          { return false }
func (*concurrency) prefetchable() bool                   { return false }
func (*concurrency) rolling() bool                        { return false }
func (*concurrency) compact(l *Limit) Compact             { return compactLeases(l) }
func (*concurrency) part(l *Limit, n int64) Limit         { return l.countPart(n) }
func (*concurrency) stillUsed(*Limit, int64, int64) int64 { return 0 }

// foretells is false, because a lease may end at any time.
func (*concurrency) foretells(refusal) bool { return false }

func (*concurrency) inUse(*State, *Limit, int64) int64  { return 0 }
func (*concurrency) maxDebt(*Limit) int64               { return 0 }
func (*concurrency) debit(*State, *Limit, int64, int64) {}
