package quietlog

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lines returns a logger and what it has logged.
func lines() (*slog.Logger, *strings.Builder) {
	var b strings.Builder
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &b
}

func TestLogTellsTheFirstAndThenNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, b := lines()
		l := New(logger)

		note := func(n int) {
			for i := range n {
				l.Record(slog.LevelWarn, "junk", slog.Int("i", i))
			}
		}
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}

		// The first is logged at once, the three others with the end of the minute.
		note(4)
		wait(time.Minute)

		// A minute with events goes on into the next. One without any ends it, so the next event is
		// a first one again.
		note(2)
		wait(2 * time.Minute) // a minute with two, and one without
		note(1)

		// The counts are kept by message: another one is a first one beside the first.
		l.Record(slog.LevelInfo, "other")
		note(3)

		// Close logs what was counted. After it each event is logged at once, because no timer
		// would.
		l.Close()
		note(1)

		want := fmt.Sprintln("level=WARN msg=junk i=0") +
			fmt.Sprintln("level=WARN msg=junk i=3 count=3") +
			fmt.Sprintln("level=WARN msg=junk i=1 count=2") +
			fmt.Sprintln("level=WARN msg=junk i=0") +
			fmt.Sprintln("level=INFO msg=other") +
			fmt.Sprintln("level=WARN msg=junk i=2 count=3") +
			fmt.Sprintln("level=WARN msg=junk i=0")
		if b.String() != want {
			t.Errorf("logged\n%swant\n%s", b, want)
		}
	})
}
