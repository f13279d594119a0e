//go:build !race

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/tally"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store/storetest"
)

// comparison finds the comparisons in a line of Lua.
var comparison = regexp.MustCompile(`[<>]=?|[=~]=`)

// twisted is what each comparison is broken into. A quick function may leave to the
// whole algorithm what it could decide, so its comparisons are turned around.
var (
	twisted  = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}
	reversed = map[string]string{"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "~=", "~=": "=="}
)

// endless is how long a broken script may take; some never end, as unending finds.
const endless = 3 * time.Second

var unending = regexp.MustCompile("BUSY|timeout|deadline")

// mutant is the scripts with one comparison broken.
type mutant struct {
	file, name string
	files      fs.FS
}

// mutants breaks every comparison of every script, one at a time.
func mutants(t *testing.T) []mutant {
	t.Helper()
	all := scripts(t)
	var list []mutant

	for name, file := range all {
		how, quick := twisted, "local function "+strings.TrimSuffix(name, ".lua")+"_quick("
		lines := strings.SplitAfter(string(file.Data), "\n")

		for i, line := range lines {
			if strings.HasPrefix(line, quick) {
				how = reversed
			} else if line == "-- @slow\n" {
				how = twisted
			}

			code, _, _ := strings.Cut(line, "--")
			for _, at := range comparison.FindAllStringIndex(code, -1) {
				broken := line[:at[0]] + how[line[at[0]:at[1]]] + line[at[1]:]
				files := fstest.MapFS{}
				for other, same := range all {
					files[other] = same
				}
				text := strings.Join(lines[:i], "") + broken + strings.Join(lines[i+1:], "")
				files[name] = &fstest.MapFile{Data: []byte(text)}
				list = append(list, mutant{name, fmt.Sprintf("%s:%d: %s", name, i+1, strings.TrimSpace(broken)), files})
			}
		}
	}
	return list
}

// Some test notices each comparison that is broken.
func TestMutationsOfScriptsAreNoticed(t *testing.T) {
	test.Long(t, "it breaks every comparison in the scripts, one at a time")
	t.Parallel()
	list := mutants(t)
	if len(list) < 60 {
		t.Fatalf("only %d comparisons were found", len(list))
	}
	tally.Add(t, "comparisons in scripts, broken one at a time", int64(len(list)))

	const servers = 2
	var next atomic.Int64
	for i := range servers {
		t.Run(fmt.Sprint("server ", i+1), func(t *testing.T) {
			t.Parallel()
			server, c := served(t)
			for j := next.Add(1) - 1; j < int64(len(list)); j = next.Add(1) - 1 {
				found := list[j].difference(t, c)
				if found == "" {
					t.Errorf("unnoticed: %s", list[j].name)
				}
				if unending.MatchString(found) {
					server.Kill() // it still runs the script, and is of no use to the next
					server, c = served(t)
				}
			}
		})
	}
}

// served starts a server for mutants.
func served(t *testing.T) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	c := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1,
		ReadTimeout: endless})
	t.Cleanup(func() { c.Close() })
	return server, c
}

// of is the algorithm of histories that notice what a file breaks. Those of all algorithms
// notice the others. Of a ban, the simplest algorithm shows most.
var of = map[string]core.Algorithm{
	"gcra.lua":            core.GCRA,
	"fixed_window.lua":    core.FixedWindow,
	"sliding_log.lua":     core.SlidingLog,
	"sliding_window.lua":  core.SlidingWindow,
	"token_bucket.lua":    core.TokenBucket,
	"concurrency.lua":     core.Concurrency,
	"calendar_window.lua": core.CalendarWindow,
	"records.lua":         core.Concurrency,
	"ban.lua":             core.FixedWindow,
	"credit.lua":          core.GCRA,
}

// difference tells how the mutant differs from the stock scripts in a batch or from the
// reference in a history, fails, hangs, or leaves a key without a time to live.
func (m *mutant) difference(t *testing.T, c *redis.Client) string {
	t.Helper()
	scripts := &lua.Scripts{Files: m.files}
	defer c.ScriptFlush(context.Background()) // many scripts slow a server down
	factory := func(t testing.TB, clock *storetest.Clock) core.Store {
		s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: endless, Clock: clock.Now})
		s.wire.scripts = scripts
		return s
	}

	found := immortal(t, c, factory(t, storetest.NewClock()))
	if found == "" {
		found = misread(t, c, factory(t, storetest.NewClock()))
	}

	inBatches := func() string {
		return difference(t, c, 0, 40, func(s *Store) {
			s.servers.fixed, s.wire.scripts = endless, scripts
			s.servers.single.init(endless, endless)
		})
	}
	inHistories := func(n int) string {
		if a, ok := of[m.file]; ok {
			return storetest.DifferenceUnder(t, a, n, storetest.Seed, storetest.NewModel, factory)
		}
		return storetest.Difference(t, n, storetest.Seed, storetest.NewModel, factory)
	}

	if found == "" && m.file == "ban.lua" {
		clock := storetest.NewClock()
		found = remembered(t, factory(t, clock), clock)
	}
	if found == "" && m.file == "void.lua" {
		found = struck(t, c, scripts)
	}
	if found == "" && m.file == "batch.lua" {
		found = inBatches()
	}

	if found == "" {
		found = inHistories(200) // which take less time than batches
	}
	if found == "" {
		found = inBatches()
	}
	if found == "" {
		found = storetest.Missed(t, factory)
	}
	if found == "" {
		found = inHistories(20_000)
	}
	return found
}

