// This file notifies the Observer and the Hooks of a Config.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/telling"
	"github.com/headgate/headgate/internal/waitline"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/findings"
)

// notifier reports to the Observer and the Hooks.
type notifier struct {
	observer events.Observer
	counter  events.Counter // the observer, nil unless it counts
	hooks    *events.Hooks  // never nil
	records  sync.Pool      // of *events.Request
	bans     banLog
	top      int // Config.Top
}

func (n *notifier) start(c *Config) {
	n.observer, n.top = c.Observer, c.Top
	n.counter, _ = c.Observer.(events.Counter)
	n.records.New = func() any { return new(events.Request) }
}

func (n *notifier) notifyQueue(k waitline.Key, change int) {
	if n.hooks.Queue != nil {
		n.hooks.Queue(events.Queue{Rule: k.Rule, Change: change})
	}
}

// notifyUnits reports to the hooks units that were given back or charged by ops, of which the
// first settle a request.
func (n *notifier) notifyUnits(ops []core.Op, out []core.Decision, settled int) {
	if n.hooks.Units == nil {
		return
	}

	for i := range ops {
		op := &ops[i]
		e := events.Units{Rule: op.Rule, Key: op.Key, Flow: events.Refunded, Units: op.Cost}

		// A lease has an event of its own.
		switch {
		case op.Limit.Leased():
			continue
		case op.Verb == core.Debit:
			e.Flow, e.Units = events.Debited, out[i].Taken
		case i < settled:
			e.Flow = events.Settled
		}
		n.hooks.Units(e)
	}
}

// notifyBans reports to the hooks the bans that the request has met and that were not reported yet.
// They are imposed by Override, or are those of rules.
func (n *notifier) notifyBans(ops []core.Op, out []core.Decision, imposed bool) {
	for i := range ops {
		op, d := &ops[i], &out[i]
		if !d.Banned {
			continue
		}
		until := d.At + d.RetryAfter.Microseconds()
		if n.bans.isNew(bannedKey{op.Rule, op.Key, imposed}, d.At, until) {
			n.hooks.Ban(events.Ban{Rule: op.Rule, Key: op.Key, For: d.RetryAfter})
		}
	}
}

// notifyLifted reports to the hooks the bans that ops have lifted.
func (n *notifier) notifyLifted(ops []core.Op) {
	if n.hooks.Ban == nil {
		return
	}
	for i := range ops {
		op := &ops[i]
		if op.Ban != nil && n.bans.ends(bannedKey{op.Rule, op.Key, false}) {
			n.hooks.Ban(events.Ban{Rule: op.Rule, Key: op.Key, Lifted: true})
		}
	}
}

// maxBanLog is how many bans a limiter remembers to have reported.
const maxBanLog = 4096

// bannedKey is a key under the ban of a rule, or one that its Override imposed.
type bannedKey struct {
	rule, key string
	imposed   bool
}

// banLog knows the bans that were reported. The zero value is ready for use.
type banLog struct {
	mu    sync.Mutex
	until map[bannedKey]int64 // by the clock of the store
}

// isNew reports whether the ban is met for the first time.
func (b *banLog) isNew(k bannedKey, now, until int64) bool {
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

// ends forgets a ban, and reports whether it was known.
func (b *banLog) ends(k bannedKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.until[k]
	delete(b.until, k)
	return known
}

// reports are where the errors and the findings of a limiter go: to its log, its Status and
// Config.OnError.
type reports struct {
	onError  func(context.Context, error)
	log      *telling.Log
	findings *telling.Findings
	failures *telling.Failures
}

func (r *reports) start(c *Config) {
	r.onError = c.OnError
	r.log = telling.NewLog(c.Logger, c.Name, func(v any) {
		r.report(context.Background(), fmt.Errorf("log: %w", panicked(v)))
	})
	r.findings, r.failures = telling.NewFindings(r.log), telling.NewFailures(r.log)
}

// report logs or counts err and calls OnError.
func (r *reports) report(ctx context.Context, err error) { r.reportAs(ctx, err, events.StoreDecides) }

// reportAs is report of an error that a request met, about which by decided.
func (r *reports) reportAs(ctx context.Context, err error, by events.Mode) {
	if err == nil {
		return
	}
	r.logFailure(ctx, err, by)
	r.callOnError(ctx, err)
}

// logFailure logs or counts err. Errors after a client has left are not logged: they say
// nothing about the store.
func (r *reports) logFailure(ctx context.Context, err error, by events.Mode) {
	canceled := ctx != nil && ctx.Err() == context.Canceled
	if !canceled && !errors.Is(err, errNoKey) { // which warnNoKey reports
		r.failures.Record(kindOf(err), err, by)
	}
}

// callOnError calls OnError. A panic of it is dropped, because there is no other function to
// report it to.
func (r *reports) callOnError(ctx context.Context, err error) {
	if r.onError == nil {
		return
	}
	defer func() { _ = recover() }()
	r.onError(ctx, err)
}

// warnNoKey logs, once, that requests fail because a rule has no Key function.
func (r *reports) warnNoKey(err error) {
	r.findings.Add(core.Finding{Code: findings.NoKey, Rule: ruleOf(err), Text: "a rule has no Key function, so the " +
		"limiter cannot decide about requests: each is answered with a 503; keyfuncs.RemoteIP counts by the " +
		"address of the client"})
}

// The texts of the kinds.
const (
	textStore         = "the store cannot decide, so OnStoreError does"
	textFallback      = "the store cannot decide, so its fallback does"
	textOverload      = "more comes than the store decides in time, so OnStoreError decides the rest"
	textOverloadLocal = "more comes than the store decides in time, so its fallback decides the rest"
	textRule          = "a rule cannot be evaluated, so its OnStoreError decides"
	textLease         = "a lease was not renewed in time, so its limit may be exceeded"
	textPanic         = "a function of the program panicked"
)

func kindOf(err error) telling.Kind {
	var panicked *PanicError
	switch rule := ruleOf(err); {
	case errors.Is(err, ErrLeaseLost):
		return telling.Kind{Text: textLease, Rule: rule}
	case rule != "":
		return telling.Kind{Text: textRule, Rule: rule}
	case errors.Is(err, core.ErrFallback) && errors.Is(err, core.ErrOverload):
		return telling.Kind{Text: textOverloadLocal}
	case errors.Is(err, core.ErrFallback):
		return telling.Kind{Text: textFallback}
	case errors.Is(err, core.ErrOverload):
		return telling.Kind{Text: textOverload}
	case errors.As(err, &panicked):
		return telling.Kind{Text: textPanic}
	}
	return telling.Kind{Text: textStore}
}
