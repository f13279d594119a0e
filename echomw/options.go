package echomw

import (
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/limiter"
)

// Option changes what [New] returns. One that is nil, or was given nil, is
// ignored; New then writes a line to the log of the limiter.
type Option func(*options)

type options struct {
	skip            func(echo.Context) bool
	refused, failed func(echo.Context, *limiter.Admission) error
	degraded        echo.HandlerFunc
	faults          []error
}

// newOptions applies the options, and writes to the log what is wrong with them
// or with the limiter.
func newOptions(l *limiter.Limiter, list []Option) options {
	o := options{faults: []error{l.CheckRequests()}}
	for i, set := range list {
		if set == nil {
			o.faults = append(o.faults, fmt.Errorf("option %d is nil and ignored", i))
			continue
		}
		set(&o)
	}
	l.LogSetup("echomw.New", errors.Join(o.faults...))
	return o
}

// ignore notes that the named option was given nil.
func (o *options) ignore(name string) {
	o.faults = append(o.faults, fmt.Errorf("%s was given nil and is ignored", name))
}

// WithSkip lets requests for which skip returns true pass uncounted. It
// may be a Skipper of Echo's own middleware package.
func WithSkip(skip func(echo.Context) bool) Option {
	return func(o *options) {
		if skip == nil {
			o.ignore("WithSkip")
			return
		}
		o.skip = skip
	}
}

// WithRefused has answer write what a refused request gets, instead of what
// Config.Refused says, or return an error for Echo's error handler. The headers of
// the limiter are set already. It must not keep the admission. If it writes
// nothing and returns nil, the answer is that of the Config.
func WithRefused(answer func(echo.Context, *limiter.Admission) error) Option {
	return func(o *options) {
		if answer == nil {
			o.ignore("WithRefused")
			return
		}
		o.refused = answer
	}
}

// WithFailed is [WithRefused] for the 503 that a request gets when the store could
// not decide and the limiter fails closed; it goes before Config.Failed.
func WithFailed(answer func(echo.Context, *limiter.Admission) error) Option {
	return func(o *options) {
		if answer == nil {
			o.ignore("WithFailed")
			return
		}
		o.failed = answer
	}
}

// WithDegraded has fallback answer requests over the limit of a Degrade rule,
// instead of the handler and of Config.Degraded.
func WithDegraded(fallback echo.HandlerFunc) Option {
	return func(o *options) {
		if fallback == nil {
			o.ignore("WithDegraded")
			return
		}
		o.degraded = fallback
	}
}
