// Package stats adds up, for people who watch, what becomes of the requests
// under each policy, minute by minute over all instances.
//
// A [Recorder] counts in memory and writes to Redis once a second, whatever the
// load; [Read] adds up what all instances have written. The figures of a minute
// are kept for twenty. Nothing is decided by them.
//
// The figures of an application for one minute are one hash,
// "<prefix>{figures:<app>}:<minute>", with a field for each instance. An
// instance always writes its own field anew, so a write that is repeated counts
// nothing twice.
package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/policy/internal/bounded"
	"github.com/redis/go-redis/v9"
)

const (
	// DefaultPrefix begins every key unless it is told otherwise.
	DefaultPrefix = "hg:"

	// DefaultTimeout bounds every call unless it is told otherwise.
	DefaultTimeout = time.Second

	// Minutes is how many are read, with the one that is running.
	Minutes = 15

	// expiry is how long the figures of a minute are kept.
	expiry = 20 * time.Minute
)

// Counts are numbers of requests under one policy. Each request adds to one of
// them, or to none if it was refused by other policies.
type Counts struct {
	Passed   int64 // within the limit
	Refused  int64 // over it
	Degraded int64 // over it, and passed marked
	Shadowed int64 // over it, in shadow
	Failed   int64 // nobody could decide
}

// Add adds other to c.
func (c *Counts) Add(other Counts) {
	c.Passed += other.Passed
	c.Refused += other.Refused
	c.Degraded += other.Degraded
	c.Shadowed += other.Shadowed
	c.Failed += other.Failed
}

// Minute is what happened in one minute.
type Minute struct {
	Start    time.Time         // in UTC
	Policies map[string]Counts // by name; "" is for failures about no single policy
}

// tallies are what an instance writes: by policy, the Counts in their order.
type tallies map[string][5]int64

func (t tallies) add(name string, n [5]int64) {
	sum := t[name]
	for i := range n {
		sum[i] += n[i]
	}
	t[name] = sum
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// keyOf is the key of an application's minute.
func keyOf(prefix, app string, minute int64) string {
	return cmp.Or(prefix, DefaultPrefix) + "{figures:" + app + "}:" + strconv.FormatInt(minute, 10)
}

// Read returns the last [Minutes] of an application, the running one last, by
// the clock of this process, added up over all instances. Minutes in which
// nothing happened are there and empty. It takes one round trip and at most
// [DefaultTimeout].
func Read(ctx context.Context, client redis.UniversalClient, prefix, app string) ([]Minute, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	now := minuteOf(time.Now())
	replies := make([]*redis.MapStringStringCmd, Minutes)
	err := bounded.NewCaller(client).Do(ctx, func(ctx context.Context) error {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range replies {
				replies[i] = p.HGetAll(ctx, keyOf(prefix, app, now-Minutes+1+int64(i)))
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	minutes := make([]Minute, Minutes)
	for i := range minutes {
		minutes[i] = Minute{time.Unix((now-Minutes+1+int64(i))*60, 0).UTC(), sum(replies[i].Val())}
	}
	return minutes, nil
}

// sum adds up what the instances wrote.
func sum(fields map[string]string) map[string]Counts {
	total := map[string]Counts{}
	for _, text := range fields {
		var t tallies
		if json.Unmarshal([]byte(text), &t) != nil {
			continue // of another version of this package
		}
		for name, n := range t {
			c := total[name]
			c.Add(Counts{n[0], n[1], n[2], n[3], n[4]})
			total[name] = c
		}
	}
	return total
}

// Total adds up the minutes.
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

// Names returns the names of all policies in the minutes, in order.
func Names(minutes []Minute) []string {
	var names []string
	for name := range Total(minutes) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
