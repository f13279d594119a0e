// Package limiter decides about requests by rules.
//
// A [Rule] is data: a [core.Limit], the key that it counts by, and what happens
// to a request over it. A [Limiter] turns requests into operations on a
// [core.Store] and decisions into answers; the adapters for the HTTP frameworks
// only translate. A program that serves no HTTP calls [Limiter.Allow],
// [Limiter.Take], [Limiter.TakeUpTo], [Limiter.Wait] or [Limiter.Reserve] instead.
//
// A refusal is a [core.Decision], not an error, except that Wait and Reserve return
// an error for it. An error that wraps [ErrUndecided] means that the store, or
// a function of a rule, could not decide; [FailureMode] says what happens then.
package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/internal/waitline"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// ErrClosed is the error of a wait that ended, or did not begin, because its limiter was
// closed or is being shut down.
var ErrClosed = errors.New("headgate: the limiter is closed")

// Limiter decides about requests by rules and keeps the counts in a store. It is
// safe for concurrent use.
type Limiter struct {
	name            string // or ""
	store           core.Store
	release         func() // of the memory that the store brings
	set             atomic.Pointer[ruleSet]
	headers         HeaderStyle
	customHeaders   func([]RuleDecision) []Header
	refused         Template
	failed          Template
	degraded        Template
	keepResult      bool
	cancelOnLost    bool
	skipPreflights  bool
	fallbacks       fallbacks
	onError         func(context.Context, error)
	observer        events.Observer
	counter         events.Counter // the observer, nil unless it counts
	hooks           *events.Hooks  // never nil
	records         sync.Pool      // of *events.Request
	bans            banLog
	storeLog        storeLog
	found           found
	held            atomic.Int64 // leases
	top             int          // Config.Top
	closed          sync.Once
	queue           waitline.Queue
	queueFullStatus int // 0 means 503
	leases          *leaseSource
	releases        releaseQueue
	background      *background // nil for a store in memory, which is asked at once
	admissions      sync.Pool
	warner          warner
	failures        failureLog
	mark            *Mark           // without a rule; no other limiter has it
	life            context.Context // ends with Close
	end             context.CancelFunc
}

// New returns a limiter, or an error that joins all mistakes in c; each mistake in
// a rule is a [*RuleError].
func New(c Config) (*Limiter, error) {
	given, shares := c.Store, c.sharesDefault()
	badStore := c.useStore()
	release := c.useMemory()
	failing := newFallbacks(&c)
	set, badRules := newRuleSet(c.Rules, c.Name, &failing)

	errs := append([]error{badStore}, c.faults(&failing)...)
	if err := errors.Join(append(errs, badRules)...); err != nil {
		release()
		return nil, err
	}

	l := &Limiter{
		name:           c.Name,
		store:          c.Store,
		release:        release,
		headers:        cmp.Or(c.Headers, XRateLimit|Draft8),
		customHeaders:  c.CustomHeaders,
		refused:        c.Refused,
		failed:         c.Failed,
		degraded:       c.Degraded,
		keepResult:     c.KeepResult,
		cancelOnLost:   c.CancelOnLostLease,
		skipPreflights: c.SkipPreflights,
		fallbacks:      failing,
		onError:        c.OnError,
		observer:       c.Observer,
		leases:         newLeaseSource(),
		top:            c.Top,
	}

	l.counter, _ = c.Observer.(events.Counter)
	if _, inMemory := l.store.(*memstore.Store); !inMemory {
		l.background = newBackground()
	}

	l.mark = newMark("", l.leases.next()[:16])
	l.life, l.end = context.WithCancel(context.Background())
	l.warner.start(c.Logger)
	l.queue.Init(cmp.Or(c.MaxWaiters, DefaultMaxWaiters), cmp.Or(c.MaxWaitersPerKey, DefaultMaxWaitersPerKey))
	l.queueFullStatus = c.QueueFullStatus

	l.enforce(set)
	l.listen(c.Hooks)
	if shares {
		l.noteUnnamed(given)
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

// SetRules replaces the rules for all later requests. Rules that keep their name and
// algorithm keep their counts; under another name or algorithm every key starts fresh. If
// a rule has a mistake, nothing changes, and the error joins a [*RuleError] for each
// mistake.
func (l *Limiter) SetRules(rules []Rule) error { return l.SetSelectedRules(rules, nil) }

// enforce puts a set of rules in force.
func (l *Limiter) enforce(set *ruleSet) {
	if slices.ContainsFunc(setupCodes, func(code string) bool { return !l.warner.hasSeen(code) }) {
		set.setup.begin(len(set.rules))
	}
	for _, r := range set.rules {
		r.terms.mark = newMark(r.terms.capacity, l.mark.id())
	}
	l.keepTallies(set)
	l.giveCounters(set)
	l.set.Store(set)
	l.warnFailsOpen(set)
}

// Shutdown lets the requests that wait have their turn, and then closes the limiter.
// Meanwhile a request that would begin to wait is refused at once. A request whose turn
// does not come before the deadline of ctx is refused at once too, and gives its slot
// back, so that its answer is not cut off. No store can say when a lease is released, so
// requests wait for leases until 100 ms before the deadline. Shutdown returns nil when no request waits any
// longer, or the cause of ctx if that ends before.
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
	l.endFailures()
	l.closed.Do(l.tellClosed)
	return nil
}

// Take counts cost units of key under every rule, whatever its Key function
// says, and does not wait. A refusal is a result that is not Allowed, and no error.
// If the store did not decide under some rule, the error wraps [ErrUndecided], also
// where the rules fail open; see [Result.Undecided]. Allowed then follows from
// OnStoreError of the rules. The result is never nil, and has to be released if it
// holds leases.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Result, error) {
	return l.take(ctx, key, cost, 0)
}

