package service

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// Errors of the methods, for errors.Is and errors.As, beside [*InvalidError], [*ConflictError],
// [*DeniedError], [*LimitedError] and the error of a context that ended. Any other error is a fault
// of the program. Its text is for the log and not for people.
var (
	// ErrUnavailable means that the database cannot be reached or written. Nothing
	// was changed, unless the connection broke during the commit: then the change
	// was made in full or not at all, and the version shows which.
	ErrUnavailable = store.ErrUnavailable

	// ErrFull means that there is no space for a write. Nothing was changed. It matches
	// ErrUnavailable too.
	ErrFull = store.ErrFull

	// ErrNotFound means that the object does not exist, or that the actor may not
	// know of it.
	ErrNotFound = store.ErrNotFound

	// ErrDenied matches every DeniedError, unless the object is hidden from the
	// actor.
	ErrDenied = errors.New("not permitted")

	// ErrNotLoggedIn means that a session or token is unknown, has ended or was
	// revoked, or that its user was disabled.
	ErrNotLoggedIn = errors.New("not logged in")

	// ErrCredentials means that the name or the password is wrong. It does not
	// reveal which, nor whether the user is disabled. Of a second factor it means that the
	// code is wrong.
	ErrCredentials = errors.New("the name or the password is wrong")

	// ErrOwnPassword means that a person at a provider is to become a user who has a password,
	// and who has not signed in with it. It matches ErrNotLoggedIn too.
	ErrOwnPassword = fmt.Errorf("%w: the user has a password", ErrNotLoggedIn)

	// ErrMoved means that the policies were changed since the plan of an import was
	// made. Nothing was changed.
	ErrMoved = errors.New("the policies were changed since the plan was made")

	// ErrNoFleet means that the console was started without Redis. An error that only wraps
	// it means that Redis did not answer.
	ErrNoFleet = errors.New("there is no answer from Redis")

	// ErrPasswordChange means that the user has to change the password first.
	ErrPasswordChange = errors.New("the password has to be changed first")

	// ErrSecondFactor means that the user has to set up a second factor first.
	ErrSecondFactor = errors.New("a second factor has to be set up first")

	// ErrTokenExpired means that a token is right and has expired. It matches
	// ErrNotLoggedIn too.
	ErrTokenExpired = fmt.Errorf("%w: the token has expired", ErrNotLoggedIn)
)

// DeniedError is a refusal. It was written to the audit log.
type DeniedError struct {
	Action string // such as "policy.update"
	Object string // such as "policy:login"
	Reason string
	hidden bool // the actor may not know that the object exists
}

// Error names the action, the object and the reason.
func (e *DeniedError) Error() string {
	if e.hidden {
		return ErrNotFound.Error()
	}
	return fmt.Sprintf("%s of %s is not permitted: %s", e.Action, e.Object, e.Reason)
}

// Is matches ErrDenied, or ErrNotFound if the object is hidden from the actor.
func (e *DeniedError) Is(target error) bool {
	if e.hidden {
		return target == ErrNotFound
	}
	return target == ErrDenied
}

// ConflictError means that the policy has changed since the version that a change
// is based on. Nothing was changed.
type ConflictError struct {
	Mine   policy.Policy // the version to be saved; only its name, for a deletion
	Theirs policy.Policy // as it is now; only its name and version, if it was deleted

	// Deleted reports that the policy does not exist any more.
	Deleted bool
}

// Error names the policy and both versions.
func (e *ConflictError) Error() string {
	what := "was changed"
	if e.Deleted {
		what = "was deleted"
	}
	return fmt.Sprintf("policy %q %s in the meantime: the change is based on version %d, and it has version %d",
		e.Mine.Name, what, e.Mine.Version, e.Theirs.Version)
}

// LimitedError means that there were too many failed attempts to log in.
type LimitedError struct {
	RetryAfter time.Duration // until the next attempt is admitted
}

// Error names the time until the next attempt.
func (e *LimitedError) Error() string {
	return fmt.Sprintf("too many attempts to log in: try again in %s", e.RetryAfter.Round(time.Second))
}

// Fault is one mistake in the input.
type Fault struct {
	Policy  string `json:"policy,omitempty"` // in an import, the policy; else ""
	Field   string `json:"field"`            // as in JSON, such as "limit" or "match.path"; "" for the whole
	Message string `json:"message"`
}

// InvalidError lists all mistakes in the input. Nothing was changed.
type InvalidError struct {
	Faults []Fault

	// refusal, unless it is nil, is for the audit log: a name is that of a policy that is hidden
	// from the actor. Names of policies are unique, so a user may find out by trying that a name is
	// in use, and the audit log shows an administrator that a user tries.
	refusal *DeniedError
}

// Error lists all mistakes, one a line.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.text()
	}
	return strings.Join(lines, "\n")
}

func (f Fault) text() string {
	text := f.Message
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Policy != "" {
		text = fmt.Sprintf("policy %q: %s", f.Policy, text)
	}
	return text
}

// nameTaken is the mistake of a name that a policy has which is hidden from the actor.
const nameTaken = "it cannot be used; choose another"

// FaultsOf returns the mistakes that the error of a validation joins; nil has none. Each names the
// policy that it is in.
func FaultsOf(err error) []Fault {
	if err == nil {
		return nil
	}

	// A validation joins its mistakes, of which each may be several.
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []Fault
		for _, e := range joined.Unwrap() {
			list = append(list, FaultsOf(e)...)
		}
		return list
	}

	var f *policy.FieldError
	if errors.As(err, &f) {
		return []Fault{{Policy: f.Policy, Field: f.Field, Message: f.Err.Error()}}
	}
	return []Fault{{Message: err.Error()}}
}

// faults collects mistakes. The zero value has none.
type faults []Fault

// add adds a mistake in a field, unless err is nil.
func (f *faults) add(field string, err error) {
	if err != nil {
		*f = append(*f, Fault{Field: field, Message: err.Error()})
	}
}

// err returns an InvalidError, or nil if there is no mistake.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &InvalidError{Faults: f}
}

// invalid returns an InvalidError of one mistake.
func invalid(field, message string) error {
	return &InvalidError{Faults: []Fault{{Field: field, Message: message}}}
}
