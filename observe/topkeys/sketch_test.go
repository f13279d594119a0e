package topkeys

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func sketch(t testing.TB, o Options) *Sketch {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkBounds compares a summary with the exact counts of the same time.
func checkBounds(t interface {
	Helper()
	Errorf(string, ...any)
}, sum Summary, exact map[string]int64) {
	t.Helper()

	listed, total := map[string]bool{}, int64(0)

	// What is listed lies within its bounds, and the keys are in order of what is certain.
	for i, k := range sum.Keys {
		listed[k.Key] = true
		if n := exact[k.Key]; n > k.Count || n < k.Least() {
			t.Errorf("key %q was counted %d times: not within %d to %d", k.Key, n, k.Least(), k.Count)
		}
		if i > 0 && sum.Keys[i-1].Least() < k.Least() {
			t.Errorf("key %d has %d, after one with %d", i, k.Least(), sum.Keys[i-1].Least())
		}
	}

	for key, n := range exact {
		// What is not listed was not counted more often than the floor says.
		total += n
		if short := Shorten(key); !listed[short] && n > sum.Floor {
			t.Errorf("key %q was counted %d times and is missing, above the floor of %d", short, n, sum.Floor)
		}
	}

	if sum.Total != total {
		t.Errorf("total %d, want %d", sum.Total, total)
	}
}

// zipf returns a source of the numbers from 0 to n-1, the k-th in proportion to 1/(k+1)^s.
func zipf(seed uint64, n int, s float64) func() int {
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, 1)), s, 1, uint64(n-1))
	return func() int { return int(z.Uint64()) }
}

func TestSketchZipf(t *testing.T) {
	const keys, counted = 200_000, 2_000_000

	// From a crowd that is hardly skewed to one that a few keys dominate.
	for _, skew := range []float64{1.01, 1.1, 1.5} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			s, exact := sketch(t, Options{Top: 100}), map[string]int64{}

			next := zipf(7, keys, skew)
			for range counted {
				key := "client-" + strconv.Itoa(next())
				s.Add(key)
				exact[key]++
			}

			sum := s.Summary()
			checkBounds(t, sum, exact)
			if len(sum.Keys) != 100 {
				t.Fatalf("%d keys, want 100", len(sum.Keys))
			}

			// The true first ten are the first ten listed, each with a small error.
			for i, key := range top(exact, 10) {
				if got := sum.Keys[i]; got.Key != key || got.Error > counted/512 {
					t.Errorf("place %d is %q with an error of %d, want %q with at most %d", i, got.Key,
						got.Error, key, counted/512)
				}
			}
		})
	}
}

// top returns the n keys with the highest counts, in descending order.
func top(exact map[string]int64, n int) []string {
	var keys []string
	for key := range exact {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return int(exact[b] - exact[a]) })
	return keys[:n]
}

// Ten clients are counted 5,000 times each, among a million keys that are counted once.
func TestSketchFlood(t *testing.T) {
	s, exact := sketch(t, Options{Top: 100}), map[string]int64{}
	add := func(key string) {
		s.Add(key)
		exact[key]++
	}

	// The clients come now and then, so the flood has every chance to take their counters.
	for i := range 1_000_000 {
		add("flood-" + strconv.Itoa(i))
		if i%200 == 0 {
			for j := range 10 {
				add("client-" + strconv.Itoa(j))
			}
		}
	}

	sum := s.Summary()
	checkBounds(t, sum, exact)
	most := fairShare(s, exact)

	// Least may be below 5,000 by the error, and no more.
	for i, k := range sum.Keys[:10] {
		if !strings.HasPrefix(k.Key, "client-") || k.Least() < 4_000 || k.Error > most {
			t.Errorf("place %d is %+v, where an error may be %d", i, k, most)
		}
	}
	if sum.Floor > most {
		t.Errorf("the floor is %d, above %d", sum.Floor, most)
	}
}

