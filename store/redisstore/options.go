package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate/headgate/store/failover"
)

const (
	// DefaultPrefix begins every key unless Options.Prefix says otherwise.
	DefaultPrefix = "hg:"

	// DefaultTimeout bounds a call unless Options.Timeout says otherwise.
	DefaultTimeout = 50 * time.Millisecond

	// DefaultMaxTimeout bounds a call to a server that is far away unless
	// Options.MaxTimeout says otherwise.
	DefaultMaxTimeout = 250 * time.Millisecond

	// DefaultBatch is the maximum number of operations of a script call unless
	// Options.Batch says otherwise. It bounds how long one script keeps others
	// waiting.
	DefaultBatch = 128

	maxTimeout = time.Minute
	maxBatch   = 1024
)

// Options configures a store. The zero value is ready for use where no other service
// uses the server.
type Options struct {
	// Prefix begins every key and is the name of the service, such as "shop:". It must
	// not contain a brace. Two services with one prefix share the counts of rules
	// that have the same name. "" means DefaultPrefix, and a limiter then logs a
	// finding; set DefaultPrefix itself if no other service uses the server.
	Prefix string

	// Timeout bounds every call, including the wait for a connection, up to a
	// minute. Under two round trips to Redis, the call that finds a server without its
	// scripts fails; a limiter then logs findings.TooFar. 0 means DefaultTimeout, and three
	// round trips, as the store measures them, where these take longer: see MaxTimeout.
	// Connections may take ten timeouts to become ready, and calls fail until one is.
	//
	// While a server is silent, callers wait for less: until seven fifths of the timeout
	// have passed since the call with which the silence began.
	Timeout time.Duration

	// MaxTimeout bounds the timeout that follows the distance, up to a minute; 0 means
	// DefaultMaxTimeout. It must not be set beside a Timeout.
	MaxTimeout time.Duration

	// OneSlot puts all keys into one slot of a Cluster; see the package
	// comment.
	OneSlot bool

	// Secret, if set, replaces every subject in a key by its HMAC-SHA-256, so
	// that a reader of the keys does not learn the subjects. It has at least 16
	// bytes. All instances must share it; a new secret starts all counts anew.
	Secret []byte

	// Batch is the maximum number of operations that one script call decides
	// while many steps wait, up to 1024; 0 means DefaultBatch. With 1 every step
	// is a call of its own, which is necessary behind a proxy that spreads the
	// keys of a single-server client over several servers.
	Batch int

	// CacheRefusals is the number of refused keys that the process remembers
	// for a second, or until they can be allowed again, at most 1<<24; 0 means none. Their
	// requests are answered without Redis, with the same decisions except that
	// the time left is computed here. It needs up to about 500 bytes for each
	// key.
	//
	// A refusal stands until its RetryAfter unless the key is reset, refunded or granted units,
	// or its limit changes. This store takes its own operations into account;
	// it sees those of other processes a second later, or when the refusal ends.
	//
	// It answers a Take if no units come back before the Take
	// is next allowed: if it has the cost of the refused one, and that lacked a
	// single unit, as every refused Take of 1 does, or under FixedWindow. It does
	// not answer under Concurrency, whose leases may end at any time, nor Takes that
	// may be booked. Under a ban it answers while the key is
	// banned, unless the units take longer to come back. It answers no refusals that
	// Redis has to count towards a ban. It answers a step of several operations if all
	// are Takes that it answers, because a step reports what remains under all its rules.
	//
	// Without it the process remembers 4096 keys that were refused while steps waited. It
	// answers from them where it would turn a step away, or the step's time has ended: the
	// step is refused if one of its Takes is as above, and the decisions on its other Takes
	// are then as of the latest answer about their keys.
	CacheRefusals int

	// Instances is how many instances share the counts, at most 1<<20: the most that are
	// alive at a time, with those that a roll-out adds. It counts until Redis has said how
	// many there are. With 0 an instance that starts while Redis is away admits one unit of
	// a key. See [Store.Back].
	Instances int

	// MemoryKeys is the maximum number of keys in the memory that decides what Redis does
	// not decide in time, at most 1<<30; 0 means [memstore.DefaultMaxKeys].
	MemoryKeys int

	// Logger receives what happens to the store when Redis goes away and is back, in a few
	// lines. nil means slog.Default() at the time. All limiters over the store share these
	// lines, so they have no attribute limiter. Give the Logger one where several stores
	// write to one log: slog.With("limiter", "api").
	Logger *slog.Logger

	// Clock replaces the server's time, in microseconds since the Unix epoch.
	// It is for tests and simulations, because the clocks of a fleet differ.
	Clock func() int64
}

// errNoClient is the error of a store without a client.
var errNoClient = errors.New("redisstore: the client is nil")

// check returns an error that names every mistake in the options.
func (o *Options) check() error {
	var errs []error
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redisstore: the prefix %q holds a brace", o.Prefix))
	}

	if o.Secret != nil && len(o.Secret) < 16 {
		errs = append(errs, fmt.Errorf("redisstore: a secret of %d bytes is shorter than 16", len(o.Secret)))
	}
	if o.Batch < 0 || o.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("redisstore: a batch of %d is not within 0 to %d", o.Batch, maxBatch))
	}
	if o.CacheRefusals < 0 || o.CacheRefusals > maxCachedRefusals {
		errs = append(errs, fmt.Errorf("redisstore: a cache of %d refusals is not within 0 to %d",
			o.CacheRefusals, maxCachedRefusals))
	}

	return errors.Join(append(errs, o.checkTimeouts(), o.checkMemory())...)
}

// checkTimeouts returns an error that names every mistake in the timeouts.
func (o *Options) checkTimeouts() error {
	var errs []error
	if o.Timeout < 0 || o.Timeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the timeout %v is not within 0 to %v", o.Timeout, maxTimeout))
	}
	if o.MaxTimeout < 0 || o.MaxTimeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the maximum timeout %v is not within 0 to %v",
			o.MaxTimeout, maxTimeout))
	}

	if o.Timeout > 0 && o.MaxTimeout > 0 {
		errs = append(errs, fmt.Errorf("redisstore: the timeout %v is fixed, so there is no maximum timeout %v",
			o.Timeout, o.MaxTimeout))
	}
	if o.MaxTimeout > 0 && o.MaxTimeout < DefaultTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the maximum timeout %v is below the least timeout, %v",
			o.MaxTimeout, DefaultTimeout))
	}
	return errors.Join(errs...)
}

// maxMemoryKeys is the largest Options.MemoryKeys, which is that of a memstore.
const maxMemoryKeys = 1 << 30

// checkMemory returns an error that names every mistake in the options of the memory.
func (o *Options) checkMemory() error {
	var errs []error
	if o.Instances < 0 || o.Instances > failover.UnknownInstances {
		errs = append(errs, fmt.Errorf("redisstore: %d instances are not within 0 to %d",
			o.Instances, failover.UnknownInstances))
	}
	if o.MemoryKeys < 0 || o.MemoryKeys > maxMemoryKeys {
		errs = append(errs, fmt.Errorf("redisstore: a memory of %d keys is not within 0 to %d",
			o.MemoryKeys, maxMemoryKeys))
	}
	return errors.Join(errs...)
}
