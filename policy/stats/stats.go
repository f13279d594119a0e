// Package stats counts requests, and the decisions of policies on them, minute by minute over all
// instances, for display. The counts have no influence on decisions.
//
//	recorder, err := stats.New(client, stats.Options{App: "shop"})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer recorder.Close()
//	l := limiter.MustNew(limiter.Config{Observer: recorder})
//
// Any program that reaches the Redis reads the counts of all instances:
//
//	minutes, err := stats.Read(ctx, client, "", "shop")
//
// A [Recorder] counts in memory and writes to Redis once a second at any load. It can also publish
// the keys that its instance refuses and admits most often; see [Recorder.PublishTop]. A [Minute]
// has the [Counts] of the requests and of each policy. [Read] returns the last minutes, [Changed]
// and [ReadMinutes] those of the last day.
//
// A minute is one of the server's clock, so that an instance whose clock is wrong counts in the
// right one. Its counts are kept for [Keep] after the last change of them.
//
// # What may be lost
//
// A batch whose answer was lost is sent again and counts once; so do those of the last two minutes
// if the server turns out to have lost them.
//
// A process that is killed without [Recorder.Close] loses what it has counted since its
// last write: at most a second, or longer in a fleet that is large enough to write less
// often; see [Options.Every]. While Redis is away a recorder keeps 60 minutes and 100,000
// counts; beyond either the oldest minute is dropped, and its requests are counted as lost:
// [Minute.Lost].
package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/observe/events"
)

const (
	// DefaultPrefix begins every key by default.
	DefaultPrefix = "hg:"

	// DefaultTimeout bounds every call by default.
	DefaultTimeout = time.Second

	// Minutes is how many minutes Read returns, including the current one.
	Minutes = 15

	// Keep is how long the counts of a minute are kept after their last change.
	Keep = 24 * time.Hour
)

// Counts are numbers of requests, or of decisions of one policy, by [events.Verdict]. A
// request is counted once. It has a decision of each policy that applies to it.
type Counts [events.Verdicts]int64

// Add adds other to c.
func (c *Counts) Add(other Counts) {
	for i, n := range other {
		c[i] += n
	}
}

// Total returns the sum of all counts.
func (c Counts) Total() (n int64) {
	for _, m := range c {
		n += m
	}
	return n
}

// Minute holds the counts of one minute.
type Minute struct {
	Start    time.Time // in UTC, by the server's clock
	Requests Counts

	// Tens are the Requests by ten seconds, those that come later included, or nil if they are not
	// known; their sum is Requests. [ReadTens] alone sets them.
	Tens []Counts

	// Seen is when Tens were read, by the server's clock. Counts of [TensLate] before may be
	// missing.
	Seen time.Time

	// Changed is when the counts changed last, by the server's clock in whole milliseconds,
	// or zero if the server does not know. What changed while it was read may be missing in it.
	Changed time.Time

	// Lost is the number of requests that recorders gave up counting in this minute, of
	// which nothing else is known. They came earlier, while Redis was away.
	Lost int64

	// Policies are the decisions by the name of the policy. "" stands for the policies
	// beyond those that a recorder tells apart.
	Policies map[string]Counts
}

// letters has the letter of each verdict in Redis. A letter never gets another meaning.
var letters = [events.Verdicts]string{
	events.Allowed: "a", events.Waited: "w", events.Degraded: "g", events.ShadowRefused: "s", events.FailedOpen: "o",
	events.Refused: "r", events.Banned: "b", events.Impossible: "i", events.Denied: "d", events.QueueFull: "q",
	events.Canceled: "c", events.FailedClosed: "f", events.Overruled: "x",
}

// lostField is the field of Minute.Lost.
const lostField = "!"

// fieldOf returns the field of the decisions of a policy.
func fieldOf(v int, name string) string { return letters[v] + ":" + name }

// add adds a field of the hash of a minute. Fields of another version are left out.
func (m *Minute) add(field string, n int64) {
	letter, name, decision := strings.Cut(field, ":")
	if letter == lostField {
		m.Lost += n
		return
	}

	v := slices.Index(letters[:], letter)
	if v < 0 {
		return
	}

	if !decision {
		m.Requests[v] += n
		return
	}
	c := m.Policies[name]
	c[v] += n
	m.Policies[name] = c
}