// fairShare returns how often a counter of the fullest set may have been raised at most, if the
// clients in the set have counters to themselves. That is about 2,000, and more where the seed,
// which differs from run to run, puts several clients into one set.
func fairShare(s *Sketch, exact map[string]int64) (most int64) {
	// Counters that the clients hold are not there for the flood.
	free, others := make([]int64, 1<<(64-s.shift)), make([]int64, 1<<(64-s.shift))
	for key, n := range exact {
		i := maphash.String(s.seed, key) >> s.shift
		if strings.HasPrefix(key, "client-") {
			free[i]--
		} else {
			others[i] += n
		}
	}
	for i := range free {
		most = max(most, others[i]/(ways+free[i])+1)
	}
	return most
}

// Each set keeps the bounds of Space-Saving, whatever is counted.
func TestSketchBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(Options{Top: rapid.IntRange(1, 40).Draw(t, "top")})
		if err != nil {
			t.Fatal(err)
		}
		defer s.stop()

		exact := map[string]int64{}

		// Squares make some keys much more frequent than others.
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 300), 1, 2000).Draw(t, "keys") {
			key := strconv.Itoa(n * n % 300)
			s.Add(key)
			exact[key]++
		}

		checkBounds(t, s.Summary(), exact)
		for i := range s.current.Load().sets {
			// The error and the floor are those of a set that shares its counts among its ways.
			part := summaryOfSet(s.windows, i)
			for _, k := range part.Keys {
				if k.Error > part.Total/ways {
					t.Errorf("an error of %d in a set that has counted %d", k.Error, part.Total)
				}
			}
			if part.Floor > part.Total/ways {
				t.Errorf("a floor of %d in a set that has counted %d", part.Floor, part.Total)
			}
		}
	})
}

// stop ends the timer, which tests outside of fake time would leave behind.
func (s *Sketch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

// What was counted in a window leaves the summary with it, and nothing else does.
func TestSketchWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sketch(t, Options{Top: 100, Windows: 3})

		begun := time.Now()
		random := rand.New(rand.NewPCG(3, 4))

		var windows []map[string]int64
		for i := range 12 {
			window := map[string]int64{}

			// An exponential distribution, so that the same keys are frequent in every window.
			for range 5_000 {
				key := strconv.Itoa(int(random.ExpFloat64() * 300))
				s.Add(key)
				window[key]++
			}
			windows = append(windows, window)

			time.Sleep(DefaultWindow - time.Millisecond)

			// A moment before the end of the window, three windows are in the summary.
			exact := map[string]int64{}
			for _, w := range windows[max(0, i-2):] {
				for key, n := range w {
					exact[key] += n
				}
			}

			sum := s.Summary()
			checkBounds(t, sum, exact)
			from := begun.Add(time.Duration(max(0, i-2)) * time.Minute)

			if !sum.From.Equal(from) || !sum.To.Equal(time.Now()) {
				t.Errorf("window %d: from %v to %v, want from %v to %v", i, sum.From, sum.To, from, time.Now())
			}

			time.Sleep(time.Millisecond)
			synctest.Wait()
		}

		// Without requests the windows leave one by one.
		for i, want := range []int64{10_000, 5_000, 0, 0} {
			synctest.Wait()
			if got := s.Summary().Total; got != want {
				t.Errorf("%d windows later the total is %d, want %d", i, got, want)
			}
			time.Sleep(DefaultWindow)
		}
	})
}

func TestSketchSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sketch(t, Options{Top: 10, Windows: 2})
		time.Sleep(time.Hour)

		// Each round wakes the sketch from a sleep of an hour.
		for range 3 {
			s.Add("a")
			begun := time.Now()

			want := Summary{From: begun.UTC(), To: begun.UTC(), Total: 1, Keys: []Key{{"a", 1, 0, begun.UTC()}}}
			if got := s.Summary(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("summary %v, want %v", got, want)
			}

			// The key stays for the window in which it came and for the next.
			time.Sleep(2*DefaultWindow - time.Millisecond)
			if got := s.Summary().Total; got != 1 {
				t.Errorf("before the end of the second window the total is %d", got)
			}

			time.Sleep(time.Millisecond)
			synctest.Wait()
			if got := s.Summary().Total; got != 0 {
				t.Errorf("after it the total is %d", got)
			}

			// After two windows without a key there is no timer any more.
			time.Sleep(DefaultWindow)
			synctest.Wait()

			if got := s.Summary(); fmt.Sprint(got) != fmt.Sprint(Summary{}) || !s.asleep.Load() || len(s.windows) != 1 {
				t.Errorf("a window later the summary is %v, asleep %v, %d windows", got, s.asleep.Load(),
					len(s.windows))
			}
			time.Sleep(time.Hour)
		}
	})
}

// Windows end when the clock is at a multiple of their length, whenever the first key came.
func TestSketchLastIsAWholeWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sketch(t, Options{Top: 2})
		time.Sleep(20 * time.Second)
		begun := time.Now().UTC()
		if got := s.Last(); fmt.Sprint(got) != fmt.Sprint(Summary{}) {
			t.Errorf("at first %v", got)
		}

		// Three keys in the part of the first minute, of which two are listed, and one in the
		// second.
		for _, key := range []string{"a", "a", "a", "b", "b", "c"} {
			s.Add(key)
		}
		time.Sleep(time.Until(begun.Truncate(time.Minute).Add(time.Minute)))
		synctest.Wait()
		s.Add("d")

		end := begun.Truncate(time.Minute).Add(time.Minute)
		want := Summary{begun, end, 6, 1, []Key{{"a", 3, 0, begun}, {"b", 2, 0, begun}}}
		if got := s.Last(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the first is %v, want %v", got, want)
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		want = Summary{end, end.Add(time.Minute), 1, 0, []Key{{"d", 1, 0, end}}}
		if got := s.Last(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the second is %v, want %v", got, want)
		}
	})
}

// A key is counted since it first had a counter in a row of windows.
func TestSketchSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sketch(t, Options{Top: 10, Windows: 2})
		begun := time.Now()

		since := func(key string) time.Duration {
			for _, k := range s.Summary().Keys {
				if k.Key == key {
					return k.Since.Sub(begun)
				}
			}
			return -1
		}
		for i := range 10 {
			// One key comes in every window, and the other in every second one.
			s.Add("always")
			if i%2 == 0 {
				s.Add("now and then")
			}
			if got := since("always"); got != 0 {
				t.Errorf("in window %d, since %v", i, got)
			}

			// Two windows are kept, so a key that leaves one out has lost its counter when it comes
			// back.
			if got, want := since("now and then"), time.Duration(i/2*2)*time.Minute; got != want {
				t.Errorf("in window %d, now and then since %v, want %v", i, got, want)
			}

			time.Sleep(DefaultWindow)
			synctest.Wait()
		}
	})
}

func TestSketchConcurrent(t *testing.T) {
	s := sketch(t, Options{Top: 100})
	defer s.stop()
	const workers, each = 8, 20_000
	var done sync.WaitGroup
	exact := map[string]int64{"hot": workers * each, "warm": workers * each / 2}

	// Each worker has its own cold keys, and all of them share a hot and a warm one.
	for w := range workers {
		for i := range each {
			exact[fmt.Sprint("cold-", w, "-", i)]++
		}

		done.Go(func() {
			for i := range each {
				s.Add("hot")
				if i%2 == 0 {
					s.Add("warm")
				}
				s.Add(fmt.Sprint("cold-", w, "-", i))

				// Summaries are read in between.
				if i%1000 == 0 {
					s.Summary()
				}
			}
		})
	}
	done.Wait()

	sum := s.Summary()
	checkBounds(t, sum, exact)

	if sum.Keys[0].Key != "hot" || sum.Keys[1].Key != "warm" {
		t.Errorf("the first are %v", sum.Keys[:2])
	}
}

