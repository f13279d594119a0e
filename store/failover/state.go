package failover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// State tells who decides.
type State uint8

const (
	Closed State = iota // the primary
	Open                // the fallback: the primary is bypassed
)

// String returns "closed" or "open".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	}
	return "unknown state"
}

// Stats are counts since the store was made.
type Stats struct {
	State  State
	Opened uint64 // how often the primary was found failing
	Probes uint64 // how often it was asked whether it is back
	Local  uint64 // steps that the fallback decided
	Lost   uint64 // refunds that found no room to wait
	Waits  int    // refunds that wait for the primary now
}

// State tells who decides now.
func (s *Store) State() State {
	if isOpen(s.breaker.generation.Load()) {
		return Open
	}
	return Closed
}

// Stats returns the counts. They are read one after the other.
func (s *Store) Stats() Stats {
	return Stats{
		State: s.State(), Opened: s.opened.Load(), Probes: s.probes.Load(),
		Local: s.local.Load(), Lost: s.waiting.lost.Load(), Waits: s.waiting.len(),
	}
}

// ErrOpen is what the error of a call wraps that was not made because the
// primary is bypassed. The error has a method RetryAfter, which tells when that
// may end at the earliest.
var ErrOpen = errors.New("the primary store is bypassed")

// openError is ErrOpen with the time until the next probe.
type openError struct{ wait time.Duration }

func (e *openError) Error() string { return fmt.Sprintf("failover: %v", ErrOpen) }

// Unwrap returns ErrOpen.
func (e *openError) Unwrap() error { return ErrOpen }

// RetryAfter is how long until the primary is asked whether it is back.
func (e *openError) RetryAfter() time.Duration { return e.wait }

func (s *Store) logger() *slog.Logger {
	if s.log != nil {
		return s.log
	}
	return slog.Default()
}

// announce logs the change to state and calls OnChange. cause is why the primary is
// bypassed.
func (s *Store) announce(state State, cause error) {
	defer func() {
		if v := recover(); v != nil {
			s.logger().Error("headgate: OnChange of a failover store panicked", "panic", fmt.Sprint(v))
		}
	}()
	ctx := context.Background()
	if state == Open {
		s.logger().LogAttrs(ctx, slog.LevelWarn, "headgate: the primary store fails and is bypassed",
			slog.Bool("fallback", s.fallback != nil), slog.String("error", cause.Error()))
	} else {
		s.logger().LogAttrs(ctx, slog.LevelInfo, "headgate: the primary store decides again")
	}
	if s.onChange != nil {
		s.onChange(state)
	}
}
