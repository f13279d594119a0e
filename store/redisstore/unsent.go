// This file tells the errors of steps that were not carried out from those of steps that may
// have been, or will be.

package redisstore

import (
	"errors"

	"github.com/headgate/headgate/core"
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
