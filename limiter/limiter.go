// Package limiter decides whether requests are within their limits, and what becomes of those
// that are not.
//
//	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
//		{Name: "rate", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m fixed-window")},
//		{Name: "day", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5000/24h")},
//	}})
//	defer l.Close()
//	handler := nethttp.New(l)(mux)
//
// A [Rule] is data: a [core.Limit], the key that it counts by, and what happens to a request
// over it. A [Config] has the rules, and the store that keeps the counts: the memory of the
// process unless it is set. A [Limiter] decides under all its rules at once: a request that one
// rule refuses costs nothing under the others. It is safe for concurrent use.
//
// The adapters for the HTTP frameworks, such as package nethttp, only translate between their
// requests and [Limiter.Admit]. A program that serves no HTTP calls [Limiter.Allow],
// [Limiter.Take], [Limiter.TakeUpTo], [Limiter.Wait] or [Limiter.Reserve] with a key of its own.
//
// A refusal is a [core.Decision], not an error, except that Wait and Reserve return an error for
// it. An error that wraps [ErrUndecided] means that the store, or a function of a rule, could not
// decide; [FailureMode] says what happens then.
package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/telling"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/findings"
	"github.com/headgate/headgate/observe/topkeys"
)

// Limiter decides about requests by rules and keeps the counts in a store. It is
// safe for concurrent use.
type Limiter struct {
	engine

	name       string // or ""
	started    time.Time
	storeLog   telling.StoreLog
	release    func() // of the memory that the store brings
	closed     sync.Once
	admissions sync.Pool
	mark       *Mark // without a rule; no other limiter has it

	skipPreflights bool
}

// New returns a limiter, or an error that joins all mistakes in c; each mistake in
// a rule is a [*RuleError].
func New(c Config) (*Limiter, error) {
	given, shares := c.Store, c.sharesDefault()
	badStore := c.useStore()
	sides, release, badSides := c.useFallback()
	failing := newFallbacks(&c, sides)
	set, badRules := newRuleSet(c.Rules, c.Name, &failing)

	// Every mistake is reported at once, and the memory that the store has brought is given back.
	errs := append([]error{badStore, badSides}, c.faults(&failing)...)
	if err := errors.Join(append(errs, badRules)...); err != nil {
		release()
		return nil, err
	}

	l := &Limiter{name: c.Name, started: time.Now(), release: release, skipPreflights: c.SkipPreflights}
	l.engine.start(&c, failing, l.started)

	l.mark = newMark("", l.id)
	l.enforce(set)
	listen(l, c.Hooks)
	if shares {
		registerUnnamed(l, given)
	}
	return l, nil
}

// MustNew is [New] for a configuration that is known to be valid. It panics on an
// error.
func MustNew(c Config) *Limiter {
	l, err := New(c)
	if err != nil {
		panic(err)
	}
	return l
}

// PerIP returns a limiter for a first use: PerIP("100/1m") admits 100 requests a minute from
// each address. It has one rule, "ip", under the limit of [core.ParseLimit] and the key
// [keyfuncs.RemoteIP], and keeps its counts in the memory of the process. Behind a proxy the
// address is that of the proxy: a log line warns of it, and [keyfuncs.ForwardedIP] is the key
// to use with [New]. PerIP panics on a text that is no limit, so the text should be a constant.
func PerIP(limit string) *Limiter {
	l, err := core.ParseLimit(limit)
	if err != nil {
		panic(fmt.Errorf("limiter: PerIP: %w", err))
	}
	return MustNew(Config{Rules: []Rule{{Name: "ip", Key: keyfuncs.RemoteIP, Limit: l}}})
}

// listen has the hooks notified, by the store too.
func listen(l *Limiter, h *events.Hooks) {
	var one events.Listeners
	one.Add(h)
	l.hooks = one.Hooks()
	l.fallbacks.report.Listen(l.storeLog.Hooks())
	l.fallbacks.report.Listen(h)
	if l.hooks.Open != nil {
		l.hooks.Open(l)
	}
}

// SetRules replaces the rules for all later requests. Rules that keep their name and
// algorithm keep their counts; under another name or algorithm every key starts fresh. If
// a rule has a mistake, nothing changes, and the error joins a [*RuleError] for each
// mistake.
func (l *Limiter) SetRules(rules []Rule) error { return l.SetSelectedRules(rules, nil) }

