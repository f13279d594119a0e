// This file looks for mistakes in the set-up of the client and of the servers.

package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/redis/go-redis/v9"
)

// Diagnose implements [core.Diagnoser]. It reports a client that ignores
// deadlines, a user without a necessary permission on any server, and servers
// that may evict keys when their memory is full, which loses counts. The last
// check needs the permission config|get and is left out without it. A server
// that does not answer, or does not let the client in, is asked again.
func (s *Store) Diagnose(ctx context.Context) []core.Finding {
	var found []core.Finding
	if rediscall.TraitsOf(s.client).IgnoresDeadlines {
		found = append(found, core.Finding{Code: core.CodeDeadlineIgnored, Text: "the Redis client ignores deadlines, so each " +
			"call takes one more goroutine to end in time: set ContextTimeoutEnabled in its options"})
	}
	e := s.examine(ctx)
	if len(e.lacking) > 0 {
		found = append(found, core.Finding{Code: core.CodePermission, Text: "the Redis user may not run " +
			strings.Join(e.lacking, ", ") + " on the keys of the limiter: " + s.remedy()})
	}
	if e.evicts {
		found = append(found, core.Finding{Code: core.CodeEviction, Text: "a Redis server evicts keys when its memory is full, " +
			"and with them the counts of callers: set maxmemory-policy to noeviction"})
	}
	if e.unanswered {
		found = append(found, core.Finding{Code: core.CodeUnanswered, Text: "a Redis server did not answer"})
	}
	return found
}

// answered reports whether a reply is the server's final answer to a question.
// A denied permission and an unknown command are final; an error of a server
// that is unable to answer for now is not.
func answered(err error) bool {
	var reply redis.Error
	return err == nil || errors.As(err, &reply) && !neverRan(err) && !redis.IsAuthError(err)
}

// examination collects the answers of all servers that may hold keys.
type examination struct {
	mu         sync.Mutex
	lacking    []string // commands, in the order of the trial
	evicts     bool
	unanswered bool
}

// examine asks every server.
func (s *Store) examine(ctx context.Context) *examination {
	e := &examination{}
	ask := func(ctx context.Context, c *redis.Client) error {
		return rediscall.Safely(ctx, func(ctx context.Context) error {
			if e.trial(ctx, c, s.prefix) {
				e.eviction(ctx, c)
			}
			return nil
		})
	}
	switch c := s.client.(type) {
	case *redis.Client:
		e.unanswered = ask(ctx, c) != nil || e.unanswered
	case *redis.ClusterClient:
		e.unanswered = c.ForEachMaster(ctx, ask) != nil || e.unanswered
	case *redis.Ring:
		e.unanswered = c.ForEachShard(ctx, ask) != nil || c.Len() < len(c.Options().Addrs) || e.unanswered
	default:
		e.trial(ctx, c, s.prefix)
	}
	return e
}

// trial is a script that tries the commands of the store's scripts on a key that
// does not exist, and so changes nothing. It returns the commands that the user
// may not run. The key is an argument, because it may belong to another server;
// the server checks first whether the user may use it.
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

// trialKey is the name, after the prefix, of a key that the store never uses:
// no subject is written as an asterisk or as nothing.
const trialKey = "{*}::"

// trial notes which commands the user may not run, and reports whether the
// server answered. A final error also answers whether the user may run evalsha.
func (e *examination) trial(ctx context.Context, c redis.UniversalClient, prefix string) bool {
	sum := sha1.Sum([]byte(trial))
	for _, call := range [][2]string{{"evalsha", hex.EncodeToString(sum[:])}, {"eval", trial}} {
		q := rediscall.Strings{StringSliceCmd: redis.NewStringSliceCmd(ctx, call[0], call[1], 0, prefix+trialKey)}
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

// eviction notes whether a server limits its memory and evicts keys to stay
// below the limit. Servers before version 7 accept one pattern at a time.
func (e *examination) eviction(ctx context.Context, c *redis.Client) {
	q := rediscall.Map{MapStringStringCmd: redis.NewMapStringStringCmd(ctx, "config", "get", "maxmemory*")}
	err := c.Process(ctx, q)
	settings := q.Val()
	bytes, _ := strconv.ParseUint(settings["maxmemory"], 10, 64)
	policy := settings["maxmemory-policy"]
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unanswered = e.unanswered || !answered(err)
	e.evicts = e.evicts || bytes > 0 && policy != "" && policy != "noeviction"
}

// ErrPermission means that the Redis user of the client lacks a permission that
// the store needs. The text of the error contains the command that grants it.
var ErrPermission = errors.New("no permission")

// ErrCredentials means that Redis does not accept the user or the password of
// the client.
var ErrCredentials = errors.New("wrong user or password")

// explain adds ErrCredentials or ErrPermission to an error that only an
// administrator of the server can mend.
func (s *Store) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case redis.IsAuthError(err):
		return fmt.Errorf("redisstore: %w: %w", ErrCredentials, err)
	case forbids(err):
		return fmt.Errorf("redisstore: %w: %w; %s", ErrPermission, err, s.remedy())
	}
	return err
}

// forbids reports whether the server, or a script on it, denies a permission.
// Inside scripts Redis 7.0 has no code for that.
func forbids(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) &&
		(strings.Contains(reply.Error(), "NOPERM") || strings.Contains(reply.Error(), "The user executing the script can't"))
}

// remedy returns a command that creates a user with exactly the permissions
// that the store needs. It changes the user of the client, unless that is the
// default user, which administrators use too.
func (s *Store) remedy() string {
	user, secret := userOf(s.client), ""
	if user == "" || user == "default" {
		user, secret = "headgate", "on >PASSWORD "
	}
	return "this command makes a user for limits alone: ACL SETUSER " + argument(user) + " " + secret +
		"resetkeys " + argument("~"+pattern(s.prefix)) +
		" resetchannels -@all +eval +evalsha +get +mget +exists +set +del +time +pttl +pexpire"
}

// userOf returns the name with which the client logs in, or "" if it has none
// or obtains it later.
func userOf(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			return o.Username
		}
	case *redis.ClusterClient:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			return o.Username
		}
	case *redis.Ring:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			return o.Username
		}
	}
	return ""
}

// pattern returns an ACL pattern that matches the keys with the prefix, and
// hardly any others: a pattern can express white space and a zero byte only as
// "any byte".
func pattern(prefix string) string {
	var b strings.Builder
	for i := range len(prefix) {
		switch c := prefix[i]; c {
		case '*', '?', '[', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case 0, ' ', '\t', '\n', '\v', '\f', '\r':
			b.WriteByte('?')
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "*"
}

// argument returns text as it is written in a line for redis-cli or in an ACL
// file.
func argument(text string) string {
	var b strings.Builder
	quoted := text == ""
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"', c == '\\':
			quoted = true
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ', c > '~':
			quoted = true
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			quoted = quoted || c == ' ' || c == '\''
			b.WriteByte(c)
		}
	}
	if quoted {
		return `"` + b.String() + `"`
	}
	return b.String()
}
