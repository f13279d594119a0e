package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// gcraScript is the shortest GCRA that decides at the server's time: ARGV holds
// the interval of a unit and the burst in microseconds.
const gcraScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local at = tonumber(redis.call('GET', KEYS[1]) or now)
if at < now then at = now end
at = at + ARGV[1]
local wait = at - now - ARGV[2]
if wait > 0 then return {0, wait} end
redis.call('SET', KEYS[1], string.format('%d', at), 'PX', math.ceil((at - now) / 1000))
return {1, at - now}`

func openRueidis(addr string, q quota) (func() ask, func(), error) {
	interval := q.period.Microseconds() / int64(q.units)
	return openScript(addr, gcraScript, "short:",
		strconv.FormatInt(interval, 10), strconv.FormatInt(interval*int64(q.burst), 10))
}

// openRueidisRate runs the script of redis_rate, with the arguments that
// redis_rate gives it.
func openRueidisRate(addr string, q quota) (func() ask, func(), error) {
	var o scriptRecorder
	_, err := redis_rate.NewLimiter(&o).Allow(context.Background(), "", redis_rate.Limit{
		Rate: q.units, Period: q.period, Burst: q.burst,
	})
	if o.script == "" {
		return nil, func() {}, fmt.Errorf("redis_rate has sent no script: %w", err)
	}
	return openScript(addr, o.script, "long:", o.args...)
}

// openScript runs a script, whose reply begins with 1 if it admits, through a client
// that sends the commands of many callers in one pipeline by itself.
func openScript(addr, text, prefix string, args ...string) (func() ask, func(), error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return nil, func() {}, err
	}

	script := rueidis.NewLuaScript(text)
	return same(func(ctx context.Context, key string) error {
		reply, err := script.Exec(ctx, c, []string{prefix + key}, args).ToArray()
		if err != nil {
			return err
		}

		allowed, err := reply[0].AsInt64()
		return admitted(allowed == 1, err)
	}), c.Close, nil
}

// scriptRecorder is a client that keeps the script of a call and does not run it.
type scriptRecorder struct {
	redis.UniversalClient
	script string
	args   []string
}

// unknown is the error that makes a caller send the text of a script.
type unknown struct{}

func (unknown) Error() string { return "NOSCRIPT" }

func (unknown) RedisError() {}

func (s *scriptRecorder) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(unknown{})
	return cmd
}

func (s *scriptRecorder) Eval(ctx context.Context, script string, _ []string, args ...any) *redis.Cmd {
	s.script = script
	for _, a := range args {
		s.args = append(s.args, fmt.Sprint(a))
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(unknown{})
	return cmd
}
