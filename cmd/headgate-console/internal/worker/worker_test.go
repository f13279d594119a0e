package worker

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

// A task that fails from its second run to its third is logged twice, and closed it ends.
func TestWorkerRunsAtOnceAndAgainAndLogsAFailureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var runs []time.Duration
		began := time.Now()
		w := Start(Task{
			Run: func(context.Context) (time.Duration, error) {
				runs = append(runs, time.Since(began))
				if n := len(runs); n == 2 || n == 3 {
					return 5 * time.Second, errors.New("away")
				}
				return 5 * time.Second, nil
			},
			Failing: "it fails", Working: "healthy again", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})

		// The last run is brought forward.
		time.Sleep(16 * time.Second)
		w.Wake()
		synctest.Wait()

		// To close it again does nothing.
		w.Close()
		w.Close()
		time.Sleep(time.Minute)

		want := []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second, 16 * time.Second}
		if !slices.Equal(runs, want) {
			t.Errorf("it ran at %v, want %v", runs, want)
		}
		text := log.String()
		if strings.Count(text, "it fails") != 1 || strings.Count(text, "healthy again") != 1 {
			t.Errorf("the log is\n%s", text)
		}
	})
}

func TestWorkerBoundsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ends := time.Now(), make(chan time.Duration, 1)
		w := Start(Task{Timeout: time.Minute, Run: func(ctx context.Context) (time.Duration, error) {
			<-ctx.Done()
			ends <- time.Since(began)
			return time.Hour, ctx.Err()
		}})
		defer w.Close()
		if took := <-ends; took != time.Minute {
			t.Errorf("a run took %s", took)
		}
	})
}