func minuteOf(t time.Time) int64 { return floor(t.Unix(), 60) }

func floor(n, by int64) int64 { return (n - ((n%by)+by)%by) / by }

// keys are the keys of an application. They begin with "<prefix>{stats:<app>}:" and share a
// slot of a Cluster:
//
//	minute:<minute>  a hash of the counts of all instances in a minute since 1970: of
//	                 requests under the letter of their verdict, of decisions under the
//	                 letter, a colon and the name of the policy, and under "!" of the
//	                 requests whose counts were lost
//	tens:<minute>    a hash of the counts of requests in each ten seconds of a minute, under the
//	                 number of the ten and the letter of their verdict; see tens.go
//	changed          a sorted set of these minutes by the time of their last change, in
//	                 milliseconds
//	writers          a sorted set of the recorders by the time of their last write
//	writer:<id>      the number of the last batch that was added under the id
//	top:<id>         the top keys of a recorder, as JSON; see [Recorder.PublishTop]
//	keys:<minute>:<policy>  a hash of the busiest keys of a policy in a minute; see minutekeys.go
//	written:<minute> a hash whose fields name the calls that have added such keys
type keys struct{ base string }

func keysOf(prefix, app string) keys {
	return keys{cmp.Or(prefix, DefaultPrefix) + "{stats:" + app + "}:"}
}

func (k keys) minute(m int64) string   { return k.base + "minute:" + strconv.FormatInt(m, 10) }
func (k keys) tens(m int64) string     { return k.base + "tens:" + strconv.FormatInt(m, 10) }
func (k keys) changed() string         { return k.base + "changed" }
func (k keys) writers() string         { return k.base + "writers" }
func (k keys) writer(id string) string { return k.base + "writer:" + id }
func (k keys) top(id string) string    { return k.base + "top:" + id }
func (k keys) written(m int64) string  { return k.base + "written:" + strconv.FormatInt(m, 10) }

func (k keys) minuteKeys(m int64, policy string) string {
	return k.base + "keys:" + strconv.FormatInt(m, 10) + ":" + policy
}

// Read returns the last [Minutes] minutes of an application by the server's clock, the
// current one last, added up over all instances. Minutes without requests are included and
// empty. An empty prefix means [DefaultPrefix]. Read takes two round trips, more if there
// are thousands of policies, and at most [DefaultTimeout].
func Read(ctx context.Context, client redis.UniversalClient, prefix, app string) ([]Minute, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()

	// No minute has changed since the far future: only the server's clock is asked for.
	_, now, err := Changed(ctx, client, prefix, app, time.Unix(1<<40, 0))
	if err != nil {
		return nil, err
	}

	wanted := make([]time.Time, Minutes)
	for i := range wanted {
		wanted[i] = now.Truncate(time.Minute).Add(time.Duration(i-Minutes+1) * time.Minute)
	}
	return ReadMinutes(ctx, client, prefix, app, wanted)
}

// changes lists the minutes that have changed since an instant, the first changed first.
//
// KEYS: changed. ARGV: the instant in milliseconds. Reply: the server's time in seconds and
// microseconds, and the minutes.
var changes = redis.NewScript(`
local reply = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf')
local t = redis.call('TIME')
table.insert(reply, 1, t[2])
table.insert(reply, 1, t[1])
return reply
`)

