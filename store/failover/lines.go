// This file bounds the lines about a breaker that opens and closes again and again.

package failover

import (
	"sync"
	"time"
)

const (
	// linesEvery is the time in which a shard gets at most maxLines.
	linesEvery = time.Minute
	maxLines   = 2
)

// loggedChanges knows which changes of each shard were logged. The zero value is ready for use.
type loggedChanges struct {
	mu     sync.Mutex // guards all below
	of     map[string]*shardLines
	closed bool
}

// shardLines are the lines about a shard in the present minute, which its first line began.
type shardLines struct {
	written int
	held    int    // changes since the last line
	last    change // the latest
	timer   *time.Timer
}

// admit returns the change that is to be logged now, with the number of changes since the
// line before. It returns false if e has to wait for the end of the minute, when expired is
// called.
func (l *loggedChanges) admit(e change, expire func()) (line change, changes int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	f := l.of[e.shard]
	if f == nil {
		f = l.startMinuteLocked(e.shard, expire)
	}
	if f.written < maxLines || l.closed {
		f.written++
		return e, 1, true
	}

	f.held++
	f.last = e
	return e, 0, false
}

// startMinuteLocked begins the minute of a shard, which ends with a call of expire.
func (l *loggedChanges) startMinuteLocked(shard string, expire func()) *shardLines {
	if l.of == nil {
		l.of = map[string]*shardLines{}
	}

	f := &shardLines{}
	if !l.closed {
		f.timer = time.AfterFunc(linesEvery, expire)
	}
	l.of[shard] = f
	return f
}

// expired ends the minute of a shard. It returns the state that holds, if it was not logged
// yet; that line begins another minute.
func (l *loggedChanges) expired(shard string, expire func()) (line change, changes int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	f := l.of[shard]
	delete(l.of, shard)
	if f == nil || f.held == 0 {
		return line, 0, false
	}
	l.startMinuteLocked(shard, expire).written = 1
	return f.last, f.held, true
}

// close ends all minutes, and returns the shards whose state was not logged yet.
func (l *loggedChanges) close() (shards []string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.closed = true
	for shard, f := range l.of {
		if f.timer != nil {
			f.timer.Stop()
		}
		if f.held > 0 {
			shards = append(shards, shard)
		}
	}
	return shards
}
