package service

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/console/internal/auth"
	"github.com/headgate/headgate/console/internal/store"
)

// Options configure a [Service]. Only DB must be set.
type Options struct {
	DB *store.DB

	// Changed, unless nil, is called after the commit of every change of the
	// policies. It must return at once.
	Changed func()

	// Fleet is asked for what the instances report. Nil means that there is no Redis.
	Fleet Fleet

	// Clock returns the time; nil means time.Now.
	Clock func() time.Time

	// Passwords is the cost of hashing a password; zero means auth.DefaultCost.
	Passwords auth.Cost

	// Logger receives errors that no method returns; nil means slog.Default().
	Logger *slog.Logger
}

// Service performs the actions of people and programs. It needs no Close, and does
// not close the database.
type Service struct {
	db        *store.DB
	changed   func()
	clock     func() time.Time
	fleet     Fleet
	passwords *auth.Passwords
	attempts  *auth.Attempts
	logger    *slog.Logger
}

// New returns a service.
func New(o Options) (*Service, error) {
	if o.DB == nil {
		return nil, errors.New("service: DB is nil")
	}
	s := &Service{db: o.DB, changed: o.Changed, clock: o.Clock, fleet: o.Fleet, logger: cmp.Or(o.Logger, slog.Default())}
	if s.changed == nil {
		s.changed = func() {}
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	var err error
	if s.passwords, err = auth.NewPasswords(cmp.Or(o.Passwords, auth.DefaultCost)); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	if s.attempts, err = auth.NewAttempts(s.now); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	return s, nil
}

// now returns the time in microseconds since the Unix epoch.
func (s *Service) now() int64 { return s.clock().UnixMicro() }

// instant returns the time that a column holds; 0 is the zero time.
func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
