package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// These tell the test binary to be another process that makes what is due: the database, and the
// time of the clock in µs.
const (
	runsCalendar = "HEADGATE_TEST_CALENDAR"
	runsAt       = "HEADGATE_TEST_CALENDAR_AT"
)

// runCalendar ends the pauses that are due in a database until the process is killed, or until its
// standard input ends, as it does with the test.
func runCalendar(url string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that counts
		os.Exit(0)
	}()

	us, err := strconv.ParseInt(os.Getenv(runsAt), 10, 64)
	if err != nil {
		return err
	}

	db, err := store.Open(context.Background(), store.Options{URL: url, Timeout: patience})
	if err != nil {
		return err
	}

	s, err := New(Options{DB: db, Clock: func() time.Time {
		return time.UnixMicro(us)
	}, Passwords: cheap, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}

	// It goes on without a pause, so that it is killed in the middle of something.
	for {
		if err := s.Calendar().Run(context.Background()); err != nil {
			return err
		}
	}
}

// made returns how many of the policies are back after their pause.
func (w *world) made(n int) (made int) {
	w.t.Helper()
	list := must(w.PoliciesOf(w.t.Context(), w.admin, "a"))
	if len(list) != n {
		w.t.Fatalf("there are %d policies, want %d", len(list), n)
	}

	for _, p := range list {
		if p.Version > 2 {
			made++
		}
	}
	return made
}

// killAt runs the calendar in another process, kills it with SIGKILL as soon as it has ended so
// many pauses, and returns how many have ended then.
func (w *world) killAt(n, target int) int {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), runsCalendar+"="+w.url, runsAt+"="+strconv.FormatInt(w.clock.now().UnixMicro(), 10))
	cmd.Stderr = os.Stderr

	// The pipe is held open as long as the test lives: the other process ends with it.
	input := must(cmd.StdinPipe())
	defer input.Close()
	w.must(cmd.Start())

	for began := time.Now(); w.made(n) < target; {
		if time.Since(began) > patience {
			w.t.Error("the other process ends no pause")
			break
		}
	}

	w.must(cmd.Process.Kill())
	_ = cmd.Wait() // it says that it was killed
	return w.made(n)
}

// A console that is killed while it ends pauses, again and again, leaves each to the next one,
// which ends it once.
func TestPausesEndOnceThoughConsolesAreKilled(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const n = 80
		for i := range n {
			w.create(sample(fmt.Sprint("p", i), "a"))
			w.pause(w.admin, fmt.Sprint("p", i), policy.Off, time.Hour)
		}
		w.clock.pass(time.Hour)

		// Six processes are killed, the first at once and the others after more and more changes.
		between := 0
		for _, target := range []int{0, 1, 16, 32, 48, 64} {
			if made := w.killAt(n, target); 0 < made && made < n {
				between++
			}
		}

		// Without this the test would pass if each process had made all or nothing.
		if between == 0 {
			t.Error("no process was killed while some changes were made and others were not")
		}

		w.must(w.Calendar().Run(t.Context()))
		equal(t, "policies that went back", w.made(n), n)

		// Each went back once, with all that belongs to it: a revision, a row in the audit log, and
		// no pause.
		for i := range n {
			name := fmt.Sprint("p", i)
			history, err := w.History(t.Context(), w.admin, name, 0, 0)
			if err != nil || len(history) != 3 || history[0].After.Mode != policy.Enforce ||
				!strings.HasPrefix(history[0].Note, "back as of") {
				t.Errorf("%s has the history %+v, %v", name, history, err)
			}

			if p, err := w.PauseOf(t.Context(), w.admin, name); err != nil || p != nil {
				t.Errorf("%s has the pause %+v, %v", name, p, err)
			}
		}

		if rows := w.entries(AuditQuery{Action: "policy.update", Outcome: Done}); len(rows) != 2*n {
			t.Errorf("the audit log has %d changes, want %d", len(rows), 2*n)
		}
	})
}
