package redissource

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/policy"
)

const (
	// alive is how long an instance counts as running after its report.
	alive = 20 * time.Second

	// forgotten is how long the keys of reports live after the last report.
	forgotten = time.Minute

	// maxInstances is how many instances are listed at most, and page how many of them one
	// reply of the server holds.
	maxInstances = 20_000
	page         = 500

	// maxReport is how many bytes of a report are read, and more than a report has.
	maxReport = 16 << 10
)

// report stores the report of an instance, unless it is empty, and drops up to 100
// instances that are gone.
//
// KEYS: reported, instances. ARGV: the instance's process; its report; the
// milliseconds for which it counts as running; the milliseconds after which both
// keys expire. Reply: the time in seconds and microseconds.
var report = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text = string.format('%d', now)
if ARGV[2] ~= '' then
  redis.call('ZADD', KEYS[1], text, ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - ARGV[3]), 'LIMIT', 0, 100)
for i = 1, #gone do
  redis.call('ZREM', KEYS[1], gone[i])
  redis.call('HDEL', KEYS[2], gone[i])
end
return {tonumber(t[1]), tonumber(t[2])}
`)

// reportOf is the form of a report in the hash.
type reportOf struct {
	policy.Instance
	Clock int64 `json:"clock"` // ClockOffset in µs
}

// Report implements [policy.Reporter].
func (s *Source) Report(ctx context.Context, i policy.Instance) error {
	// The first report needs the server's time, which only an answer brings.
	if _, known := s.server.At(time.Now()); !known {
		if err := s.send(ctx, "", nil); err != nil {
			return err
		}
	}

	server, _ := s.server.At(time.Now())
	text, err := reportText(i, s.clock().Round(0).Sub(server))
	if err != nil {
		return err
	}
	return s.send(ctx, cmp.Or(i.Process, i.ID), text)
}

// reportText returns the text of a report, without policies that are left out and for which there
// is no room.
func reportText(i policy.Instance, ahead time.Duration) ([]byte, error) {
	for {
		text, err := json.Marshal(reportOf{i, ahead.Microseconds()})
		if err != nil || len(text) <= maxReport || len(i.LeftOut) == 0 {
			return text, err
		}

		// The reasons are texts of the program, whose signs may take six bytes each.
		i.LeftOut, i.MoreLeftOut = i.LeftOut[:len(i.LeftOut)-1], i.MoreLeftOut+1
	}
}

// send sends a report, or an empty one to learn the server's time.
func (s *Source) send(ctx context.Context, process string, text []byte) error {
	var reply []int64
	sent := time.Now()
	err := s.do(ctx, func(ctx context.Context) (err error) {
		reply, err = report.Run(ctx, s.client, []string{s.reported, s.instances},
			process, text, alive.Milliseconds(), forgotten.Milliseconds()).Int64Slice()
		return err
	})
	if err == nil && len(reply) == 2 {
		s.server.Adjust(sent, time.Now(), time.Unix(reply[0], reply[1]*1000))
	}
	return err
}

// running lists the instances that have reported lately.
//
// KEYS: reported. ARGV: the milliseconds for which an instance counts as running; how many
// are listed at most. Reply: for each instance its process and the age of its report in
// milliseconds.
var running = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local list = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%d', now - ARGV[1]), '+inf', 'WITHSCORES',
  'LIMIT', 0, ARGV[2])
for i = 2, #list, 2 do
  list[i] = string.format('%d', math.max(0, now - list[i]))
end
return list
`)

// Instances returns the instances that have reported within the last twenty
// seconds, ordered by application, name and process, and at most 20,000 of them. Their
// Age and ClockOffset are measured by the server's clock.
func (s *Source) Instances(ctx context.Context) ([]policy.Instance, error) {
	var pairs []string // of a process and the age of its report
	err := s.do(ctx, func(ctx context.Context) (err error) {
		pairs, err = running.Run(ctx, s.client, []string{s.reported}, alive.Milliseconds(), maxInstances).StringSlice()
		return err
	})
	if err != nil {
		return nil, err
	}

	// The reports are read in pages, so that no reply keeps the server from other calls for long.
	list := []policy.Instance{}
	for some := range slices.Chunk(pairs, 2*page) {
		more, err := s.reports(ctx, some)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}

	slices.SortFunc(list, func(a, b policy.Instance) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Process, b.Process))
	})
	return list, nil
}

// short reads the reports of instances that are not too long, because anything may be in Redis.
//
// KEYS: instances. ARGV: the largest number of bytes of a report; the processes. Reply: for each
// process its report, or an empty text.
var short = redis.NewScript(`
local texts = redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
local most = tonumber(ARGV[1])
for i = 1, #texts do
  if not texts[i] or #texts[i] > most then
    texts[i] = ''
  end
end
return texts
`)

// reports reads the reports of processes. pairs has each process, followed by the age of its
// report in milliseconds.
func (s *Source) reports(ctx context.Context, pairs []string) (list []policy.Instance, err error) {
	args := []any{maxReport}
	for at := 0; at+1 < len(pairs); at += 2 {
		args = append(args, pairs[at])
	}

	var texts []string
	err = s.do(ctx, func(ctx context.Context) (err error) {
		texts, err = short.Run(ctx, s.client, []string{s.instances}, args...).StringSlice()
		return err
	})
	if err != nil {
		return nil, err
	}

	for i, text := range texts {
		var r reportOf
		if json.Unmarshal([]byte(text), &r) != nil {
			continue // it is gone, or written by another version of this package
		}
		age, _ := strconv.ParseInt(pairs[2*i+1], 10, 64)
		r.Age, r.ClockOffset = time.Duration(age)*time.Millisecond, time.Duration(r.Clock)*time.Microsecond
		list = append(list, r.Instance)
	}
	return list, nil
}
