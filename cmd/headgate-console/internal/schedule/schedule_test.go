package schedule

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a calendar whose changes are due at times after its start.
type fake struct {
	mu    sync.Mutex
	began time.Time
	due   []time.Duration
	runs  []time.Duration // when Run was called
	made  []time.Duration // when changes were made
	err   error
}

func (f *fake) Run(ctx context.Context) (time.Duration, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Since(f.began)
	f.runs = append(f.runs, now)
	if f.err != nil {
		return 0, false, f.err
	}
	for len(f.due) > 0 && f.due[0] <= now {
		f.made, f.due = append(f.made, now), f.due[1:]
	}
	if len(f.due) == 0 {
		return 0, false, nil
	}
	return f.due[0] - now, true, nil
}

func (f *fake) set(err error, due ...time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.due = err, due
}

func TestWorkerMakesChangesAtTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Now, between two looks, and later than the pause between them.
		f := &fake{began: time.Now(), due: []time.Duration{0, 1500 * time.Millisecond, 12 * time.Second}}
		w, err := Start(f, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(20 * time.Second)
		synctest.Wait()
		if err := w.Close(); err != nil {
			t.Error(err)
		}

		if want := []time.Duration{0, 1500 * time.Millisecond, 12 * time.Second}; !slices.Equal(f.made, want) {
			t.Errorf("changes were made at %v, want %v", f.made, want)
		}

		// It looks five seconds after its last look, or when a change is due before that.
		looks := []time.Duration{0, 1500 * time.Millisecond, 6500 * time.Millisecond,
			11500 * time.Millisecond, 12 * time.Second, 17 * time.Second}
		if !slices.Equal(f.runs, looks) {
			t.Errorf("it looked at %v, want %v", f.runs, looks)
		}
	})
}

func TestWorkerWakesForWhatIsScheduledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now()}
		w, err := Start(f, nil)
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)

		// The worker would look at five seconds only; the wake brings it to the change at 1.2
		// seconds.
		f.set(nil, 1200*time.Millisecond)
		w.Wake()
		w.Wake()

		time.Sleep(time.Second)
		synctest.Wait()
		w.Close()
		w.Close()

		if want := []time.Duration{1200 * time.Millisecond}; !slices.Equal(f.made, want) {
			t.Errorf("changes were made at %v, want %v", f.made, want)
		}
	})
}

func TestWorkerTriesAgainAndLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fake{began: time.Now(), err: errors.New("away")}
		w, err := Start(f, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(7 * time.Second)
		synctest.Wait()

		// In seven seconds it has failed four times, and the log has a single line about that.
		f.set(nil, 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()

		w.Close()
		if want := []time.Duration{8 * time.Second}; !slices.Equal(f.made, want) {
			t.Errorf("changes were made at %v, want %v", f.made, want)
		}

		text := log.String()
		if strings.Count(text, "cannot be made") != 1 || strings.Count(text, "made again") != 1 {
			t.Errorf("the log is\n%s", text)
		}
	})
}

func TestStartRefusesNoCalendar(t *testing.T) {
	if w, err := Start(nil, nil); err == nil {
		w.Close()
		t.Error("no error")
	}
}
