// This file looks for mistakes in the set-up of the client and of the servers.

package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
)

// Diagnose implements [core.Diagnoser]. It reports a store without a prefix, rules whose
// counts are also under other limits, a client that ignores deadlines, a user without a
// necessary permission on any server, or without one that lists of bans need if a rule has
// a Ban, and servers that may evict keys when their memory is full, which loses counts. A
// server that does not answer, or does not let the client in, is asked again.
func (s *Store) Diagnose(ctx context.Context, rules []core.Op) []core.Finding {
	var found []core.Finding
	if rediscall.TraitsOf(s.client).IgnoresDeadlines {
		found = append(found, core.Finding{Code: core.CodeDeadlineIgnored, Text: "the Redis client ignores deadlines, so each " +
			"call takes one more goroutine to end in time: set ContextTimeoutEnabled in its options"})
	}
	if s.unnamed {
		found = append(found, core.Finding{Code: core.CodeNoPrefix, Text: "the store in Redis has no prefix, so services that use the " +
			"same server share the counts of rules with the same name: set redisstore.Options.Prefix to the name of the service, such as \"shop:\""})
	}
	found = s.noteDistance(found)
	banning := slices.IndexFunc(rules, func(op core.Op) bool { return op.Ban != nil && s.secret == nil })
	e := s.examine(ctx, banning >= 0)
	if len(e.lacking) > 0 {
		found = append(found, core.Finding{Code: core.CodePermission, Text: "the Redis user may not run " +
			strings.Join(e.lacking, ", ") + ", which the limiter needs: " + rediscall.Remedy(s.client, s.prefix)})
	}
	if len(e.unlisted) > 0 {
		rule := rules[banning].Rule
		found = append(found, core.Finding{Code: core.CodeBanList, Rule: rule, Text: fmt.Sprintf("the Redis user may not run %s on %q, "+
			"which the list of bans needs; the bans of the rule %s hold without it: %s",
			strings.Join(e.unlisted, ", "), s.banListKey(), rule, rediscall.Remedy(s.client, s.prefix))})
	}
	if e.evicts {
		found = append(found, core.Finding{Code: core.CodeEviction, Text: "a Redis server evicts keys when its memory is full, " +
			"and with them the counts of callers: set maxmemory-policy to noeviction"})
	}
	found, noted := s.noteLimits(ctx, rules, found)
	if e.unanswered || !noted {
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
	unlisted   []string // commands that only lists of bans need, in the order of banTrial
	evicts     bool
	unanswered bool
}

// examine asks every server. With bans it also asks for what lists of bans need.
func (s *Store) examine(ctx context.Context, bans bool) *examination {
	e := &examination{}
	ask := func(ctx context.Context, c *redis.Client) error {
		return rediscall.Safely(ctx, func(ctx context.Context) error {
			if e.trial(ctx, c, s, bans) {
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
		e.trial(ctx, c, s, bans)
	}
	return e
}

// trial tries the commands of the store's scripts, and banTrial those of the list of bans.
// On the list itself they change nothing, because no member of it is "x".
var (
	trial    = rediscall.Trial("get", "mget", "exists", "set", "del", "time", "pttl", "pexpire")
	banTrial = rediscall.Trial("zadd", "zremrangebyscore", "zremrangebyrank", "zrevrangebyscore", "getrange")
)

// trialKey is the name, after the prefix, of a key that the store never uses:
// no subject is written as an asterisk or as nothing.
const trialKey = "{*}::"

// trial notes which commands the user may not run, and reports whether the
// server answered. A final error also answers whether the user may run evalsha.
func (e *examination) trial(ctx context.Context, c redis.UniversalClient, s *Store, bans bool) bool {
	sum := sha1.Sum([]byte(trial))
	return e.try(ctx, c, &e.lacking, "evalsha", hex.EncodeToString(sum[:]), s.prefix+trialKey) &&
		e.try(ctx, c, &e.lacking, "eval", trial, s.prefix+trialKey) &&
		(!bans || e.try(ctx, c, &e.unlisted, "eval", banTrial, s.banListKey()))
}

// try runs a trial on the key, adds the commands that it lacks to the list, and reports
// whether the server answered.
func (e *examination) try(ctx context.Context, c redis.UniversalClient, list *[]string, command, script, key string) bool {
	q := rediscall.Strings{StringSliceCmd: redis.NewStringSliceCmd(ctx, command, script, 0, key)}
	err := c.Process(ctx, q)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case rediscall.Forbids(err):
		note(&e.lacking, command)
	case !answered(err):
		e.unanswered = true
		return false
	}
	note(list, q.Val()...)
	return true
}

// note adds commands to the list that are not in it yet.
func note(list *[]string, commands ...string) {
	for _, name := range commands {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
}

// eviction notes whether a server limits its memory and evicts keys to stay
// below the limit. A user without the permission to ask is reported, because counts
// would be lost silently.
func (e *examination) eviction(ctx context.Context, c *redis.Client) {
	q := rediscall.Reply{Cmd: redis.NewCmd(ctx, "info", "memory")}
	err := c.Process(ctx, q)
	text, _ := q.Text()
	bytes, policy := field(text, "maxmemory"), field(text, "maxmemory_policy")
	e.mu.Lock()
	defer e.mu.Unlock()
	if rediscall.Forbids(err) {
		note(&e.lacking, "info")
	}
	e.unanswered = e.unanswered || !answered(err)
	e.evicts = e.evicts || bytes != "" && bytes != "0" && policy != "" && policy != "noeviction"
}

// field returns a value of the reply to INFO, or "" if there is none.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ErrPermission means that the Redis user of the client lacks a permission that
// the store needs. The text of the error contains the command that grants it.
var ErrPermission = errors.New("no permission")

// ErrCredentials means that Redis does not accept the user or the password of
// the client.
var ErrCredentials = errors.New("wrong user or password")

// ErrTooManyClients means that Redis has as many connections as its maxclients allows, and
// lets no further one in.
var ErrTooManyClients = errors.New("the server has no connection left for this client")

// tooManyClients begins the error of a server without a connection left.
const tooManyClients = "max number of clients"

// explain adds ErrCredentials, ErrPermission or ErrTooManyClients to an error that only an
// administrator of the server can mend.
func (s *Store) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case redis.IsAuthError(err):
		return fmt.Errorf("%w: %w", ErrCredentials, err)
	case redis.HasErrorPrefix(err, tooManyClients), errors.Is(err, ErrTooManyClients):
		return fmt.Errorf("%w: %w", ErrTooManyClients, err)
	case rediscall.Forbids(err):
		return fmt.Errorf("%w: %w; %s", ErrPermission, err, rediscall.Remedy(s.client, s.prefix))
	}
	return err
}
