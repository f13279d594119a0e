// This file lists bans, and the credit of a key. The ban of a key is in its state, which no command
// finds without the name of the key, so a process that bans a key, or meets a banned one, adds it
// to a sorted set, in the background.

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

const (
	// listedBans is how many bans the sorted set holds at most: those that last longest.
	listedBans = 10_000

	// knownBans is how many bans a process remembers to have added.
	knownBans = 4096

	// listedKey is the length of the longest key that is listed, in bytes.
	listedKey = 1024
)

// banList adds the bans that the process meets to the sorted set, and reads it.
type banList struct {
	client  redis.UniversalClient
	wire    *wire
	servers *servers
	link    *link

	mu      sync.Mutex       // guards all below
	known   map[string]int64 // when the ban of a member ends, by the latest decision
	waiting []redis.Z        // members to add
	adding  bool
	idle    sync.WaitGroup // for tests
}

// meet has the bans that a step has met added, which are not in the set yet. A Peek writes
// nothing, here as elsewhere.
func (b *banList) meet(ops []core.Op, out []core.Decision) {
	for i := range ops {
		if out[i].Banned && ops[i].Verb != core.Peek {
			b.meetOne(&ops[i], &out[i])
		}
	}
}

func (b *banList) meetOne(op *core.Op, d *core.Decision) {
	left := d.RetryAfter
	if op.Verb == core.Impose { // which asks for nothing that could be refused
		left = op.Ban.For
	}
	if b.wire.secret == nil && len(op.Key) <= listedKey && left > 0 && left != core.Never {
		b.remember(banMember(op), d.At, d.At+left.Microseconds())
	}
}

// remember has a member added, unless the process has added it for as long a ban.
func (b *banList) remember(member string, now, until int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[member] >= until {
		return
	}

	if b.known == nil || len(b.known) >= knownBans {
		b.known = map[string]int64{} // a member that is added again stays as it is
	}

	b.known[member] = until
	b.waiting = append(b.waiting, redis.Z{Score: float64(until), Member: member})
	if !b.adding {
		b.adding = true
		b.idle.Go(func() { b.add(now) })
	}
}

// add adds the members that wait, until none does.
func (b *banList) add(now int64) {
	for {
		b.mu.Lock()
		members := b.waiting
		b.waiting = nil
		b.adding = len(members) > 0
		b.mu.Unlock()
		if len(members) == 0 {
			return
		}

		// The set forgets bans that have ended, and then those that end first, so its size is
		// bounded.
		ctx, cancel := context.WithTimeout(context.Background(), max(b.servers.reach(), time.Second))
		name := b.key()
		err := processAll(ctx, b.client, []redis.Cmder{
			redis.NewIntCmd(ctx, addition(name, members)...),
			redis.NewIntCmd(ctx, "zremrangebyscore", name, "-inf", strconv.FormatInt(now, 10)),
			redis.NewIntCmd(ctx, "zremrangebyrank", name, 0, -listedBans-1),
			redis.NewIntCmd(ctx, "pexpire", name, core.MaxPeriod.Milliseconds()),
		})
		cancel()
		if err != nil { // the next request of the key tries again
			b.mu.Lock()
			for _, m := range members {
				delete(b.known, m.Member.(string))
			}
			b.mu.Unlock()
		}
	}
}

// addition returns the command that adds the members to the sorted set.
func addition(name string, members []redis.Z) []any {
	args := []any{"zadd", name}
	for _, m := range members {
		args = append(args, strconv.FormatFloat(m.Score, 'f', -1, 64), m.Member)
	}
	return args
}

// key is the name of the sorted set. No state has it, as none is without a brace.
func (b *banList) key() string { return b.wire.prefix + "bans" }

// banMember returns the member for the ban of the operation's key: the letter of the
// algorithm, the rule, a zero byte and the key. No rule's name has a zero byte.
func banMember(op *core.Op) string {
	return op.Limit.Algorithm.Letter() + op.Rule + "\x00" + op.Key
}

// errHidden is the error of a store that hides keys.
var errHidden = errors.New(
	"redisstore: a store with a secret cannot list bans, as it cannot read the keys: lift them by the key")

