package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/telling"
	"github.com/headgate/headgate/internal/waitline"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/findings"
	"github.com/headgate/headgate/store/memstore"
)

// engine is what the requests of a limiter share.
type engine struct {
	reports
	notifier
	answers

	id         string // of the limiter; no other has it
	store      core.Store
	set        atomic.Pointer[ruleSet]
	fallbacks  fallbacks
	diagnosis  telling.Diagnosis
	queue      waitline.Queue
	leases     *leaseSource
	held       atomic.Int64 // leases
	releases   releaseQueue
	background *background     // nil for a store in memory, which is asked at once
	life       context.Context // ends with Close
	end        context.CancelFunc

	queueFullStatus int16 // of the answer to a request that finds no room to wait
}

func (e *engine) start(c *Config, f fallbacks, now time.Time) {
	e.reports.start(c)
	e.notifier.start(c)
	e.answers = answers{cmp.Or(c.Headers, XRateLimit|Draft8), c.CustomHeaders, c.Refused, c.Failed, c.Degraded,
		c.KeepResult, c.CancelOnLostLease}
	e.queueFullStatus = int16(cmp.Or(c.QueueFullStatus, unavailableStatus))

	e.store, e.fallbacks, e.leases = c.Store, f, newLeaseSource()
	e.id = e.leases.next()[:16]
	// In memory a release takes less time than to start a goroutine for it.
	if _, inMemory := e.store.(*memstore.Store); !inMemory {
		e.background = newBackground()
	}

	e.life, e.end = context.WithCancel(context.Background())
	e.diagnosis.Start(now, e.log.Off())
	e.queue.Init(cmp.Or(c.MaxWaiters, defaultMaxWaiters), cmp.Or(c.MaxWaitersPerKey, defaultMaxWaitersPerKey))
}

// enforce puts a set of rules in force.
func (e *engine) enforce(set *ruleSet) {
	set.setup.Begin(len(set.rules), e.findings)
	for _, r := range set.rules {
		r.terms.mark = newMark(r.terms.capacity, e.id)
	}
	e.keepTallies(set)
	e.giveCounters(set)
	for _, r := range set.rules {
		r.addShadow()
	}
	set.inMemory = e.plainInMemory(set)
	set.direct = set.inMemory && set.isDirect()
	if n := len(set.rules); set.inMemory && n > 0 && n <= maxPrepared {
		set.prepare()
	}
	e.set.Store(set)
	e.warnFailsOpen(set)
}

// keepTallies gives each rule of the set its tally. Rules that keep their name keep it.
func (e *engine) keepTallies(set *ruleSet) {
	if e.top == 0 {
		return
	}
	before := e.set.Load()
	for _, r := range set.rules {
		if before != nil {
			if old := before.named(r.Name); old != nil {
				r.tally = old.tally
				continue
			}
		}
		r.tally = telling.NewTally(e.top)
	}
}

// giveCounters gives each rule of the set what counts its decisions on plain requests, if the
// Observer has that.
func (e *engine) giveCounters(set *ruleSet) {
	if e.counter != nil {
		for _, r := range set.rules {
			r.counter = e.counterOf(r.Name)
		}
	}
}

// plainInMemory reports whether a decision under the set is the answer of a store in memory and no
// more: the rules are plain and do not ban, and no Observer and no tally hears of it.
func (e *engine) plainInMemory(set *ruleSet) bool {
	bans := slices.ContainsFunc(set.rules, func(r *activeRule) bool { return r.terms.take.Ban != nil })
	_, inMemory := set.store.(*memstore.Store)
	return inMemory && set.plain && !bans && e.observer == nil && e.top == 0
}

// maxPrepared is the most rules of a set that is prepared.
const maxPrepared = 16

// prepare prepares the set, which is in memory. A store that refuses it, or panics as a zero Store
// does, says why when it is asked.
func (r *ruleSet) prepare() {
	defer func() { _ = recover() }()
	r.ops = r.takes()
	for _, a := range r.rules {
		r.calls = append(r.calls, newCall(a, a.terms))
	}
	r.prepared, _ = r.store.(*memstore.Store).Prepare(r.ops)
}

// counterOf returns what counts the decisions of the rule on plain requests, nil after a panic.
func (e *engine) counterOf(rule string) (counter events.RuleCounter) {
	defer func() {
		if v := recover(); v != nil {
			e.report(context.Background(), fmt.Errorf("the observer: %w", panicked(v)))
		}
	}()
	return e.counter.RuleCounter(rule)
}

// warnFailsOpen logs, once, under which rules requests pass while the store cannot decide. A
// store in memory always can.
func (e *engine) warnFailsOpen(set *ruleSet) {
	f := &e.fallbacks
	if !f.asks || e.findings.Has(findings.FailsOpen) {
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

	// The program may not know: it is the default where the store has no fallback.
	text := "requests pass uncounted while the store cannot decide in time, as under load, under " + list(names)
	if !chosen {
		text += ": the store has no fallback; set OnStoreError, or put store/failover before the store"
	}
	e.findings.Add(core.Finding{Code: findings.FailsOpen, Text: text})
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

// apply calls the store's Apply, and returns its panic as an error.
func (e *engine) apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return e.applyTo(ctx, e.store, ops, out)
}

// applyTo is apply for s, which is the store, its strict side or its fallback.
func (e *engine) applyTo(ctx context.Context, s core.Store, ops []core.Op, out []core.Decision) (err error) {
	if len(ops) == 0 {
		return nil
	}
	returned := false
	defer func() {
		if returned { // a recover that finds nothing takes time
			return
		}
		if v := recover(); v != nil {
			err = fmt.Errorf("store: %w", panicked(v))
		}
	}()
	err = s.Apply(ctx, ops, out)
	returned = true
	return err
}

// takePrepared is applyTo for a set that is prepared.
func (e *engine) takePrepared(set *ruleSet, key string, cost int64, out []core.Decision) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = fmt.Errorf("store: %w", panicked(v))
		}
	}()
	err = set.prepared.Take(key, cost, out)
	returned = true
	return err
}

