// This file lists the permissions that a Redis user needs, and finds those it lacks.

package rediscall

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// denials are parts of the errors of servers that deny a permission. To a command every
// server answers NOPERM. Inside scripts there is no code for that: Redis up to 7.0 begins
// with the second text, and Redis from 7.2 on and Valkey with the third.
var denials = [...]string{"NOPERM", "The user executing the script can", "ACL failure in script"}

// Forbids reports whether the server, or a script on it, denies a permission.
func Forbids(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}

	for _, text := range denials {
		if strings.Contains(reply.Error(), text) {
			return true
		}
	}
	return false
}

// trials are harmless uses of commands: on a key that does not exist they change
// nothing, nor do those of sorted sets on one without the member x. Those that would make a key
// find a text in its place, which they cannot change, and which is gone after a second.
var trials = map[string]string{
	"get":              "try('get', ARGV[1])",
	"mget":             "try('mget', ARGV[1])",
	"exists":           "try('exists', ARGV[1])",
	"set":              "try('set', ARGV[1], '', 'XX', 'PX', 1)",
	"del":              "try('del', ARGV[1])",
	"time":             "try('time')",
	"pttl":             "try('pttl', ARGV[1])",
	"pexpire":          "try('pexpire', ARGV[1], 1)",
	"zadd":             "try('zadd', ARGV[1], 'XX', 0, 'x')",
	"zrem":             "try('zrem', ARGV[1], 'x')",
	"zcard":            "try('zcard', ARGV[1])",
	"zrangebyscore":    "try('zrangebyscore', ARGV[1], '-inf', '-inf')",
	"zremrangebyscore": "try('zremrangebyscore', ARGV[1], '-inf', '-inf')",
	"zremrangebyrank":  "try('zremrangebyrank', ARGV[1], 1, 0)",
	"zrevrangebyscore": "try('zrevrangebyscore', ARGV[1], '-inf', '-inf', 'LIMIT', 0, 0)",
	"getrange":         "try('getrange', ARGV[1], 0, 0)",
	"hget":             "try('hget', ARGV[1], 'x')",
	"hmget":            "try('hmget', ARGV[1], 'x')",
	"hdel":             "try('hdel', ARGV[1], 'x')",
	"hexists":          "try('hexists', ARGV[1], 'x')",
	"hgetall":          "try('hgetall', ARGV[1])",
	"hscan":            "try('hscan', ARGV[1], '0')",
	"llen":             "try('llen', ARGV[1])",
	"lindex":           "try('lindex', ARGV[1], 0)",
	"lrange":           "try('lrange', ARGV[1], 0, 0)",
	"hset":             "if held() then try('hset', ARGV[1], 'x', '') end",
	"hincrby":          "if held() then try('hincrby', ARGV[1], 'x', 1) end",
}

// tryFunction has a place for the denials.
const tryFunction = `local lacking = {}
local function denied(r)
  local e = type(r) == 'table' and r.err
  for _, text in ipairs({%s}) do
    if e and string.find(e, text, 1, true) then
      return true
    end
  end
end
local function try(...)
  if denied(redis.pcall(...)) then
    lacking[#lacking + 1] = (...)
  end
end
local function held()
  return not denied(redis.pcall('set', ARGV[1], '', 'PX', 1000))
end
`

// Trial returns a script that tries commands on a key which must not exist, and so changes
// nothing. The key is an argument of the script and not one of its keys, because it may
// belong to another server: the server checks first whether the user may use it. The reply
// has the commands that the user may not run.
func Trial(commands ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, tryFunction, "'"+strings.Join(denials[:], "', '")+"'")
	for _, name := range commands {
		b.WriteString(trials[name])
		b.WriteByte('\n')
	}
	b.WriteString("return lacking")
	return b.String()
}

// OnKeys returns the commands on keys that the parts of this module need, all of which [Trial]
// can try.
func OnKeys() (names []string) {
	for _, name := range strings.Fields(permissions) {
		if name = strings.TrimPrefix(name, "+"); trials[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

// permissions lists what the parts of this module do on keys: the stores in Redis and
// their diagnosis, the list of bans, the count of instances, and the programs that follow policies.
const permissions = "+eval +evalsha +get +mget +exists +set +del +time +pttl +pexpire +info " +
	"+zadd +zremrangebyscore +zremrangebyrank +zrevrangebyscore +getrange +zrem +zcard " +
	"+hget +hmget +hset +hincrby +hdel +zrangebyscore +subscribe +ping +multi +exec " +
	"+hexists +hgetall +hscan +llen +lindex +lrange"

// Remedy returns a command that gives the user of the client the permissions that this
// module needs under the prefix. It takes no permission away, because the user may need
// other keys too. Instead of the default user, which administrators use too, it names a
// new one.
func Remedy(client redis.UniversalClient, prefix string) string {
	// The default user is that of administrators, so its permissions are not touched.
	user, secret, extra := userOf(client), "", ""
	if user == "" || user == "default" {
		user, secret = "headgate", "on >PASSWORD "
	}

	if _, ok := client.(*redis.ClusterClient); ok {
		extra = " +cluster|slots +command" // by which the client finds the servers
	}

	return "this command grants what is needed: ACL SETUSER " + argument(user) + " " + secret +
		argument("~"+pattern(prefix)) + " " + argument("&"+pattern(prefix)) + " " + permissions + extra
}

// userOf returns the name with which the client logs in, or "" if it has none
// or obtains it later.
func userOf(client redis.UniversalClient) string {
	// A client whose provider brings the user later has no name that could be granted anything now.
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil &&
			o.StreamingCredentialsProvider == nil {
			return o.Username
		}

	case *redis.ClusterClient:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil &&
			o.StreamingCredentialsProvider == nil {
			return o.Username
		}

	case *redis.Ring:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil &&
			o.StreamingCredentialsProvider == nil {
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
	// Without quotes the text ends at white space, and quotes in it are taken for their beginning.
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
