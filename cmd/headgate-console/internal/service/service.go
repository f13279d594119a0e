package service

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
)

// Options configure a [Service]. Only DB must be set.
type Options struct {
	DB *store.DB

	// Changed, unless nil, is called after the commit of every change of the
	// policies. It must return at once.
	Changed func()

	// Fleet is the Redis of the instances. Nil means that there is none.
	Fleet Fleet

	// PublicURL is where browsers find the console, such as https://console.example.com, for links
	// in the messages of alerts. Without it they have none.
	PublicURL string

	// Sender sends the messages of alerts; nil means one that sends nothing to internal addresses.
	Sender *webhook.Sender

	// Clock returns the time; nil means time.Now.
	Clock func() time.Time

	// Passwords is the cost of hashing a password; zero means auth.DefaultCost.
	Passwords auth.Cost

	// Logger receives errors that no method returns; nil means slog.Default().
	Logger *slog.Logger
}

// Service performs the actions of people and programs. It needs no Close, and does
// not close the database. A refusal is written to the audit log, and a change and its row there
// are one transaction. [Alarm], [Calendar], [Ledger] and [Outbox] are for the program itself.
type Service struct {
	db        *store.DB
	changed   func()
	clock     func() time.Time
	fleet     Fleet
	publicURL string
	sender    *webhook.Sender
	passwords *auth.Passwords
	attempts  *auth.Attempts
	logger    *slog.Logger
	recent    *recentCounts
	imports   places // for imports in memory
	importing ownPlaces
	parser    places // for the one import that is being parsed
	backups   places // for the one backup that is being written or read

	// What was read is kept by the version of its rows.
	sets      *memo[struct{}, policySet]
	totals    *memo[rangeKey, totals]
	collected *memo[rangeKey, map[seriesMinute]store.Traffic]
}

// maxTotals is how many sums of a series in a range are kept, and maxCollected how many rows of a
// series in a minute: some 200 bytes each.
const (
	maxTotals    = 100_000
	maxCollected = 200_000
)

// New returns a service.
func New(o Options) (*Service, error) {
	if o.DB == nil {
		return nil, errors.New("service: DB is nil")
	}

	s := &Service{
		db: o.DB, changed: o.Changed, clock: o.Clock, logger: cmp.Or(o.Logger, slog.Default()),
		fleet: o.Fleet, publicURL: o.PublicURL, sender: o.Sender,
		recent: newRecentCounts(),
		sets:   newMemo[struct{}, policySet](1), totals: newMemo[rangeKey, totals](maxTotals),
		collected: newMemo[rangeKey, map[seriesMinute]store.Traffic](maxCollected),
		imports:   make(places, maxImports), parser: make(places, 1), backups: make(places, 1),
	}

	// Nothing but the database has to be given.
	if s.changed == nil {
		s.changed = func() {}
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.sender == nil {
		s.sender = webhook.New(webhook.Options{})
	}

	var err error
	if s.passwords, err = auth.NewPasswords(cmp.Or(o.Passwords, auth.DefaultCost)); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}

	// Failed attempts are counted by the clock of the service.
	if s.attempts, err = auth.NewAttempts(s.now); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}

	return s, nil
}

// Full reports whether the last write failed because the disk is full.
func (s *Service) Full() bool { return s.db.Full() }

// now returns the time in microseconds since the Unix epoch.
func (s *Service) now() int64 { return s.clock().UnixMicro() }

// instant returns the time that a column holds; 0 is the zero time.
func instant(us int64) time.Time { return store.Instant(us) }

func microseconds(t time.Time) int64 { return store.Micros(t) }
