package rueidisstore_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/findings"
	"github.com/headgate/headgate/store/redisstore"
	rueidisstore "github.com/headgate/headgate/store/redisstore/rueidis"
)

// dialer is for servers on this machine.
var dialer = net.Dialer{Timeout: 5 * time.Second, KeepAlive: time.Second}

// admin returns a client that may do everything on the server.
func admin(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// take takes a unit of the key.
func take(s core.Store, key string) (core.Decision, error) {
	out := make([]core.Decision, 1)
	op := core.Op{Rule: "r", Key: key, Limit: core.MustParseLimit("3/1h"), Cost: 1}
	err := s.Apply(context.Background(), []core.Op{op}, out)
	return out[0], err
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: ", what)
		}
	}
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := rueidisstore.New(nil, redisstore.Options{Prefix: "a{b", Batch: -2})
	for _, want := range []string{"client is nil", `prefix "a{b" holds a brace`, "batch of -2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// Instances whose clients differ share the counts, of steps that are sent alone and together.
func TestCountsAreSharedWithGoRedis(t *testing.T) {
	addr, o := redistest.Addr(t), redisstore.Options{Prefix: redistest.Prefix(t), Timeout: patient}
	ours := rueidisstore.MustNew(connect(t, at(addr)), o)
	theirs := redisstore.MustNew(admin(t, addr), o)

	// The units are those of one key.
	for i, s := range []core.Store{ours, theirs, ours} {
		if d, err := take(s, "k"); err != nil || !d.Allowed || d.Remaining != int64(2-i) {
			t.Errorf("take %d: %+v, %v", i, d, err)
		}
	}
	for _, s := range []core.Store{ours, theirs} {
		if d, err := take(s, "k"); err != nil || d.Allowed {
			t.Errorf("a fourth unit of three: %+v, %v", d, err)
		}
	}
}

// A server without its scripts gets their text again, and no caller notices.
func TestScriptsAreSentAgainAfterAFlush(t *testing.T) {
	server := redistest.Start(t)
	s := rueidisstore.MustNew(connect(t, at(server.Addr)), redisstore.Options{Prefix: "p:", Timeout: patient})
	for i := range 3 {
		if d, err := take(s, "k"); err != nil || d.Remaining != int64(2-i) {
			t.Errorf("take %d: %+v, %v", i, d, err)
		}
		admin(t, server.Addr).ScriptFlush(t.Context())
	}
}

// The diagnosis asks every server that decides.
func TestDiagnosisThroughRueidis(t *testing.T) {
	server := redistest.Start(t)
	a := admin(t, server.Addr)
	s := rueidisstore.MustNew(connect(t, at(server.Addr)), redisstore.Options{Prefix: "p:", Timeout: patient})
	if found := s.Report().Diagnose(t.Context(), nil); len(found) != 0 {
		t.Errorf("of a server without a fault: %v", found)
	}

	// Counts would be lost silently.
	a.ConfigSet(t.Context(), "maxmemory", "100mb")
	a.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	if found := codes(s.Report().Diagnose(t.Context(), nil)); !slices.Equal(found, []string{findings.Eviction}) {
		t.Errorf("of a server that evicts: %v", found)
	}

	// A permission that is missing is named.
	a.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~p:*", "+@all", "-pttl", "-cluster")
	o := at(server.Addr)
	o.Username, o.Password = "app", "secret"
	s = rueidisstore.MustNew(connect(t, o), redisstore.Options{Prefix: "p:", Timeout: patient})

	// The other finding is about the server, which evicts keys as before.
	found := s.Report().Diagnose(t.Context(), nil)
	want := []string{findings.Permission, findings.Eviction}
	if !slices.Equal(codes(found), want) || !strings.Contains(found[0].Text, "may not run pttl,") {
		t.Errorf("of a user without PTTL: %v", found)
	}
}

func codes(found []core.Finding) []string {
	var list []string
	for _, f := range found {
		list = append(list, f.Code)
	}
	return list
}

// Errors of the server have the names that they have through go-redis.
func TestErrorsHaveTheirNames(t *testing.T) {
	server := redistest.Start(t)
	a := admin(t, server.Addr)
	a.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~p:*", "+@all")
	o := at(server.Addr)
	o.Username, o.Password, o.ForceSingleClient = "app", "secret", true
	s := rueidisstore.MustNew(connect(t, o), redisstore.Options{Prefix: "p:", Timeout: patient})

	a.Do(t.Context(), "ACL", "SETUSER", "app", "-eval", "-evalsha")
	if _, err := take(s, "k"); !errors.Is(err, redisstore.ErrPermission) {
		t.Errorf("a user without EVAL: %v", err)
	}

	// The client logs in when it connects, so it has to connect again.
	a.Do(t.Context(), "ACL", "SETUSER", "app", "resetpass", ">other", "+eval", "+evalsha")
	a.Do(t.Context(), "CLIENT", "KILL", "USER", "app")
	eventually(t, "the password that is wrong", func() bool {
		_, err := take(s, "k")
		return errors.Is(err, redisstore.ErrCredentials)
	})

	// With its password back it goes on by itself.
	a.Do(t.Context(), "ACL", "SETUSER", "app", ">secret")
	eventually(t, "a decision", func() bool {
		_, err := take(s, "k")
		return err == nil
	})
	a.Do(t.Context(), "SET", "p:{string}:r:g", "x")
	if _, err := take(s, "string"); !errors.Is(err, redisstore.ErrUnreadable) {
		t.Errorf("a value of another program: %v", err)
	}
}

// A server that is gone fails a call at once, which proves that nothing ran.
func TestServerThatIsGoneFailsCallsAtOnce(t *testing.T) {
	server := redistest.Start(t)
	s := rueidisstore.MustNew(connect(t, at(server.Addr)), redisstore.Options{Prefix: "p:", Timeout: patient})
	if _, err := take(s, "k"); err != nil {
		t.Fatal(err)
	}

	server.Kill()
	eventually(t, "a call that is refused", func() bool {
		_, err := take(s, "k")
		var unsent interface{ Unsent() bool }
		return errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, &unsent) && unsent.Unsent()
	})

	server.Restart()
	eventually(t, "a decision", func() bool {
		_, err := take(s, "k")
		return err == nil
	})
}

