package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// examination is what all servers that keys may be on have said.
type examination struct {
	mu         sync.Mutex
	lacking    []string // commands, in the order of trial
	evicts     bool
	unanswered bool
}

// examine asks every server.
func (s *Store) examine(ctx context.Context) *examination {
	e := &examination{}
	ask := func(ctx context.Context, c *redis.Client) error {
		if e.trial(ctx, c, s.prefix) {
			e.eviction(ctx, c)
		}
		return nil
	}
	switch c := s.client.(type) {
	case *redis.Client:
		_ = ask(ctx, c) // never an error
	case *redis.ClusterClient:
		e.unanswered = c.ForEachMaster(ctx, ask) != nil || e.unanswered
	case *redis.Ring:
		e.unanswered = c.ForEachShard(ctx, ask) != nil || c.Len() < len(c.Options().Addrs) || e.unanswered
	default:
		e.trial(ctx, c, s.prefix)
	}
	return e
}

// trial is a script that tries every command of the others on a key that does
// not exist, and so changes nothing, and returns those which it may not run. The
// key is an argument, as it may be another server's: whether the user may use it
// is looked at before that.
const trial = `local lacking = {}
local function try(...)
  local r = redis.pcall(...)
  local e = type(r) == 'table' and r.err
  if e and (string.find(e, 'NOPERM', 1, true) or string.find(e, 'The user executing the script can', 1, true)) then
    lacking[#lacking + 1] = (...)
  end
end
try('get', ARGV[1])
try('mget', ARGV[1])
try('exists', ARGV[1])
try('set', ARGV[1], '', 'XX', 'PX', 1)
try('del', ARGV[1])
try('time')
try('pttl', ARGV[1])
try('pexpire', ARGV[1], 1)
return lacking`

// trialKey is the name, after the prefix, of a key which the store never has: no
// subject has the form of an asterisk.
const trialKey = "{*}::"

// question is a script call that the client sends at most once, as [command].
type question struct{ *redis.StringSliceCmd }

// NoRetry overrides the client's own retries; see redis.Cmder.
func (question) NoRetry() bool { return true }

// trial notes which commands the user may not run, and reports whether the server
// answered. It asks for the script itself by an error that is the last word on
// evalsha.
func (e *examination) trial(ctx context.Context, c redis.UniversalClient, prefix string) bool {
	sum := sha1.Sum([]byte(trial))
	for _, call := range [][2]string{{"evalsha", hex.EncodeToString(sum[:])}, {"eval", trial}} {
		q := question{redis.NewStringSliceCmd(ctx, call[0], call[1], 0, prefix+trialKey)}
		err := c.Process(ctx, q)
		switch {
		case forbids(err):
			e.note(call[0])
		case !answered(err):
			e.note("")
			return false
		}
		e.note(q.Val()...)
	}
	return true
}

// note adds commands that a server does not permit; "" stands for no answer.
func (e *examination) note(commands ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range commands {
		if name == "" {
			e.unanswered = true
		} else if !slices.Contains(e.lacking, name) {
			e.lacking = append(e.lacking, name)
		}
	}
}

// setting is a question about the settings of a server, which the client sends at
// most once.
type setting struct{ *redis.MapStringStringCmd }

// NoRetry overrides the client's own retries; see redis.Cmder.
func (setting) NoRetry() bool { return true }

// eviction notes whether a server has a bound for its memory and a policy to
// stay below it. Servers before version 7 know one pattern at a time.
func (e *examination) eviction(ctx context.Context, c *redis.Client) {
	q := setting{redis.NewMapStringStringCmd(ctx, "config", "get", "maxmemory*")}
	err := c.Process(ctx, q)
	settings := q.Val()
	bytes, _ := strconv.ParseUint(settings["maxmemory"], 10, 64)
	policy := settings["maxmemory-policy"]
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unanswered = e.unanswered || !answered(err)
	e.evicts = e.evicts || bytes > 0 && policy != "" && policy != "noeviction"
}
