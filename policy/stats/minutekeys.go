// This file keeps the busiest keys of each minute for an hour, and reads them.

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
	"github.com/headgate/headgate/observe/topkeys"
)

const (
	// MinuteKeysKept is how long the busiest keys of a minute are kept.
	MinuteKeysKept = 70 * time.Minute

	// MinuteKeysLate is how long after a minute has ended the instances have written its keys, as
	// long as Redis answers.
	MinuteKeysLate = topPause + 2*topEvery

	// maxMinuteKeys is how many keys of a policy an instance writes for a minute, and minuteBudget
	// how many keys of all policies all instances of an application write, of which each writes an
	// equal part. An instance writes as many as if there were minRules policies or more.
	maxMinuteKeys = 20
	minuteBudget  = 32_000
	minRules      = 40

	// jitter is by how much a window may miss a minute without a word of it.
	jitter = 250 * time.Millisecond
)

// The fields of the hash of the keys of a policy in a minute. They add up over the instances: a key
// was counted at least as its first field says, and at most as that, its second field and the
// floor.
const (
	totalField = "n" // requests
	floorField = "f" // the most of a key that an instance does not list
	earlyField = "e" // the largest number of milliseconds that counts are of before the minute,
	lateField  = "l" // and after it
	leastField = "=" // before a key: how often it was counted at least
	extraField = "+" // before a key: its error less the floor, unless it is 0
)

// minuteKeys are the busiest keys of a policy in a minute, as this instance has counted them.
type minuteKeys struct {
	policy string
	minute int64
	keys   topkeys.Summary
}

// rememberMinutes keeps what is to be written of the last whole minute of each policy, once. The
// server's clock is ahead by d.
func (r *Recorder) rememberMinutes(rules []topkeys.Rule, d time.Duration) {
	var list []minuteKeys
	remembered := make(map[string]int64, len(rules))
	for _, t := range rules {
		s := t.Minute
		s.From, s.To = s.From.Add(d), s.To.Add(d)

		// A window belongs to the minute that its middle is in.
		m := minuteKeys{t.Rule, minuteOf(s.From.Add(s.To.Sub(s.From) / 2)), s}
		if last, ok := r.top.remembered[t.Rule]; s.Total == 0 || ok && m.minute <= last {
			remembered[t.Rule] = last
			continue
		}

		remembered[t.Rule] = m.minute
		list = append(list, m)
	}
	r.top.remembered = remembered

	// Where all are too many, the quietest policies are left out.
	share := int(minuteBudget / r.writers)
	slices.SortStableFunc(list, func(a, b minuteKeys) int { return cmp.Compare(b.keys.Total, a.keys.Total) })
	list = list[:min(len(list), share)]

	most := min(maxMinuteKeys, max(1, share/max(minRules, len(rules))))
	for i := range list {
		// A key that came once says no more than the floor.
		s, n := &list[i].keys, 0
		for n < min(most, len(s.Keys)) && s.Keys[n].Count > 1 {
			n++
		}
		*s = firstOf(*s, n)
	}

	if len(list) > 0 {
		r.top.minutes = list
	}
}

// fields returns the fields of the hash, each with what is added to it.
func (m *minuteKeys) fields() (list []any) {
	list = append(list, totalField, m.keys.Total)
	if m.keys.Floor > 0 {
		list = append(list, floorField, m.keys.Floor)
	}
	for _, k := range m.keys.Keys {
		list = append(list, leastField+k.Key, k.Least())

		// Without an error and a floor, as usual, a key has one field.
		if extra := k.Error - m.keys.Floor; extra != 0 {
			list = append(list, extraField+k.Key, extra)
		}
	}
	return list
}

// beyond returns for how many milliseconds the counts are of the time before and after the minute.
func (m *minuteKeys) beyond() (early, late int64) {
	ms := func(d time.Duration) int64 {
		if d <= jitter {
			return 0
		}
		return (d + time.Millisecond - 1).Milliseconds()
	}
	return ms(startOf(m.minute).Sub(m.keys.From)), ms(m.keys.To.Sub(startOf(m.minute + 1)))
}

// addMinuteKeys adds the keys of policies, once however often the call is repeated.
//
// KEYS: written, and the keys of each policy. ARGV: what names the call among those of the minute;
// the milliseconds for which all is kept; for each policy the milliseconds before and after the
// minute, how many fields follow, and each field with what it adds. Reply: nothing.
var addMinuteKeys = redis.NewScript(`
if redis.call('HSETNX', KEYS[1], ARGV[1], '') == 0 then
  return {}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local at = 3
for k = 2, #KEYS do
  for i, field in ipairs({'e', 'l'}) do
    local ms = ARGV[at + i - 1]
    if tonumber(ms) > tonumber(redis.call('HGET', KEYS[k], field) or '0') then
      redis.call('HSET', KEYS[k], field, ms)
    end
  end
  local fields = tonumber(ARGV[at + 2])
  at = at + 3
  for i = 1, fields do
    redis.call('HINCRBY', KEYS[k], ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  redis.call('PEXPIRE', KEYS[k], ARGV[2])
end
return {}
`)