// Windows begin and end while keys are counted, and none is lost or counted twice.
func TestSketchRotatesUnderLoad(t *testing.T) {
	s := sketch(t, Options{Top: 10, Windows: 60})
	defer s.stop()

	var done sync.WaitGroup
	for w := range 4 {
		done.Go(func() {
			for i := range 30_000 {
				s.Add(strconv.Itoa(i % (w + 20)))
			}
		})
	}

	// Rotations without regard to the clock, fifty in a row.
	for range 50 {
		s.rotate()
	}

	done.Wait()

	// 60 windows hold all of the counts, so the total is exact.
	if got := s.Summary().Total; got != 120_000 {
		t.Errorf("the total is %d, want 120000", got)
	}
}

func TestSketchAllocs(t *testing.T) {
	s := sketch(t, Options{Top: 100})
	defer s.stop()

	// More keys than counters, so that most of them have none.
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = "203.0.113." + strconv.Itoa(i)
	}

	for _, key := range keys {
		s.Add(key)
	}

	i := 0
	if n := testing.AllocsPerRun(1000, func() { s.Add(keys[i]); i++ }); n != 0 {
		t.Errorf("a key without a counter costs %v allocations", n)
	}

	if n := testing.AllocsPerRun(1000, func() { s.Add(keys[0]) }); n != 0 {
		t.Errorf("a key with a counter costs %v allocations", n)
	}

	long := strings.Repeat("x", 10_000)
	if n := testing.AllocsPerRun(1000, func() { s.Add(long[i:]); i++ }); n != 0 {
		t.Errorf("a long key costs %v allocations", n)
	}

	// The sizes that the documentation states.
	if size := unsafe.Sizeof(set{}); size > 1700 {
		t.Errorf("a set takes %d bytes, more than the documentation says", size)
	}
	if n := len(s.current.Load().sets); n != 32 {
		t.Errorf("%d sets, want 32", n)
	}
}

func TestNewErrors(t *testing.T) {
	for _, row := range []struct {
		options Options
		want    string
	}{
		// Each bound on both sides, and all mistakes at once.
		{Options{}, "topkeys: Options.Top: 0 is not within 1 to 1000"},
		{Options{Top: 1001, Window: time.Millisecond, Windows: 1},
			"topkeys: Options.Top: 1001 is not within 1 to 1000\n" +
				"topkeys: Options.Window: 1ms is not within 1s to 1h0m0s\ntopkeys: Options.Windows: 1 is not within 2 to 60"},
		{Options{Top: 1, Window: 2 * time.Hour, Windows: 61},
			"topkeys: Options.Window: 2h0m0s is not within 1s to 1h0m0s\n" +
				"topkeys: Options.Windows: 61 is not within 2 to 60"},
	} {
		if _, err := New(row.options); err == nil || err.Error() != row.want {
			t.Errorf("New(%+v) returns %v, want %s", row.options, err, row.want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, row := range []struct {
		name string
		key  func(i int) string
	}{
		{"one key", func(int) string { return "203.0.113.7" }},
		{"100 keys", func(i int) string { return "203.0.113." + strconv.Itoa(i%100) }},
		{"flood", func(i int) string { return "203.0.113." + strconv.Itoa(i) }},
		{"10 kB keys", func(i int) string { return strings.Repeat("x", 10_000) + strconv.Itoa(i%64) }},
	} {
		keys := make([]string, 1<<16)

		// Long keys are few, or else they would fill the memory.
		if row.name == "10 kB keys" {
			keys = keys[:64]
		}

		for i := range keys {
			keys[i] = row.key(i)
		}
		b.Run(row.name, func(b *testing.B) {
			s := sketch(b, Options{Top: 100})
			defer s.stop()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Add(keys[i&(len(keys)-1)])
			}
		})

		b.Run(row.name+" parallel", func(b *testing.B) {
			s := sketch(b, Options{Top: 100})
			defer s.stop()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.Int(); pb.Next(); i++ {
					s.Add(keys[i&(len(keys)-1)])
				}
			})
		})
	}
}
