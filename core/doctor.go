package core

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxFindings bounds how many codes are told.
	maxFindings = 64

	// diagnosisTimeout bounds Diagnose.
	diagnosisTimeout = 5 * time.Second
)

// doctor tells every finding once.
type doctor struct {
	logger *slog.Logger // nil: the default one at the time
	off    bool
	told   atomic.Pointer[map[string]bool] // the codes, replaced as a whole
	asks   sync.Once
}

// hire makes the doctor ready for use.
func (d *doctor) hire(logger *slog.Logger) {
	d.logger = logger
	d.off = logger != nil && logger.Handler() == slog.DiscardHandler
	d.told.Store(&map[string]bool{})
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
func (l *Limiter) Warn(f Finding) {
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

// consultStore has the store diagnose itself, once. The goroutine ends with
// Close, or when the time for it is over.
func (l *Limiter) consultStore() {
	if d, ok := l.store.(Diagnoser); ok && !l.doctor.off {
		l.doctor.asks.Do(func() { go l.consult(d) })
	}
}

func (l *Limiter) consult(d Diagnoser) {
	ctx, cancel := context.WithTimeout(l.life, diagnosisTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			l.report(ctx, fmt.Errorf("diagnosis: %w", panicked(v)))
		}
	}()
	for _, f := range d.Diagnose(ctx) {
		l.Warn(f)
	}
}
