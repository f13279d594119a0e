// Package redissource publishes policies in Redis to all instances that follow them, and lists
// which instance runs which version.
//
//	source, err := redissource.New(client, redissource.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//
//	// The program that manages the policies publishes them, here for the first time.
//	version, err := source.Publish(ctx, set, "")
//	if err != nil {
//		log.Fatal(err)
//	}
//
//	// Each instance follows them.
//	follower, err := policy.Follow(ctx, l, "shop", policy.Bindings{}, source, policy.Options{})
//
// A [Source] serves both sides, and is safe for concurrent use. [Options] have the prefix of its
// keys: sources with different prefixes are independent. A [ConflictError] says that another writer
// has published meanwhile. Package managed puts the side of an instance together.
package redissource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/internal/serverclock"
)

// Defaults of the zero Options.
const (
	DefaultPrefix  = "hg:"
	DefaultTimeout = time.Second
)

const maxTimeout = time.Minute

// Options configure a source. The zero value is ready for use.
type Options struct {
	// Prefix begins every key and the channel; "" means DefaultPrefix. It must
	// not hold a brace. Sources with different prefixes are independent.
	Prefix string

	// Timeout bounds every call, up to a minute; 0 means DefaultTimeout. A
	// context that ends sooner ends the call sooner.
	Timeout time.Duration

	// Clock returns the time of this process, of which reports say how far it is off the
	// server's; nil means time.Now.
	Clock func() time.Time
}

// Source is a [policy.Source] in Redis. It is safe for concurrent use. It does not
// close the client.
type Source struct {
	client  redis.UniversalClient
	calls   *rediscall.Caller
	timeout time.Duration
	clock   func() time.Time
	server  serverclock.Clock

	// The keys begin with the prefix and "{policies}:", so they share a slot of a Cluster:
	//
	//	snapshot   a hash of "version", "data", the policies as policy.EncodeJSON
	//	           writes them, and "origin", see originForm; it never expires
	//	reported   a sorted set of the processes of instances by the time of their
	//	           report, in milliseconds
	//	instances  a hash of the reports
	//
	// The last two expire a minute after the last report. The channel "changed"
	// announces every new version; a follower that misses the message finds the
	// version by polling.
	snapshot, reported, instances, channel string
}

// New returns a source that uses the client, which may be for a server, a Cluster
// or a master that Sentinels watch. It does not connect. The error names every
// mistake in the options.
//
// Set ContextTimeoutEnabled in the client's options: without it the client
// ignores deadlines, and each call needs another goroutine to return in time.
func New(client redis.UniversalClient, o Options) (*Source, error) {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("redissource: the client is nil"))
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redissource: the prefix %q holds a brace", o.Prefix))
	}
	if o.Timeout < 0 || o.Timeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redissource: the timeout %v is not within 0 to %v", o.Timeout, maxTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	if o.Clock == nil {
		o.Clock = time.Now
	}

	prefix := cmp.Or(o.Prefix, DefaultPrefix) + "{policies}:"
	return &Source{
		client:    client,
		calls:     rediscall.NewCaller(client),
		timeout:   cmp.Or(o.Timeout, DefaultTimeout),
		clock:     o.Clock,
		snapshot:  prefix + "snapshot",
		reported:  prefix + "reported",
		instances: prefix + "instances",
		channel:   prefix + "changed",
	}, nil
}

// do makes one call within the timeout.
func (s *Source) do(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.calls.Do(ctx, f); err != nil {
		return fmt.Errorf("redissource: %w", err)
	}
	return nil
}

// Load implements [policy.Source].
func (s *Source) Load(ctx context.Context, known string) (policy.Snapshot, error) {
	// Almost every poll finds the version that it knows, and is spared the data.
	version, err := s.Version(ctx)
	switch {
	case err != nil:
		return policy.Snapshot{}, err
	case version == "":
		return policy.Snapshot{}, fmt.Errorf("redissource: %w", policy.ErrMissing)
	case version == known:
		return policy.Snapshot{}, policy.ErrUnchanged
	}

	var fields []any
	err = s.do(ctx, func(ctx context.Context) (err error) {
		fields, err = s.client.HMGet(ctx, s.snapshot, "version", "data").Result()
		return err
	})
	if err != nil {
		return policy.Snapshot{}, err
	}

	// The version may have changed between the two calls, and that of the data counts.
	version, _ = fields[0].(string)
	data, _ := fields[1].(string)
	if version == "" {
		return policy.Snapshot{}, fmt.Errorf("redissource: %w", policy.ErrMissing)
	}

	// Another program may have written one of the fields.
	if !strings.HasSuffix(version, "."+digest([]byte(data))) {
		return policy.Snapshot{}, &policy.RevisionError{Version: version,
			Err: errors.New("the data is not what was published")}
	}

	set, err := policy.DecodeJSON([]byte(data))
	if err != nil {
		return policy.Snapshot{}, &policy.RevisionError{Version: version, Err: err}
	}
	return policy.Snapshot{Version: version, Policies: set}, nil
}

// Version returns the version that is published, or "" if none is.
func (s *Source) Version(ctx context.Context) (string, error) {
	var version string
	err := s.do(ctx, func(ctx context.Context) (err error) {
		version, err = s.client.HGet(ctx, s.snapshot, "version").Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return version, nil
}

// digest returns a short hash of the data.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
