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

// OverrideSource is a [Source] that also has overrides beside its policies: up to
// MaxOverridesBeside of each, which are changed one at a time and are no part of a [Snapshot]. A
// follower puts them in force within a second after a notification, and reads what it has missed
// at its next poll.
type OverrideSource interface {
	// OverrideChanges returns what has changed since the version known, "" for a caller that
	// knows nothing. The version is empty if the source has no overrides of any policy.
	OverrideChanges(ctx context.Context, known string) (OverrideChanges, error)

	// ReadOverrides passes all overrides of a policy to add, in pieces and in any order. It bounds
	// each of its calls by itself, and returns soon after ctx ends. Changes that are made
	// meanwhile may be among them or not, and are in a later OverrideChanges.
	ReadOverrides(ctx context.Context, policy string, add func([]OverrideChange)) error
}

// OverrideChanges are what has changed beside the policies of an [OverrideSource].
type OverrideChanges struct {
	// Version is that of the overrides after the changes. It is only compared for equality.
	Version string

	// Changes are in order.
	Changes []OverrideChange

	// Missed says that the source does not have all changes any more. Then Stale names the
	// policies whose overrides have to be read as a whole, and Same those whose overrides are as
	// they were. Other policies have none.
	Missed      bool
	Stale, Same []string
}

// OverrideChange is a change of one override beside a policy.
type OverrideChange struct {
	Policy string

	// Key is a key or a prefix, as in Policy.Overrides. "" is all keys of the policy, whose
	// overrides are removed; Text is empty then.
	Key string

	// Text is what [ParseOverride] reads, or "" if the override is removed. A source that others
	// can write to passes on whatever they have written.
	Text string
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

	// Overrides is the version of the overrides beside the policies that the instance has in
	// force, or "". OverridesLeftOut is how many of them it cannot put in force.
	Overrides        string `json:"overrides,omitempty"`
	OverridesLeftOut int    `json:"overrides_left_out,omitempty"`

	// Store says what decides now, as [events.Mode] does: "store", or "local", "open" or
	// "closed" while the store or some part of it is bypassed. "" means that it is not known.
	Store string `json:"store,omitempty"`

	// ClockOffset is how far the instance's clock is ahead of the source's, and below 0 if
	// it is behind. Age is the time since the report. Both are as read back.
	ClockOffset time.Duration `json:"-"`
	Age         time.Duration `json:"-"`
}
