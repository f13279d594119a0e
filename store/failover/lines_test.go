package failover

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/observe/events"
)

// A breaker flaps. Its lines are bounded, its hooks and OnChange hear of every change, and the
// last line is the state that holds.
func TestLinesOfAFlappingBreakerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var log bytes.Buffer
		changes, told := 0, 0
		f := newFake()
		s := over(t, f, Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), OnChange: func(string, State) { changes++ },
		})
		defer s.Close()

		s.Report().Listen(&events.Hooks{Breaker: func(events.Breaker) { told++ }})

		// A flap opens the breaker and closes it 400 ms later.
		flap := func() { // takes 10 s
			openNow(t, s, f)
			f.rise()
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}

		// Flaps for more than two minutes, and then an outage that stays.
		for range 14 { // until 140 s: at 0, 10, ... open, 400 ms later closed
			flap()
		}
		openNow(t, s, f)
		time.Sleep(10 * time.Minute)
		synctest.Wait()

		// The first change of each kind is told at once; then a minute's changes are held and told
		// together.
		want := []string{
			"0s open", "400ms closed", // the first minute
			"1m0s closed 10", "1m0s open", // the second: what was held, and one more
			"2m0s closed 11", "2m0s open",
			"3m0s open 4", // and then it stays so
		}

		got := lineTimes(log.String(), start)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}

		// Hooks are not spared: 14 flaps and the outage are 29 changes.
		if changes != 29 || told != 29 {
			t.Errorf("OnChange heard %d and the hooks %d of 29 changes", changes, told)
		}
	})
}

// lineTimes returns when each line was written, the state that it tells, and the number of
// changes.
func lineTimes(log string, start time.Time) (list []string) {
	number := regexp.MustCompile(`changes=(\d+)`)
	for line := range strings.Lines(log) {
		// Times are those of the simulated clock, so they are exact.
		at, _ := time.Parse("2006-01-02T15:04:05.000Z07:00", strings.TrimPrefix(strings.Fields(line)[0], "time="))
		state := "open"
		if strings.Contains(line, "decides again") {
			state = "closed"
		}

		text := fmt.Sprint(at.Sub(start), " ", state)
		if n := number.FindStringSubmatch(line); n != nil {
			text += " " + n[1]
		}

		list = append(list, text)
	}
	return list
}

// A store that is closed tells of the state that holds at once.
func TestCloseLogsTheStateThatHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var log bytes.Buffer
		f := newFake()
		s := over(t, f, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})

		// The second flap falls into the minute in which lines are held.
		for range 2 {
			openNow(t, s, f)
			f.rise()
			time.Sleep(time.Second)
			synctest.Wait()
		}

		// Close must not leave the log with a state that no longer holds.
		s.Close()
		synctest.Wait()
		want := []string{"0s open", "400ms closed", "2s closed 2"}
		if got := lineTimes(log.String(), start); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q", got, want)
		}

		time.Sleep(time.Hour)
	})
}
