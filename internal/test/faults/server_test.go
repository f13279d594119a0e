package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

// debugging lets tests use DEBUG, which servers refuse otherwise.
var debugging = []string{"--enable-debug-command", "yes"}

// quickSync makes a server copy its data to a replica at once.
var quickSync = []string{"--repl-diskless-sync-delay", "0"}

// serverFaults lists the faults of the server itself.
func serverFaults() []fault {
	const ms = time.Millisecond
	return []fault{
		// Shorter than the timeout, a freeze may be noticed or not; two seconds always are.
		{name: "frozen-50ms", sees: whatever, inflict: func(s *scene) { freeze(s, 50*ms) }},
		{name: "frozen-2s", sees: something, inflict: func(s *scene) { freeze(s, 2*time.Second) }},
		// Both restarts lose all counts, and the users of the server with them.
		{name: "killed-and-restarted", sees: something, brief: true, inflict: func(s *scene) {
			s.forgot()
			s.server.Kill()
			s.sustain(100 * ms)
			s.server.Restart()
			s.allow()
		}},
		{name: "shut-down-and-restarted", sees: something, inflict: func(s *scene) {
			s.forgot()
			s.admin.ShutdownNoSave(context.Background())
			s.sustain(100 * ms)
			s.server.Restart()
			s.allow()
		}},
		// Scripts are sent again when the server has forgotten them, so no request notices.
		always(again("script-flush", 10*ms, 600*ms, nothing, "SCRIPT", "FLUSH")),
		again("client-kill", 50*ms, 700*ms, whatever, "CLIENT", "KILL", "USER", "app"),
		// The pause ends by itself, so it is repeated until a request has met it.
		{name: "client-pause-all", sees: something, inflict: func(s *scene) {
			s.insist(func() {
				s.do("CLIENT", "PAUSE", "500", "ALL")
				s.hold(500 * ms)
			})
		}},
		{name: "client-pause-write", sees: something, inflict: func(s *scene) {
			s.insist(func() {
				s.do("CLIENT", "PAUSE", "500", "WRITE")
				s.hold(500 * ms)
			})
		}},
		// The server without free memory writes small states, also of logs and leases.
		{name: "out-of-memory", sees: nothing, brief: true, inflict: exhaust},
		// It refuses to write states that may be large.
		{name: "out-of-memory-for-large-states", sees: nothing, brief: true, unless: []string{"log", "lease"},
			inflict: exhaustForLarge,
			limits:  map[string]string{"log": "1000/24h sliding-log", "lease": "1000 concurrent ttl=30s"},
			after:   wantRulesNamed},
		// Evictions lose counts without an error.
		{name: "evicting-lru", sees: nothing, inflict: func(s *scene) { evict(s, "allkeys-lru") }},
		{name: "evicting-at-random", sees: nothing, inflict: func(s *scene) { evict(s, "allkeys-random") }},
		// The server answers, but not as it should: connections, permissions and passwords that it
		// refuses.
		{name: "max-clients", sees: something, inflict: crowd},
		always(during("permission-revoked", 400*ms, something, []any{"ACL", "SETUSER", "app", "-eval", "-evalsha"},
			[]any{"ACL", "SETUSER", "app", "+eval", "+evalsha"})),
		{name: "password-rotated", sees: something, inflict: rotate},
		{name: "busy-script", sees: something, args: []string{"--busy-reply-threshold", "10"}, inflict: busy},
		// Values that are not those of the limiter, which must neither be changed nor counted.
		{name: "key-of-another-type", sees: something, inflict: func(s *scene) { spoil(s, "RPUSH", "list") }},
		{name: "key-that-is-no-state", sees: something, inflict: func(s *scene) { spoil(s, "SET", "string") }},
		// Keys without an expiry, which the next write has to give one again.
		{name: "keys-persisted", sees: nothing, inflict: func(s *scene) {
			s.every(5*ms, 400*ms, func() {
				for _, l := range s.lanes {
					s.do("PERSIST", sharedKeyOf(l))
				}
			})
		}},
		{name: "flushall", sees: nothing, brief: true, inflict: func(s *scene) {
			s.every(100*ms, 500*ms, func() {
				s.do("FLUSHALL")
				s.forgot()
			})
		}},
		// Servers that refuse writes or reads because of their role or state.
		during("read-only", 500*ms, something, []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}),
		{name: "master-down", sees: something, args: []string{"--replica-serve-stale-data", "no"},
			inflict: func(s *scene) {
				s.do("REPLICAOF", "127.0.0.1", "1")
				s.sustain(500 * ms)
				s.do("REPLICAOF", "NO", "ONE")
			}},
		during("no-replicas", 500*ms, something, config("min-replicas-to-write", "1"),
			config("min-replicas-to-write", "0")),
		// Servers that do not answer for a time: they load data, sleep, or fail to write.
		{name: "loading", sees: something, args: debugging, inflict: func(s *scene) { s.insist(func() { load(s) }) }},
		{name: "debug-sleep", sees: something, args: debugging, inflict: func(s *scene) {
			s.insist(func() { s.do("DEBUG", "SLEEP", "0.5") })
		}},
		{name: "disk-full", sees: something, inflict: fillDisk},
		// The replica lacks the latest counts when it takes over.
		{name: "promoted-replica-that-lags", sees: something, args: quickSync, inflict: promote},
	}
}