// Changed returns the minutes of an application whose counts have changed since an instant
// of the server's clock, that of the last change last, and the server's clock.
// A caller that reads the counts of these minutes afterwards, and asks later for the changes
// since the time that was returned, misses none.
func Changed(
	ctx context.Context, client redis.UniversalClient, prefix, app string, since time.Time,
) (minutes []time.Time, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()

	var reply []string
	err = rediscall.NewCaller(client).Do(ctx, func(ctx context.Context) (err error) {
		reply, err = changes.Run(ctx, client, []string{keysOf(prefix, app).changed()}, since.UnixMilli()).StringSlice()
		return err
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("stats: %w", err)
	}
	if len(reply) < 2 {
		return nil, time.Time{}, errors.New("stats: the server did not say its time")
	}

	// What is no number was written by another program, and is left out.
	for _, text := range reply[2:] {
		if m, err := strconv.ParseInt(text, 10, 64); err == nil {
			minutes = append(minutes, startOf(m))
		}
	}
	return minutes, timeOf(reply[0], reply[1]), nil
}

// startOf returns the start of a minute.
func startOf(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

// timeOf returns the time of a reply of TIME.
func timeOf(seconds, micros string) time.Time {
	s, _ := strconv.ParseInt(seconds, 10, 64)
	us, _ := strconv.ParseInt(micros, 10, 64)
	return time.Unix(s, us*1000).UTC()
}

const (
	// scanned is about how many fields of a minute one reply holds.
	scanned = 2000

	// maxFields is how many fields of a minute are read: each verdict of more policies than
	// there may be.
	maxFields = 1 << 18
)

// ReadMinutes returns the counts of minutes of an application, in the order in which they
// are given. One that the server does not have is empty. Each reply of the server is small,
// however many policies there are. Of a minute with more fields than all instances write,
// ReadMinutes reads a part.
func ReadMinutes(
	ctx context.Context, client redis.UniversalClient, prefix, app string, wanted []time.Time,
) ([]Minute, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*DefaultTimeout)
	defer cancel()
	calls, k := rediscall.NewCaller(client), keysOf(prefix, app)

	fields, numbers := make([]map[string]int64, len(wanted)), make([]string, len(wanted))
	cursors := map[int]uint64{}
	for i := range wanted {
		fields[i], cursors[i] = map[string]int64{}, 0
		numbers[i] = strconv.FormatInt(minuteOf(wanted[i]), 10)
	}

	// The times of changes are read before the counts: what changes in between is a later change.
	var changed *redis.FloatSliceCmd
	for len(cursors) > 0 {
		replies := map[int]*redis.ScanCmd{}

		// One round trip has the next page of each minute that is not read to its end.
		err := calls.Do(ctx, func(ctx context.Context) error {
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				if changed == nil || changed.Err() != nil {
					changed = p.ZMScore(ctx, k.changed(), numbers...)
				}
				for i, cursor := range cursors {
					replies[i] = p.HScan(ctx, k.minute(minuteOf(wanted[i])), cursor, "", scanned)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("stats: %w", err)
		}

		for i, reply := range replies {
			page, cursor := reply.Val()
			for at := 0; at+1 < len(page); at += 2 {
				if n, err := strconv.ParseInt(page[at+1], 10, 64); err == nil && len(fields[i]) < maxFields {
					fields[i][page[at]] = n // a scan may repeat a field
				}
			}
			if cursors[i] = cursor; cursor == 0 || len(fields[i]) == maxFields {
				delete(cursors, i)
			}
		}
	}

	minutes := make([]Minute, len(wanted))
	for i := range minutes {
		minutes[i] = Minute{
			Start: startOf(minuteOf(wanted[i])), Changed: changeOf(changed.Val(), i), Policies: map[string]Counts{},
		}
		for field, n := range fields[i] {
			minutes[i].add(field, n)
		}
	}
	return minutes, nil
}

// changeOf returns the time of a score in the sorted set of changes. A minute that is not in the
// set has 0.
func changeOf(scores []float64, i int) time.Time {
	if i >= len(scores) || !(scores[i] > 0 && scores[i] < 1<<53) {
		return time.Time{}
	}
	return time.UnixMilli(int64(scores[i])).UTC()
}

// Total adds up the decisions of the minutes by policy.
func Total(minutes []Minute) map[string]Counts {
	total := map[string]Counts{}
	for _, m := range minutes {
		for name, n := range m.Policies {
			c := total[name]
			c.Add(n)
			total[name] = c
		}
	}
	return total
}

// Requests adds up the requests of the minutes, and those whose counts were lost.
func Requests(minutes []Minute) (total Counts, lost int64) {
	for _, m := range minutes {
		total.Add(m.Requests)
		lost += m.Lost
	}
	return total, lost
}
