package redissource

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/redis/go-redis/v9"
)

const (
	// alive is how long an instance counts as running after its report.
	alive = 20 * time.Second

	// forgotten is how long the keys of reports live after the last report.
	forgotten = time.Minute
)

// report stores the report of an instance, and drops up to 100 instances that are
// gone.
//
// KEYS: reported, instances. ARGV: the instance's name; its report; the
// milliseconds for which it counts as running; the milliseconds after which both
// keys expire. Reply: 1.
var report = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text = string.format('%d', now)
redis.call('ZADD', KEYS[1], text, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - ARGV[3]), 'LIMIT', 0, 100)
for i = 1, #gone do
  redis.call('ZREM', KEYS[1], gone[i])
  redis.call('HDEL', KEYS[2], gone[i])
end
return 1
`)

// running lists the instances that have reported lately.
//
// KEYS: reported, instances. ARGV: the milliseconds for which an instance counts
// as running. Reply: for each instance its report and the report's age in
// milliseconds.
var running = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local list = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%d', now - ARGV[1]), '+inf', 'WITHSCORES')
local reply = {}
for i = 1, #list, 2 do
  local report = redis.call('HGET', KEYS[2], list[i])
  if report then
    reply[#reply + 1] = report
    reply[#reply + 1] = math.max(0, now - list[i + 1])
  end
end
return reply
`)

// Report implements [policy.Reporter].
func (s *Source) Report(ctx context.Context, i policy.Instance) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return s.do(ctx, func(ctx context.Context) error {
		return report.Run(ctx, s.client, []string{s.reported, s.instances},
			i.ID, text, alive.Milliseconds(), forgotten.Milliseconds()).Err()
	})
}

// Instances returns the instances that have reported within the last twenty
// seconds, ordered by application and name. Their Age is measured by the server's
// clock.
func (s *Source) Instances(ctx context.Context) ([]policy.Instance, error) {
	var fields []any
	err := s.do(ctx, func(ctx context.Context) (err error) {
		fields, err = running.Run(ctx, s.client, []string{s.reported, s.instances}, alive.Milliseconds()).Slice()
		return err
	})
	if err != nil {
		return nil, err
	}
	list := []policy.Instance{}
	for at := 0; at+1 < len(fields); at += 2 {
		var i policy.Instance
		text, _ := fields[at].(string)
		if json.Unmarshal([]byte(text), &i) != nil {
			continue // written by another version of this package
		}
		age, _ := fields[at+1].(int64)
		i.Age = time.Duration(age) * time.Millisecond
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b policy.Instance) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}