// writeMinutes writes the keys of the last minute. What cannot be written is lost.
func (r *Recorder) writeMinutes(ctx context.Context) error {
	rest := r.top.minutes
	r.top.minutes = nil

	for call := 0; len(rest) > 0; call++ {
		// A call is of one minute, and adds about maxBatch fields.
		minute := rest[0].minute
		keys := []string{r.keys.written(minute)}
		args := []any{r.id + ":" + strconv.Itoa(call), MinuteKeysKept.Milliseconds()}
		for len(rest) > 0 && rest[0].minute == minute && len(args) < 2*maxBatch {
			m := &rest[0]
			early, late := m.beyond()
			list := m.fields()
			keys = append(keys, r.keys.minuteKeys(minute, m.policy))
			args = append(append(args, early, late, len(list)/2), list...)
			rest = rest[1:]
		}

		if _, err := r.ask(ctx, addMinuteKeys, keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// ReadMinuteKeys returns the keys that a policy decided about most often in n minutes from an
// instant on, by the server's clock: a summary for each minute, of all instances of an application
// that publish their keys; see [Recorder.PublishTop]. What is not known of a minute is missing in
// its Total. The counts of a minute are of the time from From to To. That is the minute itself by
// the clocks of the instances, unless one of these is wrong by more than a quarter of a second.
// There is no Since. An empty prefix means [DefaultPrefix]. ReadMinuteKeys takes one round trip, or
// more if a hash is very large, and at most [DefaultTimeout].
func ReadMinuteKeys(
	ctx context.Context, client redis.UniversalClient, prefix, app, policy string, from time.Time, n int,
) ([]topkeys.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()

	keys, calls := keysOf(prefix, app), rediscall.NewCaller(client)
	hashes, cursors := make([]map[string]string, n), map[int]uint64{}
	for i := range hashes {
		hashes[i], cursors[i] = map[string]string{}, 0
	}

	// One round trip has the next page of each hash that is not read to its end: mostly all of it.
	for len(cursors) > 0 {
		replies := map[int]*redis.ScanCmd{}
		err := calls.Do(ctx, func(ctx context.Context) error {
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, cursor := range cursors {
					key := keys.minuteKeys(minuteOf(from)+int64(i), policy)
					replies[i] = p.HScan(ctx, key, cursor, "", maxMinuteFields)
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
				hashes[i][page[at]] = page[at+1]
			}
			if cursors[i] = cursor; cursor == 0 {
				delete(cursors, i)
			}
		}
	}

	list := make([]topkeys.Summary, n)
	for i, hash := range hashes {
		var err error
		if list[i], err = summaryOf(minuteOf(from)+int64(i), hash); err != nil {
			return nil, fmt.Errorf("stats: the keys of a minute: %w", err)
		}
	}
	return list, nil
}

// maxMinuteFields is how many fields of a hash a page has at least: more than most hashes.
const maxMinuteFields = 4096

// summaryOf reads the hash of the keys of a policy in a minute.
func summaryOf(minute int64, hash map[string]string) (topkeys.Summary, error) {
	s := topkeys.Summary{From: startOf(minute), To: startOf(minute + 1)}
	extra, at := map[string]int64{}, map[string]int{}
	for field, text := range hash {
		n, err := strconv.ParseInt(text, 10, 64)
		isExtra := strings.HasPrefix(field, extraField)
		if err != nil || n < -maxOmitted || n > maxOmitted || n < 0 && !isExtra {
			return s, errors.New("a count is not one")
		}

		// Fields of another version are left out.
		switch {
		case field == totalField:
			s.Total = n
		case field == floorField:
			s.Floor = n
		case field == earlyField:
			s.From = s.From.Add(-time.Duration(min(n, Keep.Milliseconds())) * time.Millisecond)
		case field == lateField:
			s.To = s.To.Add(time.Duration(min(n, Keep.Milliseconds())) * time.Millisecond)
		case isExtra:
			extra[field[1:]] = n
		case strings.HasPrefix(field, leastField):
			at[field[1:]] = len(s.Keys)
			s.Keys = append(s.Keys, topkeys.Key{Key: field[1:], Count: n})
		}
	}

	for key, i := range at {
		k := &s.Keys[i]
		k.Error = max(0, s.Floor+extra[key])
		k.Count += k.Error
	}

	slices.SortFunc(s.Keys, func(a, b topkeys.Key) int {
		return cmp.Or(cmp.Compare(b.Least(), a.Least()), cmp.Compare(a.Key, b.Key))
	})
	return s, nil
}
