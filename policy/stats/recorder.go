package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/events"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/policy"
	"github.com/redis/go-redis/v9"
)

// DefaultEvery is the time between two writes.
const DefaultEvery = time.Second

// Options configure a recorder. App and Instance must be set.
type Options struct {
	// App is the application whose requests are counted.
	App string

	// Instance is a name that no other process of the application has, such as
	// policy.Follower.Instance returns.
	Instance string

	// Prefix begins every key; "" means DefaultPrefix. It must not hold a brace.
	Prefix string

	// Every is the time between two writes, up to a minute; 0 means
	// DefaultEvery. Each pause is shortened by a random part of up to a fifth.
	Every time.Duration

	// Timeout bounds every write, up to a minute; 0 means DefaultTimeout.
	Timeout time.Duration

	// Logger receives a record when writing begins to fail and when it succeeds
	// again. nil means slog.Default() at the time.
	Logger *slog.Logger
}

func (o *Options) validate() error {
	var errs []error
	if err := policy.CheckApp(o.App); err != nil {
		errs = append(errs, fmt.Errorf("stats: Options.App: %w", err))
	}
	if o.Instance == "" || len(o.Instance) > 128 {
		errs = append(errs, errors.New("stats: Options.Instance is not 1 to 128 bytes"))
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("stats: Options.Prefix: %q holds a brace", o.Prefix))
	}
	if o.Every < 0 || o.Every > time.Minute {
		errs = append(errs, fmt.Errorf("stats: Options.Every: %s is not within 0 to 1m", o.Every))
	}
	if o.Timeout < 0 || o.Timeout > time.Minute {
		errs = append(errs, fmt.Errorf("stats: Options.Timeout: %s is not within 0 to 1m", o.Timeout))
	}
	return errors.Join(errs...)
}

// Recorder is an [events.Observer] that counts; see [events.Join] for several. It is safe for concurrent use.
// Observe never waits for Redis. The caller must call Close.
type Recorder struct {
	options Options
	client  redis.UniversalClient
	calls   *rediscall.Caller

	seed   maphash.Seed
	shards [shards]shard

	writing sync.Mutex // guards buckets
	buckets []*bucket  // the last Minutes, the newest last

	failing bool // as logged last; used by run only

	end  context.CancelFunc
	done sync.WaitGroup
}

// shards is the number of maps that hold the counters, so that adding a counter
// copies few others.
const shards = 256

// shard holds some of the counters, by the name of the policy.
type shard struct {
	counters atomic.Pointer[map[string]*counter] // replaced as a whole
	adding   sync.Mutex
}

// maxCounters is the maximum number of counters of one shard.
const maxCounters = policy.MaxPolicies / shards * 4

// counter holds the counts since they were last collected, in the order of Counts.
type counter [len(tally{})]atomic.Int64

// bucket is one minute of this instance.
type bucket struct {
	minute  int64
	counts  tallies
	unsaved bool
}

// New returns a recorder that writes until Close. It does not connect. The error
// names every mistake in the options.
func New(client redis.UniversalClient, o Options) (*Recorder, error) {
	err := o.validate()
	if client == nil {
		err = errors.Join(err, errors.New("stats: the client is nil"))
	}
	if err != nil {
		return nil, err
	}
	r := &Recorder{options: o, client: client, calls: rediscall.NewCaller(client), seed: maphash.MakeSeed()}
	ctx, end := context.WithCancel(context.Background())
	r.end = end
	r.done.Go(func() { r.run(ctx) })
	return r, nil
}

// Observe implements [events.Observer].
func (r *Recorder) Observe(_ context.Context, e *events.Request) {
	for i := range e.Rules {
		r.count(e.Rules[i].Name, kinds[e.Rules[i].Verdict])
	}
	if len(e.Rules) == 0 {
		if k := kinds[e.Verdict]; k == failed {
			r.count("", k)
		}
	}
}

func (r *Recorder) count(rule string, kind int8) {
	if kind < 0 {
		return
	}
	if c := r.counter(rule); c != nil {
		c[kind].Add(1)
	}
}

// failed is the index of Counts.Failed.
const failed = 4