// immortal tells how a key that lost its time to live stays without.
func immortal(t *testing.T, c *redis.Client, store core.Store) string {
	t.Helper()
	ctx, s := context.Background(), store.(*Store)
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1/1h fixed-window"), Cost: 1}
	key := string(s.wire.key(nil, op.Key, op.Rule, "f"))

	// Lost before the second call, the time to live must be back after it.
	for range 2 {
		if err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); err != nil {
			return err.Error()
		}
		if c.PTTL(ctx, key).Val() < 0 {
			return "a key has no time to live"
		}
		c.Persist(ctx, key)
	}
	return ""
}

// misread tells what the scripts make of a state of a later format that looks like one of theirs,
// and of one of another program, if not the errors that they should.
func misread(t *testing.T, c *redis.Client, store core.Store) string {
	t.Helper()
	ctx, s := context.Background(), store.(*Store)
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "10/1h"), Cost: 1}
	for mark, want := range map[string]error{
		"\xfe\x03": ErrFormat, "\xfe\x01": ErrUnreadable, "\xfe\x02": ErrUnreadable,
	} {
		// The bytes after the mark are those of a state that a script could read.
		state := mark + packed(1, float64(storetest.Epoch), "360000000 1 10")[len(mark):]
		for n := range 2 {
			c.Set(ctx, keyOf(s, &op), state, time.Hour)
			err := s.Apply(ctx, slices.Repeat([]core.Op{op}, n+1), make([]core.Decision, n+1))
			if !errors.Is(err, want) {
				return fmt.Sprintf("%q and %d operations: %v", mark, n+1, err)
			}
		}
	}
	return ""
}

// struck tells what a refund gives back after a Reset by a store that has seen no ban, of a key
// that another store has refused under one, if it gives anything back.
func struck(t *testing.T, c *redis.Client, scripts *lua.Scripts) string {
	t.Helper()
	prefix, clock := redistest.Prefix(t), storetest.NewClock()
	apply := func(op core.Op) core.Decision {
		s := MustNew(c, Options{Prefix: prefix, Timeout: endless, Clock: clock.Now})
		s.wire.scripts = scripts
		out := make([]core.Decision, 1)
		if err := s.Apply(context.Background(), []core.Op{op}, out); err != nil {
			t.Log(err)
		}
		return out[0]
	}

	take := core.Op{Rule: "r", Key: "k", Limit: limit(t, "2/1h"), Cost: 2}
	taken := apply(take)
	refused := take
	refused.Ban = &core.Ban{Strikes: 9, Within: time.Hour, For: time.Hour, Max: time.Hour}
	apply(refused)

	// The reset keeps that the key was refused, and forgets its units.
	reset := take
	reset.Verb = core.Reset
	apply(reset)

	// The units that are taken after the reset are not those that the refund is about.
	clock.Add(time.Second)
	apply(take)
	if d := apply(take.Refund(taken)); d.Remaining != 0 {
		return fmt.Sprintf("%d units are left", d.Remaining)
	}
	return ""
}

func TestResetOfARefusedKeyMakesItsTakesVoid(t *testing.T) {
	_, c := served(t)
	if found := struck(t, c, &lua.Scripts{Files: scripts(t)}); found != "" {
		t.Error(found)
	}
}

// remembered tells how long a ban lasts that begins when the one before is forgotten, if not
// as long as the first. A random history seldom counts a strike at that instant.
func remembered(t *testing.T, store core.Store, clock *storetest.Clock) string {
	t.Helper()
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1/3001ms fixed-window"), Cost: 1}
	op.Ban = &core.Ban{Strikes: 1, Within: time.Second, For: time.Second, Max: 2 * time.Second}
	out := make([]core.Decision, 1)
	for _, later := range []time.Duration{0, 0, op.Ban.For + op.Ban.Max} { // granted, banned, banned anew
		clock.Add(later)
		if err := store.Apply(context.Background(), []core.Op{op}, out); err != nil {
			return err.Error()
		}
	}

	if out[0].RetryAfter != op.Ban.For {
		return fmt.Sprintf("banned for %s", out[0].RetryAfter)
	}
	return ""
}
