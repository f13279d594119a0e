package redissource_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// patience bounds waits whose length is not under test.
const patience = time.Minute

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func one(t testing.TB, name, limit string) policy.Set {
	t.Helper()
	l, err := core.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Set{{Name: name, Apps: []string{"shop"}, Limit: l, Key: "global"}}
}

func dial(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t testing.TB, client redis.UniversalClient) *redissource.Source {
	t.Helper()
	s, err := redissource.New(client, redissource.Options{Prefix: redistest.Prefix(t), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publish(t testing.TB, s *redissource.Source, set policy.Set, expected string) string {
	t.Helper()
	version, err := s.Publish(t.Context(), set, expected)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func newLimiter(t testing.TB, store core.Store) *limiter.Limiter {
	t.Helper()

	// No store stands for counts in memory.
	if store == nil {
		var err error
		if store, err = memstore.New(memstore.Options{}); err != nil {
			t.Fatal(err)
		}
	}

	l, err := limiter.New(limiter.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })
	return l
}

func follow(t testing.TB, l *limiter.Limiter, s policy.Source, o policy.Options) *policy.Follower {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	f, err := policy.Follow(t.Context(), l, "shop", policy.Bindings{}, s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// eventually waits until done returns true, and fails if that takes longer than
// patience.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s", what, patience)
		case <-tick.C:
		}
	}
}

// promptly is eventually with a bound of two seconds.
func promptly(t testing.TB, what string, done func() bool) {
	t.Helper()
	begin := time.Now()
	eventually(t, what, done)
	test.AtMost(t, what, time.Since(begin), 2*time.Second)
}

func TestLoadBeforeAnyPublishIsErrMissing(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	if v, err := s.Version(t.Context()); v != "" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := s.Load(t.Context(), ""); !errors.Is(err, policy.ErrMissing) {
		t.Errorf("%v", err)
	}
}

func TestPublishReplacesOnlyTheExpectedVersion(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	a, b := one(t, "a", "1/1m"), one(t, "b", "1/1m")

	// A version is a number that counts up and a digest of the set, so the same set has the same
	// digest under another number.
	v1 := publish(t, s, a, "")
	v2 := publish(t, s, b, v1)
	v3 := publish(t, s, a, v2)
	if !strings.HasPrefix(v1, "1.") || !strings.HasPrefix(v2, "2.") || v3 != "3"+v1[1:] {
		t.Errorf("%s, %s, %s", v1, v2, v3)
	}

	// A version that is none, an old one, one of another form, and the current one with a wrong
	// digest: each names what is there.
	for _, expected := range []string{"", v1, "x", "2." + v3[2:] + "x"} {
		_, err := s.Publish(t.Context(), b, expected)
		var conflict *redissource.ConflictError
		if !errors.As(err, &conflict) || *conflict != (redissource.ConflictError{Expected: expected, Current: v3}) {
			t.Errorf("%q: %v", expected, err)
		}
	}

	// An answer that was lost makes the caller publish again. The set is there already, which is
	// success.
	if again, err := s.Publish(t.Context(), a, v2); err != nil || again != v3 {
		t.Errorf("a repeated call: %q, %v", again, err)
	}

	got, err := s.Load(t.Context(), v2)
	if err != nil || got.Version != v3 || got.Policies[0].Name != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Load(t.Context(), v3); err != policy.ErrUnchanged {
		t.Errorf("%v", err)
	}

	// Nothing that a reader would refuse may be written.
	if _, err := s.Publish(t.Context(), policy.Set{{}}, v3); err == nil {
		t.Error("what is not valid was published")
	}
}

func TestPublishExpectsAVersionWhereNoneIs(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	version, err := s.Publish(t.Context(), one(t, "a", "1/1m"), "x")
	var conflict *redissource.ConflictError
	if !errors.As(err, &conflict) || *conflict != (redissource.ConflictError{Expected: "x"}) || version != "" {
		t.Errorf("%q, %v; want a conflict with no version", version, err)
	}
}

func TestPublishOfFiftyAtOnceSucceedsOnce(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))

	// All fifty expect that nothing is there, so only the first can be right.
	var won atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			_, err := s.Publish(t.Context(), one(t, fmt.Sprintf("p%d", i), "1/1m"), "")
			var conflict *redissource.ConflictError

			switch {
			case err == nil:
				won.Add(1)
			case !errors.As(err, &conflict):
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()

	if won.Load() != 1 {
		t.Errorf("%d have won", won.Load())
	}
}

// A hash that another program wrote is a bad revision, not a set without limits.
func TestLoadRefusesForeignData(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	prefix := redistest.Prefix(t)
	s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}

	// Fields and a set as the hash has them, but without the version's digest.
	client.HSet(t.Context(), prefix+"{policies}:snapshot", "version", "7", "data", `{"policies":[]}`)
	var bad *policy.RevisionError
	if _, err := s.Load(t.Context(), ""); !errors.As(err, &bad) || bad.Version != "7" {
		t.Errorf("%v", err)
	}

	// A key of another type is an error of the server, and neither a revision nor an absence.
	client.Del(t.Context(), prefix+"{policies}:snapshot")
	client.Set(t.Context(), prefix+"{policies}:snapshot", "foreign", 0)
	if _, err := s.Load(t.Context(), ""); err == nil || errors.As(err, &bad) || errors.Is(err, policy.ErrMissing) {
		t.Errorf("%v", err)
	}
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := redissource.New(nil, redissource.Options{Prefix: "{", Timeout: -1})
	if want := "redissource: the client is nil\nredissource: the prefix \"{\" holds a brace\nredissource: the timeout -1ns is not within 0 to 1m0s"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// silent is a source whose notifications are lost.
type silent struct{ *redissource.Source }

func (silent) Notify(ctx context.Context, _ func()) { <-ctx.Done() }

func TestChangeIsInForceWithinTwoSeconds(t *testing.T) {
	// With notifications, and with polls alone.
	for name, wrap := range map[string]func(*redissource.Source) policy.Source{
		"notified": func(s *redissource.Source) policy.Source { return s },
		"silent":   func(s *redissource.Source) policy.Source { return silent{s} },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, dial(t, redistest.Addr(t)))
			v := publish(t, s, one(t, "a", "1/1m"), "")

			var followers []*policy.Follower
			for range 50 {
				followers = append(followers, follow(t, newLimiter(t, nil), wrap(s), policy.Options{}))
			}

			// The bound of two seconds is that of promptly.
			next := publish(t, s, one(t, "b", "1/1m"), v)
			promptly(t, "a change in 50 instances", func() bool {
				for _, f := range followers {
					if f.Status().Version != next {
						return false
					}
				}
				return true
			})
		})
	}
}

