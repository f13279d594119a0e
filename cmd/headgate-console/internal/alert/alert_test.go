package alert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// fake is an alarm with messages that are due at times after its start.
type fake struct {
	mu     sync.Mutex
	began  time.Time
	checks []time.Duration
	due    map[string]time.Duration // by the id of a message, whose first letter is its webhook
	slow   map[string]time.Duration // how long the messages of a webhook take
	sent   []string
	err    error
}

func (f *fake) Check(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checks = append(f.checks, time.Since(f.began))
	return f.err
}

func (f *fake) Due(context.Context) (list []service.Due, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	now := time.Since(f.began)
	chosen := map[string]bool{}

	ids := []string{}
	for id := range f.due {
		ids = append(ids, id)
	}
	slices.Sort(ids)

	// Of each webhook only the first message is due, as a webhook gets one at a time.
	for _, id := range ids {
		hook := id[:1]
		if f.due[id] <= now && !chosen[hook] {
			chosen[hook] = true
			list = append(list, service.Due{ID: id, Webhook: hook})
		}
	}
	return list, f.err
}

func (f *fake) Deliver(ctx context.Context, id string) error {
	f.mu.Lock()
	slow := f.slow[id[:1]]
	f.mu.Unlock()

	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return ctx.Err()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.due, id)
	f.sent = append(f.sent, fmt.Sprintf("%s at %s", id, time.Since(f.began)))
	return nil
}

// running runs a worker for a time.
func running(t *testing.T, f *fake, logger *slog.Logger, long time.Duration, f2 func()) {
	t.Helper()

	f.began = time.Now()
	w := Start(f, logger)

	time.Sleep(long)
	synctest.Wait()
	if f2 != nil {
		f2()
	}

	// Twice, as Close may be called again.
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWorkerChecksEveryQuarterOfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		running(t, f, nil, 46*time.Second, nil)
		want := []time.Duration{0, 15 * time.Second, 30 * time.Second, 45 * time.Second}
		if !slices.Equal(f.checks, want) {
			t.Errorf("checks at %v, want %v", f.checks, want)
		}
	})
}

// A webhook that hangs delays no message to another, and has one message at a time.
func TestWorkerSendsBesideAWebhookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			due: map[string]time.Duration{"a1": 0, "a2": 0, "b1": 0, "b2": 1500 * time.Millisecond,
				"b3": 1500 * time.Millisecond},
			slow: map[string]time.Duration{"a": 10 * time.Second},
		}
		running(t, f, nil, 25*time.Second, nil)
		want := []string{"b1 at 0s", "b2 at 2s", "b3 at 2s", "a1 at 10s", "a2 at 20s"}
		if !slices.Equal(f.sent, want) {
			t.Errorf("it sent %q, want %q", f.sent, want)
		}
	})
}

func TestWorkerCloseBreaksAnAttemptOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{due: map[string]time.Duration{"a1": 0}, slow: map[string]time.Duration{"a": 20 * time.Second}}
		running(t, f, nil, time.Second, nil)
		if took := time.Since(f.began); took != time.Second || len(f.sent) != 0 {
			t.Errorf("it took %s and sent %q", took, f.sent)
		}
	})
}

func TestWorkerGoesOnAfterAnOutageAndLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer

		// The message is due after the outage, which covers the first three checks.
		f := &fake{err: errors.New("away"), due: map[string]time.Duration{"a1": 40 * time.Second}}
		running(t, f, slog.New(slog.NewTextHandler(&log, nil)), 31*time.Second, func() {
			f.mu.Lock()
			f.err = nil
			f.mu.Unlock()
			time.Sleep(20 * time.Second)
			synctest.Wait()
		})

		if want := []string{"a1 at 40s"}; !slices.Equal(f.sent, want) {
			t.Errorf("it sent %q, want %q", f.sent, want)
		}

		// Checks and messages fail on their own, and each logs its outage and its end once.
		for _, text := range []string{"cannot be checked", "are checked again", "cannot be read", "are read again"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q is %d times in the log\n%s", text, n, log.String())
			}
		}
	})
}
