package live

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// counting reads values that say how often they were read.
type counting struct {
	reads, running, most int
	slow                 time.Duration
	err                  error
}

func (c *counting) read(ctx context.Context, key, before string) (string, error) {
	c.reads++
	c.running++
	c.most = max(c.most, c.running)
	defer func() { c.running-- }()
	n := c.reads
	select {
	case <-time.After(c.slow):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return fmt.Sprintf("%s %d after %q", key, n, before), c.err
}

// sharing runs f with what is shared, every second and with a timeout of a minute.
func sharing(t *testing.T, stale time.Duration, f func(t *testing.T, c *counting, s *Shared[string, string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &counting{}
		s := NewShared(Options[string, string]{Read: c.read, Every: time.Second, Stale: stale, Timeout: time.Minute})
		defer s.Close()
		f(t, c, s)
	})
}

// wantGet fails unless a key has a value.
func wantGet(t *testing.T, s *Shared[string, string], key, want string) {
	t.Helper()
	if got, err := s.Get(t.Context(), key); err != nil || got != want {
		t.Errorf("%q is %q, want %q; %v", key, got, want, err)
	}
}

func TestSharedReadsOnceASecond(t *testing.T) {
	sharing(t, 0, func(t *testing.T, c *counting, s *Shared[string, string]) {
		wantGet(t, s, "a", `a 1 after ""`)

		// A nanosecond before the second is over the value is still that of the first reading.
		time.Sleep(time.Second - 1)
		wantGet(t, s, "a", `a 1 after ""`)

		wantGet(t, s, "b", `b 2 after ""`)

		// At the second it is read again, with the value before.
		time.Sleep(time.Nanosecond)
		wantGet(t, s, "a", `a 3 after "a 1 after \"\""`)

		// Five hundred milliseconds of questions cost no reading.
		for range 1000 {
			wantGet(t, s, "a", `a 3 after "a 1 after \"\""`)
			time.Sleep(time.Millisecond / 2)
		}

		if c.reads != 3 {
			t.Errorf("%d times read", c.reads)
		}
	})
}

func TestSharedReadsForAllAtOnce(t *testing.T) {
	sharing(t, 0, func(t *testing.T, c *counting, s *Shared[string, string]) {
		c.slow = 3 * time.Second

		got := make(chan string, 100)

		// They come while the one reading of three seconds runs.
		for range 100 {
			go func() {
				v, _ := s.Get(t.Context(), "a")
				got <- v
			}()
			time.Sleep(time.Millisecond)
		}

		for range 100 {
			if v := <-got; v != `a 1 after ""` {
				t.Errorf("one got %q", v)
			}
		}

		if c.reads != 1 || c.most != 1 {
			t.Errorf("%d times read, %d at once", c.reads, c.most)
		}
	})
}

func TestSharedGivesTheOldValueWhileItReads(t *testing.T) {
	sharing(t, 10*time.Second, func(t *testing.T, c *counting, s *Shared[string, string]) {
		wantGet(t, s, "a", `a 1 after ""`)

		// The value is old enough to be read again, and young enough to be given meanwhile.
		c.slow = 3 * time.Second
		time.Sleep(2 * time.Second)

		began := time.Now()
		wantGet(t, s, "a", `a 1 after ""`)
		time.Sleep(time.Second)
		wantGet(t, s, "a", `a 1 after ""`)

		synctest.Wait()
		if waited := time.Since(began); waited != time.Second || c.reads != 2 {
			t.Errorf("it took %s, and %d were read", waited, c.reads)
		}

		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantGet(t, s, "a", `a 2 after "a 1 after \"\""`)

		time.Sleep(20 * time.Second) // now it is too old
		wantGet(t, s, "a", `a 4 after "a 3 after \"a 2 after \\\"a 1 after \\\\\\\"\\\\\\\"\\\"\""`)
	})
}

// A failure is shared, too, and the value before it is kept for the next reading.
func TestSharedFailsForAll(t *testing.T) {
	sharing(t, 0, func(t *testing.T, c *counting, s *Shared[string, string]) {
		wantGet(t, s, "a", `a 1 after ""`)
		c.err = errors.New("away")

		time.Sleep(time.Second)

		// Ten within the same second get the failure of one reading.
		for range 10 {
			if _, err := s.Get(t.Context(), "a"); !errors.Is(err, c.err) {
				t.Errorf("it is %v", err)
			}
		}

		c.err = nil
		time.Sleep(time.Second)

		// The reading after the failure has the value from before it.
		wantGet(t, s, "a", `a 3 after "a 1 after \"\""`)
		if c.reads != 3 {
			t.Errorf("%d times read", c.reads)
		}
	})
}

func TestSharedReadsOnForOthers(t *testing.T) {
	sharing(t, 0, func(t *testing.T, c *counting, s *Shared[string, string]) {
		// The caller gives up after a second, and the reading goes on to its end.
		c.slow = 5 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}

		wantGet(t, s, "a", `a 1 after ""`)

		// A reading without an end is bounded by the timeout, whatever the caller's context
		// allows.
		c.slow = time.Hour
		time.Sleep(time.Second)
		began := time.Now()
		if _, err := s.Get(t.Context(), "b"); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Minute {
			t.Errorf("a reading without an end: %v after %s", err, time.Since(began))
		}
	})
}

func TestSharedIsBounded(t *testing.T) {
	sharing(t, 0, func(t *testing.T, c *counting, s *Shared[string, string]) {
		for i := range 10 * maxKept {
			wantGet(t, s, fmt.Sprint(i), fmt.Sprintf(`%d %d after ""`, i, i+1))
			time.Sleep(time.Millisecond)
		}

		if len(s.entries) != maxKept || s.entries[fmt.Sprint(9*maxKept)] == nil {
			t.Errorf("%d are kept", len(s.entries))
		}

		time.Sleep(idle + time.Second)
		if _, err := s.Get(t.Context(), "x"); err != nil || len(s.entries) != 1 {
			t.Errorf("%d are kept after a pause, %v", len(s.entries), err)
		}
	})
}

func TestSharedCloses(t *testing.T) {
	sharing(t, 0, func(t *testing.T, c *counting, s *Shared[string, string]) {
		c.slow = time.Hour

		ended := make(chan error, 1)
		go func() {
			_, err := s.Get(t.Context(), "a")
			ended <- err
		}()

		synctest.Wait()

		// Twice, as a deferred Close may follow another.
		s.Close()
		s.Close()

		if err := <-ended; !errors.Is(err, context.Canceled) || c.running != 0 {
			t.Errorf("%v, %d run", err, c.running)
		}

		if _, err := s.Get(t.Context(), "b"); !errors.Is(err, context.Canceled) || c.reads != 1 {
			t.Errorf("after Close: %v, %d read", err, c.reads)
		}
	})
}
