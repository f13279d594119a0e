package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// maxTarpit is the longest delay of [Tarpit].
const maxTarpit = time.Minute

// Tarpit holds a request for delay before it answers with then, so that a
// client which does not heed Retry-After gets slower. delay is above 0 and at
// most a minute. At most maxHeld requests, 1 or more, are held at the same
// time. Further requests are answered at once, and so are held ones when the
// client leaves or the limiter is closed. A held request costs its goroutine and
// its connection.
//
// The error lists every mistake. Each template that Tarpit returns has its own
// count of held requests.
func Tarpit(delay time.Duration, maxHeld int, then Template) (Template, error) {
	var errs []error
	if delay <= 0 || delay > maxTarpit {
		errs = append(errs, fmt.Errorf("Tarpit: the delay %s is not above 0 and at most %s", delay, textform.Duration(maxTarpit)))
	}
	if maxHeld < 1 {
		errs = append(errs, fmt.Errorf("Tarpit: maxHeld %d is below 1", maxHeld))
	}
	if then == nil {
		errs = append(errs, errors.New("Tarpit: then is nil"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	t := &tarpit{delay: delay, max: int64(maxHeld), then: then}
	return t.answer, nil
}

// MustTarpit is [Tarpit] for program text. It panics where that returns an
// error.
func MustTarpit(delay time.Duration, maxHeld int, then Template) Template {
	return must(Tarpit(delay, maxHeld, then))
}

type tarpit struct {
	delay time.Duration
	max   int64
	then  Template
	held  atomic.Int64
}

func (t *tarpit) answer(a *Admission) Answer {
	t.hold(a.ctx, a.result.limiter)
	return t.then(a)
}

func (t *tarpit) hold(ctx context.Context, l *Limiter) {
	if l == nil || ctx == nil {
		return
	}
	defer t.held.Add(-1)
	if t.held.Add(1) <= t.max {
		_ = l.sleep(ctx, t.delay) // the answer follows in any case
	}
}
