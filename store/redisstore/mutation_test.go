//go:build !race

package redisstore

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/store/storetest"
	"github.com/redis/go-redis/v9"
)

// comparison finds the comparisons in a line of Lua.
var comparison = regexp.MustCompile(`[<>]=?|[=~]=`)

// twisted is what each comparison is broken into. A quick function may leave to the
// whole algorithm what it could decide, so its comparisons are turned around.
var (
	twisted  = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}
	reversed = map[string]string{"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "~=", "~=": "=="}
)

// mutant is the scripts with one comparison broken.
type mutant struct {
	name  string
	files fs.FS
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
				list = append(list, mutant{fmt.Sprintf("%s:%d: %s", name, i+1, strings.TrimSpace(broken)), files})
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
			server := redistest.Start(t)
			for j := next.Add(1) - 1; j < int64(len(list)); j = next.Add(1) - 1 {
				if !noticed(t, server, list[j]) {
					t.Errorf("unnoticed: %s", list[j].name)
				}
			}
		})
	}
}

// noticed reports whether the mutant differs from the stock scripts in any batch or
// from the reference in any history, fails, hangs, or leaves a key without a time to live.
func noticed(t *testing.T, server *redistest.Server, m mutant) bool {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: patient})
	defer c.Close()
	factory := func(t testing.TB, clock *storetest.Clock) core.Store {
		s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: time.Second, Clock: clock.Now})
		s.scripts.Files = m.files
		return s
	}
	if immortal(t, c, factory(t, storetest.NewClock())) {
		return true
	}
	found := difference(t, c, 40, func(s *Store) { s.timeout, s.scripts.Files = time.Second, m.files })
	if found == "" {
		found = storetest.Difference(t, 20_000, storetest.Seed, storetest.NewModel, factory)
	}
	if strings.Contains(found, "timeout") || strings.Contains(found, "deadline") {
		c.ScriptKill(context.Background())
	}
	return found != ""
}

// immortal reports whether a key that lost its time to live stays without.
func immortal(t *testing.T, c *redis.Client, store core.Store) bool {
	t.Helper()
	ctx, s := context.Background(), store.(*Store)
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1/1h fixed-window"), Cost: 1}
	key := string(s.key(nil, op.Key, op.Rule, "f"))
	for range 2 {
		if s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)) != nil {
			return true
		}
		if c.PTTL(ctx, key).Val() < 0 {
			return true
		}
		c.Persist(ctx, key)
	}
	return false
}
