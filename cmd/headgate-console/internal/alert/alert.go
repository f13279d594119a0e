// Package alert checks the conditions of alerts and sends their messages, at their times. [Start]
// starts the [Worker] that does so for an [Alarm].
package alert

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// Alarm checks and sends, such as a service.Alarm. Its methods are safe for concurrent use, and
// several workers may use one at the same time.
type Alarm interface {
	// Check looks at the conditions once.
	Check(ctx context.Context) error

	// Due returns the messages that are to be sent now, at most one of each webhook.
	Due(ctx context.Context) ([]service.Due, error)

	// Deliver tries to send a message once, unless another worker does.
	Deliver(ctx context.Context, id string) error
}

const (
	// every is the time between two checks.
	every = 15 * time.Second

	// pause is the longest time between two looks for messages: some become due, and another
	// console may have left some.
	pause = time.Second

	// timeout bounds a check, and a message with all that is written about it.
	timeout = 30 * time.Second
)

// Worker checks and sends in goroutines of its own, until Close. Messages to different webhooks
// are sent at the same time, and those to one webhook one after the other. It is safe for
// concurrent use.
type Worker struct {
	alarm  Alarm
	logger *slog.Logger
	wake   chan struct{}
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu sync.Mutex
	// busy has the webhooks to which a message is being sent. Guarded by mu.
	busy map[string]bool
}

// Start starts a worker. A nil logger means slog.Default().
func Start(a Alarm, logger *slog.Logger) (*Worker, error) {
	if a == nil {
		return nil, errors.New("alert: the alarm is nil")
	}

	ctx, stop := context.WithCancel(context.Background())
	w := &Worker{
		alarm: a, logger: cmp.Or(logger, slog.Default()),
		wake: make(chan struct{}, 1), stop: stop, busy: map[string]bool{},
	}
	w.work.Go(func() { w.check(ctx) })
	w.work.Go(func() { w.send(ctx) })
	return w, nil
}

// Close stops the worker and waits for its end. Another worker, or the next one, sends the messages
// that are left. Close may be called again.
func (w *Worker) Close() error {
	w.stop()
	w.work.Wait()
	return nil
}

// check checks the conditions until ctx ends.
func (w *Worker) check(ctx context.Context) {
	failures := w.failures("alerts cannot be checked", "alerts are checked again")
	for ctx.Err() == nil {
		err := bounded(ctx, w.alarm.Check)
		if ctx.Err() != nil {
			return
		}

		failures(err)

		// What the check has found is sent at once, and not at the end of a pause.
		w.wakeUp()
		sleep(ctx, every, nil)
	}
}

// wakeUp makes the worker look for messages.
func (w *Worker) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// send sends what is due until ctx ends.
func (w *Worker) send(ctx context.Context) {
	failures := w.failures("messages of alerts cannot be read", "messages of alerts are read again")
	for ctx.Err() == nil {
		var due []service.Due
		err := bounded(ctx, func(ctx context.Context) (err error) {
			due, err = w.alarm.Due(ctx)
			return err
		})

		// A failure because the worker is being closed is none.
		if ctx.Err() != nil {
			return
		}
		failures(err)

		// Nothing waits for a message here: a slow receiver holds up only what is sent to itself.
		for _, d := range due {
			w.deliver(ctx, d)
		}
		sleep(ctx, pause, w.wake)
	}
}

// deliver sends a message in a goroutine, unless one is being sent to the same webhook.
func (w *Worker) deliver(ctx context.Context, d service.Due) {
	w.mu.Lock()
	defer w.mu.Unlock()

	// Due names the message again once the one before it has arrived or failed.
	if w.busy[d.Webhook] {
		return
	}

	w.busy[d.Webhook] = true
	w.work.Go(func() {
		err := bounded(ctx, func(ctx context.Context) error { return w.alarm.Deliver(ctx, d.ID) })
		if err != nil && ctx.Err() == nil {
			w.logger.WarnContext(ctx, "what became of a message of an alert cannot be written",
				"id", d.ID, "error", err)
		}

		// The webhook is free again before the look, or else its next message would wait for a
		// pause.
		w.mu.Lock()
		delete(w.busy, d.Webhook)
		w.mu.Unlock()
		if err == nil { // else the database is away, and the next look is soon enough
			w.wakeUp()
		}
	})
}

// failures returns a function that logs when something begins to fail, and when it works again.
func (w *Worker) failures(begins, ends string) func(error) {
	failing := false
	return func(err error) {
		if err != nil && !failing {
			w.logger.Warn(begins+"; trying again until it works", "error", err)
		}
		if err == nil && failing {
			w.logger.Info(ends)
		}
		failing = err != nil
	}
}

func bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
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
