package service

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// weighing makes a value of a weight.
func weighing(n int, made *int) func() (string, int, error) {
	return func() (string, int, error) {
		*made++
		return fmt.Sprint("value ", *made), n, nil
	}
}

func TestMemoKeepsAVersion(t *testing.T) {
	m, made := newMemo[string, string](10), 0
	for i, row := range []struct {
		key     string
		version int64
		want    string
	}{
		{"a", 1, "value 1"}, {"a", 1, "value 1"}, {"b", 1, "value 2"}, {"a", 2, "value 3"}, {"a", 2, "value 3"},
		{"a", 1, "value 4"}, // of a transaction that began before
		{"a", 2, "value 3"}, {"b", 1, "value 2"},
	} {
		if got, err := m.get(t.Context(), row.key, row.version, weighing(1, &made)); err != nil || got != row.want {
			t.Errorf("%d: %q is %q, want %q; %v", i, row.key, got, row.want, err)
		}
	}
}

func TestMemoIsBounded(t *testing.T) {
	m, made := newMemo[int, string](10), 0
	get := func(key, weight int) { _, _ = m.get(t.Context(), key, 1, weighing(weight, &made)) }

	// Three of weight 3 have room in 10.
	for key := range 100 {
		get(key, 3)
	}
	if m.weight != 9 || len(m.entries) != 3 || made != 100 {
		t.Errorf("%d entries weigh %d, %d were made", len(m.entries), m.weight, made)
	}

	// Room for a value of weight 4 takes away what was used longest ago, not 97.
	get(97, 3)
	get(100, 4) // 98 and 99 were used longest ago
	if get(97, 3); made != 101 || m.weight != 10 {
		t.Errorf("%d were made, and the rest weighs %d", made, m.weight)
	}

	// What is heavier than all room is made each time, and drives nothing out.
	get(101, 11)
	get(101, 11)
	if get(97, 3); made != 103 || m.weight != 10 || len(m.entries) != 3 {
		t.Errorf("what is too heavy is kept: %d were made, %d entries weigh %d", made, len(m.entries), m.weight)
	}

	// Errors are not kept.
	fails := errors.New("no")
	for key := range 100 {
		_, err := m.get(t.Context(), 1000+key, 1, func() (string, int, error) { return "", 1, fails })
		if !errors.Is(err, fails) || len(m.entries) != 3 {
			t.Fatalf("%v, %d entries", err, len(m.entries))
		}
	}
}

func TestMemoIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemo[string, string](10)

		var made, got atomic.Int64
		release := make(chan struct{})

		read := func() (string, int, error) {
			made.Add(1)
			<-release
			return "value", 1, nil
		}

		// Twenty callers come while the first one is making the value.
		for range 20 {
			go func() {
				if v, err := m.get(t.Context(), "a", 1, read); v == "value" && err == nil {
					got.Add(1)
				}
			}()
		}

		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)

		synctest.Wait()
		go func() {
			_, err := m.get(ctx, "a", 1, read)
			left <- err
		}()
		synctest.Wait()

		// One who goes away does not wait, and does not end the making for the others.
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left waits on: %v", err)
		}

		close(release)
		synctest.Wait()

		if made.Load() != 1 || got.Load() != 20 {
			t.Errorf("made %d times for %d callers", made.Load(), got.Load())
		}
	})
}

// What fails or is not kept is made by one caller at a time too, whenever the callers come.
func TestMemoIsMadeByOneAtATime(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no")} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemo[string, string](10)

			var making, made int // one at a time: no lock
			for range 10 {       // of whom the last come after the first has made it
				go func() {
					_, err := m.get(t.Context(), "a", 1, func() (string, int, error) {
						making++
						made++
						if making != 1 {
							t.Errorf("%d make it at once", making)
						}
						time.Sleep(20 * time.Millisecond)
						making--
						return "", 0, failure
					})
					if !errors.Is(err, failure) {
						t.Error(err)
					}
				}()
				time.Sleep(3 * time.Millisecond)
			}

			time.Sleep(time.Second)
			if synctest.Wait(); made != 10 || len(m.entries) != 0 {
				t.Errorf("made %d times, %d entries are left", made, len(m.entries))
			}
		})
	}
}
