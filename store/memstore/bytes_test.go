package memstore

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// bounded returns a store of one shard with the smallest bound in bytes.
func bounded(t *testing.T) (*Store, *fakeClock) {
	t.Helper()
	c := newClock()
	return oneShard(MustNew(Options{MaxBytes: MinBytes, Clock: c.read, Logger: slog.New(slog.DiscardHandler)})), c
}

// As many keys are held as fit with the largest states that their limits allow, and an
// eighth of the bytes is left for buckets.
func TestMaxBytesBoundsTheKeys(t *testing.T) {
	for _, l := range append(each, limit("9/1h sliding-window segments=60"), limit("1000/1h sliding-log")) {
		// A short name is kept in its slot, and a long one beside it, which takes bytes of its own.
		for _, name := range []string{"k", strings.Repeat("long", 20)} {
			s, c := bounded(t)

			// The last eighth of the bytes is kept for buckets.
			size := bytesOf(len(name+"0000"), &l, s.classIDOf(t, l))
			want := (MinBytes - MinBytes/8 - s.Bytes()) / size

			for i := range want + 10 {
				do(t, s, takes(fmt.Sprintf("%s%04d", name, i), l))
			}

			// Ten keys more than fit share one bucket.
			if got := s.keys.Load(); got != want {
				t.Errorf("%v: %d keys of %d bytes are held, want %d", l, got, size, want)
			}

			if n, most := s.Bytes(), int64(MinBytes); n > most || s.overflowKeys.Load() != 1 {
				t.Errorf("%v: %d bytes of %d, %d buckets", l, n, most, s.overflowKeys.Load())
			}
			checkCounts(t, s)

			// Keys that are fresh make room; the count must not have drifted by then.
			c.move(3 * time.Hour)
			do(t, s, takes(name+"last", l))
			if s.keys.Load() > want {
				t.Errorf("%v: %d keys after the others are fresh", l, s.keys.Load())
			}

			checkCounts(t, s)
		}
	}
}

// classIDOf returns the id of the class of a Take under the limit.
func (s *Store) classIDOf(t *testing.T, l core.Limit) classID {
	t.Helper()
	op := takes("", l)
	p, err := s.locate(&op)
	if err != nil {
		t.Fatal(err)
	}
	return p.class
}

func TestMaxBytesBoundsTheBuckets(t *testing.T) {
	s, _ := bounded(t)
	small, large := limit("9/1h"), limit("1000/1h sliding-log")

	// The keys fill their part, and what is left is for buckets, of which each needs as much as its
	// largest state.
	fill(t, s, "k", int(MinBytes/slotBytes), small)
	room, size := (int64(MinBytes) - s.Bytes()), bucketBytes(&large, s.classIDOf(t, large))

	for i := range room/size + 3 {
		op := takes("k", large)
		op.Rule = fmt.Sprint("rule", i)
		if got, want := do(t, s, op)[0].Allowed, i < room/size; got != want {
			t.Errorf("bucket %d: allowed %t, want %t", i, got, want)
		}
	}

	// Less than one bucket more would fit, so no bytes are lost.
	if n := s.Bytes(); n > MinBytes || n <= int64(MinBytes)-size {
		t.Errorf("%d bytes of %d", n, MinBytes)
	}
	checkCounts(t, s)
}

// The bytes follow a key whose limit changes.
func TestBytesFollowALimitThatChanges(t *testing.T) {
	for _, interned := range []bool{true, false} {
		s, c := bounded(t)
		for i := 0; !interned && s.classes.count() < maxClasses; i++ {
			s.classes.add(limitClassKey{fmt.Sprint(i), core.Limit{Quota: 1}})
		}

		empty := s.Bytes()
		for i, text := range []string{"9/1h sliding-window", "9/1h sliding-window segments=60",
			"8/1h sliding-window segments=60", "9/1h sliding-window segments=2"} {
			l := limit(text)
			do(t, s, takes("key", l))
			want := bytesOf(len("key"), &l, s.classIDOf(t, l))
			if n := []int64{0, 1, 1, 2}[i]; n > 0 { // units under segments of other widths
				want += asideBytes + n*otherBytes
			}
			if got := s.Bytes() - empty; got != want {
				t.Errorf("%v: %d bytes, want %d", l, got, want)
			}
			checkCounts(t, s)
		}

		c.move(5 * time.Hour)
		reset := takes("key", limit("9/1h sliding-window"))
		reset.Verb = core.Reset
		do(t, s, reset)
		if s.Bytes() != empty {
			t.Errorf("%d bytes without a key, want %d", s.Bytes(), empty)
		}
	}
}
