// Package collect copies the counts of finished minutes from Redis to the database. Several
// consoles may do so at the same time: each count is added once. [Start] starts the worker that
// does so.
package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/worker"
	"github.com/headgate/headgate/policy/stats"
)

// Source is where the instances write their counts. Its methods are safe for concurrent use.
type Source interface {
	// Changed returns the minutes of an application whose counts have changed since an
	// instant of the source's clock, and that clock.
	Changed(ctx context.Context, app string, since time.Time) (minutes []time.Time, now time.Time, err error)

	// Read returns the counts of minutes.
	Read(ctx context.Context, app string, minutes []time.Time) ([]stats.Minute, error)
}

// Ledger is where the counts are kept, such as a service.Ledger.
type Ledger interface {
	Apps(ctx context.Context) ([]string, error)
	Collected(ctx context.Context, app string) (time.Time, error)
	SetCollected(ctx context.Context, app string, until time.Time) error
	Record(ctx context.Context, app string, m stats.Minute) error
	AddUp(ctx context.Context)
	Prune(ctx context.Context, now time.Time, last int64) (next int64, err error)
}

const (
	// overlap is how much of what was collected is looked at again, for a server that took
	// the place of one whose clock was ahead.
	overlap = 10 * time.Second

	// settle is the shortest time from the end of a minute to its collection, in which
	// instances write the rest of it, and spread what is added to it by chance, so that not
	// all consoles collect at once.
	settle = 2 * time.Second
	spread = 8 * time.Second

	// retry is the longest pause after a failure; the next ones are longer, up to a minute.
	retry = 5 * time.Second

	// atOnce is how many minutes are read with one call.
	atOnce = 15

	// pruneParts is how many parts of the series are pruned after each collection.
	pruneParts = 20
)

// timeout bounds the collection of an application.
const timeout = time.Minute

// collector is what a worker does.
type collector struct {
	source Source
	ledger Ledger
	begun  bool  // used by run only
	last   int64 // the series that was pruned last; used by run only
}

// Start starts a worker, which collects at once what is missing. What it leaves when it is closed
// is collected by another worker, or the next one. A nil logger means slog.Default().
func Start(source Source, ledger Ledger, logger *slog.Logger) *worker.Worker {
	c := &collector{source: source, ledger: ledger}
	return worker.Start(worker.Task{
		Run: c.run, Retry: retry, MaxRetry: time.Minute, Logger: logger,
		Failing: "counts cannot be collected", Working: "counts are collected again",
	})
}

// run collects once, and returns the time until the next minute has ended by the clock of Redis,
// and not by that of this machine.
func (c *collector) run(ctx context.Context) (time.Duration, error) {
	// What the database has is added up before Redis is asked, so that no page waits for either.
	if !c.begun {
		c.ledger.AddUp(ctx)
		c.begun = true
	}

	now, err := c.collect(ctx)
	if ctx.Err() != nil {
		return 0, err
	}
	// After a failure too: other applications may have been collected.
	c.ledger.AddUp(ctx)
	return now.Truncate(time.Minute).Add(time.Minute + settle + rand.N(spread)).Sub(now), err
}

// collect collects what is missing of all applications, and prunes some of what is too old.
// It returns the source's clock.
func (c *collector) collect(ctx context.Context) (now time.Time, err error) {
	apps, err := c.ledger.Apps(ctx)
	if err != nil {
		return now, err
	}

	// A failure with one application does not hold up the others.
	var errs []error
	for _, app := range apps {
		at, err := c.collectApp(ctx, app)
		if err != nil {
			errs = append(errs, fmt.Errorf("the counts of %q: %w", app, err))
			continue
		}
		now = at
	}

	if now.IsZero() { // there are no applications, or no answers
		return time.Now(), errors.Join(errs...)
	}

	// Pruning is spread over the collections, a few series each, so that none takes long.
	for range pruneParts {
		if c.last, err = c.ledger.Prune(ctx, now, c.last); err != nil || c.last == 0 {
			errs = append(errs, err)
			break
		}
	}
	return now, errors.Join(errs...)
}

// collectApp collects the finished minutes of an application that have changed.
func (c *collector) collectApp(ctx context.Context, app string) (now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	until, err := c.ledger.Collected(ctx, app)
	if err != nil {
		return now, err
	}

	// A minute that was collected before is among those that have changed if it has grown since.
	minutes, now, err := c.source.Changed(ctx, app, until)
	if err == nil && until.After(now) { // the server's clock was set back
		until = time.Time{}
		minutes, now, err = c.source.Changed(ctx, app, until)
	}
	if err != nil {
		return now, err
	}

	// The current minute still grows, and is left to the next collection.
	current := now.Truncate(time.Minute)
	finished := minutes[:0]
	for _, m := range minutes {
		if m.Before(current) {
			finished = append(finished, m)
		}
	}

	for len(finished) > 0 {
		n := min(atOnce, len(finished))
		if err := c.record(ctx, app, finished[:n]); err != nil {
			return now, err
		}
		finished = finished[n:]
	}

	// The instant is written last: a collection that was cut short is made again, and what it has
	// recorded is not counted twice.
	if next := current.Add(-overlap); !next.Equal(until) {
		return now, c.ledger.SetCollected(ctx, app, next)
	}
	return now, nil
}

// record adds the counts of minutes to those in the database.
func (c *collector) record(ctx context.Context, app string, wanted []time.Time) error {
	minutes, err := c.source.Read(ctx, app, wanted)
	if err != nil {
		return err
	}

	for _, m := range minutes {
		if err := c.ledger.Record(ctx, app, m); err != nil {
			return err
		}
	}
	return nil
}