// rueidis repeats commands that only read when their connection broke, and no script.
func TestLostReplyCountsOnce(t *testing.T) {
	addr := redistest.Addr(t)
	proxy := faultproxy.New(t, addr)
	c := connect(t, at(proxy.Addr))
	o := redisstore.Options{Prefix: redistest.Prefix(t), Timeout: patient}
	s := rueidisstore.MustNew(c, o)
	if _, err := take(s, "k"); err != nil {
		t.Fatal(err)
	}

	proxy.Set(faultproxy.Fault{Nth: 1, CutReply: faultproxy.After(1)})
	if _, err := take(s, "k"); err == nil {
		t.Error("a decision without a reply")
	}
	proxy.Set(faultproxy.Fault{})

	// Had it been counted twice, none would be left.
	direct := rueidisstore.MustNew(connect(t, at(addr)), o)
	if d, err := take(direct, "k"); err != nil || !d.Allowed || d.Remaining != 0 {
		t.Errorf("the third take: %+v, %v", d, err)
	}
}

// A call ends at its deadline while the server hangs.
func TestCallEndsAtItsDeadline(t *testing.T) {
	server := redistest.Start(t)
	s := rueidisstore.MustNew(connect(t, at(server.Addr)), redisstore.Options{Prefix: "p:"})
	if _, err := take(s, "k"); err != nil {
		t.Fatal(err)
	}

	// The system goes on taking what is sent, and nothing answers.
	server.Freeze()
	defer server.Thaw()

	begun := time.Now()
	if _, err := take(s, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(begun); took < redisstore.DefaultTimeout {
		t.Errorf("it ended after %v", took)
	}

	// A server that is silent is not asked by every caller.
	eventually(t, "a call that is not made", func() bool {
		_, err := take(s, "k")
		return errors.Is(err, core.ErrSilent)
	})
}

// The bans that a store has met are listed, also where their keys are on several servers.
func TestBansAreListed(t *testing.T) {
	for name, addrs := range map[string][]string{
		"server": {redistest.Addr(t)}, "cluster": redistest.Addrs(redistest.Cluster(t, 3)),
	} {
		t.Run(name, func(t *testing.T) {
			s := rueidisstore.MustNew(connect(t, at(addrs...)),
				redisstore.Options{Prefix: redistest.Prefix(t), Timeout: patient})

			// The keys are in different slots.
			want := []string{"a", "b", "c", "d"}
			for _, key := range want {
				op := core.Op{Rule: "r", Key: key, Limit: core.MustParseLimit("1/1h"), Cost: 1,
					Ban: &core.Ban{Strikes: 1, Within: time.Hour, For: time.Hour, Max: time.Hour}}
				for range 3 {
					if err := s.Apply(t.Context(), []core.Op{op}, make([]core.Decision, 1)); err != nil {
						t.Fatal(err)
					}
				}
			}

			// A ban is added in the background.
			var got []string
			eventually(t, "four bans", func() bool {
				list, err := s.Report().Bans(t.Context(), []string{"r"}, 10)
				if err != nil {
					t.Fatal(err)
				}
				got = nil
				for _, ban := range list {
					got = append(got, ban.Key)
				}
				return len(got) == len(want)
			})

			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("banned: %v", got)
			}
		})
	}
}

