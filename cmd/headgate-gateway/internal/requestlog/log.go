// Package requestlog writes a line for each request: JSON or the combined format, to a file or to
// the output of the process. Package accesslog of headgate reads both, and so does headgate plan.
//
// A [Log] writes to one place, without ever making a request wait. [Switch] is the log that is in
// force, and its Handler stands before the face whose requests are logged.
package requestlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/quietlog"
)

// Stdout is the path of the output of the process.
const Stdout = "-"

// MaxHeaders is how many headers a line may have.
const MaxHeaders = 8

// Options are what lines have, and where they go. Path and Events must be set.
type Options struct {
	// Path is that of a file, to which lines are appended, or Stdout.
	Path string

	// Combined makes lines of the combined format, as nginx and Apache write them, with more behind
	// it. Otherwise each is an object of JSON.
	Combined bool

	// Query adds the query to the path. Headers are headers of requests, by their canonical names.
	// Both may hold secrets of callers.
	Query   bool
	Headers []string

	// Events is told of lines that were dropped, and of errors.
	Events *quietlog.Log
}

// queued is how many lines wait for the file, which is at most 24 MiB.
const queued = 4096

// closeTime is how long Close waits for a file that is slow.
const closeTime = 2 * time.Second

// Log writes lines. It is safe for concurrent use.
type Log struct {
	options Options
	queue   chan *[]byte
	files   chan *os.File // to go on with
	ended   chan struct{} // closed when all lines are written

	mu     sync.RWMutex // held for reading while a line is put in the queue
	closed bool         // guarded by mu
}

// Open opens a log. The caller must call Close.
func Open(o Options) (*Log, error) {
	file, err := open(o.Path)
	if err != nil {
		return nil, err
	}
	l := &Log{options: o, queue: make(chan *[]byte, queued), files: make(chan *os.File, 1), ended: make(chan struct{})}
	go l.write(file)
	return l, nil
}

// open opens a file to append to, and makes it if need be.
func open(path string) (*os.File, error) {
	if path == Stdout {
		return os.Stdout, nil
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
}

// Reopen opens the file anew, as after it was renamed. If that fails, the log goes on with the
// former.
func (l *Log) Reopen() error {
	if l.options.Path == Stdout {
		return nil
	}

	// To open a pipe may take long, so no lock is held.
	file, err := open(l.options.Path)
	if err != nil {
		return err
	}

	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return errors.Join(errors.New("the access log was closed"), file.Close())
	}

	// A file that waits still, because the one before is slow, was never written to.
	for {
		select {
		case l.files <- file:
			return nil
		case waits := <-l.files:
			_ = waits.Close()
		}
	}
}

// put hands a line to the file, or drops it if too many wait. It reports whether the log is open.
func (l *Log) put(line *[]byte) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return false
	}

	select {
	case l.queue <- line:
	default:
		l.options.Events.Record(slog.LevelWarn, "a line of the access log was dropped, as its file is slow",
			slog.String("file", l.options.Path))
		lines.Put(line)
	}

	return true
}

// write writes the lines until the queue is closed.
func (l *Log) write(file *os.File) {
	defer close(l.ended)
	to := bufio.NewWriterSize(file, 64<<10)
	for {
		select {
		case line, ok := <-l.queue:
			if !ok {
				l.finish(to, file)
				l.closeWaiting()
				return
			}
			_, err := to.Write(*line)
			lines.Put(line)

			// What waits is written together, and the last of it at once.
			if err == nil && len(l.queue) == 0 {
				err = to.Flush()
			}
			if err != nil {
				l.fail(err)
				to.Reset(file) // an error would stay
			}

		case next := <-l.files:
			l.finish(to, file)
			file = next
			to.Reset(file)
		}
	}
}

// finish writes what is left, and closes the file.
func (l *Log) finish(to *bufio.Writer, file *os.File) {
	err := to.Flush()
	if file != os.Stdout {
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		l.fail(err)
	}
}

// closeWaiting closes a file that was opened and never begun.
func (l *Log) closeWaiting() {
	select {
	case file := <-l.files:
		_ = file.Close()
	default:
	}
}

func (l *Log) fail(err error) {
	l.options.Events.Record(slog.LevelError, "the access log cannot be written",
		slog.String("file", l.options.Path), slog.String("error", err.Error()))
}

// Close writes the lines that wait and closes the file. It gives up on one that is slow.
func (l *Log) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	if !again {
		close(l.queue)
	}

	l.mu.Unlock()

	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-l.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("the access log %s was not written to its end: %w", l.options.Path, io.ErrShortWrite)
	}
}

// lines are buffers of lines.
var lines = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}
