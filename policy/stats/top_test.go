package stats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sum returns a summary of the last five minutes before noon.
func sum(floor int64, keys ...topkeys.Key) topkeys.Summary {
	s := topkeys.Summary{From: noon.Add(-5 * time.Minute), To: noon, Floor: floor, Keys: keys}
	for i := range s.Keys {
		s.Total += s.Keys[i].Count
		s.Keys[i].Since = s.From
	}
	return s
}

// publisher returns a recorder that publishes the lists, and knows of the server.
func publisher(t testing.TB, client redis.UniversalClient, prefix string, read func() []topkeys.Rule) *stats.Recorder {
	t.Helper()
	r := recorder(t, client, stats.Options{Prefix: prefix})
	r.PublishTop(read)
	observe(r, 1)
	flush(t, r)
	return r
}

func always(list ...topkeys.Rule) func() []topkeys.Rule {
	return func() []topkeys.Rule { return list }
}

func readTop(t testing.TB, client redis.UniversalClient, prefix string) stats.Top {
	t.Helper()
	return readTopOf(t, client, prefix, "shop")
}

// readTopOf reads the top of an application.
func readTopOf(t testing.TB, client redis.UniversalClient, prefix, app string) stats.Top {
	t.Helper()
	top, err := test.Patiently(func() (stats.Top, error) {
		return stats.ReadTop(t.Context(), client, prefix, app)
	})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// wantKeys compares keys without their times.
func wantKeys(t testing.TB, what string, got topkeys.Summary, total, floor int64, want ...topkeys.Key) {
	t.Helper()
	if got.Total != total || got.Floor != floor || len(got.Keys) != len(want) {
		t.Errorf("%s: %+v, want a total of %d and a floor of %d with %v", what, got, total, floor, want)
		return
	}
	for i, k := range got.Keys {
		k.Since = time.Time{}
		if k != want[i] {
			t.Errorf("%s: place %d is %+v, want %+v", what, i, k, want[i])
		}
	}
}

// The counts of a key are added up, and a list that lacks it may have counted it as often as
// its floor says.
func TestReadTopMergesInstances(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	one := publisher(t, client, prefix, always(
		topkeys.Rule{Rule: "p", Refused: sum(2, topkeys.Key{Key: "a", Count: 10},
			topkeys.Key{Key: "b", Count: 5, Error: 1}), Admitted: sum(0, topkeys.Key{Key: "a", Count: 3})},
		topkeys.Rule{Rule: "idle"},
	))

	// The second list lacks a, and the first c. Each may have counted the missing key as often as
	// its floor: 4 and 2.
	two := publisher(t, client, prefix, always(
		topkeys.Rule{Rule: "p", Refused: sum(4, topkeys.Key{Key: "c", Count: 9}, topkeys.Key{Key: "b", Count: 7})},
		topkeys.Rule{Rule: "q", Refused: sum(0, topkeys.Key{Key: "x", Count: 1})},
	))

	flush(t, one)
	flush(t, two)
	top := readTop(t, client, prefix)
	if len(top.Rules) != 2 || top.Rules[0].Rule != "p" || top.Rules[1].Rule != "q" || top.Instances != 2 ||
		top.Unread != 0 {
		t.Fatalf("%+v", top)
	}

	// The order is by the count that is certain: 11 of b, 10 of a, 9 of c.
	wantKeys(t, "refused by p", top.Rules[0].Refused, 31, 6, topkeys.Key{Key: "b", Count: 12, Error: 1},
		topkeys.Key{Key: "a", Count: 14, Error: 4}, topkeys.Key{Key: "c", Count: 11, Error: 2})
	wantKeys(t, "admitted by p", top.Rules[0].Admitted, 3, 0, topkeys.Key{Key: "a", Count: 3})
	wantKeys(t, "refused by q", top.Rules[1].Refused, 1, 0, topkeys.Key{Key: "x", Count: 1})

	if none := readTopOf(t, client, prefix, "other"); !reflect.DeepEqual(none, stats.Top{}) {
		t.Errorf("of another application: %+v", none)
	}
}

// Limiters publish what they have refused, and the page finds it by the rule.
func TestLimitersPublishTop(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)

	// Two instances with 10 requests each, of which 3 are within the limit.
	for range 2 {
		r := recorder(t, client, stats.Options{Prefix: prefix})
		l, err := limiter.New(limiter.Config{Top: 20, Observer: r,
			Rules: []limiter.Rule{{Name: "p", Limit: core.MustParseLimit("3/1h fixed-window"), Key: keyfuncs.Global}}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()

		r.PublishTop(l.TopKeys)
		for range 2 {
			for range 5 {
				l.Admit(&test.Request{Peer: "127.0.0.1:1234"}).Done(200)
			}
			flush(t, r)
		}
	}

	top := readTop(t, client, prefix)
	if len(top.Rules) != 1 || top.Instances != 2 {
		t.Fatalf("%+v", top)
	}

	// The key of the rule is the empty one, since it counts all callers together.
	wantKeys(t, "refused", top.Rules[0].Refused, 14, 0, topkeys.Key{Count: 14})
	wantKeys(t, "admitted", top.Rules[0].Admitted, 6, 0, topkeys.Key{Count: 6})
}

// The list of an instance that no longer writes ends. Those of the others stay.
func TestTopOfADeadInstanceEnds(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	list := always(topkeys.Rule{Rule: "p", Refused: sum(0, topkeys.Key{Key: "a", Count: 1})})

	// The list that appears with the first write is that of the instance which dies.
	dead, alive := publisher(t, client, prefix, list), publisher(t, client, prefix, list)
	flush(t, dead)
	names := client.Keys(t.Context(), prefix+"{stats:shop}:top:*").Val()
	flush(t, alive)

	if len(names) != 1 {
		t.Fatal(names)
	}

	if ttl := client.PTTL(t.Context(), names[0]).Val(); ttl <= stats.TopKept-time.Minute || ttl > stats.TopKept {
		t.Errorf("the list lives for %s, want %s", ttl, stats.TopKept)
	}

	wantKeys(t, "of both", readTop(t, client, prefix).Rules[0].Refused, 2, 0, topkeys.Key{Key: "a", Count: 2})
	client.PExpireAt(t.Context(), names[0], time.Unix(1, 0)) // as if it were later

	top := readTop(t, client, prefix)
	wantKeys(t, "of one", top.Rules[0].Refused, 1, 0, topkeys.Key{Key: "a", Count: 1})
	if top.Instances != 1 || top.Unread != 0 {
		t.Errorf("%d instances, %d unread", top.Instances, top.Unread)
	}
}

// An instance that counts no key any longer says so, once.
func TestTopOfAnIdleInstanceIsReplaced(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	var list []topkeys.Rule
	r := publisher(t, client, prefix, func() []topkeys.Rule { return list })

	count := &calls{}
	client.AddHook(count)
	for i, row := range []struct {
		list  []topkeys.Rule
		calls int
		rules int
	}{
		// Nothing was counted: no call. Then a list, then one without keys that takes its place,
		// then nothing again.
		{nil, 0, 0},
		{[]topkeys.Rule{{Rule: "p", Refused: sum(0, topkeys.Key{Key: "a", Count: 1})}}, 1, 1},
		{[]topkeys.Rule{{Rule: "p"}}, 1, 0},
		{nil, 0, 0},
	} {
		list, count.n = row.list, 0
		r.Overdue()

		flush(t, r)
		flush(t, r) // nothing is due
		if count.n != row.calls {
			t.Errorf("row %d: %d calls, want %d", i, count.n, row.calls)
		}
		if top := readTop(t, client, prefix); len(top.Rules) != row.rules {
			t.Errorf("row %d: %+v", i, top)
		}
	}
}

// Top keys are written in the call that writes the counts, and again if its answer was lost.
func TestTopNeedsNoCallOfItsOwn(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := publisher(t, client, prefix, always(topkeys.Rule{Rule: "p", Refused: sum(0, topkeys.Key{Key: "a", Count: 1})}))

	// The first write reaches the server, and its answer is lost. The list is deleted, so only a
	// second try can bring it back.
	count := &calls{}
	client.AddHook(count)
	count.lose = true

	observe(r, 1)
	if err := r.Flush(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}

	client.Del(t.Context(), client.Keys(t.Context(), prefix+"{stats:shop}:top:*").Val()...)
	count.lose, count.n = false, 0
	flush(t, r)
	if count.n != 1 {
		t.Errorf("%d calls", count.n)
	}

	// The counts of the same call are not added again.
	wantKeys(t, "after the second try", readTop(t, client, prefix).Rules[0].Refused, 1, 0,
		topkeys.Key{Key: "a", Count: 1})
	wantRequests(t, client, prefix, 2)
}

// Times are of the server's clock, however far off that of the instance is.
func TestTopHasTheServersTime(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)

	// Clocks that are right, hours ahead and behind.
	for _, off := range []time.Duration{0, 5 * time.Hour, -90 * time.Second} {
		now := func() time.Time { return time.Now().Add(off) }
		r := recorder(t, client, stats.Options{Prefix: prefix, Clock: now})
		r.PublishTop(func() []topkeys.Rule {
			to := now()
			s := topkeys.Summary{From: to.Add(-time.Minute), To: to, Total: 1,
				Keys: []topkeys.Key{{Key: "a", Count: 1, Since: to.Add(-time.Hour)}}}
			return []topkeys.Rule{{Rule: "p", Refused: s}}
		})

		// The first write learns the server's clock, and the second publishes with it.
		for range 2 {
			observe(r, 1)
			flush(t, r)
		}
	}

	s, server := readTop(t, client, prefix).Rules[0].Refused, client.Time(t.Context()).Val()
	for what, at := range map[string]time.Time{"from": s.From.Add(time.Minute), "to": s.To,
		"since": s.Keys[0].Since.Add(time.Hour)} {
		if d := server.Sub(at); d < 0 || d > time.Minute { // whole seconds, on a busy machine
			t.Errorf("%s is %s off", what, d)
		}
	}

	wantKeys(t, "all", s, 3, 0, topkeys.Key{Key: "a", Count: 3})
}

// hostile are keys as clients may send them.
func hostile() []string {
	return []string{strings.Repeat("k", 10_000), strings.Repeat("\x00", 10_000), strings.Repeat("\xff", 79), "",
		"\x00\r\n\t\x7f\x1b[31m",
		"</script><script>alert(1)</script>", "\u202egpj.exe", `"}],"rules":[{"name":"q"`, "\u2028", "a\xc3", "😀"}
}

// Hostile keys arrive as they are, or shortened.
func TestTopOfHostileKeys(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	sketch, err := topkeys.New(topkeys.Options{Top: 100})
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]bool{}
	for _, key := range hostile() {
		sketch.Add(key)
		want[topkeys.Shorten(key)] = true
	}

	r := publisher(t, client, prefix, always(topkeys.Rule{Rule: "p", Refused: sketch.Summary()}))
	flush(t, r)
	top := readTop(t, client, prefix)

	// The list is long enough for all of them, so each key is there with exactly one count.
	if len(top.Rules) != 1 || top.Rules[0].Refused.Floor != 0 || len(top.Rules[0].Refused.Keys) != len(want) {
		t.Fatalf("%+v", top)
	}

	for _, k := range top.Rules[0].Refused.Keys {
		if !want[k.Key] || k.Count != 1 || k.Error != 0 {
			t.Errorf("%+v", k)
		}
	}
}

