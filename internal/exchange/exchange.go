// Package exchange is what the middleware of every framework does with a request, over what the
// framework can do with it. An [Exchange] is that middleware, and a [Framework] what a framework
// can do.
package exchange

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// A Framework has what frameworks do in their own ways. C is a request with its answer. Its
// methods are safe for concurrent use by different requests.
type Framework[C any] interface {
	// Context returns the context of the request.
	Context(c C) context.Context

	// Ask asks the limiter about the request, unless that has counted it before: then the
	// admission is nil. It sets the headers of the limiter. Of a request that passes, it leaves
	// the mark, and puts the result of an admission that needs the context there. It returns the
	// request for the handlers.
	Ask(c C) (C, *limiter.Admission)

	// Next calls the handlers. Its error is that of frameworks whose handlers return one.
	Next(c C) error

	// Watch makes the answer tell its status, and hold the leases of a connection that outlives
	// the handlers.
	Watch(c C, a *limiter.Admission) C

	// End ends a watch after the handlers, and returns the status of the answer. err is their
	// error, and returned is false if they have panicked.
	End(c C, a *limiter.Admission, err error, returned bool) (status int)

	// Write writes the answer of an admission in place of the handlers', and reports whether it
	// has one.
	Write(c C, a *limiter.Admission) (ok bool, err error)
}

// An Exchange is the middleware of a limiter. Its fields do not change while it serves.
type Exchange[C any] struct {
	Limiter   *limiter.Limiter // nil answers 503
	Framework Framework[C]

	// What the program adds, in the form of the framework. Each may be nil.

	Skip            func(C) bool
	Refused, Failed Own[C]
	Degraded        func(C) error
}

// Own is the program's own answer to a request that does not pass. It returns false and nil if
// it has not answered.
type Own[C any] func(c C, a *limiter.Admission) (answered bool, err error)

// Serve has the handlers answer a request that passes or was counted before, and answers the
// others. It returns the error of the handlers, or of the answer.
func (e *Exchange[C]) Serve(c C) error {
	if e.Skip != nil && e.skips(c) {
		return e.Framework.Next(c)
	}

	c, a := e.Framework.Ask(c)
	if a == nil {
		return e.passAgain(c)
	}

	// The program may answer failures of the limiter otherwise than refusals.
	if a.Outcome() == limiter.Pass {
		return e.pass(c, a)
	}
	if a.Status() == http.StatusServiceUnavailable {
		return e.refuse(c, a, e.Failed)
	}
	return e.refuse(c, a, e.Refused)
}

// skips reports whether the program skips the request.
func (e *Exchange[C]) skips(c C) bool {
	return e.Limiter.Try("Config.Skip", func() bool { return e.Skip(c) })
}

// passAgain answers a request that the limiter has let pass before.
func (e *Exchange[C]) passAgain(c C) error {
	if e.Degraded != nil && limiter.Degraded(e.Framework.Context(c)) {
		return e.Degraded(c)
	}
	return e.Framework.Next(c)
}

func (e *Exchange[C]) pass(c C, a *limiter.Admission) error {
	if a.NeedsStatus() || a.HoldsLeases() {
		return e.watch(c, a)
	}

	// Of most requests the handlers may ask nothing, and their end changes nothing. Its memory then
	// serves other requests while the handlers run.
	if !a.NeedsContext() {
		a.Done(http.StatusOK)
		return e.Framework.Next(c)
	}

	defer a.Done(http.StatusOK)
	if a.Degraded() {
		return e.degrade(c, a)
	}
	return e.Framework.Next(c)
}

// watch lets a request pass whose end counts.
func (e *Exchange[C]) watch(c C, a *limiter.Admission) (err error) {
	watched, returned := e.Framework.Watch(c, a), false
	defer func() { a.Done(e.Framework.End(watched, a, err, returned)) }()

	if a.Degraded() {
		err = e.degrade(watched, a)
	} else {
		err = e.Framework.Next(watched)
	}
	returned = true // not reached by a panic
	a.Answered()
	return err
}

// degrade answers a request over the limit of a Degrade rule.
func (e *Exchange[C]) degrade(c C, a *limiter.Admission) error {
	if e.Degraded != nil {
		return e.Degraded(c)
	}
	if ok, err := e.Framework.Write(c, a); ok {
		return err
	}
	return e.Framework.Next(c)
}

// refuse answers a refused or failed request by the program's own function, and as the limiter
// says if there is none or it writes nothing.
func (e *Exchange[C]) refuse(c C, a *limiter.Admission, own Own[C]) error {
	defer a.Done(a.Status())
	if own != nil {
		if answered, err := own(c, a); answered || err != nil {
			return err
		}
	}
	_, err := e.Framework.Write(c, a)
	return err
}