// reportFallback reports that the fallback of the store made a decision.
func (e *engine) reportFallback(ctx context.Context) {
	err := core.ErrFallback
	if f := e.fallbacks.cause; f != nil {
		if cause := f(); cause != nil {
			err = cause
		}
	}
	e.reportAs(ctx, err, events.FallbackDecides)
}

func (e *engine) isClosed() bool { return e.life.Err() != nil }

// sleep waits for d. It returns an error if ctx or the limiter ends before, and at once
// if the limiter is being shut down and will have ended by then.
func (e *engine) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	due, draining := time.Now().Add(d), e.queue.Draining()

	// A limiter that is being shut down lets those wait on whose turn comes before its end.
	for {
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.life.Done():
			return ErrClosed
		case <-draining:
			if e.queue.EndsBy(due) {
				return ErrClosed
			}
			draining = nil
		}
	}
}

// giveBack carries out refunds at the end of a request, after the ops that settle it. Leases
// that the store fails to release are queued.
func (e *engine) giveBack(ctx context.Context, undo []core.Op, settled int) {
	if out := e.repay(ctx, undo); out != nil {
		e.notifyUnits(undo, out, settled)
	}
}

// repay is giveBack of units that no hook knows of. It returns the decisions, nil if there
// are none.
func (e *engine) repay(ctx context.Context, undo []core.Op) []core.Decision {
	if len(undo) == 0 {
		return nil
	}

	// The client may have left, which does not make its units the limiter's.
	ctx, cancel := cleanupContext(ctx)
	defer cancel()

	out := make([]core.Decision, len(undo))
	if err := e.apply(ctx, undo, out); err != nil {
		e.addReleases(undo)
		e.report(ctx, err)
		return nil
	}

	e.queue.WakeForReleases(undo)
	return out
}

// addReleases queues the leases among ops, which could not be undone, for release.
func (e *engine) addReleases(ops []core.Op) {
	q := &e.releases
	q.mu.Lock()
	defer q.mu.Unlock()

	// The queue is bounded, and a lease that finds no room ends with its period.
	now := time.Now()
	for _, op := range ops {
		if op.Lease != "" && len(q.queued) < maxReleases {
			q.queued = append(q.queued, queuedRelease{op, now.Add(op.Limit.Period)})
		}
	}

	if len(q.queued) > 0 && !q.busy {
		q.busy, q.pause = true, minReleasePause
		time.AfterFunc(q.pause, e.runReleases)
	}
}

// runReleases releases the queued leases one by one, until the store fails again.
func (e *engine) runReleases() {
	for !e.isClosed() {
		op, ok := e.releases.next(time.Now())
		if !ok {
			return
		}

		// One at a time: the store has just failed, and may be busy.
		ctx, cancel := context.WithTimeout(e.life, cleanupTimeout)
		err := e.apply(ctx, []core.Op{op}, make([]core.Decision, 1))
		cancel()

		if err != nil {
			e.releases.retry(e.runReleases)
			return
		}
		e.queue.WakeForReleases([]core.Op{op})
		e.releases.done()
	}
}

// diagnoseOnce starts the diagnosis of the store, unless it is running or not due.
// Its goroutine ends with Close or after a while.
func (e *engine) diagnoseOnce() {
	if e.diagnosis.May() {
		e.diagnoseIfDue()
	}
}

func (e *engine) diagnoseIfDue() {
	if !e.diagnosis.ShouldRun() || e.isClosed() {
		return
	}
	if e.background != nil {
		go e.diagnose()
	}
}

func (e *engine) diagnose() {
	defer func() {
		if v := recover(); v != nil {
			e.report(e.life, fmt.Errorf("diagnosis: %w", panicked(v)))
		}
	}()
	e.diagnosis.Run(e.life, e.fallbacks.report.Diagnose, e.set.Load().takes(), e.findings)
}

// background runs the calls of the store that no answer waits for. A nil background
// runs each before run returns.
type background struct {
	slots chan struct{} // one for each call in progress
	once  sync.Once
}

// maxBackground is the maximum number of calls of a limiter in the background.
const maxBackground = 1024

func newBackground() *background {
	return &background{slots: make(chan struct{}, maxBackground)}
}

// run calls f in a goroutine, or itself if maxBackground calls are in progress or after
// end. f must not panic.
func (b *background) run(f func()) {
	if b == nil {
		f()
		return
	}

	// Without a slot the caller pays, which bounds the goroutines and slows down what makes them.
	select {
	case b.slots <- struct{}{}:
		go func() {
			f()
			<-b.slots
		}()
	default:
		f()
	}
}

// end waits until no call is in progress, but at most for d. It keeps all slots that it
// gets, so that run then calls f itself. Only the first end waits.
func (b *background) end(d time.Duration) {
	if b == nil {
		return
	}
	b.once.Do(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()

		// Each slot that is free is taken, so no call is in progress once all are.
		for range maxBackground {
			select {
			case b.slots <- struct{}{}:
			case <-timer.C:
				return
			}
		}
	})
}
