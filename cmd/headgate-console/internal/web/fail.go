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
	errFleet   = errors.New("the Redis that the instances follow does not answer")
	errNoFleet = errors.New("the console was started without Redis")

	errStranger   = errors.New("the proxy names no user who may log in")
	errSignOut    = errors.New("the proxy signs people in and out")
	errNoPassword = errors.New("the proxy asks for passwords")
)

// foreign refuses a form that another site sent.
func foreign(*request) error { return errForeign }

// fullTitle is what pages say if there is no space for a write.
const fullTitle = "The disk is full"

// failure is the page of an error.
type failure struct {
	Status int
	Title  string
	Text   string
	Again  string   // the address for sending Kept again, or ""
	Kept   []hidden // the fields that were sent
	Login  bool     // offer to log in
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

// failures explain errors without details. The first that matches counts.
var failures = []struct {
	err  error
	keep bool // what was sent, so that it can be sent again
	failure
}{
	{service.ErrBusy, false, failure{Status: 503, Title: "Busy",
		Text: "Others do the same at the moment. Nothing was changed. Please try again in a moment."}},
	// It comes before the deadline, which may be one that Redis has not kept.
	{errFleet, true, failure{Status: 503, Title: "Redis does not answer",
		Text: "The counts of the instances cannot be read. Please try again in a moment."}},
	{service.ErrFull, true, failure{Status: 503, Title: fullTitle,
		Text: "Nothing was changed. The running instances go on with the policies that they have. " +
			"Make room where the console has its database, and try again."}},
	{service.ErrUnavailable, true, databaseAway},
	{context.DeadlineExceeded, true, databaseAway},

	{service.ErrNotLoggedIn, true,
		failure{Status: 401, Title: "Your session has ended", Text: "Nothing was changed.", Login: true}},
	{service.ErrNotFound, false,
		failure{Status: 404, Title: "Not found", Text: "The page does not exist, or you may not see it."}},
	{errBadForm, false, failure{Status: 400, Title: "The form cannot be read", Text: "Nothing was changed."}},
	{errMethod, false, failure{Status: 405, Title: "Not possible",
		Text: "The page exists, and cannot be asked for in this way. Nothing was changed."}},
	{errForeign, false,
		failure{Status: 403, Title: "Refused", Text: "The form was sent by another site. Nothing was changed."}},

	// These are impossible where a proxy authenticates users.
	{errStranger, false, failure{Status: 403, Title: "You cannot sign in",
		Text: "The proxy in front of the console says who you are, " +
			"and the console has no such user, or has disabled the user. An administrator can change that."}},
	{errSignOut, false, failure{Status: 409, Title: "Sign out at the proxy",
		Text: "The proxy in front of the console has signed you in, " +
			"and there is no session to end here. Sign out where you have signed in, or close the browser."}},
	{errNoPassword, false, failure{Status: 409, Title: "No password is asked here",
		Text: "The proxy in front of the console has signed you in. Change your password where you sign in."}},
}

// databaseAway is the page while the database does not answer. What it has not answered it may
// have done.
var databaseAway = failure{
	Status: 503, Title: "The database does not answer",
	Text: "Nothing was changed, unless the connection broke at the very end. " +
		"The running instances go on with the policies that they have. Please try again in a moment.",
}

// explain returns an explanation of an error in plain words.
func (r *request) explain(err error) failure {
	var denied *service.DeniedError
	var invalid *service.InvalidError
	var limited *service.LimitedError
	var large *http.MaxBytesError

	// A refusal that hides its object is as one that does not find it, so what has details of its
	// own comes last.
	for _, known := range failures {
		if errors.Is(err, known.err) && known.keep {
			return r.keepFields(known.failure)
		}
		if errors.Is(err, known.err) {
			return known.failure
		}
	}
	switch {
	case errors.As(err, &denied):
		return failure{Status: 403, Title: "Not permitted", Text: "You may not do this: " + denied.Reason + "."}
	case errors.Is(err, service.ErrDenied):
		return failure{Status: 403, Title: "Not permitted", Text: "You may not do this."}
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
	return failure{Status: 500, Title: "Something went wrong", Text: "See the log of the console."}
}

// keepFields keeps the fields that were sent, apart from secrets and files.
func (r *request) keepFields(f failure) failure {
	if r.req.Method != http.MethodPost || r.req.PostForm == nil || strings.HasPrefix(r.req.URL.Path, "/login") {
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
