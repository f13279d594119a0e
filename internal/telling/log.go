// Package telling keeps and logs what a limiter reports of itself: its findings, the errors that it
// meets, the calls of its store, and the keys that its rules refuse and admit.
//
// All lines go through a [Log]. [Findings] and [Failures] decide which there are, and [Setup] and
// [Diagnosis] look for findings.
package telling

import (
	"context"
	"log/slog"
	"slices"
)

// Log writes the lines of a limiter. A nil Log writes to slog.Default().
type Log struct {
	logger   *slog.Logger // nil: the default one at the time
	name     string
	off      bool
	panicked func(v any)
}

// NewLog returns a Log that writes to logger, which may be nil, and names the limiter in each line
// unless its name is "". It passes a panic of the logger to panicked.
func NewLog(logger *slog.Logger, name string, panicked func(v any)) *Log {
	return &Log{logger, name, logger != nil && logger.Handler() == slog.DiscardHandler, panicked}
}

// Off reports whether all lines are discarded.
func (l *Log) Off() bool { return l.off }

// Write writes one line.
func (l *Log) Write(level slog.Level, text string, attrs ...slog.Attr) {
	logger := slog.Default()
	if l != nil && l.logger != nil {
		logger = l.logger
	}
	if l != nil && l.name != "" {
		attrs = slices.Insert(attrs, 0, slog.String("limiter", l.name))
	}

	defer func() {
		if v := recover(); v != nil && l != nil {
			l.panicked(v)
		}
	}()
	logger.LogAttrs(context.Background(), level, "headgate: "+text, attrs...)
}