// rules returns so many rules with so many keys each, which are as long as they can be.
func rules(n, keys int) (list []topkeys.Rule) {
	for i := range n {
		var of []topkeys.Key
		for j := range keys {
			of = append(of, topkeys.Key{Key: fmt.Sprintf("%080d", j)[:20] + strings.Repeat("\x00",
				40) + fmt.Sprintf("%020d", j), Count: int64(keys + i - j)})
		}
		list = append(list, topkeys.Rule{Rule: fmt.Sprint("rule-", i), Refused: sum(0, of...), Admitted: sum(0, of...)})
	}
	return list
}

// crowd adds so many other recorders that have written lately.
func crowd(t testing.TB, client redis.UniversalClient, prefix string, n int) {
	t.Helper()
	pipe := client.Pipeline()
	for i := range n {
		pipe.ZAdd(t.Context(), prefix+"{stats:shop}:writers", redis.Z{Score: 1e15, Member: fmt.Sprint("other-", i)})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The text of an instance is bounded, and the bounds of what it leaves out are in it.
func TestTopIsBounded(t *testing.T) {
	for _, row := range []struct{ rules, keys, others int }{
		// One row for each bound: keys of a rule, rules, and instances that share the budget.
		{1, 100, 0}, {1, 1000, 0}, {100, 1000, 0}, {10_000, 10, 0}, {1, 20, 9_999}, {50, 20, 9_999}, {3, 1000, 199},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
			crowd(t, client, prefix, row.others)
			list := rules(row.rules, row.keys)
			r := publisher(t, client, prefix, always(list...))
			flush(t, r)

			names := client.Keys(t.Context(), prefix+"{stats:shop}:top:*").Val()
			if len(names) != 1 {
				t.Fatal(names)
			}

			// A text is within its bound and, where there is more than fits, fills at least a
			// quarter of it.
			size := client.StrLen(t.Context(), names[0]).Val()
			most := min(int64(stats.MaxTopBytes), int64(stats.TopBudget/(row.others+1)))
			if size > most || size < most/4 && row.rules*row.keys > 100 {
				t.Errorf("%d bytes, of %d", size, most)
			}

			top := readTop(t, client, prefix)
			for _, got := range top.Rules {
				i := slices.IndexFunc(list, func(l topkeys.Rule) bool { return l.Rule == got.Rule })
				wantCut(t, got, list[i])
			}
		})
	}
}

