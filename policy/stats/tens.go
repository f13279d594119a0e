// This file has the requests of the last minutes by ten seconds.
//
// Instances write them beside the minutes, in the same call. What a reader had seen of a minute at
// each of its looks would be no such counts: it lacks what came while no one looked, it differs
// between two readers, and a report that comes late would be of the wrong time.

package stats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

const (
	// Tens is the number of spans of ten seconds in a minute.
	Tens = 6

	// Ten is such a span.
	Ten = 10 * time.Second

	// TensLate is how long after a span has ended the instances have written its requests, as long
	// as Redis answers and no [Options].Every is longer than Ten. An instance that has not written
	// yet may take its first Every.
	TensLate = 3 * time.Second

	// tensKept is for how long the spans of a minute are kept after their last change: longer than
	// Read reaches back.
	tensKept = (Minutes + 5) * time.Minute

	// soon is how long the requests of a span that has ended wait for the next write of all counts.
	soon = 2 * time.Second
)

// tenOf returns the number of the ten seconds of an instant in its minute.
func tenOf(t time.Time) int { return int(floor(t.Unix(), 10) - Tens*minuteOf(t)) }

// tenField returns the field of the requests of a verdict in the ten seconds.
func tenField(ten, v int) string { return strconv.Itoa(ten) + letters[v] }

// tensFields are the fields that ReadTens asks for: of a minute, and of its tens.
var tensFields = func() (list []any) {
	for _, letter := range letters {
		list = append(list, letter)
	}
	list = append(list, lostField)
	for ten := range Tens {
		for v := range letters {
			list = append(list, tenField(ten, v))
		}
	}
	return list
}()

// readTens reads the requests of minutes, and those of their tens, at one instant.
//
// KEYS: of each minute its counts and its tens. ARGV: how many fields are of the counts; these
// fields, and those of the tens. Reply: the server's time in seconds and microseconds, and the
// values of each minute, "" for none.
var readTens = redis.NewScript(`
local t = redis.call('TIME')
local reply = {t[1], t[2]}
local n = tonumber(ARGV[1])
for k = 1, #KEYS do
  local first, last = 2, n + 1
  if k % 2 == 0 then
    first, last = n + 2, #ARGV
  end
  for i, value in ipairs(redis.call('HMGET', KEYS[k], unpack(ARGV, first, last))) do
    reply[#reply + 1] = value or ''
  end
end
return reply
`)

// ReadTens sets Requests, Lost, Tens and Seen of minutes that [ReadMinutes] has returned. Tens are
// kept a little longer than [Read] reaches back, of requests alone: at most 78 small numbers a
// minute. ReadTens takes one round trip, and at most [DefaultTimeout].
func ReadTens(ctx context.Context, client redis.UniversalClient, prefix, app string, minutes []Minute) error {
	if len(minutes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()

	k := keysOf(prefix, app)
	var names []string
	for _, m := range minutes {
		names = append(names, k.minute(minuteOf(m.Start)), k.tens(minuteOf(m.Start)))
	}

	var reply []string
	args := append([]any{len(letters) + 1}, tensFields...)
	err := rediscall.NewCaller(client).Do(ctx, func(ctx context.Context) (err error) {
		reply, err = readTens.Run(ctx, client, names, args...).StringSlice()
		return err
	})
	if err == nil && len(reply) != 2+len(minutes)*len(tensFields) {
		err = errors.New("the server's answer is not of this version")
	}
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}

	seen := timeOf(reply[0], reply[1])
	for i := range minutes {
		minutes[i].setTens(reply[2+i*len(tensFields):][:len(tensFields)])
		minutes[i].Seen = seen
	}
	return nil
}

// setTens takes the values of the fields that ReadTens asks for.
func (m *Minute) setTens(values []string) {
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(values[i], 10, 64) // what is no number was written by another program
		return n
	}

	m.Requests, m.Lost = Counts{}, number(len(letters))
	for v := range letters {
		m.Requests[v] = number(v)
	}

	tens, sum := make([]Counts, Tens), Counts{}
	for ten := range tens {
		for v := range letters {
			tens[ten][v] = number((ten+1)*len(letters) + 1 + v)
		}
		sum.Add(tens[ten])
	}

	// An instance of an earlier version counts by minutes alone.
	m.Tens = nil
	if sum == m.Requests {
		m.Tens = tens
	}
}
