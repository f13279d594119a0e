// This file has the form of errors.
//
// Every error is a problem of RFC 9457. Its member "code" identifies the kind, and
// "errors" lists all mistakes by field, if there are any. A body is one JSON value
// of bounded length, without unknown or repeated fields.

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// problem is an error in the form of RFC 9457.
type problem struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Code      string  `json:"code" doc:"The kind, such as not-found, denied, invalid, stale or unavailable."`
	Detail    string  `json:"detail"`
	RequestID string  `json:"request_id" doc:"As in X-Request-Id and the audit log."`
	Errors    []fault `json:"errors,omitempty" doc:"All mistakes of the request."`
	Conflict  *clash  `json:"conflict,omitempty" doc:"Both versions, if another actor changed the policy first."`
	allow     string  // the permitted methods, for a 405
	retry     int64   // seconds; 0 omits Retry-After
}

// newProblem returns a problem that has no more to say than a sentence.
func newProblem(status int, code, detail string) *problem {
	return &problem{Status: status, Code: code, Detail: detail}
}

func malformed(detail string) *problem {
	return newProblem(http.StatusBadRequest, "malformed", detail)
}

func (p *problem) Error() string { return p.Detail }

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter) {
	// The tag is that of an answer which is not given.
	h := w.Header()
	answer := *p
	answer.Type, answer.Title, answer.RequestID = "about:blank", http.StatusText(p.Status), h.Get("X-Request-Id")
	h.Del("ETag")
	h.Del("Content-Disposition")
	h.Set("Content-Type", "application/problem+json")
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.retry, 10))
	}

	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="headgate console"`
		if p.Code == "token-expired" {
			challenge += `, error="invalid_token", error_description="the token has expired"`
		}
		h.Set("WWW-Authenticate", challenge)
	}

	// Texts and numbers can always be written, so this cannot fail.
	b, err := json.Marshal(answer)
	if err != nil {
		b = []byte("{}")
	}
	w.WriteHeader(p.Status)
	w.Write(append(b, '\n'))
}

// awayRetry is the Retry-After in seconds if the database or Redis does not answer.
const awayRetry = 2

// fail answers with the problem of an error, if there is one.
func (c *call) fail(err error) {
	if err == nil {
		return
	}
	p := problemOf(err)
	switch {
	case p != nil:
	case c.ctx().Err() != nil:
		p = away("the request took too long") // a consequence of its end, and no fault
	default:
		c.o.Logger.ErrorContext(c.ctx(), "a request failed", "method", c.r.Method, "path", c.r.URL.Path,
			"request_id", c.id(), "error", err)
		p = newProblem(http.StatusInternalServerError, "internal", "the console failed; see its log")
	}
	p.write(c.w)
}

// plain are the problems of errors without details. The first that matches counts.
var plain = []struct {
	err     error
	problem *problem
}{
	{service.ErrNotFound, newProblem(404, "not-found", "the object does not exist, or you may not see it")},
	{service.ErrTokenExpired, newProblem(401, "token-expired",
		"the token has expired; make another on the page of your account")},
	{service.ErrNotLoggedIn, newProblem(401, "not-logged-in", "send a token that is valid, or log in")},
	{service.ErrPasswordChange, newProblem(403, "password-change", "the password has to be changed first")},
	{service.ErrSecondFactor, newProblem(403, "second-factor", "a second factor has to be set up first")},
	{service.ErrMoved, newProblem(409, "moved", "the policies were changed since the plan was made")},
	{service.ErrBusy, away("others do the same at the moment")},
	{service.ErrFull, away("the disk is full")},
	{service.ErrUnavailable, away("the database does not answer")},
	{context.DeadlineExceeded, away("the database does not answer")},
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
		p := newProblem(http.StatusForbidden, "denied", "not permitted")
		var refusal *service.DeniedError
		if errors.As(err, &refusal) {
			p.Detail += ": " + refusal.Reason
		}
		p.Errors = faultsOf(err) // of an import
		return p
	case faultsOf(err) != nil:
		p := newProblem(http.StatusUnprocessableEntity, "invalid", "the request has mistakes")
		p.Errors = faultsOf(err)
		return p
	}
	for _, row := range plain {
		if errors.Is(err, row.err) {
			return row.problem
		}
	}
	return nil
}

func away(detail string) *problem {
	return &problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: detail, retry: awayRetry}
}

// fault is one mistake in a request.
type fault = service.Fault

// invalid returns an error that lists all mistakes in a request.
func invalid(list ...fault) error { return &service.InvalidError{Faults: list} }

// mistake returns the error of one field.
func mistake(field, message string) error { return invalid(fault{Field: field, Message: message}) }

// faultsOf returns the mistakes of an error, or nil if it is not about any.
func faultsOf(err error) []fault {
	var invalid *service.InvalidError
	if errors.As(err, &invalid) {
		return invalid.Faults
	}
	return nil
}

// wholeSeconds rounds up, so that a client is admitted after this wait.
func wholeSeconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }
