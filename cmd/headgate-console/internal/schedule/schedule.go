// Package schedule makes changes of policies at their time. [Start] starts the [Worker] that does
// so for a [Calendar].
package schedule

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"
)

// Calendar makes changes, such as a service.Calendar. Several workers may use one at the same time.
type Calendar interface {
	// Run makes all changes that are due, and returns how long it is until the next one is.
	// waiting is false if none waits.
	Run(ctx context.Context) (wait time.Duration, waiting bool, err error)
}

const (
	// check is the longest time between two runs, because another program may schedule a
	// change without a Wake.
	check = 5 * time.Second

	// retry is the pause after a failure.
	retry = 2 * time.Second

	// timeout bounds a run.
	timeout = time.Minute
)

// Worker runs a calendar in a goroutine of its own, until Close. It is safe for concurrent use.
type Worker struct {
	calendar Calendar
	logger   *slog.Logger
	wake     chan struct{}
	stop     context.CancelFunc
	done     chan struct{}
}

// Start starts a worker, which makes at once what is overdue. A nil logger means slog.Default().
func Start(c Calendar, logger *slog.Logger) (*Worker, error) {
	if c == nil {
		return nil, errors.New("schedule: the calendar is nil")
	}

	ctx, stop := context.WithCancel(context.Background())
	w := &Worker{
		calendar: c, logger: cmp.Or(logger, slog.Default()),
		wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
	}
	go w.run(ctx)
	return w, nil
}

// Wake makes the worker look for what was scheduled or canceled. It returns at once.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Close stops the worker and waits for its end. The next worker makes what is due by then. Close
// may be called again.
func (w *Worker) Close() error {
	w.stop()
	<-w.done
	return nil
}

// run makes what is due until ctx ends.
func (w *Worker) run(ctx context.Context) {
	defer close(w.done)

	failing := false
	for ctx.Err() == nil {
		wait, err := w.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}

		// A failure is logged when it begins and when it ends: between them it is the same every
		// two seconds.
		if err != nil && !failing {
			w.logger.Warn("scheduled changes cannot be made; trying again until it works", "error", err)
		}
		if err == nil && failing {
			w.logger.Info("scheduled changes are made again")
		}
		failing = err != nil

		w.sleep(ctx, wait)
	}
}

// runOnce runs the calendar, and returns how long to sleep.
func (w *Worker) runOnce(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	wait, waiting, err := w.calendar.Run(ctx)
	switch {
	case err != nil:
		return retry, err
	case !waiting:
		return check, nil
	}
	return min(wait, check), nil
}

// sleep waits until d has passed, Wake was called or ctx ends.
func (w *Worker) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-w.wake:
	}
}
