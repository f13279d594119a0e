package telling

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/findings"
)

const (
	// diagnosisTimeout bounds Diagnose.
	diagnosisTimeout = 5 * time.Second

	// minDiagnosisPause is the pause after the first incomplete diagnosis. Each pause
	// after it is twice as long, up to maxDiagnosisPause.
	minDiagnosisPause = time.Second
	maxDiagnosisPause = time.Hour

	// diagnosisPeriod is the pause after a complete diagnosis.
	diagnosisPeriod = time.Minute

	// noDiagnosis is the instant of the next diagnosis while one is running, and for
	// diagnosisPeriod after one is complete.
	noDiagnosis = math.MaxInt64
)

// Diagnosis has a store look for mistakes in its set-up, again and again:
//
//	due      next is 0 or past    one request sets noDiagnosis, and runs it
//	running  next is noDiagnosis  until Run ends
//	paused   next is to come      after an incomplete diagnosis; requests read the clock
//	asleep   next is noDiagnosis  after a complete one; a timer makes it due
//
// While it is running or asleep, it costs a request one load of next.
type Diagnosis struct {
	started time.Time
	next    atomic.Int64  // when the store is to be asked, in nanoseconds since started
	pause   time.Duration // the latest; used only by the goroutine of the diagnosis
}

// Start lets the next request start the first diagnosis, unless off is true: then none is due.
func (d *Diagnosis) Start(now time.Time, off bool) {
	d.started = now
	if off {
		d.next.Store(noDiagnosis)
	}
}

// May reports whether Begin is to be asked. For most requests it is false.
func (d *Diagnosis) May() bool { return d.next.Load() != noDiagnosis }

// ShouldRun reports whether the caller is to run the diagnosis now. It reads the clock only
// while the store has yet to answer.
func (d *Diagnosis) ShouldRun() bool {
	due := d.next.Load()
	if due == noDiagnosis || due > 0 && time.Since(d.started) < time.Duration(due) {
		return false
	}
	return d.next.CompareAndSwap(due, noDiagnosis)
}

// Run asks diagnose about the rules, and adds what it finds to f. It ends with life or after
// diagnosisTimeout.
func (d *Diagnosis) Run(
	life context.Context, diagnose func(context.Context, []core.Op) []core.Finding, rules []core.Op, f *Findings,
) {
	ctx, cancel := context.WithTimeout(life, diagnosisTimeout)
	defer cancel()

	unanswered := false
	for _, one := range diagnose(ctx, rules) {
		if one.Code == findings.Unanswered {
			unanswered = true
			continue
		}
		f.Add(one)
	}

	// A limiter that is closed gets no further diagnosis.
	switch {
	case life.Err() != nil:
	case unanswered:
		d.later()
	default:
		d.scheduleNext()
	}
}

// later makes the first request after a pause start another diagnosis.
func (d *Diagnosis) later() {
	d.pause = min(max(2*d.pause, minDiagnosisPause), maxDiagnosisPause)
	d.next.Store(int64(time.Since(d.started) + d.pause))
}

// scheduleNext makes the first request after diagnosisPeriod start another diagnosis. A
// timer does that, so that no request reads the clock in the meantime.
func (d *Diagnosis) scheduleNext() {
	d.pause = 0
	time.AfterFunc(diagnosisPeriod, func() { d.next.Store(0) })
}
