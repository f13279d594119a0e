// This file finds counts to which processes apply different limits.

package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
)

const (
	// limitInUse is for how long a limit counts as in use after a process has noted it.
	// Each process notes its limits once a minute while requests arrive.
	limitInUse = 3 * time.Minute

	// rollOut is for how long two limits of one count may be in use without a finding,
	// because some processes have a new limit already and others do not.
	rollOut = 5 * time.Minute

	// maxNoted is the number of limits that one script call notes.
	maxNoted = 128
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
	others map[string]int64 // when each other limit in use was first noted
}

// lasting notes the reply of the script for a key. It returns another limit that has been
// in use beside the one of this process for at least rollOut, or "".
func (n *limitNotes) lasting(at limitAt, reply string, now int64) (lasting string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.known[at]
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
	n.remember(at, after)
	return lasting
}

// remember keeps the note of a limit if there are others on its counts, so that most
// rules need no memory.
func (n *limitNotes) remember(at limitAt, note limitNote) {
	switch {
	case note.others == nil:
		delete(n.known, at)
	case n.known == nil:
		n.known = map[limitAt]limitNote{at: note}
	case len(n.known) < maxLimits:
		n.known[at] = note
	}
}

//go:embed limits.lua
var limitsScript string

// noteLimits notes under which limits the rules count, and appends a finding if some of
// their counts have also been under other limits for longer than a roll-out takes. It
// reports whether Redis has answered.
func (s *Store) noteLimits(ctx context.Context, rules []core.Op, found []core.Finding) ([]core.Finding, bool) {
	now, clock := time.Now().UnixMilli(), ""
	if s.clock != nil {
		now = s.clock() / 1000
		clock = strconv.FormatInt(now, 10)
	}
	var texts []string
	var first string
	for some := range slices.Chunk(rules, maxNoted) {
		args := []any{"eval", limitsScript, len(some)}
		limits := []any{clock, limitInUse.Milliseconds()}
		for i := range some {
			args = append(args, s.noteKey(&some[i]))
			limits = append(limits, some[i].Limit.String())
		}
		q := rediscall.Strings{StringSliceCmd: redis.NewStringSliceCmd(ctx, append(args, limits...)...)}
		q.SetFirstKeyPos(3)
		err := rediscall.Safely(ctx, func(ctx context.Context) error { return s.client.Process(ctx, q) })
		if err != nil {
			return found, answered(err)
		}
		for i, others := range q.Val() {
			other := s.notes.lasting(limitAt{s.noteKey(&some[i]), some[i].Limit.String()}, others, now)
			if other != "" {
				first = cmp.Or(first, some[i].Rule)
				texts = append(texts, fmt.Sprintf("%s under %s and under %q", some[i].Rule, some[i].Limit, other))
			}
		}
	}
	if len(texts) == 0 {
		return found, true
	}
	return append(found, core.Finding{Code: core.CodeOtherLimit, Rule: first, Text: fmt.Sprintf("the same keys are counted by the rule %s, "+
		"for %d minutes by now: if two services or limiters use the prefix %q, they share these counts, and need different prefixes or names of rules; "+
		"otherwise a change of the limit has not reached all instances", strings.Join(texts, ", by the rule "),
		int(rollOut.Minutes()), s.prefix)}), true
}

// noteKey returns the key of the limits that a rule's counts are under. It is no key of
// a count, because no subject is written as an asterisk.
func (s *Store) noteKey(op *core.Op) string {
	key := s.ruleText([]byte(s.prefix+"{*}:"), op.Rule)
	return string(append(key, ":"+op.Limit.Algorithm.Letter()+":limits"...))
}
