package stats

import (
	"cmp"
	"context"
	crand "crypto/rand"
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

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/internal/serverclock"
)

// DefaultEvery is the time between two writes.
const DefaultEvery = time.Second

// Options configure a recorder. App must be set.
type Options struct {
	// App is the application whose requests are counted.
	App string

	// Prefix begins every key; "" means DefaultPrefix. It must not hold a brace.
	Prefix string

	// Every is the time between two writes, up to a minute; 0 means
	// DefaultEvery. Each pause is shortened by a random part of up to a fifth. It grows, up
	// to a minute, where all instances together would write more than 20,000 counts a
	// second. The requests alone are then written every ten seconds all the same, unless Every
	// is longer than that.
	Every time.Duration

	// Timeout bounds every write, up to a minute; 0 means DefaultTimeout.
	Timeout time.Duration

	// Clock returns the time of this process, by which requests are counted until the
	// server's time is known; nil means time.Now.
	Clock func() time.Time

	// Logger receives a record when writing begins to fail and when it succeeds
	// again. nil means slog.Default() at the time.
	Logger *slog.Logger
}

func (o *Options) validate() error {
	var errs []error
	if err := policy.CheckApp(o.App); err != nil {
		errs = append(errs, fmt.Errorf("stats: Options.App: %w", err))
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

// Recorder is an [events.Counter]; see [events.Join] for several. It is safe for
// concurrent use. Observe never waits for Redis. The caller must call Close.
type Recorder struct {
	options Options
	client  redis.UniversalClient
	calls   *rediscall.Caller
	keys    keys

	requests counter
	seed     maphash.Seed
	shards   [shards]shard

	writing sync.Mutex

	// Guarded by writing. Methods that use them need it.
	ledger  ledger
	clock   serverclock.Clock
	born    time.Time     // by this process's clock
	wall    time.Time     // what that clock showed then, for want of the server's
	pause   time.Duration // until the next write
	id      string        // of this recorder
	writers int64         // that write, with this one, as the server said last
	top     publication

	asked, answered time.Time // of the last call

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

// counter holds the counts since they were last collected.
type counter [events.Verdicts]atomic.Int64

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

	if o.Clock == nil {
		o.Clock = time.Now
	}

	now := time.Now()
	r := &Recorder{
		options: o, client: client, calls: rediscall.NewCaller(client), keys: keysOf(o.Prefix, o.App),
		seed: maphash.MakeSeed(), ledger: newLedger(), id: crand.Text(), born: now, wall: o.Clock(),
		pause: cmp.Or(o.Every, DefaultEvery),
	}

	ctx, end := context.WithCancel(context.Background())
	r.end = end
	r.done.Go(func() { r.run(ctx) })
	return r, nil
}

// Observe implements [events.Observer].
func (r *Recorder) Observe(_ context.Context, e *events.Request) {
	r.countRequest(e.Verdict)
	for i := range e.Rules {
		r.count(e.Rules[i].Name, e.Rules[i].Verdict)
	}
}

// CountRequest implements [events.Counter].
func (r *Recorder) CountRequest(_ context.Context, p events.Plain) { r.countRequest(p.Verdict) }

// RuleCounter implements [events.Counter].
func (r *Recorder) RuleCounter(rule string) events.RuleCounter {
	return &ruleCounter{recorder: r, rule: rule}
}

// ruleCounter counts the decisions of a policy on plain requests. The policy has no place among
// those of the recorder before there is something to count.
type ruleCounter struct {
	recorder *Recorder
	rule     string
	found    atomic.Pointer[counter] // which is never removed
}

// Count implements [events.RuleCounter].
func (r *ruleCounter) Count(_ context.Context, v events.Verdict) {
	n := r.found.Load()
	if n == nil {
		n = r.recorder.counter(r.rule)
		r.found.Store(n)
	}
	n[v].Add(1)
}

func (r *Recorder) countRequest(v events.Verdict) { r.requests[v].Add(1) }

func (r *Recorder) count(rule string, v events.Verdict) { r.counter(rule)[v].Add(1) }

// counter returns the counter of the policy, or that of "" if there are too many.
func (r *Recorder) counter(name string) *counter {
	s := &r.shards[maphash.String(r.seed, name)%shards]
	if known := s.counters.Load(); known != nil && (*known)[name] != nil {
		return (*known)[name]
	}
	if c := s.add(name, maxCounters); c != nil {
		return c
	}
	return r.shards[maphash.String(r.seed, "")%shards].add("", maxCounters+1)
}

// add returns the counter of the policy, which another goroutine may have added
// just before, or nil if there are most already.
func (s *shard) add(name string, most int) *counter {
	s.adding.Lock()
	defer s.adding.Unlock()

	next := map[string]*counter{}
	if known := s.counters.Load(); known != nil {
		if c := (*known)[name]; c != nil || len(*known) >= most {
			return c
		}
		next = maps.Clone(*known)
	}

	// Names of rules may be parts of larger texts, which a key of the map would keep in memory.
	c := &counter{}
	next[strings.Clone(name)] = c
	s.counters.Store(&next)
	return c
}

// empty returns the counts and resets them to 0.
func (c *counter) empty() (n Counts) {
	for i := range c {
		n[i] = c[i].Swap(0)
	}
	return n
}

// run writes until ctx ends.
func (r *Recorder) run(ctx context.Context) {
	for {
		r.writing.Lock()
		pause := r.pause
		r.writing.Unlock()
		due := time.Now().Add(pause - rand.N(pause/5+1))

		// What was counted in ten seconds is taken when they end, however long the pause is.
		for {
			next := r.endOfTen()
			if next.After(due) {
				break
			}
			if !sleepUntil(ctx, next) {
				return
			}
			r.logOutcome(r.endTen(next, due))
		}

		if !sleepUntil(ctx, due) {
			return
		}
		r.logOutcome(r.Flush(context.Background()))
	}
}

// sleepUntil waits for an instant, and reports whether ctx has not ended before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// endOfTen returns when the current ten seconds end, by this process's clock.
func (r *Recorder) endOfTen() time.Time {
	r.writing.Lock()
	defer r.writing.Unlock()
	local := time.Now()
	now := r.at(local)
	return local.Add(now.Truncate(Ten).Add(Ten).Sub(now))
}

// endTen takes what was counted in the ten seconds that end. It writes the requests unless all
// counts are due soon.
func (r *Recorder) endTen(end, due time.Time) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.collect(end.Add(-1))

	_, known := r.clock.At(end)
	if !known || due.Sub(end) < soon || r.options.Every > Ten {
		return nil
	}
	r.ledger.hasten()
	if r.ledger.next == nil {
		return nil
	}
	if err := r.write(context.Background(), r.ledger.next, ""); err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	return nil
}

// at returns what the server's clock shows at an instant of this process, or what this process's
// clock shows while the server's is not known.
func (r *Recorder) at(local time.Time) time.Time {
	if now, known := r.clock.At(local); known {
		return now
	}
	return r.wall.Add(local.Sub(r.born))
}

// Close stops the recorder and writes the remaining counts, and then the last top keys. It
// returns the error of that. It may be called again.
func (r *Recorder) Close() error {
	r.end()
	r.done.Wait()
	if err := r.Flush(context.Background()); err != nil {
		return err
	}

	// The last top keys are due now, whenever those before them were written.
	r.writing.Lock()
	r.topFailed()
	r.writing.Unlock()
	return r.Flush(context.Background())
}

// Flush writes the counts now, and the top keys if they are due. Counts that cannot be
// written are kept for the next attempt, within the bounds that the package comment states.
func (r *Recorder) Flush(ctx context.Context) error {
	r.writing.Lock()
	defer r.writing.Unlock()

	// Counts are collected even if the server cannot be asked, so that each is in its minute.
	err := r.learnTime(ctx)
	r.collect(time.Now())

	// The first call takes the top keys with it, and the keys of the minute come last.
	for top := r.topNow(); err == nil; top = "" {
		b := r.ledger.batch()
		if b == nil && top == "" {
			err = r.writeMinutes(ctx)
			break
		}
		err = r.write(ctx, b, top)
	}
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	return nil
}

// learnTime asks the server for its time, unless it is known.
func (r *Recorder) learnTime(ctx context.Context) error {
	if _, known := r.clock.At(time.Now()); known {
		return nil
	}

	reply, err := r.ask(ctx, askTime, []string{r.keys.changed()})
	if err != nil {
		return err
	}
	if len(reply) != 2 {
		return errors.New("the server did not say its time")
	}

	r.clock.Adjust(r.asked, r.answered, time.Unix(reply[0], reply[1]*1000))

	// What waits was counted by this process's clock, which may be wrong.
	server, _ := r.clock.At(r.born)
	r.ledger.dateWaiting(server.Sub(r.wall))
	return nil
}

// askTime returns the time of the server that has the key.
//
// KEYS: any key of the application. Reply: seconds and microseconds.
var askTime = redis.NewScript(`
local t = redis.call('TIME')
return {tonumber(t[1]), tonumber(t[2])}
`)

// collect moves the counts into the ledger, under the minute of an instant of this process.
func (r *Recorder) collect(local time.Time) {
	minute, ten := r.ledger.slot(r.at(local))
	if n := r.requests.empty(); n != (Counts{}) {
		r.ledger.addRequests(minute, ten, n)
	}

	// A counter that another goroutine adds meanwhile is collected next time.
	for i := range r.shards {
		known := r.shards[i].counters.Load()
		if known == nil {
			continue
		}
		for name, c := range *known {
			if n := c.empty(); n != (Counts{}) {
				r.ledger.addDecisions(minute, name, n)
			}
		}
	}

	r.ledger.bound()
}

// add adds a batch to the counts, if it is the one that comes next, and replaces the top keys
// of the recorder.
//
// KEYS: writer, writers, changed, top, and the minutes of the batch, each before its tens. ARGV:
// the recorder's id; the number of the batch, or 0 for none; the milliseconds for which the counts
// and the number are kept; the milliseconds for which a recorder counts as writing and its top keys
// are kept; the top keys, or "" to leave them as they are; the milliseconds for which tens are
// kept; for each minute its number, and for it and for its tens how many fields follow, and each
// field with what it adds. Reply: the number of the last batch that was added before, the time in
// seconds and microseconds, and how many recorders write.
var add = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
if last == ARGV[2] - 1 then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  local at = 7
  for k = 5, #KEYS, 2 do
    redis.call('ZADD', KEYS[3], string.format('%d', now), ARGV[at])
    at = at + 1
    for hash = k, k + 1 do
      local fields = tonumber(ARGV[at])
      at = at + 1
      for i = 1, fields do
        redis.call('HINCRBY', KEYS[hash], ARGV[at], ARGV[at + 1])
        at = at + 2
      end
      redis.call('PEXPIRE', KEYS[hash], ARGV[hash == k and 3 or 6])
    end
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%d', now - ARGV[3]))
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
end
if ARGV[5] ~= '' then
  redis.call('SET', KEYS[4], ARGV[5], 'PX', ARGV[4])
end
redis.call('ZADD', KEYS[2], string.format('%d', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now - ARGV[4]))
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {last, tonumber(t[1]), tonumber(t[2]), redis.call('ZCARD', KEYS[2])}
`)

// write sends a batch, or none if b is nil, and top keys, or none if top is "". If the server
// has lost earlier batches, all that it may lack go back into the ledger, and no error is
// returned.
func (r *Recorder) write(ctx context.Context, b *batch, top string) error {
	if b == nil {
		b = &batch{}
	}

	// In the order that the script expects: the fields of each minute follow its number.
	keys := []string{r.keys.writer(r.ledger.id), r.keys.writers(), r.keys.changed(), r.keys.top(r.id)}
	args := []any{r.id, b.number, Keep.Milliseconds(), TopKept.Milliseconds(), top, tensKept.Milliseconds()}
	fields := 0
	for _, m := range b.minutes {
		list, tens := m.fields(), m.tens()
		keys = append(keys, r.keys.minute(m.minute), r.keys.tens(m.minute))
		args = append(append(args, m.minute, len(list)/2), list...)
		args = append(append(args, len(tens)/2), tens...)
		fields += len(list) / 2
	}

	reply, err := r.ask(ctx, add, keys, args...)
	if err == nil && len(reply) != 4 {
		err = errors.New("the server's answer is not of this version")
	}
	if err != nil {
		r.topFailed()
		return err
	}

	r.clock.Adjust(r.asked, r.answered, time.Unix(reply[1], reply[2]*1000))
	r.pause, r.writers = r.pauseFor(fields, reply[3]), reply[3]
	r.topWritten(top)

	// The server adds a batch only after the one before. If its last one is older, it has lost
	// some, and this batch was not added.
	switch {
	case b.number == 0:
	case reply[0] < b.number-1:
		r.ledger.rewind(reply[0])
	default:
		r.ledger.written(r.answered)
	}
	return nil
}

// budget is how many counts all instances together write in a second. A server takes
// about a microsecond for each.
const budget = 20_000

// pauseFor returns the time until the next write, when each of the writers writes so
// many fields at a time.
func (r *Recorder) pauseFor(fields int, writers int64) time.Duration {
	every := cmp.Or(r.options.Every, DefaultEvery)
	needed := time.Duration(fields) * time.Duration(writers) * (time.Second / budget)
	return min(max(every, needed), time.Minute)
}

// ask runs a script, and keeps when it was sent and answered.
func (r *Recorder) ask(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (reply []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.options.Timeout, DefaultTimeout))
	defer cancel()
	r.asked = time.Now()
	err = r.calls.Do(ctx, func(ctx context.Context) (err error) {
		reply, err = script.Run(ctx, r.client, keys, args...).Int64Slice()
		return err
	})
	r.answered = time.Now()
	return reply, err
}

// logOutcome logs when writing begins to fail and when it works again.
func (r *Recorder) logOutcome(err error) {
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
