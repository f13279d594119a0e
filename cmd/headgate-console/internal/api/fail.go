package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// awayRetry is the Retry-After in seconds if the database or Redis does not answer.
const awayRetry = 2

// fail answers with the problem of an error.
func (c *call) fail(err error) {
	p := problemOf(err)
	if p == nil {
		// The error is a consequence of the end of the request, and no fault.
		if c.ctx().Err() != nil {
			p = away("the request took too long")
		} else {
			c.o.Logger.ErrorContext(c.ctx(), "a request failed", "method", c.r.Method, "path", c.r.URL.Path,
				"request_id", c.id(), "error", err)
			p = newProblem(http.StatusInternalServerError, "internal", "the console failed; see its log")
		}
	}

	p.write(c.w, c.id())
}

// problemOf returns the problem of an error, or nil for a fault of the program.
func problemOf(err error) *problem {
	var p *problem
	var limited *service.LimitedError
	var conflict *service.ConflictError

	// What has details of its own comes first.
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &limited):
		return &problem{
			Status: http.StatusTooManyRequests, Code: "limited", Detail: "too many attempts",
			retry: wholeSeconds(limited.RetryAfter),
		}
	case errors.As(err, &conflict):
		return conflictProblem(http.StatusConflict, conflict)
	case errors.Is(err, service.ErrDenied):
		return denied(err)
	case isInvalid(err):
		return invalid(faultsOf(err)...)
	}

	return plainProblem(err)
}

// plainProblem returns the problem of an error without details.
func plainProblem(err error) *problem {
	switch {
	case errors.Is(err, service.ErrNotFound):
		return newProblem(http.StatusNotFound, "not-found", "the object does not exist, or you may not see it")
	case errors.Is(err, service.ErrTokenExpired):
		return newProblem(http.StatusUnauthorized, "token-expired", "the token has expired; "+
			"make another on the page of your account")
	case errors.Is(err, service.ErrNotLoggedIn):
		return newProblem(http.StatusUnauthorized, "not-logged-in", "send a token that is valid, or log in")
	case errors.Is(err, service.ErrPasswordChange):
		return newProblem(http.StatusForbidden, "password-change", "the password has to be changed first")
	case errors.Is(err, service.ErrSecondFactor):
		return newProblem(http.StatusForbidden, "second-factor", "a second factor has to be set up first")
	case errors.Is(err, service.ErrMoved):
		return newProblem(http.StatusConflict, "moved", "the policies were changed since the plan was made")
	case errors.Is(err, service.ErrBusy):
		return away("others do the same at the moment")
	case errors.Is(err, service.ErrFull):
		return away("the disk is full")
	case errors.Is(err, service.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return away("the database does not answer")
	}
	return nil
}

func away(detail string) *problem {
	return &problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: detail, retry: awayRetry}
}

// denied returns the problem of a refusal: its reason and, for an import, the
// policies.
func denied(err error) *problem {
	p := &problem{Status: http.StatusForbidden, Code: "denied", Detail: "not permitted", Errors: faultsOf(err)}
	var refusal *service.DeniedError
	if errors.As(err, &refusal) {
		p.Detail = "not permitted: " + refusal.Reason
	}
	return p
}

// invalid returns a problem that lists all mistakes in a request.
func invalid(list ...fault) *problem {
	return &problem{
		Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: "the request has mistakes",
		Errors: list,
	}
}

func isInvalid(err error) bool {
	var invalid *service.InvalidError
	return errors.As(err, &invalid)
}

func faultsOf(err error) (list []fault) {
	var invalid *service.InvalidError
	if errors.As(err, &invalid) {
		for _, f := range invalid.Faults {
			list = append(list, fault{f.Policy, f.Field, f.Message})
		}
	}
	return list
}

// renamed replaces the service's name of a field by the API's.
func renamed(err error, from, to string) error {
	if !isInvalid(err) {
		return err
	}
	list := faultsOf(err)
	for i := range list {
		if list[i].Field == from {
			list[i].Field = to
		}
	}
	return invalid(list...)
}

// wholeSeconds rounds up, so that a client is admitted after this wait.
func wholeSeconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

func seconds(n int64) string { return strconv.FormatInt(n, 10) }
