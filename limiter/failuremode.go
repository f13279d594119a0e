package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// FailureMode says what happens to a request when the store cannot decide under a rule:
// the store failed, or a function of the rule panicked or returned an invalid
// value.
type FailureMode uint8

const (
	// FailDefault in a [Rule] means Config.OnStoreError. In a Config it means FailLocal if
	// the store has a fallback, as one in Redis has, and FailOpen if it has none.
	FailDefault FailureMode = iota

	// FailOpen lets the request pass, as far as this rule is concerned. The
	// fallback of the store, if any, is not asked. A client that floods the service until
	// the store cannot decide in time is then not limited; see CodeFailsOpen.
	FailOpen

	// FailClosed answers with a 503, whatever other rules say. The fallback of
	// the store, if any, is not asked.
	FailClosed

	// FailLocal lets the fallback of the store decide; the store must be a
	// [core.Standby] or a [core.Backed]. If the fallback cannot decide either, Config.OnStoreError
	// applies, and if that is FailLocal too, the request passes.
	FailLocal
)

// String returns "default", "open", "closed" or "local".
func (f FailureMode) String() string {
	switch f {
	case FailDefault:
		return "default"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	case FailLocal:
		return "local"
	}
	return "unknown failure mode"
}

// fallbacks says what a limiter does when the store cannot decide, and how short the
// leases in the store may be.
type fallbacks struct {
	store     core.Store // decides by its fallback if need be
	strict    core.Store // the same without the fallback
	fallback  core.Store // or nil
	otherwise FailureMode
	last      FailureMode // when the fallback cannot decide either
	minTTL    time.Duration
	asks      bool // the store asks a server, which may be away or too slow
	named     bool // otherwise is the choice of the program
}

func newFallbacks(c *Config) fallbacks {
	f := fallbacks{store: c.Store, strict: c.Store, otherwise: c.OnStoreError, last: FailOpen, minTTL: shortestTTL(c.Store),
		named: c.OnStoreError != FailDefault}
	if r, ok := c.Store.(core.Remote); ok {
		f.asks = r.MaxCall() > 0
	}
	if s, ok := c.Store.(core.Standby); ok {
		f.strict, f.fallback = s.Strict(), s.Fallback()
	}
	if f.otherwise == FailClosed {
		f.last = FailClosed
	}
	if f.otherwise == FailDefault {
		f.otherwise = FailOpen
		if f.fallback != nil {
			f.otherwise = FailLocal
		}
	}
	return f
}

// check returns an error if a choice cannot be carried out.
func (f *fallbacks) check(choice FailureMode) error {
	switch {
	case choice > FailLocal:
		return fmt.Errorf("OnStoreError: %d is not known", choice)
	case choice == FailLocal && f.fallback == nil:
		return errors.New("OnStoreError: the store has no fallback that could decide")
	}
	return nil
}

// resolve gives every rule its failure mode and determines which store is asked
// first: rules that want no decision of the fallback have to see the store fail.
func (f *fallbacks) resolve(set *ruleSet) {
	set.store = f.store
	for _, r := range set.rules {
		if r.failureMode = cmp.Or(r.OnStoreError, f.otherwise); r.failureMode != FailLocal {
			set.store, set.strict = f.strict, f.fallback != nil
		}
	}
}

// warnFailsOpen logs, once, under which rules requests pass while the store cannot decide. A
// store in memory always can.
func (l *Limiter) warnFailsOpen(set *ruleSet) {
	f := &l.fallbacks
	if !f.asks || l.warner.hasSeen(CodeFailsOpen) {
		return
	}

	var names []string
	chosen := true
	for _, r := range set.rules {
		if r.failureMode == FailOpen && r.OnLimit != Shadow {
			names = append(names, r.Name)
			chosen = chosen && (f.named || r.OnStoreError != FailDefault)
		}
	}
	if len(names) == 0 {
		return
	}

	text := "requests pass uncounted while the store cannot decide in time, as under load, under " + list(names)
	if !chosen {
		text += ": the store has no fallback; set OnStoreError, or put store/failover before the store"
	}
	l.Warn(core.Finding{Code: CodeFailsOpen, Text: text})
}

// maxListed is how many names a line lists.
const maxListed = 8

// list returns the names in one line, or the first of them and how many more there are.
func list(names []string) string {
	if n := len(names) - maxListed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), n)
	}
	return strings.Join(names, ", ")
}

// retryAfter returns the time after which a new attempt is worthwhile, if err has a
// method that returns it, and 0 otherwise.
func retryAfter(err error) time.Duration {
	var e interface{ RetryAfter() time.Duration }
	if errors.As(err, &e) {
		return e.RetryAfter()
	}
	return 0
}