// TakeWithin is [Limiter.Take], but waits at most max, which is above 0 and at most
// [core.MaxBooking], until every rule that is not Degrade or Shadow admits. If that
// would take longer behind those who wait, or longer than until the deadline of ctx, it
// refuses at once. Callers with one key are served in the order of arrival. Leases may be
// released at any time, so it waits for them for as long as it may. If ctx ends while it
// waits, or the limiter is closed, the result is a refusal, no units were taken, and the
// error is the cause of ctx or [ErrClosed]. Under a rule with a Ban the error wraps
// [core.ErrOp], and nothing was taken: such a rule refuses what is over its limit.
func (l *Limiter) TakeWithin(ctx context.Context, key string, cost int64, max time.Duration) (*Result, error) {
	if max <= 0 || max > core.MaxBooking {
		return &Result{}, fmt.Errorf("%w: the wait %s is not above 0 and at most %s",
			core.ErrOp, max, textform.Duration(core.MaxBooking))
	}
	return l.take(ctx, key, cost, max)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, maxWait time.Duration) (*Result, error) {
	if err := checkCost(cost); err != nil {
		return &Result{}, err
	}
	l.diagnoseOnce()
	res := &Result{}
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, cost)
	if err == nil && maxWait > 0 && res.bans() {
		return &Result{}, errBan
	}
	res.beginWait(maxWait)
	if err == nil {
		err = res.decide(ctx, maxWait > 0)
	}
	res.conclude(ctx, err)
	return res, res.takeError(err)
}

func checkCost(cost int64) error {
	if cost < 0 {
		return fmt.Errorf("%w: the cost %d is negative", core.ErrOp, cost)
	}
	return nil
}

// Peek returns what [Limiter.Take] of one unit would decide, rule by rule, and
// changes nothing.
func (l *Limiter) Peek(ctx context.Context, key string) ([]RuleDecision, error) {
	res, err := l.applyKey(ctx, core.Peek, key)
	if err != nil {
		return nil, err
	}
	return res.Decisions(), nil
}

// Reset makes key fresh under every rule, also where it is banned. Refunds of what was taken
// before give nothing back, so none gives back what is taken after it.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.applyKey(ctx, core.Reset, key)
	return err
}

func (l *Limiter) applyKey(ctx context.Context, verb core.Verb, key string) (*Result, error) {
	res := &Result{}
	res.begin(l)
	if err := res.addKey(ctx, verb, key, 1); err != nil {
		return nil, err
	}
	err := res.apply(ctx, verb)
	if err == nil && verb == core.Reset {
		l.tellLifted(res.ops[:res.asked])
	}
	return res, err
}

// apply calls the store's Apply, and returns its panic as an error.
func (l *Limiter) apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return l.applyTo(ctx, l.store, ops, out)
}