// wantCut checks that got is want without keys that are not above its floor.
func wantCut(t *testing.T, got, want topkeys.Rule) {
	t.Helper()
	for i, k := range want.Refused.Keys {
		// What is there is exact, and what is missing is not above the floor.
		if i < len(got.Refused.Keys) {
			if g := got.Refused.Keys[i]; g.Key != k.Key || g.Count != k.Count || g.Error != 0 {
				t.Fatalf("place %d is %+v, want %+v", i, g, k)
			}
		} else if k.Count > got.Refused.Floor {
			t.Fatalf("%s: a key with %d is left out, above the floor of %d", got.Rule, k.Count, got.Refused.Floor)
		}
	}

	if got.Refused.Total != want.Refused.Total {
		t.Errorf("%s: the total is %d, want %d", got.Rule, got.Refused.Total, want.Refused.Total)
	}
}

// What an instance has left out raises the floor of the rules that others list.
func TestTopOfOmittedRules(t *testing.T) {
	// 2000 rules of long keys do not fit, and "z" of the full one is among those that are left out.
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	full := publisher(t, client, prefix, always(append(rules(2000, 3),
		topkeys.Rule{Rule: "z", Refused: sum(0, topkeys.Key{Key: "x", Count: 1})})...))
	flush(t, full)

	small := publisher(t, client, prefix, always(topkeys.Rule{Rule: "z",
		Refused: sum(0, topkeys.Key{Key: "y", Count: 5000})}))
	flush(t, small)

	top := readTop(t, client, prefix)
	for _, r := range top.Rules {
		if r.Rule == "z" {
			// The first one has left out rules whose keys count up to 2002.
			var text struct{ Omitted struct{ Refused int64 } }
			for _, name := range client.Keys(t.Context(), prefix+"{stats:shop}:top:*").Val() {
				if body := client.Get(t.Context(), name).Val(); strings.Contains(body, "omitted") {
					if err := json.Unmarshal([]byte(body), &text); err != nil {
						t.Fatal(err)
					}
				}
			}
			n := text.Omitted.Refused
			if n < 1 {
				t.Fatal("no rule was left out")
			}

			// The count of y in the full instance is unknown, and at most what its omitted rules
			// count up to.
			wantKeys(t, "z", r.Refused, 5000, n, topkeys.Key{Key: "y", Count: 5000 + n, Error: n})
		}
	}
}

