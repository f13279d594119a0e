package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
	"github.com/redis/go-redis/v9"
)

const (
	// DefaultPrefix begins every key unless Options.Prefix says otherwise.
	DefaultPrefix = "hg:"

	// DefaultTimeout bounds a call unless Options.Timeout says otherwise.
	DefaultTimeout = 50 * time.Millisecond

	maxTimeout = time.Minute
)

// ErrUnreadable means that a key holds what no state can be, such as the value
// of another program. It expires within a minute.
var ErrUnreadable = errors.New("unreadable state")

// Options are what a store can be told. The zero value is ready for use.
type Options struct {
	// Prefix begins every key; "" means DefaultPrefix. It must not hold a
	// brace.
	Prefix string

	// Timeout bounds every call, the wait for a connection included; 0 means
	// DefaultTimeout.
	Timeout time.Duration

	// OneSlot puts all keys into one slot of a Cluster, see the package.
	OneSlot bool

	// Secret, if set, turns every subject in a key into an HMAC-SHA-256 of it,
	// so that who reads the keys does not learn them. All instances must share
	// it; a new one starts all counts anew.
	Secret []byte

	// Clock replaces the server's time, in microseconds since the Unix epoch.
	// It is for tests and simulations: the clocks of a fleet differ.
	Clock func() int64
}

// Store is a core.Store in Redis. It is safe for concurrent use and owns
// nothing: closing the client is the caller's part.
type Store struct {
	client        redis.UniversalClient
	prefix        string
	timeout       time.Duration
	oneSlot       bool
	sharded       bool
	heedsDeadline bool
	secret        []byte
	clock         func() int64
	scripts       lua.Scripts
	limits        limits
}

// New returns a store in what the client is connected to. It does not connect.
// The error names every mistake in the options.
//
// Set ContextTimeoutEnabled in the client's options: without it the client
// ignores deadlines, and each call takes a goroutine more to end in time.
func New(client redis.UniversalClient, o Options) (*Store, error) {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("redisstore: the client is nil"))
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redisstore: the prefix %q holds a brace", o.Prefix))
	}
	if o.Timeout < 0 || o.Timeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the timeout %v is not within 0 to %v", o.Timeout, maxTimeout))
	}
	if o.Secret != nil && len(o.Secret) < 16 {
		errs = append(errs, fmt.Errorf("redisstore: a secret of %d bytes is shorter than 16", len(o.Secret)))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Store{client: client, prefix: o.Prefix, timeout: o.Timeout, oneSlot: o.OneSlot, secret: o.Secret, clock: o.Clock}
	if s.prefix == "" {
		s.prefix = DefaultPrefix
	}
	if s.timeout == 0 {
		s.timeout = DefaultTimeout
	}
	s.sharded, s.heedsDeadline = traits(client)
	return s, nil
}

// MustNew is New for a program that cannot go on without; it panics on an
// error.
func MustNew(client redis.UniversalClient, o Options) *Store {
	s, err := New(client, o)
	if err != nil {
		panic(err)
	}
	return s
}

// traits tells what the client is: one that spreads keys over servers, and one
// that heeds the deadline of a context.
func traits(client redis.UniversalClient) (sharded, heedsDeadline bool) {
	switch c := client.(type) {
	case *redis.Client:
		return false, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return true, c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return true, c.Options().ContextTimeoutEnabled
	}
	return false, false
}

// Apply implements [core.Store].
func (s *Store) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	for i := range ops {
		if _, err := s.limits.of(&ops[i]); err != nil {
			return err
		}
	}
	if len(ops) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.sharded && !s.oneSlot && severalSubjects(ops) {
		return s.applyBySubject(ctx, ops, out)
	}
	return s.applyScript(ctx, ops, out)
}

// applyScript carries out ops, whose keys share a server, by one script.
func (s *Store) applyScript(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	script, args := s.call(ops)
	reply, err := s.run(ctx, script, args)
	if err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	return decode(ops, reply, out)
}
