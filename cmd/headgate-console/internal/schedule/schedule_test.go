package schedule

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a calendar that fails from its second run to its third.
type fake struct {
	began time.Time
	runs  []time.Duration
}

func (f *fake) Run(context.Context) error {
	f.runs = append(f.runs, time.Since(f.began))
	if n := len(f.runs); n == 2 || n == 3 {
		return errors.New("away")
	}
	return nil
}

func TestWorkerRunsAtOnceAndAgainAndLogsAFailureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fake{began: time.Now()}
		w, err := Start(f, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}

		// It fails twice, which is one line of the log, and works again after that.
		time.Sleep(16 * time.Second)

		// To close it again does nothing.
		w.Close()
		w.Close()
		time.Sleep(time.Minute)

		if want := []time.Duration{0, pause, 2 * pause, 3 * pause}; !slices.Equal(f.runs, want) {
			t.Errorf("it ran at %v, want %v", f.runs, want)
		}
		text := log.String()
		if strings.Count(text, "cannot be ended") != 1 || strings.Count(text, "ended again") != 1 {
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