// Ten thousand instances take at most the budget, and all of them are read.
func TestTopOfManyInstances(t *testing.T) {
	test.Long(t, "it reads the lists of ten thousand instances")
	const instances = 10_000

	// The other instances are known as writers, so that this one keeps to a ten-thousandth of the
	// budget.
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	crowd(t, client, prefix, instances-1)

	var keys []topkeys.Key
	for i := range 20 {
		keys = append(keys, topkeys.Key{Key: fmt.Sprint("192.0.2.", i), Count: int64(100 - i)})
	}
	r := publisher(t, client, prefix, always(topkeys.Rule{Rule: "p", Refused: sum(0, keys...)}))
	flush(t, r)

	text := client.Get(t.Context(), client.Keys(t.Context(), prefix+"{stats:shop}:top:*").Val()[0]).Val()
	if len(text) > stats.TopBudget/instances {
		t.Errorf("an instance writes %d bytes", len(text))
	}

	// All the others wrote the same text.
	pipe := client.Pipeline()
	for i := range instances - 1 {
		pipe.Set(t.Context(), fmt.Sprint(prefix, "{stats:shop}:top:other-", i), text, time.Minute)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}

	begun := time.Now()
	top := readTop(t, client, prefix)
	t.Logf("%d instances are read in %s", top.Instances, time.Since(begun))
	if top.Instances != instances || top.Unread != 0 || len(top.Rules) != 1 {
		t.Fatalf("%d instances, %d unread", top.Instances, top.Unread)
	}

	// At least three keys are left of 20; the floor is the count of the first that is missing, in
	// every instance.
	got := top.Rules[0].Refused
	n := len(got.Keys)
	if n < 3 || got.Floor != int64(100-n)*instances {
		t.Errorf("%d keys, the floor is %d", n, got.Floor)
	}

	for i, k := range got.Keys {
		if k.Key != keys[i].Key || k.Count != keys[i].Count*instances || k.Error != 0 {
			t.Errorf("place %d is %+v", i, k)
		}
	}
}

