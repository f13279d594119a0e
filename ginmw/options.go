package ginmw

import (
	"errors"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// Option configures the middleware of [New]. New ignores an option that is nil, or
// that was given nil, and writes a line to the log of the limiter.
type Option func(*options)

type options struct {
	skip            func(*gin.Context) bool
	refused, failed func(*gin.Context, *limiter.Admission)
	degraded        gin.HandlerFunc
	faults          []error
}

// newOptions applies the options. It writes one line to the log if some are nil or
// if the limiter cannot decide about requests.
func newOptions(l *limiter.Limiter, list []Option) options {
	o := options{faults: []error{l.CheckRequests()}}
	for i, set := range list {
		if set == nil {
			o.faults = append(o.faults, fmt.Errorf("option %d is nil and ignored", i))
			continue
		}
		set(&o)
	}
	l.LogSetup("ginmw.New", errors.Join(o.faults...))
	return o
}

// ignore notes that the named option was given nil.
func (o *options) ignore(name string) {
	o.faults = append(o.faults, fmt.Errorf("%s was given nil and is ignored", name))
}

// WithSkip makes the middleware ignore requests for which skip returns true. They
// reach the handlers uncounted.
// A request for which skip panics is counted, and the panic is an error for OnError.
func WithSkip(skip func(*gin.Context) bool) Option {
	return func(o *options) {
		if skip == nil {
			o.ignore("WithSkip")
			return
		}
		o.skip = skip
	}
}

// WithRefused calls answer for refused requests, and takes precedence over
// Config.Refused. The headers of the limiter are set before the call, and the
// handlers after the middleware do not run. answer must not keep the admission. If
// answer writes nothing, the request is answered as Config.Refused says.
func WithRefused(answer func(*gin.Context, *limiter.Admission)) Option {
	return func(o *options) {
		if answer == nil {
			o.ignore("WithRefused")
			return
		}
		o.refused = answer
	}
}

// WithFailed is like [WithRefused], for requests that get a 503 because the store
// could not decide and the limiter fails closed, or because too many requests wait
// already; see [limiter.Admission.Outcome]. It takes precedence over Config.Failed.
func WithFailed(answer func(*gin.Context, *limiter.Admission)) Option {
	return func(o *options) {
		if answer == nil {
			o.ignore("WithFailed")
			return
		}
		o.failed = answer
	}
}

// WithDegraded calls fallback for requests over the limit of a Degrade rule,
// instead of the handlers after the middleware, and takes precedence over
// Config.Degraded.
func WithDegraded(fallback gin.HandlerFunc) Option {
	return func(o *options) {
		if fallback == nil {
			o.ignore("WithDegraded")
			return
		}
		o.degraded = fallback
	}
}
