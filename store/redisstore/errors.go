// This file has the errors of steps: of those that were not carried out, of those that may have
// been, or will be, and of those that met a state of a later format.

package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// ErrUnreadable means that the value of a key is not a state, such as the value
// of another program. The value expires within a minute. A step of one call with such a key, or
// with one of ErrFormat, changes no other key.
var ErrUnreadable = errors.New("unreadable state")

// ErrPermission means that the Redis user of the client lacks a permission that
// the store needs. The text of the error contains the command that grants it.
var ErrPermission = errors.New("no permission")

// ErrCredentials means that Redis does not accept the user or the password of
// the client.
var ErrCredentials = errors.New("wrong user or password")

// ErrTooManyClients means that Redis has as many connections as its maxclients allows, and
// lets no further one in.
var ErrTooManyClients = errors.New("the server has no connection left for this client")

// tooManyClients begins the error of a server without a connection left.
const tooManyClients = "max number of clients"

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

// ofCall returns the error of the steps of a call. A call that was late may have been sent,
// also if its server cannot be dialled now.
func ofCall(err error) error {
	if err == nil {
		return nil // as most calls end, which need not pay for the questions below
	}

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

// callNumber is the latest number of a call that failed.
var callNumber atomic.Uint64

// callError is the error of a call that failed. All steps of the call have the same.
type callError struct {
	err    error
	number uint64
	silent bool
}

func failedCall(err error) *callError { return &callError{err: err, number: callNumber.Add(1)} }

func (e *callError) Error() string {
	if e.silent {
		return e.err.Error() + ": " + core.ErrSilent.Error()
	}
	return e.err.Error()
}

// Unwrap returns the error of the client, and ErrSilent if the server is.
func (e *callError) Unwrap() []error {
	if e.silent {
		return []error{e.err, core.ErrSilent}
	}
	return []error{e.err}
}

// Call returns the number of the call in this process.
func (e *callError) Call() uint64 { return e.number }

// lateCall is the error of a call that ended at the instant: then the store may have looked
// for the cause.
type lateCall struct {
	err  error
	at   time.Time
	conn *patientConn // on which the reply may come yet, or nil
}

func (l *lateCall) Error() string { return l.err.Error() }

// Unwrap returns the error.
func (l *lateCall) Unwrap() error { return l.err }

// overloadError is the error of a step for which this process had no time.
type overloadError struct{ err error }

func (e *overloadError) Error() string {
	return e.err.Error() + ": " + core.ErrOverload.Error()
}

// Unwrap returns ErrOverload and what ended the time.
func (e *overloadError) Unwrap() []error { return []error{core.ErrOverload, e.err} }

// neverRan reports whether the error proves that the script was not executed.
func neverRan(err error) bool {
	for _, prefix := range []string{
		"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY",
		"max number of clients reached",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}

	// A dial beside the call says nothing about the call itself, which may have found the server
	// back.
	var beside *dialError
	if errors.As(err, &beside) {
		return false
	}

	var dial *net.OpError
	return errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &dial) && dial.Op == "dial"
}

// dialError is why no connection was made beside a call. The call itself may have
// reached the server, if the server came back in that very moment.
type dialError struct{ err error }

func (e *dialError) Error() string { return "no connection: " + e.err.Error() }

// Unwrap returns the error of the dial.
func (e *dialError) Unwrap() error { return e.err }

// isLate reports whether a call ended at its deadline.
func isLate(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.As(err, &network) && network.Timeout()
}

// hidesCause reports whether a call ended before its client had an answer, or knew
// why there was none.
func hidesCause(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, redis.ErrPoolTimeout)
}

// isTLS reports whether the two ends of a connection do not agree on TLS, or one does not
// trust the certificate of the other.
func isTLS(err error) bool {
	var untrusted *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &untrusted) || errors.As(err, &header) || errors.As(err, &alert)
}
