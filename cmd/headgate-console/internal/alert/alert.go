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
	"github.com/headgate/headgate/cmd/headgate-console/internal/worker"
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
	alarm      Alarm
	logger     *slog.Logger
	send       *worker.Worker
	check      *worker.Worker
	deliveries sync.WaitGroup

	mu sync.Mutex
	// busy has the webhooks to which a message is being sent. Guarded by mu.
	busy map[string]bool
}

// Start starts a worker. A nil logger means slog.Default().
func Start(a Alarm, logger *slog.Logger) *Worker {
	w := &Worker{alarm: a, logger: cmp.Or(logger, slog.Default()), busy: map[string]bool{}}

	// A message that is due at once waits until there is something to wake.
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send = worker.Start(worker.Task{
		Run: w.sendDue, Logger: logger,
		Failing: "messages of alerts cannot be read", Working: "messages of alerts are read again",
	})

	// What a check has found is sent at once, and not at the end of a pause.
	w.check = worker.Start(worker.Task{
		Run: func(ctx context.Context) (time.Duration, error) {
			defer w.send.Wake()
			return every, a.Check(ctx)
		},
		Timeout: timeout, Logger: logger,
		Failing: "alerts cannot be checked", Working: "alerts are checked again",
	})
	return w
}

// Close stops the worker and waits for its end. Another worker, or the next one, sends the messages
// that are left. Close may be called again.
func (w *Worker) Close() error {
	err := errors.Join(w.check.Close(), w.send.Close())
	w.deliveries.Wait()
	return err
}

// sendDue begins to send what is due.
func (w *Worker) sendDue(ctx context.Context) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	due, err := w.alarm.Due(bounded)

	// Nothing waits for a message here: a slow receiver holds up only what is sent to itself.
	for _, d := range due {
		w.deliver(ctx, d)
	}
	return pause, err
}

// deliver sends a message in a goroutine, unless one is being sent to the same webhook. The
// goroutine ends with the worker.
func (w *Worker) deliver(ctx context.Context, d service.Due) {
	w.mu.Lock()
	defer w.mu.Unlock()

	// Due names the message again once the one before it has arrived or failed.
	if w.busy[d.Webhook] {
		return
	}

	w.busy[d.Webhook] = true
	w.deliveries.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		err := w.alarm.Deliver(bounded, d.ID)
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
			w.send.Wake()
		}
	})
}
