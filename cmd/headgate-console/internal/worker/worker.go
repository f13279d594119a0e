// Package worker does again and again what the console does beside its pages. [Start] starts a
// [Worker] for a [Task].
package worker

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Task is what a [Worker] does. Run must be set.
type Task struct {
	// Run does it once, and returns the pause until the next time. An error is a failure.
	Run func(ctx context.Context) (pause time.Duration, err error)

	// Timeout bounds a run; 0 means that it has no bound of its own.
	Timeout time.Duration

	// Retry is the longest pause after a failure, which Wake does not shorten. It doubles with each
	// further one up to MaxRetry. A part of it is random, so that several consoles do not try again
	// together. 0 means the pause that Run returns.
	Retry, MaxRetry time.Duration

	// Failing and Working are logged when runs begin to fail and when they work again; "" means
	// nothing.
	Failing, Working string

	// Logger is told so; nil means slog.Default().
	Logger *slog.Logger
}

// Worker does a task in a goroutine of its own, until Close. It is safe for concurrent use.
type Worker struct {
	task Task
	wake chan struct{}
	stop context.CancelFunc
	work sync.WaitGroup
}

// Start starts a worker, which does its task at once.
func Start(t Task) *Worker {
	t.Logger = cmp.Or(t.Logger, slog.Default())
	ctx, stop := context.WithCancel(context.Background())
	w := &Worker{task: t, wake: make(chan struct{}, 1), stop: stop}
	w.work.Go(func() { w.run(ctx) })
	return w
}

// Wake ends the pause that goes on, or the next one. It does not block.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // it will run anyway
	}
}

// Close stops the worker and waits for its end. Close may be called again.
func (w *Worker) Close() error {
	w.stop()
	w.work.Wait()
	return nil
}

// run does the task until ctx ends.
func (w *Worker) run(ctx context.Context) {
	failing, retry := false, w.task.Retry
	for ctx.Err() == nil {
		pause, err := w.once(ctx)
		if ctx.Err() != nil { // a failure because the worker is closed is none
			return
		}

		// A failure is logged when it begins and when it ends: between them it is the same again
		// and again.
		switch {
		case err != nil && !failing && w.task.Failing != "":
			w.task.Logger.WarnContext(ctx, w.task.Failing+"; trying again until it works", "error", err)
		case err == nil && failing && w.task.Working != "":
			w.task.Logger.InfoContext(ctx, w.task.Working)
		}
		failing = err != nil

		if !failing || w.task.Retry == 0 {
			retry = w.task.Retry
			sleep(ctx, pause, w.wake)
			continue
		}
		sleep(ctx, retry/2+rand.N(retry/2+1), nil)
		retry = min(2*retry, w.task.MaxRetry)
	}
}

func (w *Worker) once(ctx context.Context) (time.Duration, error) {
	if w.task.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.task.Timeout)
		defer cancel()
	}
	return w.task.Run(ctx)
}

// sleep waits until d has passed, ctx ends or there is something in wake.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}
