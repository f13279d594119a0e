package policy

import (
	"strings"
	"time"
)

// Status is the state of a [Follower].
type Status struct {
	// Version is in force since Since, with Policies policies of the application;
	// "" if no version is in force.
	Version  string
	Policies int
	Since    time.Time

	// Refused is the version of the source that cannot be put in force, and
	// RefusedErr is the reason; "" and nil if there is none.
	Refused    string
	RefusedErr error

	// SourceErr is the error of the last poll of the source, or nil.
	SourceErr error

	// Age is the time since the source last confirmed the version that is in
	// force or refused; below 0 if it never did.
	Age time.Duration

	// ReportErr and LastGoodErr are the errors of the last report to the source
	// and of the last write of Options.LastGood, or nil.
	ReportErr   error
	LastGoodErr error
}

// state is a status with the instant of the last answer instead of its age.
type state struct {
	Status
	answered time.Time
}

func (s *state) status(now time.Time) Status {
	out := s.Status
	out.Age = -1
	if !s.answered.IsZero() {
		out.Age = now.Sub(s.answered)
	}
	return out
}

// reason returns the text of an error in one line of at most MaxText bytes.
func reason(err error) string {
	if err == nil {
		return ""
	}
	s := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\n", "; "), "?")
	if len(s) > MaxText {
		return strings.ToValidUTF8(s[:MaxText-3], "") + "…"
	}
	return s
}
