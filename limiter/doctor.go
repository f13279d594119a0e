package limiter

import (
	"context"
	"fmt"
	"github.com/headgate/headgate/core"
	"log/slog"
	"maps"
	"math"
	"sync/atomic"
	"time"
)

const (
	// maxFindings bounds how many codes are told.
	maxFindings = 64

	// diagnosisTimeout bounds Diagnose.
	diagnosisTimeout = 5 * time.Second

	// shortPause is for how long a store that could not look at everything is left
	// alone. Each pause after it is twice as long, up to longPause.
	shortPause = time.Second
	longPause  = time.Hour

	// notAgain is when a store is asked that is being asked, or has answered.
	notAgain = math.MaxInt64
)

// doctor tells every finding once.
type doctor struct {
	logger *slog.Logger // nil: the default one at the time
	off    bool
	told   atomic.Pointer[map[string]bool] // the codes, replaced as a whole

	hired time.Time
	due   atomic.Int64  // when the store is to be asked, in nanoseconds since hired
	pause time.Duration // the latest; belongs to who asks
}

// hire makes the doctor ready for use.
func (d *doctor) hire(logger *slog.Logger) {
	d.logger = logger
	d.off = logger != nil && logger.Handler() == slog.DiscardHandler
	d.told.Store(&map[string]bool{})
	d.hired = time.Now()
	if d.off {
		d.due.Store(notAgain)
	}
}

// turn tells whether the caller is to ask the store now. It reads the clock only
// while the store has yet to answer.
func (d *doctor) turn() bool {
	due := d.due.Load()
	if due == notAgain || due > 0 && time.Since(d.hired) < time.Duration(due) {
		return false
	}
	return d.due.CompareAndSwap(due, notAgain)
}

// retry has the store asked again by the first request after a pause.
func (d *doctor) retry() {
	d.pause = min(max(2*d.pause, shortPause), longPause)
	d.due.Store(int64(time.Since(d.hired) + d.pause))
}

// knows tells that nothing is left to be said about the code.
func (d *doctor) knows(code string) bool { return d.off || (*d.told.Load())[code] }

// first tells whether this is the first finding with the code.
func (d *doctor) first(code string) bool {
	for {
		known := d.told.Load()
		if (*known)[code] || len(*known) >= maxFindings {
			return false
		}
		next := maps.Clone(*known)
		next[code] = true
		if d.told.CompareAndSwap(known, &next) {
			return true
		}
	}
}

// Warn writes f to Config.Logger, unless a finding with that code was written
// before. It is safe for concurrent use, and on a nil Limiter.
func (l *Limiter) Warn(f core.Finding) {
	if l == nil || l.doctor.knows(f.Code) || !l.doctor.first(f.Code) {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			l.report(context.Background(), fmt.Errorf("log: %w", panicked(v)))
		}
	}()
	logger := l.doctor.logger
	if logger == nil {
		logger = slog.Default()
	}
	attrs := []slog.Attr{slog.String("code", f.Code)}
	if f.Rule != "" {
		attrs = append(attrs, slog.String("rule", f.Rule))
	}
	logger.LogAttrs(context.Background(), slog.LevelWarn, "headgate: "+f.Text, attrs...)
}

// consultStore has the store diagnose itself, once or until it has looked at
// everything. The goroutine ends with Close, or when the time for it is over.
func (l *Limiter) consultStore() {
	if l.doctor.due.Load() != notAgain {
		l.consultInTurn()
	}
}

func (l *Limiter) consultInTurn() {
	if !l.doctor.turn() {
		return
	}
	if d, ok := l.store.(core.Diagnoser); ok {
		go l.consult(d)
	}
}

func (l *Limiter) consult(d core.Diagnoser) {
	ctx, cancel := context.WithTimeout(l.life, diagnosisTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			l.report(ctx, fmt.Errorf("diagnosis: %w", panicked(v)))
		}
	}()
	unanswered := false
	for _, f := range d.Diagnose(ctx) {
		if f.Code == core.CodeUnanswered {
			unanswered = true
			continue
		}
		l.Warn(f)
	}
	if unanswered && l.life.Err() == nil {
		l.doctor.retry()
	}
}