func TestNotifyCallsWake(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	v := publish(t, s, one(t, "a", "1/1m"), "")
	f := follow(t, newLimiter(t, nil), s, policy.Options{Poll: time.Hour})
	eventually(t, "a notification", func() bool { // the first may come before the subscription
		v = publish(t, s, one(t, "a", "1/1m"), v)
		return f.Status().Version != "" && !strings.HasPrefix(f.Status().Version, "1.")
	})
}

func TestChangeKeepsTheCounts(t *testing.T) {
	addr := redistest.Addr(t)
	s := open(t, dial(t, addr))
	counts, err := redisstore.New(dial(t, addr), redisstore.Options{Prefix: redistest.Prefix(t), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}

	// The counts are beside the policies, whichever store has them.
	for name, store := range map[string]core.Store{"memory": nil, "redis": counts} {
		v, err := s.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		v = publish(t, s, one(t, "a", "10/1h fixed-window"), v)
		l := newLimiter(t, store)
		f := follow(t, l, s, policy.Options{})

		// Four of 10 are used when the limit becomes 20, so 16 are left.
		for range 4 {
			if g, err := l.Take(t.Context(), "k", 1); err != nil || !g.Allowed() {
				t.Fatalf("%v", err)
			}
		}

		v = publish(t, s, one(t, "a", "20/1h fixed-window"), v)
		promptly(t, "a change beside counts in "+name, func() bool { return f.Status().Version == v })

		list, err := l.Peek(t.Context(), "k")
		if err != nil || list[0].Decision.Remaining != 16 {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}

func TestFollowerSurvivesTheDeathOfTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr)
	s := open(t, client)

	v := publish(t, s, one(t, "a", "1/1m"), "")
	f := follow(t, newLimiter(t, nil), s, policy.Options{})

	// Without the server the policies stay in force.
	server.Kill()
	eventually(t, "the loss", func() bool { return f.Status().SourceErr != nil })
	if got := f.Status().Version; got != v {
		t.Errorf("%s", got)
	}

	// It comes back without data. That is as if nothing had been published, and still no reason to
	// drop limits.
	server.Restart()
	eventually(t, "the empty server", func() bool { return errors.Is(f.Status().SourceErr, policy.ErrMissing) })
	if got := f.Status().Version; got != v {
		t.Errorf("%s", got)
	}

	// After that any version is new.
	next := publish(t, s, one(t, "b", "1/1m"), "")
	promptly(t, "the new version", func() bool { return f.Status().Version == next })
}

// A server that hangs holds up no caller for longer than the timeout, whatever
// the client makes of deadlines.
func TestFrozenServerDelaysNoCaller(t *testing.T) {
	const timeout = time.Second
	for name, heeds := range map[string]bool{"deadlines": true, "no deadlines": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: heeds,
				DisableIdentity: true})
			defer client.Close()
			prefix := redistest.Prefix(t)
			s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}

			// Publishing before the freeze is given more time than the calls that are measured.
			patient, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience})
			if err != nil {
				t.Fatal(err)
			}

			v := publish(t, patient, one(t, "a", "1/1m"), "")
			f := follow(t, newLimiter(t, nil), s, policy.Options{OnMissing: policy.OnMissingWait})
			eventually(t, "the start", func() bool { return f.Status().Version == v })

			// A frozen server accepts calls and answers none, so only the timeout ends them.
			server.Freeze()
			eventually(t, "the loss", func() bool { return f.Status().SourceErr != nil })

			begin := time.Now()
			late := net.Error(nil) // of the context or, if that comes first, of the connection
			if _, err := s.Version(t.Context()); !errors.As(err, &late) || !late.Timeout() {
				t.Errorf("a frozen server: %v", err)
			}
			test.AtMost(t, "a call to a frozen server", time.Since(begin), timeout+100*time.Millisecond)

			// It answers again: the follower recovers, with the version it had.
			server.Thaw()
			eventually(t, "the return", func() bool { return f.Status().SourceErr == nil })
			if got := f.Status().Version; got != v {
				t.Errorf("%s", got)
			}

			// Close must not wait for a call longer than the call may take.
			server.Freeze()
			begin = time.Now()
			f.Close()
			test.AtMost(t, "Close beside a frozen server", time.Since(begin), timeout+100*time.Millisecond)
			server.Thaw()
		})
	}
}

