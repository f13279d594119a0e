package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

var (
	errBadForm = errors.New("the form cannot be read")
	errForeign = errors.New("the form came from another site")
	errMethod  = errors.New("the page has no such method")
	errNoFleet = errors.New("the console was started without Redis")

	errStranger   = errors.New("the proxy names no user who may log in")
	errSignOut    = errors.New("the proxy signs people in and out")
	errNoPassword = errors.New("the proxy asks for passwords")
)

// foreign refuses a form that another site sent.
func foreign(*request) error { return errForeign }

// failure is the page of an error.
type failure struct {
	Status int
	Title  string
	Text   string
	Again  string   // the address for sending Kept again, or ""
	Kept   []hidden // the fields that were sent
	Login  bool     // offer to log in
	Keep   bool     // what was sent, so that it can be sent again
}

// fail answers with the page of an error. It logs faults of the program.
func (r *request) fail(err error) {
	// Some errors only lead elsewhere, and nothing has failed.
	switch {
	case errors.Is(err, context.Canceled) && r.req.Context().Err() != nil:
		return // the client has gone
	case errors.Is(err, service.ErrPasswordChange):
		r.seeOther("/account", "")
		return
	case errors.Is(err, service.ErrSecondFactor):
		r.seeOther(factorPath, "")
		return
	case errors.Is(err, service.ErrNotLoggedIn) && r.req.Method == http.MethodGet:
		r.seeOther("/login?next="+url.QueryEscape(r.req.URL.RequestURI()), "")
		return
	}

	var conflict *service.ConflictError
	if errors.As(err, &conflict) {
		r.showConflict(conflict)
		return
	}

	f := r.explain(err)
	if f.Status >= http.StatusInternalServerError {
		r.logFailure(f.Status, err)
	}

	r.show(f.Status, "failure", f.Title, f)
}

func (r *request) logFailure(status int, err error) {
	r.Logger.ErrorContext(r.req.Context(), "a page failed",
		"method", r.req.Method, "path", r.req.URL.Path, "status", status,
		"request_id", r.requestID(), "error", err)
}

// names are what words.json calls errors. The first that matches counts.
type names []struct {
	err  error
	name string
}

// of returns the name of an error, or "".
func (n names) of(err error) string {
	for _, known := range n {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return ""
}

// failures are the errors without details, with the names of their pages. A Redis that does not
// answer comes before the deadline that it has not kept.
var failures = names{
	{service.ErrBusy, "busy"}, {service.ErrNoFleet, "redis"}, {service.ErrFull, "full"},
	{service.ErrUnavailable, "database"}, {context.DeadlineExceeded, "database"},
	{service.ErrNotLoggedIn, "session"}, {service.ErrNotFound, "lost"},
	{errBadForm, "form"}, {errMethod, "method"}, {errForeign, "foreign"},

	// These are impossible where a proxy authenticates users.
	{errStranger, "stranger"}, {errSignOut, "sign out"}, {errNoPassword, "no password"},
}

// explain returns an explanation of an error in plain words.
func (r *request) explain(err error) failure {
	var denied *service.DeniedError
	var invalid *service.InvalidError
	var limited *service.LimitedError
	var large *http.MaxBytesError

	// A refusal that hides its object is as one that does not find it, so what has details of its
	// own comes last.
	if name := failures.of(err); name != "" {
		return r.keepFields(vocabulary.Failures[name])
	}
	switch {
	case errors.As(err, &denied):
		return failure{Status: 403, Title: "Not permitted", Text: "You may not do this: " + denied.Reason + "."}
	case errors.Is(err, service.ErrDenied):
		return vocabulary.Failures["denied"]
	case errors.As(err, &limited):
		r.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(limited.RetryAfter.Seconds()))))
		return failure{Status: 429, Title: "Too many attempts", Text: limited.Error() + "."}
	case errors.As(err, &large):
		return failure{Status: 413, Title: "Too large", Text: fmt.Sprintf(
			"A form may have %d bytes, and this one has more. Nothing was changed.", large.Limit)}
	case errors.As(err, &invalid):
		return failure{Status: 422, Title: "That cannot be done", Text: invalid.Error()}
	}

	// What went wrong may name hosts or files, so it goes to the log alone.
	return vocabulary.Failures["fault"]
}

// keepFields keeps the fields that were sent, apart from secrets and files, where they can be sent
// again.
func (r *request) keepFields(f failure) failure {
	sent := r.req.Method == http.MethodPost && r.req.PostForm != nil
	if !f.Keep || !sent || strings.HasPrefix(r.req.URL.Path, "/login") {
		return f
	}
	f.Again = r.req.URL.Path
	f.Kept = hiddenOf(r.req.PostForm)
	return f
}

// hidden is a hidden field of a form.
type hidden struct{ Name, Value string }

// hiddenOf returns the fields that were sent, in the order of their names.
func hiddenOf(form url.Values) []hidden {
	var list []hidden
	for name, values := range form {
		if name == "old" || name == "password" || name == "repeat" || name == "code" {
			continue
		}
		for _, value := range values {
			list = append(list, hidden{name, value})
		}
	}
	slices.SortStableFunc(list, func(a, b hidden) int { return strings.Compare(a.Name, b.Name) })
	return list
}
