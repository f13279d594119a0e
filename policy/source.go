package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// Snapshot is the set of policies of a source at one time.
type Snapshot struct {
	// Version is any text that changes whenever the policies do. Versions are
	// only compared for equality, so a return to an earlier version is a change
	// like any other.
	Version string

	Policies Set
}

// Source provides policies. Its methods are safe for concurrent use.
type Source interface {
	// Load returns the current snapshot. The error is ErrUnchanged if its version
	// equals known, wraps ErrMissing if there is none, and is a *RevisionError if
	// the source holds anything but a valid set of policies. Load returns soon
	// after ctx ends.
	Load(ctx context.Context, known string) (Snapshot, error)
}

// Notifier is a [Source] that can announce a change before the next poll.
type Notifier interface {
	// Notify calls wake soon after every change that it learns of, and returns
	// when ctx ends. It may miss changes, as the follower also polls the source.
	Notify(ctx context.Context, wake func())
}

// Reporter is a [Source] that keeps a list of its followers.
type Reporter interface {
	// Report stores which version an instance has in force, and which policies of it are left
	// out. A follower calls it every few seconds.
	Report(ctx context.Context, i Instance) error
}

var (
	// ErrUnchanged is returned by Source.Load if the version equals known.
	ErrUnchanged = errors.New("policy: nothing has changed")

	// ErrMissing is wrapped by errors of Source.Load if the source holds no
	// policies.
	ErrMissing = errors.New("policy: there are no policies")
)

// RevisionError reports a snapshot that cannot be put in force.
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
	ID      string `json:"id"`                // its name; several processes may share one
	Process string `json:"process,omitempty"` // random: no other process has it
	App     string `json:"app"`               // the application whose policies it runs
	Version string `json:"version"`           // in force, or "" if none is
	Refused string `json:"refused,omitempty"` // the version that it does not accept
	Error   string `json:"error,omitempty"`   // why it does not, at most MaxText bytes

	// LeftOut are the policies of Version that the program cannot carry out, at most 20, and
	// MoreLeftOut is how many more there are.
	LeftOut     []LeftOut `json:"left_out,omitempty"`
	MoreLeftOut int       `json:"left_out_more,omitempty"`

	// Can says what the program lets policies use. nil means that it is not known, as of an
	// instance of a version before.
	Can *Abilities `json:"can,omitempty"`

	// Store says what decides now, as [events.Mode] does: "store", or "local", "open" or
	// "closed" while the store or some part of it is bypassed. "" means that it is not known.
	Store string `json:"store,omitempty"`

	// ClockOffset is how far the instance's clock is ahead of the source's, and below 0 if
	// it is behind. Age is the time since the report. Both are as read back.
	ClockOffset time.Duration `json:"-"`
	Age         time.Duration `json:"-"`
}