func TestInstancesReportTheirVersions(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	prefix := redistest.Prefix(t)
	s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}

	if list, err := s.Instances(t.Context()); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}

	// Each instance reports once and closes. The list is by id, and not by the time of the report.
	v := publish(t, s, one(t, "a", "1/1m"), "")
	for _, id := range []string{"i2", "i1"} {
		follow(t, newLimiter(t, nil), s, policy.Options{Instance: id}).Close() // and reports no more
	}

	list, err := s.Instances(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}

	for i, want := range []string{"i1", "i2"} {
		if list[i].ID != want || list[i].App != "shop" || list[i].Version != v || list[i].Age < 0 ||
			list[i].Age > 20*time.Second {
			t.Errorf("%+v", list[i])
		}
	}

	// Reports of dead instances would pile up if the keys did not expire.
	expireWithinAMinute(t, client, prefix+"{policies}:reported", prefix+"{policies}:instances")
}

func expireWithinAMinute(t *testing.T, client *redis.Client, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if ttl := client.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
			t.Errorf("%s expires in %s", key, ttl)
		}
	}
}

func TestInstancesForgetsOldReports(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	prefix := redistest.Prefix(t)
	s, err := redissource.New(client, redissource.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}

	report := func(id string) {
		t.Helper()
		if err := s.Report(t.Context(), policy.Instance{ID: id, App: "shop", Version: "1.x"}); err != nil {
			t.Fatal(err)
		}
	}
	report("i1")
	report("i2")

	// An instance that reported 21 seconds ago is gone, and the next report drops it.
	now := client.Time(t.Context()).Val()
	client.ZAdd(t.Context(), prefix+"{policies}:reported", redis.Z{Score: float64(now.UnixMilli()), Member: "i1"},
		redis.Z{Score: float64(now.Add(-21 * time.Second).UnixMilli()), Member: "i2"})
	if list, err := s.Instances(t.Context()); err != nil || len(list) != 1 || list[0].ID != "i1" {
		t.Errorf("%+v, %v", list, err)
	}

	report("i1")
	if got := client.HKeys(t.Context(), prefix+"{policies}:instances").Val(); len(got) != 1 || got[0] != "i1" {
		t.Errorf("%v", got)
	}
}

// Two processes of one name are two instances.
func TestInstancesOfOneName(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	v := publish(t, s, one(t, "a", "1/1m"), "")
	for range 2 {
		follow(t, newLimiter(t, nil), s, policy.Options{Instance: "i1"}).Close()
	}
	list, err := s.Instances(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "i1" || list[1].ID != "i1" ||
		list[0].Process == list[1].Process || list[1].Version != v {
		t.Errorf("%+v, %v", list, err)
	}
}

// The offset of an instance's clock is shown, however far it is off, and follows a step.
func TestInstancesShowTheirClocks(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	var off time.Duration
	s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience,
		Clock: func() time.Time { return time.Now().Add(off) }})
	if err != nil {
		t.Fatal(err)
	}

	// The offsets are far beyond any delay, on both sides, and each is a step of up to ten hours
	// from the one before.
	for _, off = range []time.Duration{0, 90 * time.Second, -90 * time.Second, 5 * time.Hour, -5 * time.Hour} {
		if err := s.Report(t.Context(), policy.Instance{ID: "i1", Process: "p", App: "shop",
			Store: "local"}); err != nil {
			t.Fatal(err)
		}

		list, err := s.Instances(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}

		// The clocks are one machine's, so the rest is the way of the answers.
		test.AtMost(t, "beside the true offset", (list[0].ClockOffset - off).Abs(), 100*time.Millisecond)
		if list[0].Store != "local" || list[0].Process != "p" {
			t.Errorf("%+v", list[0])
		}
	}
}

func TestInstancesAreListedInSmallReplies(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}

	// Ten thousand instances are more than one reply should hold.
	const n = 10_000
	now := float64(client.Time(t.Context()).Val().UnixMilli())
	_, err = client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			process := fmt.Sprintf("p%05d", i)
			p.ZAdd(t.Context(), prefix+"{policies}:reported", redis.Z{Score: now, Member: process})
			p.HSet(t.Context(), prefix+"{policies}:instances", process,
				fmt.Sprintf(`{"id":"i","process":%q,"app":"shop"}`, process))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	list, err := s.Instances(t.Context())
	if err != nil || len(list) != n || list[0].Process != "p00000" || list[n-1].Process != "p09999" {
		t.Errorf("%d instances, %v", len(list), err)
	}
	t.Logf("%d instances took %s", len(list), time.Since(began))
}

// metered counts the bytes that it reads.
type metered struct {
	net.Conn
	n *atomic.Int64
}

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.n.Add(int64(n))
	return n, err
}

// A report that no instance of this package writes is neither read nor listed.
func TestInstancesLeavesOutReportsThatAreTooLong(t *testing.T) {
	var n atomic.Int64
	client := redis.NewClient(&redis.Options{Addr: redistest.Addr(t), ContextTimeoutEnabled: true,
		DisableIdentity: true, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			// The connection counts the bytes that are read.
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return metered{conn, &n}, err
		}})
	t.Cleanup(func() { client.Close() })

	prefix := redistest.Prefix(t)
	s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}

	// The longest report that an instance can write: every text is at its bound, and every <
	// becomes six bytes of JSON.
	long := policy.Instance{ID: strings.Repeat("i", 200), Process: "p1", App: "shop",
		Version: strings.Repeat("v", 200), Refused: strings.Repeat("v", 200),
		Error: strings.Repeat("<", policy.MaxText)}
	if err := s.Report(t.Context(), long); err != nil {
		t.Fatal(err)
	}

	// A report of 32 MB, one that is listed and not there, and a short one of another process.
	now := float64(client.Time(t.Context()).Val().UnixMilli())
	for _, process := range []string{"huge", "none", "p0"} {
		client.ZAdd(t.Context(), prefix+"{policies}:reported", redis.Z{Score: now, Member: process})
	}
	client.HSet(t.Context(), prefix+"{policies}:instances", "huge",
		`{"id":"`+strings.Repeat("x", 32<<20)+`","app":"shop"}`, "p0", `{"id":"a","process":"p0","app":"shop"}`)

	n.Store(0)

	// What is read stays below 64 KB: the huge report is skipped by its length.
	list, err := s.Instances(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "a" || list[1].Error != long.Error || n.Load() > 64<<10 {
		t.Errorf("%d instances, %d bytes were read, %v", len(list), n.Load(), err)
	}
}

func TestClusterServesToo(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t, 3)),
		ContextTimeoutEnabled: true})
	defer client.Close()
	serves(t, client)
}

func TestSentinelsServeToo(t *testing.T) {
	t.Parallel()
	watched := redistest.Sentinel(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.MasterName,
		SentinelAddrs: redistest.Addrs(watched.Sentinels), ContextTimeoutEnabled: true})
	defer client.Close()
	serves(t, client)
}

// serves publishes a change through the client, follows it and reports it.
func serves(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	s := open(t, client)
	v := publish(t, s, one(t, "a", "1/1m"), "")
	f := follow(t, newLimiter(t, nil), s, policy.Options{Instance: "i1"})
	defer f.Close()
	v = publish(t, s, one(t, "b", "1/1m"), v)
	promptly(t, "a change", func() bool { return f.Status().Version == v })
	if list, err := s.Instances(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