// applyTo is apply for s, which is the store, its strict side or its fallback.
func (l *Limiter) applyTo(ctx context.Context, s core.Store, ops []core.Op, out []core.Decision) (err error) {
	if len(ops) == 0 {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("store: %w", panicked(v))
		}
	}()
	return s.Apply(ctx, ops, out)
}

// Allow is [Limiter.Take] for a caller that needs no [Result], and allocates nothing
// itself. It returns the decision of the most exhausted rule that is not Shadow, which
// is also the rule of the X-RateLimit headers. But Allowed, Banned and RetryAfter are
// those of all rules together. If no rule applies, only Allowed is set. The error is that of Take.
// Under a rule with a concurrency limit, whose units would have to be released, the
// error wraps [core.ErrOp], and nothing was taken.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) (core.Decision, error) {
	if err := checkCost(cost); err != nil {
		return core.Decision{}, err
	}
	l.diagnoseOnce()
	a := l.newAdmission()
	d, err := a.result.allow(ctx, l, key, cost)
	a.recycle(l)
	return d, err
}

// SetSelectedRules is [Limiter.SetRules] with a selection among the rules. A nil
// selection asks every rule.
func (l *Limiter) SetSelectedRules(rules []Rule, s Selection) error {
	set, err := newRuleSet(rules, l.name, &l.fallbacks)
	if err == nil {
		set.selection = s
		l.enforce(set)
	}
	l.tellRules(err)
	return err
}

// WarnTwice logs, once, that a request met the limiter a second time.
func (l *Limiter) WarnTwice() {
	l.Warn(core.Finding{Code: CodeTwice, Text: "a request met the same limiter twice and was counted once: it is mounted in two " +
		"places that one request passes"})
}

// Admit decides about a request, and waits if rules say so. The caller must call
// Done on the result exactly once, when the request has been answered. CORS
// preflights count as other requests do, except under Config.SkipPreflights. A nil
// Limiter fails closed, and so does a Limiter whose [Limiter.CheckRequests] returns an
// error.
func (l *Limiter) Admit(r core.Request) *Admission {
	if l == nil {
		a := &Admission{}
		a.result.err, a.result.verdict = errNoLimiter, events.FailedClosed
		return a
	}

	a := l.newAdmission()
	res := &a.result
	res.begin(l)
	res.admitted = true

	if l.skipPreflights && isPreflight(r) {
		res.allowed = true
		res.conclude(r.Context(), nil)
		return a
	}

	l.diagnoseOnce()
	a.ctx = r.Context()

	err := res.set.noKey
	if err == nil {
		err = res.addRequest(core.Take, r)
	} else {
		l.warnNoKey(err)
	}
	if err == nil && res.set.setup.on.Load() {
		l.checkSetup(r, res)
	}
	if err == nil {
		err = res.decide(a.ctx, res.set.mayWait)
	}

	res.conclude(a.ctx, err)
	if res.HoldsLeases() {
		a.renewal.start(a.ctx, &res.course)
	}
	return a
}

// CheckRequests returns an error if l cannot decide about requests: l is nil, or a
// rule in force has no Key function. An adapter calls it at set-up and logs the
// error.
func (l *Limiter) CheckRequests() error {
	if l == nil {
		return errNoLimiter
	}
	return l.set.Load().noKey
}

// warnNoKey logs, once, that requests fail because a rule has no Key function.
func (l *Limiter) warnNoKey(err error) {
	l.Warn(core.Finding{Code: CodeNoKey, Rule: ruleOf(err), Text: "a rule has no Key function, so the limiter cannot decide about requests: " +
		"each is answered with a 503; keyfuncs.RemoteIP counts by the address of the client"})
}

func (l *Limiter) newAdmission() *Admission {
	if a, ok := l.admissions.Get().(*Admission); ok {
		return a
	}
	a := &Admission{}
	a.result.pooled = true
	return a
}

// report logs or counts err and calls OnError.
func (l *Limiter) report(ctx context.Context, err error) { l.reportAs(ctx, err, events.StoreDecides) }

// reportAs is report of an error that a request met, about which by decided.
func (l *Limiter) reportAs(ctx context.Context, err error, by events.Mode) {
	if err == nil {
		return
	}
	l.logFailure(ctx, err, by)
	l.callOnError(ctx, err)
}

