package limiter_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// refuse returns a limiter that has refused n requests, and their admissions.
func refuse(t *testing.T, ctx context.Context, n int) (*limiter.Limiter, []*limiter.Admission) {
	t.Helper()
	l := newLimiter(t, newTicking(), rule(t, "a", "1/1h"))
	admit(l)
	list := make([]*limiter.Admission, n)
	for i := range list {
		list[i] = l.Admit(&test.Request{Ctx: ctx})
	}
	return l, list
}

// held returns how long the answer takes.
func held(template limiter.Template, a *limiter.Admission) time.Duration {
	start := time.Now()
	template(a)
	a.Done(429)
	return time.Since(start)
}

func TestTarpitHoldsAtMostMaxHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, list := refuse(t, t.Context(), 5)
		template := limiter.MustTarpit(7*time.Second, 3, limiter.PlainText)
		spans := make([]time.Duration, len(list))
		// Three answers are held at once. The fourth finds no room and is sent at once.
		var all sync.WaitGroup
		for i, a := range list[:4] {
			all.Go(func() { spans[i] = held(template, a) })
			synctest.Wait()
		}
		all.Wait()
		spans[4] = held(template, list[4]) // there is room again

		for i, want := range []time.Duration{7, 7, 7, 0, 7} {
			if spans[i] != want*time.Second {
				t.Errorf("request %d was held for %s, want %d s", i, spans[i], want)
			}
		}
	})
}

func TestTarpitEndsWithTheClientAndTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		template := limiter.MustTarpit(time.Minute, 1, limiter.PlainText)
		ctx, leave := context.WithCancel(t.Context())
		l, list := refuse(t, ctx, 3)
		time.AfterFunc(2*time.Second, leave)
		if got := held(template, list[0]); got != 2*time.Second {
			t.Errorf("held %s for a client that left after 2 s", got)
		}

		// The second limiter is closed while it holds an answer. After that none is held.
		l, list = refuse(t, t.Context(), 3)
		time.AfterFunc(3*time.Second, func() { _ = l.Close() })
		if got := held(template, list[0]); got != 3*time.Second {
			t.Errorf("held %s by a limiter that was closed after 3 s", got)
		}

		if got := held(template, list[1]); got != 0 {
			t.Errorf("held %s by a limiter that is closed", got)
		}
		if got := held(template, failed()); got != 0 {
			t.Errorf("held %s by no limiter", got)
		}
	})
}

func TestTarpitAnswersByItsTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, list := refuse(t, t.Context(), 1)
		defer list[0].Done(429)
		if got := limiter.MustTarpit(time.Second, 1, limiter.MustRedirect("/busy"))(list[0]); got.Status != 303 {
			t.Errorf("%+v", got)
		}
	})
}

func TestTarpitReportsEveryMistake(t *testing.T) {
	for _, delay := range []time.Duration{0, -1, time.Minute + 1} {
		_, err := limiter.Tarpit(delay, 0, nil)
		if err == nil || !contains(err, "the delay") || !contains(err, "maxHeld 0 is below 1") ||
			!contains(err, "then is nil") {
			t.Errorf("%v", err)
		}
	}
	if _, err := limiter.Tarpit(time.Minute, 1, limiter.JSON); err != nil {
		t.Error(err)
	}
}
