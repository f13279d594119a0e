// This file tells the errors of steps that were not carried out from those of steps that may
// have been.

package redisstore

import "errors"

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
func leftAt(was stage, err error) error {
	switch {
	case err == nil:
		return nil
	case was == queued:
		return unsent(err)
	}
	return maybeSent(err)
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
