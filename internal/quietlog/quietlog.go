// Package quietlog logs events that a client can cause: the first of a kind at once,
// and then their number once a minute. So no client fills the log.
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
	kinds  map[string]*kind
	closed bool
}

// kind is what is to be said about the events of one text.
type kind struct {
	level slog.Level
	count int // since the last line
	attrs []slog.Attr
	timer *time.Timer // runs while lines are held back
}

// New returns a Log that writes to the logger. The caller should call Close.
func New(logger *slog.Logger) *Log {
	return &Log{logger: logger, kinds: map[string]*kind{}}
}

// Note logs an event. The text is its kind, of which a program has few, so it must hold
// nothing that a client sent. The attributes are logged with the first event, and those
// of the latest event with the number of events that followed, as "count". They must
// hold no text of a client without quotes.
func (l *Log) Note(level slog.Level, text string, attrs ...slog.Attr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[text]
	if k == nil {
		k = &kind{}
		l.kinds[text] = k
	}
	if k.timer != nil {
		k.level, k.attrs = level, attrs
		k.count++
		return
	}
	l.logger.LogAttrs(context.Background(), level, text, attrs...)
	if !l.closed {
		k.timer = time.AfterFunc(every, func() { l.tick(text, k) })
	}
}

// tick logs how many events have come within a minute. After a minute without one the
// next is logged at once.
func (l *Log) tick(text string, k *kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if k.count == 0 {
		k.timer, k.attrs = nil, nil
		return
	}
	l.flush(text, k)
	k.timer.Reset(every)
}

func (l *Log) flush(text string, k *kind) {
	l.logger.LogAttrs(context.Background(), k.level, text, append(k.attrs[:len(k.attrs):len(k.attrs)], slog.Int("count", k.count))...)
	k.count = 0
}

// Close logs the numbers that are still to be told. Later events are logged at once.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for text, k := range l.kinds {
		if k.timer == nil {
			continue
		}
		k.timer.Stop()
		k.timer = nil
		if k.count > 0 {
			l.flush(text, k)
		}
	}
}
