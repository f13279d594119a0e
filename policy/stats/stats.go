// Package stats counts the outcomes of requests under each policy, minute by
// minute over all instances, for display.
//
// A [Recorder] counts in memory and writes to Redis once a second at any load;
// [Read] adds up the counts of all instances. The counts of a minute are kept for
// twenty minutes. They have no influence on decisions.
//
// The counts of an application for one minute are one hash,
// "<prefix>{stats:<app>}:<minute>", with a field for each instance. An
// instance always overwrites its own field, so repeating a write counts nothing
// twice.
package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/redis/go-redis/v9"
)

const (
	// DefaultPrefix begins every key by default.
	DefaultPrefix = "hg:"

	// DefaultTimeout bounds every call by default.
	DefaultTimeout = time.Second

	// Minutes is how many minutes Read returns, including the current one.
	Minutes = 15

	// expiry is how long the counts of a minute are kept.
	expiry = 20 * time.Minute
)

// Counts are numbers of requests under one policy. Each request adds to one of
// them, or to none if other policies refused it.
type Counts struct {
	Passed   int64 // within the limit
	Refused  int64 // over the limit, denied, without room to wait, or gone before their turn
	Degraded int64 // over the limit, and admitted as degraded
	Shadowed int64 // over the limit or denied, and admitted in shadow
	Failed   int64 // the store could not decide
	Banned   int64 // during a ban, or the last refusal before one
}

// Add adds other to c.
func (c *Counts) Add(other Counts) {
	c.Passed += other.Passed
	c.Refused += other.Refused
	c.Degraded += other.Degraded
	c.Shadowed += other.Shadowed
	c.Failed += other.Failed
	c.Banned += other.Banned
}

// Minute holds the counts of one minute.
type Minute struct {
	Start    time.Time         // in UTC
	Policies map[string]Counts // by name; "" is for failures before a policy was reached
}

// tallies are the counts that an instance writes: for each policy the fields of
// Counts in order. JSON reads fewer of them, or more, from another version.
type tallies map[string]tally

// tally has a number for each field of Counts, in the order of the fields.
type tally [6]int64

func (t tallies) add(name string, n tally) {
	sum := t[name]
	for i := range n {
		sum[i] += n[i]
	}
	t[name] = sum
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// keyOf returns the key of an application's minute.
func keyOf(prefix, app string, minute int64) string {
	return cmp.Or(prefix, DefaultPrefix) + "{stats:" + app + "}:" + strconv.FormatInt(minute, 10)
}

// Read returns the last [Minutes] minutes of an application by the clock of this
// process, the current one last, added up over all instances. Minutes without
// requests are included and empty. An empty prefix means [DefaultPrefix]. Read
// takes one round trip and at most [DefaultTimeout].
func Read(ctx context.Context, client redis.UniversalClient, prefix, app string) ([]Minute, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	now := minuteOf(time.Now())
	replies := make([]*redis.MapStringStringCmd, Minutes)
	err := rediscall.NewCaller(client).Do(ctx, func(ctx context.Context) error {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range replies {
				replies[i] = p.HGetAll(ctx, keyOf(prefix, app, now-Minutes+1+int64(i)))
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	minutes := make([]Minute, Minutes)
	for i := range minutes {
		minutes[i] = Minute{time.Unix((now-Minutes+1+int64(i))*60, 0).UTC(), sum(replies[i].Val())}
	}
	return minutes, nil
}

// sum adds up the fields of all instances.
func sum(fields map[string]string) map[string]Counts {
	total := map[string]Counts{}
	for _, text := range fields {
		var t tallies
		if json.Unmarshal([]byte(text), &t) != nil {
			continue // written by another version of this package
		}
		for name, n := range t {
			c := total[name]
			c.Add(Counts{n[0], n[1], n[2], n[3], n[4], n[5]})
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