// The shard of a key is the master that has its slot, and stays so when a slot moves.
func TestShardIsTheMasterOfTheKey(t *testing.T) {
	masters := redistest.Addrs(redistest.Cluster(t, 3))
	s := rueidisstore.MustNew(connect(t, at(masters...)), redisstore.Options{Prefix: "p:", Timeout: patient})
	shardOf := s.Shards()

	// The table is asked for by the first question.
	eventually(t, "a table", func() bool { return shardOf("k") != "" })

	// The masters share the slots evenly, in their order.
	c := admin(t, masters[0])
	for _, key := range []string{"", "a", "b", "10.0.0.1", "{b}", "}", "ü\x00", strings.Repeat("long", 9)} {
		tag := strings.NewReplacer("{", "%7B", "}", "%7D", "ü", "%C3%BC", "\x00", "%00").Replace(key)
		if key == "" {
			tag = "%"
		}
		slot, err := c.ClusterKeySlot(t.Context(), tag).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := shardOf(key), masters[slot*3/16384]; got != want {
			t.Errorf("%q is at %q, want %s", key, got, want)
		}
	}
}

// The status names what the client reaches.
func TestStatusNamesTheServers(t *testing.T) {
	s := rueidisstore.MustNew(connect(t, at(redistest.Addr(t))), redisstore.Options{Prefix: "p:"})
	if status := s.Report().Status(nil); len(status) != 1 || status[0].Servers != "standalone" {
		t.Errorf("%+v", status)
	}
}

// A client without the options of NewClient works too.
func TestAnyClientWorks(t *testing.T) {
	for name, o := range map[string]rueidis.ClientOption{
		"with its cache":         {},
		"without pipelines":      {DisableAutoPipelining: true, DisableCache: true},
		"with nothing but them":  {AlwaysPipelining: true, DisableCache: true},
		"with the older answers": {AlwaysRESP2: true, DisableCache: true},
	} {
		o.InitAddress, o.Dialer = []string{redistest.Addr(t)}, dialer
		c, err := rueidis.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		s := rueidisstore.MustNew(c, redisstore.Options{Prefix: redistest.Prefix(t), Timeout: patient})
		if d, err := take(s, "k"); err != nil || d.Remaining != 2 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if found := s.Report().Diagnose(t.Context(), nil); len(found) != 0 {
			t.Errorf("%s: %v", name, found)
		}
		c.Close()
	}
}