// logFailure logs or counts err. Errors after a client has left are not logged: they say
// nothing about the store.
func (l *Limiter) logFailure(ctx context.Context, err error, by events.Mode) {
	if ctx == nil || ctx.Err() != context.Canceled {
		l.noteFailure(err, by)
	}
}

// callOnError calls OnError. A panic of it is dropped, because there is no other function to
// report it to.
func (l *Limiter) callOnError(ctx context.Context, err error) {
	if l.onError == nil {
		return
	}
	defer func() { _ = recover() }()
	l.onError(ctx, err)
}

// giveBack carries out refunds at the end of a request, after the ops that settle it. Leases
// that the store fails to release are queued.
func (l *Limiter) giveBack(ctx context.Context, undo []core.Op, settled int) {
	if out := l.repay(ctx, undo); out != nil {
		l.tellUnits(undo, out, settled)
	}
}

// repay is giveBack of units that no hook was told of. It returns the decisions, nil if there
// are none.
func (l *Limiter) repay(ctx context.Context, undo []core.Op) []core.Decision {
	if len(undo) == 0 {
		return nil
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	out := make([]core.Decision, len(undo))
	if err := l.apply(ctx, undo, out); err != nil {
		l.addReleases(undo)
		l.report(ctx, err)
		return nil
	}
	l.queue.NoteReleases(undo)
	return out
}

// addReleases queues the leases among ops, which could not be undone, for release.
func (l *Limiter) addReleases(ops []core.Op) {
	q := &l.releases
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, op := range ops {
		if op.Lease != "" && len(q.queued) < maxReleases {
			q.queued = append(q.queued, queuedRelease{op, now.Add(op.Limit.Period)})
		}
	}
	if len(q.queued) > 0 && !q.busy {
		q.busy, q.pause = true, minReleasePause
		time.AfterFunc(q.pause, l.runReleases)
	}
}

// runReleases releases the queued leases one by one, until the store fails again.
func (l *Limiter) runReleases() {
	for !l.isClosed() {
		op, ok := l.releases.next(time.Now())
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(l.life, cleanupTimeout)
		err := l.apply(ctx, []core.Op{op}, make([]core.Decision, 1))
		cancel()
		if err != nil {
			l.releases.retry(l.runReleases)
			return
		}
		l.queue.NoteReleases([]core.Op{op})
		l.releases.done()
	}
}

// checkSetup examines a request and the keys under which it is counted.
func (l *Limiter) checkSetup(r core.Request, res *Result) {
	setup := &res.set.setup
	if setup.left.Add(-1) < 0 {
		setup.on.Store(false)
		return
	}
	from := originOf(r)
	for i := range res.asked {
		rule, key := res.calls[i].rule, res.ops[i].Key
		if from.isUnheededBy(key) {
			l.Warn(core.Finding{Code: CodeUnheeded, Rule: rule.Name, Text: "a proxy forwards the addresses of callers, but the rule counts by the " +
				"address of the proxy: all callers share its limit; use keyfuncs.ForwardedIP, and name this peer in Trusted if it is a proxy"})
		}
		if !from.peer.IsValid() || mentions(key, from.peer) {
			l.checkAddress(rule, r, from)
		}
		if rule.keys.record(key) {
			l.reportSharedKey(rule, key, from)
			if setup.undecided.Add(-1) == 0 {
				setup.on.Store(false)
			}
		}
	}
}

// checkAddress warns if the rule counts a request by the address of the peer where it
// cannot mean to: the peer is trusted to forward another address and forwards none, or
// it has no address.
func (l *Limiter) checkAddress(rule *activeRule, r core.Request, from origin) {
	if from.peer.IsValid() && l.warner.hasSeen(CodeNotForwarded) || rule.keys.probes.Add(1) > maxProbes {
		return
	}
	believes := &probe{Request: r}
	if believes.changes(rule.Key) && believes.missing != "" {
		l.Warn(core.Finding{Code: CodeNotForwarded, Rule: rule.Name, Text: "a trusted proxy sent a request without " + believes.missing +
			": unless that was a health check, the proxy does not write the header, so callers can write it and choose their keys; " +
			"configure the proxy to set it"})
		return
	}
	if !from.peer.IsValid() && (&probe{Request: r, peer: probedAddress + ":1"}).changes(rule.Key) {
		l.Warn(core.Finding{Code: CodeNoAddress, Rule: rule.Name, Text: "the rule counts by the address of the peer, and the connection has none, as with a " +
			"Unix socket: all callers share its limit; if a proxy forwards their addresses, use keyfuncs.ForwardedIP with Hops"})
	}
}

// reportSharedKey warns if all first requests under a rule had one key by mistake.
func (l *Limiter) reportSharedKey(r *activeRule, key string, from origin) {
	if r.keys.several.Load() {
		return
	}
	switch {
	case key == "" && !isGlobal(r.Key):
		l.Warn(core.Finding{Code: CodeOneKey, Rule: r.Name, Text: "the first 1000 requests all had the empty key: the key function could not tell " +
			"callers apart; if one count for all is meant, use keyfuncs.Global"})
	case from.peer.IsValid() && mentions(key, from.peer):
		l.Warn(core.Finding{Code: CodeOneKey, Rule: r.Name, Text: "the first 1000 requests all came from one address: if that is a proxy, it has to " +
			"forward the addresses of callers, and keyfuncs.ForwardedIP has to trust it"})
	}
}

// sleep waits for d. It returns an error if ctx or the limiter ends before, and at once
// if the limiter is being shut down and will have ended by then.
func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	due, draining := time.Now().Add(d), l.queue.Draining()
	for {
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.life.Done():
			return ErrClosed
		case <-draining:
			if l.queue.EndsBy(due) {
				return ErrClosed
			}
			draining = nil
		}
	}
}

