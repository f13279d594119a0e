// This file looks for mistakes in the set-up of the client and of the servers.

package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/observe/findings"
)

// diagnose looks for the mistakes that [Store.Report] lists.
func (s *Store) diagnose(ctx context.Context, rules []core.Op) []core.Finding {
	var found []core.Finding
	if traitsOf(s.client).IgnoresDeadlines {
		found = append(found, core.Finding{Code: findings.DeadlineIgnored, Text: "the Redis client ignores deadlines" +
			", so each call takes one more goroutine to end in time: set ContextTimeoutEnabled in its options"})
	}

	if s.unnamed {
		found = append(found, core.Finding{Code: findings.NoPrefix,
			Text: "the store in Redis has no prefix, so services that " +
				"use the same server share the counts of rules with the same name: " +
				"set redisstore.Options.Prefix to the name of the service, such as \"shop:\""})
	}

	found = s.servers.appendTooFar(found)

	// Only rules with a Ban need what lists of bans need, and only where keys can be read.
	banning := slices.IndexFunc(rules, func(op core.Op) bool { return op.Ban != nil && s.wire.secret == nil })
	e := s.examine(ctx, banning >= 0)
	if len(e.lacking) > 0 {
		found = append(found, core.Finding{Code: findings.Permission, Text: "the Redis user may not run " +
			strings.Join(e.lacking, ", ") + ", which the limiter needs: " + rediscall.Remedy(s.client, s.wire.prefix)})
	}

	if len(e.unlisted) > 0 {
		rule := rules[banning].Rule
		found = append(found, core.Finding{Code: findings.BanList, Rule: rule,
			Text: fmt.Sprintf("the Redis user may not run "+
				"%s on %q, which the list of bans needs; the bans of the rule %s hold without it: %s",
				strings.Join(e.unlisted, ", "), s.bans.key(), rule, rediscall.Remedy(s.client, s.wire.prefix))})
	}

	if e.evicts {
		found = append(found, core.Finding{Code: findings.Eviction, Text: "a Redis server evicts keys when its " +
			"memory is full, and with them the counts of callers: set maxmemory-policy to noeviction"})
	}

	found, recorded := s.recordLimits(ctx, rules, found)
	if e.unanswered || !recorded {
		found = append(found, core.Finding{Code: findings.Unanswered, Text: "a Redis server did not answer"})
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

// sender sends a command to one server.
type sender = func(context.Context, redis.Cmder) error

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

	each := func(ctx context.Context, send sender) error {
		return rediscall.Safely(ctx, func(ctx context.Context) error {
			if e.trial(ctx, send, s, bans) {
				e.eviction(ctx, send)
			}
			return nil
		})
	}
	ask := func(ctx context.Context, c *redis.Client) error { return each(ctx, c.Process) }

	switch c := s.client.(type) {
	case *redis.Client:
		e.unanswered = ask(ctx, c) != nil || e.unanswered
	case *redis.ClusterClient:
		e.unanswered = c.ForEachMaster(ctx, ask) != nil || e.unanswered
	case *redis.Ring:
		// A Ring does not ask the servers that it takes for dead, so they are counted.
		e.unanswered = c.ForEachShard(ctx, ask) != nil || c.Len() < len(c.Options().Addrs) || e.unanswered
	case *foreign:
		e.unanswered = c.own.Each(ctx, each) != nil || e.unanswered
	default:
		e.trial(ctx, c.Process, s, bans)
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

// trial records which commands the user may not run, and reports whether the
// server answered. A final error also answers whether the user may run evalsha.
func (e *examination) trial(ctx context.Context, send sender, s *Store, bans bool) bool {
	sum := sha1.Sum([]byte(trial))
	return e.try(ctx, send, &e.lacking, "evalsha", hex.EncodeToString(sum[:]), s.wire.prefix+trialKey) &&
		e.try(ctx, send, &e.lacking, "eval", trial, s.wire.prefix+trialKey) &&
		(!bans || e.try(ctx, send, &e.unlisted, "eval", banTrial, s.bans.key()))
}

// try runs a trial on the key, adds the commands that it lacks to the list, and reports
// whether the server answered.
func (e *examination) try(ctx context.Context, send sender, list *[]string,
	command, script, key string) bool {

	q := rediscall.Strings{StringSliceCmd: redis.NewStringSliceCmd(ctx, command, script, 0, key)}

	err := send(ctx, q)

	// Several servers answer at a time.
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case rediscall.Forbids(err):
		addMissing(&e.lacking, command)
	case !answered(err):
		e.unanswered = true
		return false
	}
	addMissing(list, q.Val()...)
	return true
}

// addMissing adds commands to the list that are not in it yet.
func addMissing(list *[]string, commands ...string) {
	for _, name := range commands {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
}

// eviction records whether a server limits its memory and evicts keys to stay
// below the limit. A user without the permission to ask is reported, because counts
// would be lost silently.
func (e *examination) eviction(ctx context.Context, send sender) {
	q := rediscall.Reply{Cmd: redis.NewCmd(ctx, "info", "memory")}
	err := send(ctx, q)
	text, _ := q.Text()
	bytes, policy := field(text, "maxmemory"), field(text, "maxmemory_policy")

	e.mu.Lock()
	defer e.mu.Unlock()
	if rediscall.Forbids(err) {
		addMissing(&e.lacking, "info")
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

const (
	// limitInUse is for how long a limit counts as in use after a process has recorded it.
	// Each process records its limits once a minute while requests arrive.
	limitInUse = 3 * time.Minute

	// rollOut is for how long two limits of one count may be in use without a finding,
	// because some processes have a new limit already and others do not.
	rollOut = 5 * time.Minute

	// maxLimitsPerCall is the number of limits that one script call records.
	maxLimitsPerCall = 128
)

// limitNotes remembers which other limits are in use on the counts of this process's
// rules, and since when. The zero value is ready for use.
type limitNotes struct {
	mu    sync.Mutex
	known map[limitAt]limitNote
}

// limitAt is a limit of this process. Several limiters may share a store.
type limitAt struct{ key, limit string }

type limitNote struct {
	// Instants are in milliseconds since the Unix epoch.
	seen   int64            // of the latest reply
	others map[string]int64 // when each other limit in use was first recorded
}

// lasting remembers the reply of the script for a key. It returns another limit that has been in
// use beside the one of this process for at least rollOut, or "".
func (l *limitNotes) lasting(at limitAt, reply string, now int64) (lasting string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	before := l.known[at]
	if now-before.seen >= limitInUse.Milliseconds() { // this limit was not in use in between
		before.others = nil
	}

	after := limitNote{seen: now}
	for line := range strings.Lines(reply) {
		text, other, _ := strings.Cut(strings.TrimSpace(line), " ")
		age, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue // not written by this package
		}

		// A limit that this process sees for the first time was recorded by another its age ago.
		first, known := before.others[other]
		if !known {
			first = now - age
		}

		if after.others == nil {
			after.others = map[string]int64{}
		}
		after.others[other] = first
		if now-age-first >= rollOut.Milliseconds() {
			lasting = cmp.Or(lasting, other)
		}
	}

	l.remember(at, after)
	return lasting
}

// remember keeps the note of a limit if there are others on its counts, so that most
// rules need no memory.
func (l *limitNotes) remember(at limitAt, note limitNote) {
	switch {
	case note.others == nil:
		delete(l.known, at)
	case l.known == nil:
		l.known = map[limitAt]limitNote{at: note}
	case len(l.known) < maxLimits:
		l.known[at] = note
	}
}

//go:embed limits.lua
var limitsScript string

// recordLimits records under which limits the rules count, and appends a finding if some of
// their counts have also been under other limits for longer than a roll-out takes. It
// reports whether Redis has answered.
func (s *Store) recordLimits(ctx context.Context, rules []core.Op, found []core.Finding) ([]core.Finding, bool) {
	now, clock := time.Now().UnixMilli(), ""
	if s.wire.clock != nil {
		now = s.wire.clock() / 1000
		clock = strconv.FormatInt(now, 10)
	}

	var texts []string
	var first string
	for some := range slices.Chunk(rules, maxLimitsPerCall) {
		args := []any{"eval", limitsScript, len(some)}
		limits := []any{clock, limitInUse.Milliseconds()}
		for i := range some {
			args = append(args, s.limitsKey(&some[i]))
			limits = append(limits, some[i].Limit.String())
		}

		q := rediscall.Strings{StringSliceCmd: redis.NewStringSliceCmd(ctx, append(args, limits...)...)}
		q.SetFirstKeyPos(3)
		err := rediscall.Safely(ctx, func(ctx context.Context) error { return s.client.Process(ctx, q) })
		if err != nil {
			return found, answered(err)
		}

		for i, others := range q.Val() {
			other := s.notes.lasting(limitAt{s.limitsKey(&some[i]), some[i].Limit.String()}, others, now)
			if other != "" {
				first = cmp.Or(first, some[i].Rule)
				texts = append(texts, fmt.Sprintf("%s under %s and under %q", some[i].Rule, some[i].Limit, other))
			}
		}
	}

	if len(texts) == 0 {
		return found, true
	}
	return append(found, core.Finding{Code: findings.OtherLimit, Rule: first,
		Text: fmt.Sprintf("the same keys are counted "+
			"by the rule %s, for %d minutes by now: if two services or limiters use the prefix %q, "+
			"they share these counts, and need different prefixes or names of rules; "+
			"otherwise a change of the limit has not reached all instances", strings.Join(texts, ", by the rule "),
			int(rollOut.Minutes()), s.wire.prefix)}), true
}

// limitsKey returns the key of the limits that a rule's counts are under. It is no key of
// a count, because no subject is written as an asterisk.
func (s *Store) limitsKey(op *core.Op) string {
	key := []byte(s.wire.prefix + "{*}:")
	if op.Rule != "" {
		key = appendText(key, op.Rule, nil)
	}
	return string(append(key, ":"+op.Limit.Algorithm.Letter()+":limits"...))
}
