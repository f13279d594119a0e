package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/collect"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// fake is a Redis in memory, whose clock is ahead by skew.
type fake struct {
	mu      sync.Mutex
	skew    time.Duration
	counts  map[time.Time]int64
	changed map[time.Time]time.Time
	reads   int // of minutes
	lists   int // of instances
	tops    int
	err     error
}

func newFake() *fake {
	return &fake{counts: map[time.Time]int64{}, changed: map[time.Time]time.Time{}}
}

func (f *fake) now() time.Time { return time.Now().Add(f.skew).UTC() }

// count counts a request so long ago.
func (f *fake) count(ago time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.now().Add(-ago).Truncate(time.Minute)
	f.counts[m]++
	f.changed[m] = f.now().Truncate(time.Millisecond)
}

func (f *fake) Changed(_ context.Context, _ string, since time.Time) (list []time.Time, now time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m, at := range f.changed {
		if !at.Before(since.Truncate(time.Millisecond)) {
			list = append(list, m)
		}
	}
	return list, f.now(), f.err
}

func (f *fake) Read(_ context.Context, _ string, minutes []time.Time) (list []stats.Minute, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads += len(minutes)
	for _, m := range minutes {
		list = append(list, f.minute(m))
	}
	return list, f.err
}

// Tens says that all requests were in the first ten seconds.
func (f *fake) Tens(_ context.Context, _ string, minutes []stats.Minute) error {
	for i := range minutes {
		minutes[i].Tens, minutes[i].Seen = make([]stats.Counts, stats.Tens), f.now()
		minutes[i].Tens[0] = minutes[i].Requests
	}
	return f.err
}

func (f *fake) minute(at time.Time) stats.Minute {
	c := stats.Counts{events.Allowed: f.counts[at]}
	return stats.Minute{Start: at, Requests: c, Policies: map[string]stats.Counts{"p": c}}
}

// last returns the last minutes as they are.
func (f *fake) last() (list []stats.Minute) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range stats.Minutes {
		list = append(list, f.minute(f.now().Truncate(time.Minute).Add(time.Duration(i-stats.Minutes+1)*time.Minute)))
	}
	for i := range list {
		list[i].Tens = make([]stats.Counts, stats.Tens)
		list[i].Tens[0] = list[i].Requests
	}
	return list
}

// untimed returns minutes without when they were seen, which has to be the same for all of them and
// is the time of the reading.
func untimed(t *testing.T, minutes []stats.Minute) []stats.Minute {
	t.Helper()
	for i := range minutes {
		if seen := minutes[i].Seen; seen.IsZero() || !seen.Equal(minutes[len(minutes)-1].Seen) {
			t.Errorf("%s was seen at %s", minutes[i].Start, seen)
		}
	}

	minutes = slices.Clone(minutes)
	for i := range minutes {
		minutes[i].Seen = time.Time{}
	}
	return minutes
}

func (f *fake) Instances(context.Context) ([]policy.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return []policy.Instance{{ID: "one"}, {ID: "two"}}, f.err
}

func (f *fake) Version(context.Context) (string, error) { return "7-abc", f.err }

func (f *fake) top(context.Context, string) (stats.Top, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tops++
	return stats.Top{Instances: f.tops}, f.err
}

func (f *fake) keys(context.Context, string, string, time.Time, int) ([]topkeys.Summary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tops++
	return []topkeys.Summary{{Total: int64(f.tops)}}, f.err
}

// The minutes are those that a reading of all of them would have, though few are read.
func TestViewHasTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		v := New(f, f, f.top, f.keys)
		defer v.Close()
		r := rand.New(rand.NewPCG(1, 1))

		// Most rounds count in the present minute. A few count late, as an instance that was cut
		// off, and now and then time or the clock of the server jumps.
		for i := range 5000 {
			switch n := r.IntN(500); {
			case n == 0:
				f.skew = time.Duration(r.Int64N(int64(4 * time.Hour))) // also back
			case n == 1:
				time.Sleep(time.Duration(r.Int64N(int64(30 * time.Minute))))
			case n < 10:
				f.count(time.Duration(r.Int64N(int64(20 * time.Minute))))
			default:
				f.count(0)
			}

			time.Sleep(every + time.Duration(r.Int64N(int64(3*time.Second))))
			got, err := v.Minutes(t.Context(), "a")
			if want := f.last(); err != nil || !reflect.DeepEqual(untimed(t, got), want) {
				t.Fatalf("round %d: %v, want %v; %v", i, got, want, err)
			}
		}

		// A reading of all the minutes each time would take five times as many.
		if f.reads > 3*5000 {
			t.Errorf("%d minutes were read", f.reads)
		}
	})
}

func TestViewReadsOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		v := New(f, f, f.top, f.keys)
		defer v.Close()

		ask := func(want int) {
			t.Helper()
			before := f.reads
			time.Sleep(every)
			for range 100 {
				if _, err := v.Minutes(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			if got := f.reads - before; got != want {
				t.Errorf("%d minutes were read, want %d", got, want)
			}
		}

		// The round begins with a minute, so that none ends unseen.
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		f.count(0)
		ask(stats.Minutes)

		f.count(0)
		ask(1)

		// Two, as what changed within the overlap is read once more.
		f.count(5 * time.Minute)
		ask(2)
		time.Sleep(overlap)
		ask(2) // in case the server's clock was ahead
		ask(0)

		time.Sleep(time.Minute)
		ask(1)

		// A failure is kept for as long as a value, and then it is read again.
		f.err = errors.New("away")
		ask2 := func() error {
			time.Sleep(every)
			_, err := v.Minutes(t.Context(), "a")
			return err
		}
		if err := ask2(); !errors.Is(err, f.err) {
			t.Error(err)
		}

		// What is counted meanwhile is read once Redis answers, however long it was away.
		f.count(7 * time.Minute)
		time.Sleep(30 * time.Second)
		if err := ask2(); !errors.Is(err, f.err) {
			t.Error(err)
		}

		f.err = nil

		// The value of a failure holds for its second, like any other.
		if got, err := v.Minutes(t.Context(), "a"); err == nil {
			t.Errorf("within the second of a failure it is read again: %v", got)
		}
		if err := ask2(); err != nil || !reflect.DeepEqual(untimed(t, must(v.Minutes(t.Context(), "a"))), f.last()) {
			t.Error("a change from when Redis was away is missing", err)
		}
	})
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// Callers may change the lists that they get.
func TestViewListsAreTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		v := New(f, f, f.top, f.keys)
		defer v.Close()

		for range 50 {
			// The list is spoiled for anyone who would get the same one.
			list, err := v.Instances(t.Context())
			if err != nil || len(list) != 2 || list[0].ID != "one" {
				t.Fatal(list, err)
			}

			list[0], list[1] = list[1], list[0]

			minutes := must(v.Minutes(t.Context(), "a"))
			if minutes[0].Start.IsZero() {
				t.Fatal("a minute has no start")
			}

			clear(minutes)
			if label := must(v.Version(t.Context())); label != "7-abc" {
				t.Fatal(label)
			}

			time.Sleep(every / 10)
		}
		if f.lists != 5 {
			t.Errorf("the instances were read %d times in five seconds", f.lists)
		}

		// The top keys are read every five seconds.
		for range 100 {
			must(v.Top(t.Context(), "a"))
			time.Sleep(every / 2)
		}
		if f.tops != 10 {
			t.Errorf("the top keys were read %d times in 50 seconds", f.tops)
		}
	})
}

// Real recorders write to a real Redis, and the view has what a reading of all minutes has.
func TestViewOfRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Addr(t), ContextTimeoutEnabled: true,
		DisableIdentity: true})
	defer client.Close()
	prefix := redistest.Prefix(t)
	source := collect.Redis{Client: client, Prefix: prefix}

	v := New(source, newFake(), newFake().top, newFake().keys)
	defer v.Close()

	recorder, err := stats.New(client, stats.Options{App: "a", Prefix: prefix, Every: time.Minute, Timeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer recorder.Close()

	var before window
	for i := range 20 {
		// Another set of policies each time, so that minutes grow new fields.
		for p := range 30 {
			recorder.Observe(t.Context(), &events.Request{Verdict: events.Allowed,
				Rules: []events.Rule{{Name: fmt.Sprint("p", (p*i)%40), Verdict: events.Allowed}}})
		}

		if err := recorder.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, err = test.Patiently(func() (window, error) { return v.read(t.Context(), "a", before) })
		if err != nil {
			t.Fatal(err)
		}

		// The window that is carried on has to be what a fresh reading has.
		want, err := test.Patiently(func() ([]stats.Minute, error) {
			want, err := stats.ReadMinutes(t.Context(), client, prefix, "a", starts(before.minutes))
			if err != nil {
				return nil, err
			}
			return want, stats.ReadTens(t.Context(), client, prefix, "a", want)
		})
		if err != nil || !reflect.DeepEqual(untimed(t, before.minutes), untimed(t, want)) {
			t.Fatalf("%d: %v, want %v; %v", i, before.minutes, want, err)
		}
	}

	if n, _ := stats.Requests(before.minutes); n.Total() != 20*30 {
		t.Errorf("%d requests", n.Total())
	}
}

func starts(list []stats.Minute) (at []time.Time) {
	for _, m := range list {
		at = append(at, m.Start)
	}
	return at
}
