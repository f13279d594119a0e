// This file has the errors of steps: of those that were not carried out, of those that may have
// been, or will be, and of those that met a state of a later format.

package redisstore

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// stepError is the error of a step of which it is known whether it may have been carried out.
// The error in it may be that of another call, about which its own Unsent speaks.
type stepError struct {
	err    error
	unsent bool
}

func (e *stepError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *stepError) Unwrap() error { return e.err }

// Unsent reports whether the step was certainly not carried out.
func (e *stepError) Unsent() bool { return e.unsent }

// unsent returns the error of a step that was not carried out.
func unsent(err error) error { return &stepError{err, true} }

// maybeSent returns the error of a step that may have been carried out.
func maybeSent(err error) error { return &stepError{err, false} }

// leftAt returns the error of a waiter that has left at a stage, or nil if err is.
func leftAt(was stage, err error, w *waiter, q *queue) error {
	switch {
	case err == nil:
		return nil
	case was == queued:
		return unsent(err)
	}
	return &pendingError{err, w, q}
}

// pendingError is the error of a step that was sent, and whose answer its caller did not
// wait for.
type pendingError struct {
	err    error
	waiter *waiter
	queue  *queue
}

func (e *pendingError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *pendingError) Unwrap() error { return e.err }

// Unsent reports whether the step was certainly not carried out.
func (e *pendingError) Unsent() bool { return false }

// WhenDecided has f called once with the decisions of the step if its answer comes yet, or is
// here. f must not wait, and must not keep its arguments. Only one f can be set.
func (e *pendingError) WhenDecided(f func(ops []core.Op, out []core.Decision)) {
	if w := e.waiter; e.queue.follow(w, f) {
		f(w.ops, w.out)
	}
}

// ofCall returns the error of the steps of a call. A call that was late may have been sent,
// also if its server cannot be dialled now.
func ofCall(err error) error {
	var late *lateCall
	if neverRan(err) && !errors.As(err, &late) {
		return unsent(err)
	}
	return err
}

// ErrFormat means that a newer version of this package wrote the value of a key, in a format
// that this version does not read. The value stays as it is, with its time to live. The error
// names the rule and both formats.
var ErrFormat = errors.New("state of a later format")

// aboutKey reports whether the error is about the value of a key, and says nothing about the
// server.
func aboutKey(err error) bool { return errors.Is(err, ErrUnreadable) || errors.Is(err, ErrFormat) }

// formatError returns the error of a state of the format.
func formatError(n int64) error {
	return fmt.Errorf("%w: it is of format %d, and this version reads up to format %d", ErrFormat, n, lua.Format)
}

// laterMark is the first byte of a state of a later format. The number of the format follows
// in another; see lua/prelude.lua.
const laterMark = 254

// laterFormat returns the error of a state that is of a later format, or nil.
func laterFormat(state string) error {
	if len(state) < 2 || state[0] != laterMark || state[1] <= lua.Format {
		return nil
	}
	return formatError(int64(state[1]))
}