func freeze(s *scene, d time.Duration) {
	s.server.Freeze()
	s.sustain(d)
	s.server.Thaw()
}

// crowd takes every connection of the server.
func crowd(s *scene) {
	const most = 25
	s.do(config("maxclients", "25")...)
	// The clients connect again between the two, until all connections are taken.
	for range 5 {
		s.do("CLIENT", "KILL", "USER", "app")
		defer hoard(s.t, s.server.Addr, most)()
	}
	s.sustain(400 * time.Millisecond)
	s.do(config("maxclients", "1000")...)
}

// rotate changes the password on the server first and in the service later.
func rotate(s *scene) {
	s.do("ACL", "SETUSER", "app", "resetpass", ">second")
	s.do("CLIENT", "KILL", "USER", "app")
	s.sustain(400 * time.Millisecond)
	second := "second"
	s.secret.Store(&second)
}

// busy keeps the server busy with another program's script.
func busy(s *scene) {
	done := make(chan error, 1)
	other := adminOf(s.t, s.server.Addr)
	go func() { done <- other.Do(context.Background(), "EVAL", "while true do end", "0").Err() }()
	s.sustain(500 * time.Millisecond)
	s.do("SCRIPT", "KILL")
	if err := <-done; err == nil || !strings.Contains(err.Error(), "killed") {
		s.t.Errorf("the other script ended with %v", err)
	}
}

// spoil replaces the shared state of each lane by a value of another kind, which must
// stay and expire within a minute.
func spoil(s *scene, command, kind string) {
	ctx := context.Background()
	s.forgot()

	for _, l := range s.lanes {
		s.do("EVAL", "redis.call('DEL', KEYS[1]) return redis.call(ARGV[1], KEYS[1], ARGV[2])", "1",
			sharedKeyOf(l), command, "another program's")
	}

	s.sustain(300 * time.Millisecond)

	// The value of the other program stays as it is, but not for ever.
	for _, l := range s.lanes {
		key := sharedKeyOf(l)
		s.until("a time to live", func() bool { return s.admin.PTTL(ctx, key).Val() > 0 })
		if got := s.admin.Type(ctx, key).Val(); got != kind {
			s.t.Errorf("the %s is a %s", kind, got)
		}

		if ttl := s.admin.PTTL(ctx, key).Val(); ttl > time.Minute {
			s.t.Errorf("an unreadable value stays for %v", ttl)
		}

		// Removed, so that Redis counts again.
		s.do("DEL", key)
	}
}

// load makes the server read its keys from disk, slowly.
func load(s *scene) {
	s.do("DEBUG", "POPULATE", "500", "other")
	s.do(config("key-load-delay", "1000")...)
	s.do(config("loading-process-events-interval-bytes", "1024")...)
	s.do("DEBUG", "RELOAD")
	s.do(config("key-load-delay", "0")...)
}

