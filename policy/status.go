package policy

import (
	"strings"
	"time"
)

// Status is what a [Follower] has done so far.
type Status struct {
	// Version is in force, "" if none is, with so many Policies of the
	// application, since the time Since.
	Version  string
	Policies int
	Since    time.Time

	// Refused is the version that the source has and that cannot be put in
	// force, and RefusedErr why; "" and nil if there is none.
	Refused    string
	RefusedErr error

	// SourceErr is why the source could not be asked the last time, or nil.
	SourceErr error

	// Age is how long ago the source was last known to have the version that is
	// in force or refused; below 0 if it never was.
	Age time.Duration

	// ReportErr and LastGoodErr are why the last report to the source and the
	// last write of Options.LastGood failed, or nil.
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

// reason is an error in one line of at most MaxText bytes.
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