func (l *Limiter) isClosed() bool { return l.life.Err() != nil }

// Warn writes f to Config.Logger, unless a finding with that code was written
// before. It is safe for concurrent use, and on a nil Limiter.
func (l *Limiter) Warn(f core.Finding) {
	if l == nil || l.warner.hasSeen(f.Code) || !l.warner.markSeen(f.Code) {
		return
	}
	l.found.add(f)
	attrs := []slog.Attr{slog.String("code", f.Code)}
	if f.Rule != "" {
		attrs = append(attrs, slog.String("rule", f.Rule))
	}
	l.log(slog.LevelWarn, f.Text, attrs...)
}

// LogSetup writes err, unless it is nil, to Config.Logger in one line of level
// error. err is a mistake in the arguments of an adapter's function, whose name is
// where. On a nil Limiter the line goes to slog.Default().
func (l *Limiter) LogSetup(where string, err error) {
	if err == nil {
		return
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	l.log(slog.LevelError, where+" was called with a mistake", slog.String("error", text))
}

// log writes one line. A panic of the logger is reported as an error.
func (l *Limiter) log(level slog.Level, text string, attrs ...slog.Attr) {
	logger := slog.Default()
	if l != nil && l.warner.logger != nil {
		logger = l.warner.logger
	}
	if l != nil && l.name != "" {
		attrs = slices.Insert(attrs, 0, slog.String("limiter", l.name))
	}
	defer func() {
		if v := recover(); v != nil && l != nil {
			l.report(context.Background(), fmt.Errorf("log: %w", panicked(v)))
		}
	}()
	logger.LogAttrs(context.Background(), level, "headgate: "+text, attrs...)
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

// diagnoseOnce starts the diagnosis of the store, unless it is running or not due.
// Its goroutine ends with Close or after diagnosisTimeout.
func (l *Limiter) diagnoseOnce() {
	if l.warner.nextDiagnosis.Load() != noDiagnosis {
		l.diagnoseIfDue()
	}
}

func (l *Limiter) diagnoseIfDue() {
	if !l.warner.diagnosisDue() || l.isClosed() {
		return
	}
	if d, ok := l.store.(core.Diagnoser); ok {
		go l.runDiagnosis(d)
	}
}

func (l *Limiter) runDiagnosis(d core.Diagnoser) {
	ctx, cancel := context.WithTimeout(l.life, diagnosisTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			l.report(ctx, fmt.Errorf("diagnosis: %w", panicked(v)))
		}
	}()
	unanswered := false
	for _, f := range d.Diagnose(ctx, l.set.Load().takes()) {
		if f.Code == core.CodeUnanswered {
			unanswered = true
			continue
		}
		l.Warn(f)
	}
	switch {
	case l.isClosed():
	case unanswered:
		l.warner.diagnoseLater()
	default:
		l.warner.diagnoseAgain()
	}
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
