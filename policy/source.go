package policy

import (
	"context"
	"errors"
	"fmt"
	"github.com/headgate/headgate/internal/textform"
	"time"
)

// Snapshot is all policies of a source at one time.
type Snapshot struct {
	// Version is any text that changes whenever the policies do. Versions are
	// only compared for difference, so to go back to what was before is a change
	// like any other.
	Version string

	Policies Set
}

// Source is where policies come from. Its methods are safe for concurrent use.
type Source interface {
	// Load returns the snapshot that is there now. The error is ErrUnchanged if
	// its version is known, wraps ErrMissing if nothing is there, and is a
	// *RevisionError if what is there is not a set of policies. It returns soon
	// after ctx ends.
	Load(ctx context.Context, known string) (Snapshot, error)
}

// Notifier is a [Source] that can tell of a change before it is asked.
type Notifier interface {
	// Notify calls wake soon after every change that it learns of, until ctx
	// ends, and returns then. It may miss some: the source is polled too.
	Notify(ctx context.Context, wake func())
}

// Reporter is a [Source] that takes note of who follows it.
type Reporter interface {
	// Report says, every few seconds, what an instance has in force.
	Report(ctx context.Context, i Instance) error
}

var (
	// ErrUnchanged is what Source.Load returns for the version that is known.
	ErrUnchanged = errors.New("policy: nothing has changed")

	// ErrMissing is what Source.Load wraps when nothing is there.
	ErrMissing = errors.New("policy: there are no policies")
)

// RevisionError is a snapshot that cannot be put in force.
type RevisionError struct {
	Version string
	Err     error
}

// Error names the version and the mistakes.
func (e *RevisionError) Error() string {
	return fmt.Sprintf("policy: revision %q: %v", textform.Clip(e.Version), e.Err)
}

// Unwrap returns Err.
func (e *RevisionError) Unwrap() error { return e.Err }

// Instance is one running program that follows a source.
type Instance struct {
	ID      string        `json:"id"`                // nobody else's
	App     string        `json:"app"`               // whose policies it runs
	Version string        `json:"version"`           // in force, or "" if none is
	Refused string        `json:"refused,omitempty"` // the version that it does not accept
	Error   string        `json:"error,omitempty"`   // why, at most MaxText bytes
	Age     time.Duration `json:"-"`                 // since it reported, for who reads
}
