// Package quietlog logs events that a client can cause: the first of a kind at once,
// and then their number once a minute. So no client fills the log. [Log] writes the lines;
// [Repeats] only counts, for a log with lines of its own.
package quietlog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// every is the time between two lines of one kind.
const every = time.Minute

// Log logs in few lines. It is safe for concurrent use.
type Log struct {
	logger *slog.Logger

	mu     sync.Mutex
	kinds  map[string]*kind // guarded by mu, by the text
	closed bool             // guarded by mu
}

// kind holds what the next line about the events of one text needs.
type kind struct {
	repeats *Repeats
	level   slog.Level  // of the latest event; guarded by Log.mu
	attrs   []slog.Attr // of the latest event; guarded by Log.mu
}

// New returns a Log that writes to the logger. The caller should call Close.
func New(logger *slog.Logger) *Log {
	return &Log{logger: logger, kinds: map[string]*kind{}}
}

// Record logs an event. The text is its kind, of which a program has few, so it must hold
// nothing that a client sent. The attributes are logged with the first event, and those
// of the latest event with the number of events that followed, as "count". They must
// hold no text of a client without quotes.
func (l *Log) Record(level slog.Level, text string, attrs ...slog.Attr) {
	l.mu.Lock()
	defer l.mu.Unlock()

	k := l.kinds[text]
	if k == nil && !l.closed {
		k = &kind{}
		k.repeats = NewRepeats(every, func(n int64) { l.report(text, k, n) })
		l.kinds[text] = k
	}

	if l.closed || k.repeats.Add() {
		l.logger.LogAttrs(context.Background(), level, text, attrs...)
		return
	}

	// The line of the next report has the attributes of the latest event.
	k.level, k.attrs = level, attrs
}

// report logs how many events of the kind have come, unless none has.
func (l *Log) report(text string, k *kind, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 {
		all := append(k.attrs[:len(k.attrs):len(k.attrs)], slog.Int64("count", n))
		l.logger.LogAttrs(context.Background(), k.level, text, all...)
		return
	}
	k.attrs = nil
}

// Close logs the numbers that are not logged yet. Later events are logged at once.
func (l *Log) Close() {
	l.mu.Lock()
	kinds := l.kinds
	l.kinds, l.closed = nil, true
	l.mu.Unlock()

	for _, k := range kinds {
		k.repeats.Close()
	}
}