// kinds has, for each verdict, the index of the field of Counts that it adds to, or -1.
var kinds = [events.Verdicts]int8{
	events.Allowed: 0, events.Waited: 0,
	events.Refused: 1, events.Impossible: 1, events.Denied: 1, events.QueueFull: 1, events.Canceled: 1,
	events.Degraded: 2, events.ShadowRefused: 3,
	events.FailedOpen: failed, events.FailedClosed: failed,
	events.Banned:    5,
	events.Overruled: -1,
}

// counter returns the counter of the policy, or nil if there are too many.
func (r *Recorder) counter(name string) *counter {
	s := &r.shards[maphash.String(r.seed, name)%shards]
	if known := s.counters.Load(); known != nil && (*known)[name] != nil {
		return (*known)[name]
	}
	return s.add(name)
}

// add returns the counter of the policy, which another goroutine may have added
// just before, or nil if there are too many.
func (s *shard) add(name string) *counter {
	s.adding.Lock()
	defer s.adding.Unlock()
	next := map[string]*counter{}
	if known := s.counters.Load(); known != nil {
		if c := (*known)[name]; c != nil || len(*known) >= maxCounters {
			return c
		}
		next = maps.Clone(*known)
	}
	c := &counter{}
	next[strings.Clone(name)] = c
	s.counters.Store(&next)
	return c
}

// run writes until ctx ends.
func (r *Recorder) run(ctx context.Context) {
	every := cmp.Or(r.options.Every, DefaultEvery)
	for {
		timer := time.NewTimer(every - rand.N(every/5+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			r.note(r.Flush(context.Background()))
		}
	}
}

// Close stops the recorder and writes the remaining counts. It returns the error
// of that write. It may be called again.
func (r *Recorder) Close() error {
	r.end()
	r.done.Wait()
	return r.Flush(context.Background())
}

// Flush writes the counts now. Counts that cannot be written are kept for the next
// attempt until they are too old for [Read].
func (r *Recorder) Flush(ctx context.Context) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.collect(minuteOf(time.Now()))
	fields := map[string]string{}
	for _, b := range r.buckets {
		if !b.unsaved {
			continue
		}
		text, err := json.Marshal(b.counts)
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		fields[keyOf(r.options.Prefix, r.options.App, b.minute)] = string(text)
	}
	if len(fields) == 0 {
		return nil
	}
	if err := r.write(ctx, fields); err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	for _, b := range r.buckets {
		b.unsaved = false
	}
	return nil
}

// collect moves the counts into the bucket of the minute.
func (r *Recorder) collect(minute int64) {
	for i := range r.shards {
		known := r.shards[i].counters.Load()
		if known == nil {
			continue
		}
		for name, c := range *known {
			if n := c.empty(); n != (tally{}) {
				b := r.bucket(minute)
				b.counts.add(name, n)
				b.unsaved = true
			}
		}
	}
}

// empty returns the counts and resets them to 0.
func (c *counter) empty() (n tally) {
	for i := range c {
		n[i] = c[i].Swap(0)
	}
	return n
}

// bucket returns the bucket of the minute. A new one may replace the oldest.
func (r *Recorder) bucket(minute int64) *bucket {
	for _, b := range r.buckets {
		if b.minute == minute {
			return b
		}
	}
	if len(r.buckets) == Minutes {
		r.buckets = append(r.buckets[:0], r.buckets[1:]...)
	}
	b := &bucket{minute: minute, counts: tallies{}}
	r.buckets = append(r.buckets, b)
	return b
}

// write sends all fields and their expiry in one transaction, so that every key
// expires.
func (r *Recorder) write(ctx context.Context, fields map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.options.Timeout, DefaultTimeout))
	defer cancel()
	return r.calls.Do(ctx, func(ctx context.Context) error {
		_, err := r.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for key, text := range fields {
				p.HSet(ctx, key, r.options.Instance, text)
				p.PExpire(ctx, key, expiry)
			}
			return nil
		})
		return err
	})
}

// note logs when writing begins to fail and when it works again.
func (r *Recorder) note(err error) {
	failing := err != nil
	if failing == r.failing {
		return
	}
	r.failing = failing
	logger := r.options.Logger
	if logger == nil {
		logger = slog.Default()
	}
	if failing {
		logger.Warn("headgate: the counts of policies cannot be written", slog.String("error", err.Error()))
	} else {
		logger.Info("headgate: the counts of policies are written again")
	}
}