// Texts of another version, or that no instance writes, are counted and left out.
func TestTopOfAnotherVersionIsUnread(t *testing.T) {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	r := publisher(t, client, prefix, always(topkeys.Rule{Rule: "p", Refused: sum(0, topkeys.Key{Key: "a", Count: 1})}))
	flush(t, r)

	// No list at all, a negative total, a rule twice, impossible counts of what was left out, and a
	// text beyond the bound.
	for i, text := range []string{"[]", `{"rules":[{"name":"p","refused":{"total":-1,"keys":null}}]}`,
		`{"rules":[{"name":"p"},{"name":"p"}]}`,
		`{"rules":[],"omitted":{"refused":-1}}`, `{"rules":[],"omitted":{"refused":9223372036854775807}}`,
		`{"rules":[],"x":"` + strings.Repeat("x", stats.MaxTopBytes) + `"}`} {
		client.ZAdd(t.Context(), prefix+"{stats:shop}:writers", redis.Z{Score: 1e15, Member: fmt.Sprint("other-", i)})
		client.Set(t.Context(), fmt.Sprint(prefix, "{stats:shop}:top:other-", i), text, time.Minute)
	}

	// The seventh is a key of another type.
	client.ZAdd(t.Context(), prefix+"{stats:shop}:writers", redis.Z{Score: 1e15, Member: "list"})
	client.RPush(t.Context(), prefix+"{stats:shop}:top:list", "x")

	top := readTop(t, client, prefix)
	if top.Instances != 1 || top.Unread != 7 {
		t.Errorf("%d instances, %d unread", top.Instances, top.Unread)
	}

	wantKeys(t, "the rest", top.Rules[0].Refused, 1, 0, topkeys.Key{Key: "a", Count: 1})
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

// However much instances write, little of it is read: of each text a bounded part, and of all of
// them together not many times what instances write.
func TestReadTopIsBounded(t *testing.T) {
	test.Long(t, "it writes 100 MB to Redis")
	var n atomic.Int64

	// The connection counts the bytes that are read.
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return metered{conn, &n}, err
		}})
	t.Cleanup(func() { client.Close() })

	r := publisher(t, client, prefix, always(topkeys.Rule{Rule: "p", Refused: sum(0, topkeys.Key{Key: "a", Count: 1})}))
	flush(t, r)

	// A text of 32 MB is recognized by a bounded part of it.
	const huge = 32 << 20
	client.ZAdd(t.Context(), prefix+"{stats:shop}:writers", redis.Z{Score: 1e15, Member: "huge"})
	client.Set(t.Context(), prefix+"{stats:shop}:top:huge", strings.Repeat("x", huge), time.Minute)
	n.Store(0)
	if top := readTop(t, client, prefix); top.Instances != 1 || top.Unread != 1 || n.Load() > 2*stats.MaxTopBytes {
		t.Errorf("%d instances, %d unread, %d bytes were read", top.Instances, top.Unread, n.Load())
	}

	// A thousand texts, each as long as a text may be, exceed the budget together.
	client.Del(t.Context(), prefix+"{stats:shop}:top:huge")
	crowd(t, client, prefix, 1000)
	full := `{"rules":[{"name":"p","refused":{"total":1,"floor":0,"keys":null},"admitted":{"total":0,"floor":0,"keys":null}}],"x":"` + strings.Repeat("x", stats.MaxTopBytes-200) + `"}`
	for i := range 1000 {
		client.Set(t.Context(), fmt.Sprint(prefix, "{stats:shop}:top:other-", i), full, time.Minute)
	}

	n.Store(0)

	// The page in which the 513th of 1001 texts exceeds the bound is the last.
	if top := readTop(t, client, prefix); top.Instances != 543 || top.Unread != 458 || n.Load() > 36<<20 {
		t.Errorf("%d instances, %d unread, %d bytes were read", top.Instances, top.Unread, n.Load())
	}
}

func TestTopOnACluster(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t, 3)),
		ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	for range 3 {
		r := publisher(t, client, "", always(topkeys.Rule{Rule: "p", Refused: sum(0, topkeys.Key{Key: "a", Count: 1})}))
		flush(t, r)
	}
	wantKeys(t, "of three", readTop(t, client, "").Rules[0].Refused, 3, 0, topkeys.Key{Key: "a", Count: 3})
	minutes := read(t, client, "")
	if n, _ := stats.Requests(minutes); n != (stats.Counts{events.Allowed: 3}) {
		t.Errorf("%v", n)
	}
}

func TestReadTopWithoutRedis(t *testing.T) {
	if _, err := stats.ReadTop(t.Context(), dial(t, "127.0.0.1:1"), "", "shop"); err == nil ||
		!strings.HasPrefix(err.Error(), "stats: ") {
		t.Error(err)
	}
}
