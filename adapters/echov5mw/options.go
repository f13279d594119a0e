package echov5mw

import (
	"errors"
	"fmt"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/limiter"
)

// Option configures the middleware of [New]. New ignores an option that is nil, or
// that was given nil, and writes a line to the log of the limiter.
type Option func(*options)

type options struct {
	skip            func(*echo.Context) bool
	refused, failed func(*echo.Context, *limiter.Admission) error
	degraded        echo.HandlerFunc
	faults          []error
}

// newOptions applies the options. Its error names each that is nil, and why the limiter
// cannot decide about requests.
func newOptions(l *limiter.Limiter, list []Option) (options, error) {
	o := options{faults: []error{l.CheckRequests()}}
	for i, set := range list {
		if set == nil {
			o.faults = append(o.faults, fmt.Errorf("option %d is nil and ignored", i))
			continue
		}
		set(&o)
	}
	return o, errors.Join(o.faults...)
}

// ignore notes that the named option was given nil.
func (o *options) ignore(name string) {
	o.faults = append(o.faults, fmt.Errorf("%s was given nil and is ignored", name))
}

// WithSkip makes the middleware ignore requests for which skip returns true. They
// reach the handlers uncounted. skip may be a Skipper of Echo's middleware package.
// A request for which skip panics is counted, and the panic is an error for OnError.
func WithSkip(skip func(*echo.Context) bool) Option {
	return func(o *options) {
		if skip == nil {
			o.ignore("WithSkip")
			return
		}
		o.skip = skip
	}
}

// WithRefused calls answer for refused requests, and takes precedence over
// Config.Refused. The headers of the limiter are set before the call. answer may
// return an error for Echo's error handler, and must not keep the admission. If
// answer writes nothing and returns nil, the request is answered as Config.Refused
// says.
func WithRefused(answer func(*echo.Context, *limiter.Admission) error) Option {
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
func WithFailed(answer func(*echo.Context, *limiter.Admission) error) Option {
	return func(o *options) {
		if answer == nil {
			o.ignore("WithFailed")
			return
		}
		o.failed = answer
	}
}

// WithDegraded calls fallback for requests over the limit of a Degrade rule,
// instead of the handler, and takes precedence over Config.Degraded.
func WithDegraded(fallback echo.HandlerFunc) Option {
	return func(o *options) {
		if fallback == nil {
			o.ignore("WithDegraded")
			return
		}
		o.degraded = fallback
	}
}
