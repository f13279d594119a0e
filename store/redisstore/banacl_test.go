package redisstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/findings"
)

// Without a permission that the list of bans needs, bans hold and no step fails. One finding
// and the error of the list have the command that grants it.
func TestBansHoldWithoutPermissionToListThem(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	const now = 1_700_000_000_000_000
	lists := []any{"+zadd", "+zremrangebyscore", "+zremrangebyrank", "+zrevrangebyscore", "+getrange"}

	rows := []struct {
		name    string
		rules   []any  // beside needed
		lacks   string // by the finding
		refused bool   // the list
	}{
		{"all", lists, "", false},
		{"none", nil, "zadd, zremrangebyscore, zremrangebyrank, zrevrangebyscore, getrange", true},
		{"no zadd", without(lists, 0), "zadd", false},
		{"no zremrangebyscore", without(lists, 1), "zremrangebyscore", false},
		{"no zremrangebyrank", without(lists, 2), "zremrangebyrank", false},
		{"no zrevrangebyscore", without(lists, 3), "zrevrangebyscore", true},
		{"no getrange", without(lists, 4), "getrange", true},
		// The commands are granted, and only the list's key is not.
		{"another key", append(slices.Clone(lists), "resetkeys", "~hg:{*"),
			"zadd, zremrangebyscore, zremrangebyrank, zrevrangebyscore, getrange", true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			admin.FlushAll(t.Context())

			// A ban that the list holds already, to see that the diagnosis removes nothing.
			listed := redis.Z{Score: now + 60e6, Member: "gr\x00before"}
			admin.ZAdd(t.Context(), "hg:bans", listed)

			setUser(t, admin, append(slices.Clone(needed), append([]any{"+info"}, row.rules...)...)...)
			s := MustNew(asUser(t, server.Addr), Options{Prefix: DefaultPrefix, Timeout: patient,
				Clock: func() int64 { return now }})

			l := limit(t, "1/1s")
			rules := []core.Op{{Rule: "s", Limit: l},
				{Rule: "r", Limit: l, Ban: &core.Ban{Strikes: 1, Within: time.Minute, For: time.Minute,
					Max: time.Hour}}}

			want := "the Redis user may not run " + row.lacks + ` on "hg:bans", which the list of bans needs; ` +
				"the bans of the rule r hold without it: this command grants what is needed: " + remedyOfLimiter
			finding := []core.Finding{{Code: findings.BanList, Rule: "r", Text: want}}
			if row.lacks == "" {
				finding = nil
			}
			if found := s.Report().Diagnose(t.Context(), rules); !slices.Equal(found, finding) {
				t.Errorf("%v, want %v", found, finding)
			}

			// A rule without a ban has no use for the list.
			if found := s.Report().Diagnose(t.Context(), rules[:1]); len(found) != 0 {
				t.Errorf("without a ban: %v", found)
			}

			if got := admin.ZRangeWithScores(t.Context(), "hg:bans", 0, -1).Val(); !slices.Equal(got,
				[]redis.Z{listed}) {
				t.Errorf("the diagnosis made the list %v", got)
			}

			ban := banning(t, s, s.wire.clock) // which fails if a step does
			ban("r", "a", time.Minute)
			ban("r", "a", time.Minute)

			_, err := s.Report().Bans(t.Context(), []string{"r"}, 10)
			if errors.Is(err, ErrPermission) != row.refused || err != nil &&
				!strings.HasSuffix(err.Error(), remedyOfLimiter) {
				t.Errorf("error %v", err)
			}
			if row.lacks == "" {
				return
			}

			// The finding's command is enough to get rid of the finding.
			_, line, _ := strings.Cut(remedyOfLimiter, " SETUSER ")
			if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER"}, words(t, line)...)...).Err(); err != nil {
				t.Fatal(err)
			}

			if found := s.Report().Diagnose(t.Context(), rules); len(found) != 0 {
				t.Errorf("with the permission: %v", found)
			}

			b := ban("r", "a", time.Minute)
			if got, err := s.Report().Bans(t.Context(), []string{"r"}, 10); err != nil ||
				!slices.Equal(got, []core.Banned{b}) {
				t.Errorf("with the permission: %v, %v", got, err)
			}
		})
	}
}

// without returns the rules but for one.
func without(rules []any, i int) []any {
	return slices.Delete(slices.Clone(rules), i, i+1)
}