// fillDisk makes the server refuse writes, as it does when it cannot save them.
func fillDisk(s *scene) {
	ctx := context.Background()
	dir := s.admin.ConfigGet(ctx, "dir").Val()["dir"]
	file := filepath.Join(dir, s.admin.ConfigGet(ctx, "dbfilename").Val()["dbfilename"])

	// A directory in the file's place makes every save fail, without filling a disk.
	if err := os.MkdirAll(filepath.Join(file, "full"), 0o700); err != nil {
		s.t.Fatal(err)
	}

	s.do(config("save", "3600 1000000")...)
	s.do("BGSAVE")
	s.until("a save that fails", func() bool {
		return strings.Contains(s.admin.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
	})

	s.sustain(400 * time.Millisecond)

	// Without a rule to save, the server forgets that a save failed.
	s.do(config("save", "")...)
}

// inStep waits until a replica has all data that its master had at an instant, and
// returns the instant. Earlier counts are not lost with the master.
func (s *scene) inStep(master, replica *redis.Client) time.Time {
	s.t.Helper()
	asked := time.Now()
	offset := s.info(master, "replication", "master_repl_offset")
	s.until("a replica in step", func() bool { return s.info(replica, "replication", "slave_repl_offset") >= offset })
	return asked
}

// lag is how far the replica is behind.
const lag = 300 * time.Millisecond

// promote replaces the server by a replica that lags.
func promote(s *scene) {
	// The proxy between the two servers delays what the replica gets.
	link := faultproxy.New(s.t, s.server.Addr)
	replica := redistest.Start(s.t, "--replicaof", strings.Replace(link.Addr, ":", " ", 1),
		"--repl-diskless-sync-delay", "0")

	admin := adminOf(s.t, replica.Addr)
	s.until("a replica in step", func() bool {
		return redistest.Feeds(s.admin.Info(context.Background(), "replication").Val())
	})

	// Only from here on the replica lags: it was in step before, so everything older than the lag
	// is kept.
	link.Set(faultproxy.Fault{Delay: lag})
	s.hold(2 * lag)
	s.forgotSince(s.inStep(s.admin, admin))

	s.server.Kill()
	link.Set(faultproxy.Fault{Reset: true})
	s.sustain(200 * time.Millisecond)

	// The replica becomes the server, and the clients reach it through their proxies as before.
	s.admin = admin
	s.do("REPLICAOF", "NO", "ONE")
	s.allow()

	for _, l := range s.lanes {
		l.proxy.Redirect(replica.Addr)
	}
}

// exhaust leaves the server without free memory for a time.
func exhaust(s *scene) {
	s.do(config("maxmemory", "1")...)
	s.hold(500 * time.Millisecond)
	s.do(config("maxmemory", "0")...)
}

// exhaustForLarge leaves the server without free memory until it has refused requests
// under a log and under leases in every lane.
func exhaustForLarge(s *scene) {
	s.do(config("maxmemory", "1")...)
	s.until("requests under a log and under leases", func() bool {
		return !slices.ContainsFunc(s.lanes, func(l *lane) bool {
			refused := withoutMemory(l)
			return len(refused["log"]) == 0 || len(refused["lease"]) == 0
		})
	})
	s.do(config("maxmemory", "0")...)
}

// withoutMemory returns the errors about the memory of the server, by the rules of the
// requests.
func withoutMemory(l *lane) map[string][]error {
	refused := map[string][]error{}
	for _, h := range l.seen() {
		if h.err != nil && strings.Contains(h.err.Error(), "OOM") {
			refused[h.rule] = append(refused[h.rule], h.err)
		}
	}
	return refused
}

// wantRulesNamed fails if an error about the memory of the server does not name the rule
// of its request.
func wantRulesNamed(s *scene) {
	for _, l := range s.lanes {
		for rule, errs := range withoutMemory(l) {
			for _, err := range errs {
				if !strings.Contains(err.Error(), `rule "`+rule+`"`) {
					s.t.Errorf("%s: rule %s is not named by %v", l.mode.name, rule, err)
				}
			}
		}
	}
}
