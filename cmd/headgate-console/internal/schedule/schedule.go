// Package schedule ends the pauses of policies at their time. [Start] starts the [Worker] that does
// so for a [Calendar].
package schedule

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"
)

// Calendar ends pauses, such as a service.Calendar. Several workers may use one at the same time.
type Calendar interface {
	// Run ends all pauses that are due.
	Run(ctx context.Context) error
}

const (
	// pause is between two runs, and so how late one may be.
	pause = 5 * time.Second

	// timeout bounds a run.
	timeout = time.Minute
)

// Worker runs a calendar in a goroutine of its own, until Close.
type Worker struct {
	stop context.CancelFunc
	done chan struct{}
}

// Start starts a worker, which makes at once what is overdue. A nil logger means slog.Default().
func Start(c Calendar, logger *slog.Logger) (*Worker, error) {
	if c == nil {
		return nil, errors.New("schedule: the calendar is nil")
	}

	ctx, stop := context.WithCancel(context.Background())
	w := &Worker{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		run(ctx, c, cmp.Or(logger, slog.Default()))
	}()
	return w, nil
}

// Close stops the worker and waits for its end. Close may be called again.
func (w *Worker) Close() error {
	w.stop()
	<-w.done
	return nil
}

// run makes what is due until ctx ends.
func run(ctx context.Context, c Calendar, logger *slog.Logger) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()

	for failing := false; ; {
		err := runOnce(ctx, c)
		if ctx.Err() != nil {
			return
		}

		// A failure is logged when it begins and when it ends: between them it is the same again
		// and again.
		if err != nil && !failing {
			logger.Warn("the pauses of policies cannot be ended; trying again until it works", "error", err)
		}
		if err == nil && failing {
			logger.Info("the pauses of policies are ended again")
		}
		failing = err != nil

		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func runOnce(ctx context.Context, c Calendar) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.Run(ctx)
}