// SetSelectedRules is [Limiter.SetRules] with a selection among the rules. A nil
// selection asks every rule.
func (l *Limiter) SetSelectedRules(rules []Rule, s Selection) error {
	set, err := newRuleSet(rules, l.name, &l.fallbacks)
	if err == nil {
		set.selection = s
		l.enforce(set)
	}
	if l.hooks.Rules != nil {
		l.hooks.Rules(events.Rules{Count: len(l.set.Load().rules), Err: err})
	}
	return err
}

// Shutdown lets the requests that wait have their turn, and then closes the limiter.
// Meanwhile a request that would begin to wait is refused at once. A request whose turn
// does not come before the deadline of ctx is refused at once too, and gives its slot
// back, so that its answer is not cut off. No store can say when a lease is released, so
// requests wait for leases until 100 ms before the deadline. Shutdown returns nil when no
// request waits any longer, or the cause of ctx if that ends before.
//
// Call it beside the Shutdown of the HTTP server, with the same context. Then every
// request that waits is answered. [Limiter.Close] refuses them all instead. Shutdown may
// be called again; the deadline of the first call counts.
func (l *Limiter) Shutdown(ctx context.Context) error {
	empty := l.queue.Drain(ctx)
	defer l.Close()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close refuses all waiting requests, makes later ones fail instead of wait, and logs
// how many errors came since the last line about them. It waits until the releases of
// leases that are under way have ended, at most for a second, and then releases the memory
// that the store has brought, which may take another second while the server is away. The
// limiter keeps deciding otherwise, and a request that ends later is answered after its
// leases are released. So the server may be shut down before or after Close.
// [Limiter.Shutdown] lets waiting requests have their turn first. Close may be called again
// and never returns an error.
func (l *Limiter) Close() error {
	l.end()
	l.background.end(cleanupTimeout)
	l.release()
	l.failures.End()
	l.closed.Do(func() {
		if l.hooks.Closed != nil {
			l.hooks.Closed(l)
		}
	})
	return nil
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

// Stores implements [events.Inspector]. It lists the stores whose report has a status.
func (l *Limiter) Stores() []events.StoreStatus {
	list := l.fallbacks.report.Status(nil)
	for i := range list {
		if len(list[i].Away) > 0 {
			list[i].Mode = l.fallbacks.mode(list[i].Mode)
		}
	}
	return list
}

// TopKeys returns the top keys of every rule in force, in the order of the rules. It
// returns nil if Config.Top is 0.
func (l *Limiter) TopKeys() []topkeys.Rule {
	if l.top == 0 {
		return nil
	}
	rules := l.set.Load().rules
	list := make([]topkeys.Rule, len(rules))
	for i, r := range rules {
		list[i] = r.tally.Keys(r.Name)
	}
	return list
}

// Top returns the top keys of one rule. ok is false if no rule in force has the name,
// or Config.Top is 0.
func (l *Limiter) Top(rule string) (top topkeys.Rule, ok bool) {
	r := l.set.Load().named(rule)
	if r == nil || r.tally == nil {
		return topkeys.Rule{}, false
	}
	return r.tally.Keys(r.Name), true
}

// Status is what a limiter knows about its rules, its store and its troubles, for a page
// such as that of package debug. All of it is of this process. Its parts are not of
// one instant.
type Status struct {
	Name   string    // Config.Name
	At     time.Time // now
	Since  time.Time // the limiter was made
	Closed bool

	Rules []RuleStatus // in the order of the rules

	// Stores has the status of each store whose [events.Report] has one, the outermost first.
	Stores []events.StoreStatus

	// Calls are those of the stores, and Breakers the latest changes of their breakers, the
	// latest first, at most 32. Away has the shards that are bypassed now, by their names, and
	// since when. The name of a store without shards is "".
	Calls    events.StoreCalls
	Breakers []events.BreakerChange
	Away     map[string]time.Time

	// Troubles are the kinds of errors that came since New, those of the last first.
	Troubles []events.Trouble

	// Findings are the likely mistakes in the set-up that were logged, in their order.
	Findings []findings.Found

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
	Top      topkeys.Rule
}

// Status returns the status of the limiter. It asks no server.
func (l *Limiter) Status() Status {
	st := Status{Name: l.name, At: time.Now(), Since: l.started, Closed: l.isClosed(), Stores: l.Stores(),
		MaxWaiting: l.queue.Max(), Leases: l.held.Load()}
	for _, r := range l.set.Load().rules {
		rule := RuleStatus{Rule: r.Rule, OnStoreError: r.failureMode}
		if t := r.tally; t != nil {
			rule.Verdicts, rule.Since, rule.Top = t.Counts(), t.Since(), t.Keys(r.Name)
		}
		st.Rules = append(st.Rules, rule)
	}

	// What is counted is read after the rules, and need not be of the same instant.
	st.Calls = l.storeLog.Calls(st.At)
	st.Breakers, st.Away = l.storeLog.Breakers()
	st.Calls.AtMost = l.fallbacks.report.MaxCall
	st.Waiting = l.queue.Waiting()
	st.Troubles = l.failures.Troubles(st.At)
	st.Findings = l.findings.List()
	return st
}

// Warn writes f to Config.Logger, unless a finding with that code was written
// before. It is safe for concurrent use, and on a nil Limiter.
func (l *Limiter) Warn(f core.Finding) {
	if l != nil {
		l.findings.Add(f)
	}
}

// WarnTwice logs, once, that a request met the limiter a second time.
func (l *Limiter) WarnTwice() {
	l.Warn(core.Finding{Code: findings.Twice, Text: "a request met the same limiter twice and was counted once: " +
		"it is mounted in two places that one request passes"})
}

// LogSetup writes err, unless it is nil, to Config.Logger in one line of level
// error. err is a mistake in the arguments of an adapter's function, whose name is
// where. On a nil Limiter the line goes to slog.Default().
func (l *Limiter) LogSetup(where string, err error) {
	if err == nil {
		return
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	var log *telling.Log
	if l != nil {
		log = l.log
	}
	log.Write(slog.LevelError, where+" was called with a mistake", slog.String("error", text))
}

// Try returns what f returns, or false if it panics. The panic becomes an error for
// OnError and the log, which names what, as one of a function of Config does. Adapters call
// functions of the program by it. It is safe for concurrent use, and l may be nil.
func (l *Limiter) Try(what string, f func() bool) (ok bool) {
	defer func() {
		if v := recover(); v != nil && l != nil {
			l.report(context.Background(), fmt.Errorf("%s: %w", what, panicked(v)))
		}
	}()
	return f()
}

var _ events.Inspector = (*Limiter)(nil)

// unnamed counts, by store, the limiters in use whose only rule has the name "default" because
// neither it nor its limiter has one: they share its counts.
var unnamed = struct {
	mu sync.Mutex
	in map[core.Store]int // guarded by mu
}{in: map[core.Store]int{}}

// registerUnnamed records that l has a rule without a name in a store of the program's, and
// warns if another limiter has too. The record ends with the limiter.
func registerUnnamed(l *Limiter, store core.Store) {
	unnamed.mu.Lock()
	unnamed.in[store]++
	others := unnamed.in[store] - 1
	unnamed.mu.Unlock()

	// A limiter that is dropped without Close is forgotten by the garbage collector.
	forget := sync.OnceFunc(func() {
		unnamed.mu.Lock()
		defer unnamed.mu.Unlock()
		if unnamed.in[store]--; unnamed.in[store] == 0 {
			delete(unnamed.in, store)
		}
	})
	released := l.release
	l.release = func() {
		released()
		forget()
	}
	runtime.AddCleanup(l, func(forget func()) { forget() }, forget)

	if others > 0 {
		l.Warn(core.Finding{Code: findings.SharedDefault, Rule: defaultName,
			Text: "two limiters over one store have a rule without a name, so they share its counts: " +
				"give each limiter a Name, or each rule"})
	}
}

// sharesDefault reports whether the only rule of a limiter gets the default name, in a store
// that other limiters may use.
func (c *Config) sharesDefault() bool {
	return c.Store != nil && c.Name == "" && len(c.Rules) == 1 && c.Rules[0].Name == "" &&
		reflect.TypeOf(c.Store).Comparable()
}
