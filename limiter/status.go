package limiter

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/events"
)

// Status is what a limiter knows about its rules, its store and its troubles, for a page
// such as that of package debug. All of it is of this process. Its parts are not of
// one instant.
type Status struct {
	Name   string    // Config.Name
	At     time.Time // now
	Since  time.Time // the limiter was made
	Closed bool

	Rules []RuleStatus // in the order of the rules

	// Stores has the status of each store that is an [events.Source], the outermost first.
	Stores []events.StoreStatus

	// Calls are those of the stores, and Breakers the latest changes of their breakers, the
	// latest first, at most 32. Away has the shards that are bypassed now, by their names, and
	// since when. The name of a store without shards is "".
	Calls    StoreCalls
	Breakers []BreakerChange
	Away     map[string]time.Time

	// Troubles are the kinds of errors that came since New, those of the last first.
	Troubles []Trouble

	// Findings are the likely mistakes in the set-up that were logged, in their order.
	Findings []FoundAt

	// Waiting is how many requests wait for their turn, of MaxWaiting that may. Leases is
	// how many leases requests hold.
	Waiting, MaxWaiting int
	Leases              int64
}

// RuleStatus is the status of one rule.
type RuleStatus struct {
	Rule Rule

	// OnStoreError is what happens under the rule when the store cannot decide. It is
	// never FailDefault.
	OnStoreError FailureMode

	// Verdicts is how many requests had each verdict under the rule since Since, and Top
	// has their keys. All are zero if Config.Top is 0.
	Verdicts [events.Verdicts]int64
	Since    time.Time
	Top      TopKeys
}

// FoundAt is a finding and when it was logged.
type FoundAt struct {
	core.Finding
	At time.Time
}

// Trouble is a kind of error, and what became of the requests that met it.
type Trouble struct {
	What string // one line, such as "the store cannot decide, so OnStoreError does"
	Rule string // or ""

	// Passed, Refused and Local are how many requests passed undecided, were turned away,
	// or were decided by the fallback, since New. Other is how many errors no request met.
	Passed, Refused, Local, Other int64

	// First is the first of the latest errors that came less than a minute apart, and Last
	// the last. Active reports whether that is less than a minute ago.
	First, Last time.Time
	Active      bool

	Err string // the latest error in one line; it may hold what a function of the program put there
}

// Status returns the status of the limiter. It asks no server.
func (l *Limiter) Status() Status {
	st := Status{Name: l.name, At: time.Now(), Since: l.warner.started, Closed: l.isClosed(), Stores: l.Stores(),
		MaxWaiting: l.queue.Max(), Leases: l.held.Load()}
	for _, r := range l.set.Load().rules {
		rule := RuleStatus{Rule: r.Rule, OnStoreError: r.failureMode}
		if t := r.tally; t != nil {
			rule.Verdicts, rule.Since, rule.Top = t.counts(), t.since, t.topKeys(r.Name)
		}
		st.Rules = append(st.Rules, rule)
	}
	l.storeLog.status(&st)
	if r, ok := l.store.(core.Remote); ok {
		st.Calls.AtMost = r.MaxCall()
	}
	st.Waiting = l.queue.Waiting()
	l.failures.kinds.Range(func(_, value any) bool {
		f := value.(*failures)
		if t := f.trouble.status(st.At); !t.Last.IsZero() {
			t.What, t.Rule = f.kind.text, f.kind.rule
			st.Troubles = append(st.Troubles, t)
		}
		return true
	})
	slices.SortFunc(st.Troubles, func(a, b Trouble) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.What, b.What), cmp.Compare(a.Rule, b.Rule))
	})
	l.found.mu.Lock()
	st.Findings = slices.Clone(l.found.list)
	l.found.mu.Unlock()
	return st
}

// found are the findings so far. Their number is bounded by maxSeen.
type found struct {
	mu   sync.Mutex
	list []FoundAt
}

func (f *found) add(one core.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, FoundAt{one, time.Now()})
}

// trouble counts the errors of a kind since the limiter was made.
type trouble struct {
	by [events.Modes]atomic.Int64 // by what decided about their requests

	mu          sync.Mutex
	first, last time.Time // as in Trouble
	latest      error
}

// note counts an error. While another goroutine notes one, it is counted and no more.
func (t *trouble) note(err error, by events.Mode) {
	t.by[by].Add(1)
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.last) >= countEvery {
		t.first = now
	}
	t.last, t.latest = now, err
}

func (t *trouble) status(now time.Time) Trouble {
	st := Trouble{Passed: t.by[events.PassesUndecided].Load(), Refused: t.by[events.FailsUndecided].Load(),
		Local: t.by[events.FallbackDecides].Load(), Other: t.by[events.StoreDecides].Load()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if st.First, st.Last = t.first, t.last; t.latest != nil {
		st.Err = textform.Line(t.latest)
	}
	st.Active = now.Sub(t.last) < countEvery
	return st
}
