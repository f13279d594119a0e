package web

import (
	"context"
	"errors"
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

// explain returns an explanation of an error in plain words.
func (r *request) explain(err error) failure {
	var invalid *service.InvalidError
	var limited *service.LimitedError
	var large *http.MaxBytesError

	if f, ok := r.outage(err); ok {
		return f
	}

	switch {
	case errors.Is(err, service.ErrNotLoggedIn):
		return r.keepFields(failure{
			Status: 401, Title: "Your session has ended", Text: "Nothing was changed.", Login: true,
		})
	case errors.Is(err, service.ErrNotFound):
		return failure{Status: 404, Title: "Not found", Text: "The page does not exist, or you may not see it."}
	case errors.Is(err, service.ErrDenied):
		return denied(err)

	case errors.As(err, &limited):
		r.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(limited.RetryAfter.Seconds()))))
		return failure{Status: 429, Title: "Too many attempts", Text: limited.Error() + "."}
	case errors.As(err, &large):
		return failure{
			Status: 413, Title: "Too large",
			Text: "A form may have " + strconv.FormatInt(large.Limit, 10) + " bytes, and this one has more. " +
				"Nothing was changed.",
		}
	case errors.As(err, &invalid):
		return failure{Status: 422, Title: "That cannot be done", Text: invalid.Error()}
	case errors.Is(err, errBadForm):
		return failure{Status: 400, Title: "The form cannot be read", Text: "Nothing was changed."}
	case errors.Is(err, errMethod):
		return failure{
			Status: 405, Title: "Not possible",
			Text: "The page exists, and cannot be asked for in this way. Nothing was changed.",
		}
	case errors.Is(err, errForeign):
		return failure{Status: 403, Title: "Refused", Text: "The form was sent by another site. Nothing was changed."}
	}

	if f, ok := proxyFailure(err); ok {
		return f
	}

	// What went wrong may name hosts or files, so it goes to the log alone.
	return failure{Status: 500, Title: "Something went wrong", Text: "See the log of the console."}
}

// outage explains an error that may be gone in a moment, and returns false for every other.
func (r *request) outage(err error) (f failure, ok bool) {
	switch {
	case errors.Is(err, service.ErrBusy):
		f = failure{
			Status: 503, Title: "Busy",
			Text: "Others do the same at the moment. Nothing was changed. Please try again in a moment.",
		}

	// It comes before the deadline, which may be one that Redis has not kept.
	case errors.Is(err, errFleet):
		f = r.keepFields(failure{
			Status: 503, Title: "Redis does not answer",
			Text: "The counts of the instances cannot be read. Please try again in a moment.",
		})
	case errors.Is(err, service.ErrFull):
		f = r.keepFields(failure{
			Status: 503, Title: fullTitle,
			Text: "Nothing was changed. The running instances go on with the policies that they have. " +
				"Make room where the console has its database, and try again.",
		})

	// What the database has not answered it may have done.
	case errors.Is(err, service.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		f = r.keepFields(failure{
			Status: 503, Title: "The database does not answer",
			Text: "Nothing was changed, unless the connection broke at the very end. " +
				"The running instances go on with the policies that they have. Please try again in a moment.",
		})
	default:
		return f, false
	}
	return f, true
}

// denied returns an explanation of a refusal.
func denied(err error) failure {
	f := failure{Status: 403, Title: "Not permitted", Text: "You may not do this."}
	var d *service.DeniedError
	if errors.As(err, &d) {
		f.Text = "You may not do this: " + d.Reason + "."
	}
	return f
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