// bans returns the bans of the rules, at most so many, as Store.Bans does.
func (b *banList) bans(ctx context.Context, rules []string, most int) ([]core.Banned, error) {
	if b.wire.secret != nil {
		return nil, errHidden
	}

	ctx, cancel := context.WithTimeout(ctx, b.servers.reach())
	defer cancel()
	now, err := b.now(ctx)
	if err != nil {
		return nil, fmt.Errorf("redisstore: list bans: %w", b.link.explain(err))
	}

	// Bans that have ended stay in the set until the next is added.
	latest := redis.NewStringSliceCmd(ctx, "zrevrangebyscore", b.key(), "+inf", strconv.FormatInt(now, 10))
	if err := b.client.Process(ctx, latest); err != nil {
		return nil, fmt.Errorf("redisstore: list bans: %w", b.link.explain(err))
	}

	wanted := make(map[string]bool, len(rules))
	for _, rule := range rules {
		wanted[rule] = true
	}

	// A member only says that there was a ban. The state of the key says whether there is, and
	// until when.
	var list []core.Banned
	var states []redis.Cmder
	for _, member := range latest.Val() {
		rule, key, ok := strings.Cut(member, "\x00")
		if !ok || rule == "" || !wanted[rule[1:]] {
			continue
		}
		list = append(list, core.Banned{Rule: rule[1:], Key: key})
		states = append(states, redis.NewStringCmd(ctx, "getrange",
			string(b.wire.key(nil, key, rule[1:], rule[:1])), 0, maxCreditHead+banHead-1))
	}

	if err := processAll(ctx, b.client, states); err != nil {
		return nil, fmt.Errorf("redisstore: list bans: %w", b.link.explain(err))
	}

	for i, each := range states {
		state := each.(*redis.StringCmd).Val()
		if err := laterFormat(state); err != nil {
			return nil, fmt.Errorf("redisstore: list bans: rule %q: %w", list[i].Rule, err)
		}
		list[i].Until = banUntil(state)
	}

	list = slices.DeleteFunc(list, func(ban core.Banned) bool { return ban.Until <= now })
	slices.SortFunc(list, core.Banned.Compare)
	return list[:min(len(list), max(0, most))], nil
}

// now returns the store's clock.
func (b *banList) now(ctx context.Context) (int64, error) {
	if b.wire.clock != nil {
		return b.wire.clock(), nil
	}
	clock := redis.NewTimeCmd(ctx, "time")
	if err := b.client.Process(ctx, clock); err != nil {
		return 0, err
	}
	return clock.Val().UnixMicro(), nil
}

// banHead is the part of a state that lua/ban.lua begins with: a letter, the number of
// strikes and the instant until which the ban lasts, each in 7 bytes.
const banHead = 15

// A state with credits begins with a mark of two bytes and their number in a third. Each has
// creditSize bytes. See lua/credit.lua.
const (
	creditHead    = 3
	creditSize    = 21
	maxCreditHead = creditHead + core.MaxCredits*creditSize
)

// Credit is what a key has left of its grants that end at one instant.
type Credit struct {
	Units int64 // above 0
	Until int64 // in microseconds since the Unix epoch
}

// credits returns the credits of a state that end after now and have units left.
func credits(state string, now int64) (list []Credit) {
	head := len(state) - len(withoutCredits(state))
	for at := creditHead; at+creditSize <= head; at += creditSize {
		if c := (Credit{Units: instantIn(state[at+7:]), Until: instantIn(state[at:])}); c.Units > 0 && c.Until > now {
			list = append(list, c)
		}
	}
	return list
}

// instantIn returns the instant, or the number, in the first seven bytes of a text.
func instantIn(text string) (n int64) {
	for _, b := range []byte(text[:7]) {
		n = n<<8 | int64(b)
	}
	return n
}

// withoutCredits returns a state less the credits that it begins with.
func withoutCredits(state string) string {
	if len(state) < creditHead || state[0] != laterMark || state[1] != lua.Format {
		return state
	}
	return state[min(len(state), creditHead+int(state[2])*creditSize):]
}

// banUntil returns the instant at which the ban of a state ends, or 0 if it has none.
func banUntil(state string) int64 {
	state = withoutCredits(state)
	if len(state) < banHead || state[0] != 'b' || state[1:8] != strings.Repeat("\x00", 7) {
		return 0
	}
	return instantIn(state[8:])
}
