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
	// maxSeen bounds how many codes are told.
	maxSeen = 64

	// diagnosisTimeout bounds Diagnose.
	diagnosisTimeout = 5 * time.Second

	// minDiagnosisPause is for how long a store that could not look at everything is left
	// alone. Each pause after it is twice as long, up to maxDiagnosisPause.
	minDiagnosisPause = time.Second
	maxDiagnosisPause = time.Hour

	// noDiagnosis is when a store is asked that is being asked, or has answered.
	noDiagnosis = math.MaxInt64
)

// warner tells every finding once.
type warner struct {
	logger *slog.Logger // nil: the default one at the time
	off    bool
	seen   atomic.Pointer[map[string]bool] // the codes, replaced as a whole

	started       time.Time
	nextDiagnosis atomic.Int64  // when the store is to be asked, in nanoseconds since hired
	pause         time.Duration // the latest; belongs to who asks
}

// start makes the warner ready for use.
func (w *warner) start(logger *slog.Logger) {
	w.logger = logger
	w.off = logger != nil && logger.Handler() == slog.DiscardHandler
	w.seen.Store(&map[string]bool{})
	w.started = time.Now()
	if w.off {
		w.nextDiagnosis.Store(noDiagnosis)
	}
}

// diagnosisDue tells whether the caller is to ask the store now. It reads the clock only
// while the store has yet to answer.
func (w *warner) diagnosisDue() bool {
	due := w.nextDiagnosis.Load()
	if due == noDiagnosis || due > 0 && time.Since(w.started) < time.Duration(due) {
		return false
	}
	return w.nextDiagnosis.CompareAndSwap(due, noDiagnosis)
}

// diagnoseLater has the store asked again by the first request after a pause.
func (w *warner) diagnoseLater() {
	w.pause = min(max(2*w.pause, minDiagnosisPause), maxDiagnosisPause)
	w.nextDiagnosis.Store(int64(time.Since(w.started) + w.pause))
}

// hasSeen tells that nothing is left to be said about the code.
func (w *warner) hasSeen(code string) bool { return w.off || (*w.seen.Load())[code] }

// markSeen tells whether this is the first finding with the code.
func (w *warner) markSeen(code string) bool {
	for {
		known := w.seen.Load()
		if (*known)[code] || len(*known) >= maxSeen {
			return false
		}
		next := maps.Clone(*known)
		next[code] = true
		if w.seen.CompareAndSwap(known, &next) {
			return true
		}
	}
}

// Warn writes f to Config.Logger, unless a finding with that code was written
// before. It is safe for concurrent use, and on a nil Limiter.
func (l *Limiter) Warn(f core.Finding) {
	if l == nil || l.warner.hasSeen(f.Code) || !l.warner.markSeen(f.Code) {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			l.report(context.Background(), fmt.Errorf("log: %w", panicked(v)))
		}
	}()
	logger := l.warner.logger
	if logger == nil {
		logger = slog.Default()
	}
	attrs := []slog.Attr{slog.String("code", f.Code)}
	if f.Rule != "" {
		attrs = append(attrs, slog.String("rule", f.Rule))
	}
	logger.LogAttrs(context.Background(), slog.LevelWarn, "headgate: "+f.Text, attrs...)
}

// diagnoseOnce has the store diagnose itself, once or until it has looked at
// everything. The goroutine ends with Close, or when the time for it is over.
func (l *Limiter) diagnoseOnce() {
	if l.warner.nextDiagnosis.Load() != noDiagnosis {
		l.diagnoseIfDue()
	}
}

func (l *Limiter) diagnoseIfDue() {
	if !l.warner.diagnosisDue() {
		return
	}
	if d, ok := l.store.(core.Diagnoser); ok {
		go l.runDiagnosis(d)
	}
}

func (l *Limiter) runDiagnosis(d core.Diagnoser) {
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
		l.warner.diagnoseLater()
	}
}
