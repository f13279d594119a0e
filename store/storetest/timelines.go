package storetest

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

//go:embed timelines/*.txt
var files embed.FS

// Timelines plays every file of timelines/, each case on a new store.
// timelines/README.txt explains how they are written.
func Timelines(t *testing.T, f Factory) {
	t.Helper()
	for _, name := range timelines(t) {
		t.Run(strings.TrimSuffix(path.Base(name), ".txt"), func(t *testing.T) {
			Play(t, f, name, timelineText(t, name))
		})
	}
}

// Missed plays the timelines for a test that expects a wrong answer: it returns the first, or
// "" if all are right.
func Missed(t testing.TB, f Factory) string {
	t.Helper()
	for _, name := range timelines(t) {
		cases, err := parseTimelines(name, timelineText(t, name))
		if err != nil {
			t.Fatal(err)
		}

		for i := range cases {
			if err := cases[i].play(t, f, name); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// timelines returns the names of the files.
func timelines(t testing.TB) (names []string) {
	t.Helper()
	entries, err := files.ReadDir("timelines")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, "timelines/"+entry.Name())
	}
	return names
}

func timelineText(t testing.TB, name string) string {
	t.Helper()
	text, err := files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Play plays the cases of one timeline text, such as the one that [Diff]
// reports. Errors are reported under the name.
func Play(t *testing.T, f Factory, name, text string) {
	t.Helper()
	cases, err := parseTimelines(name, text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		t.Run(cases[i].name, func(t *testing.T) {
			if err := cases[i].play(t, f, name); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// play plays a case on a new store. The error says in which line of the file what is wrong.
func (s *scenario) play(t testing.TB, f Factory, name string) error {
	t.Helper()
	clock := NewClock()
	p := newPlayer(f(t, clock), clock, "")
	for i := range s.steps {
		if err := p.check(&s.steps[i]); err != nil {
			return fmt.Errorf("%s:%d: %w", name, s.steps[i].line, err)
		}
	}
	return nil
}

// check plays the step as often as asked. The fields of the answer are compared
// the last time, and yes or no every time.
func (p *player) check(e *expectation) error {
	for n := 1; n <= e.times; n++ {
		out, err := p.play(&e.step)
		if e.fault != nil || err != nil {
			if e.fault == nil || !errors.Is(err, e.fault) {
				return fmt.Errorf("error %v, want %v", err, e.fault)
			}
			continue // an error has no decisions
		}

		if what := e.compare(out, n == e.times); what != "" {
			return fmt.Errorf("%s (time %d of %d): got %s", what, n, e.times, decisionsText(out))
		}
	}
	return nil
}

// compare returns how the decisions differ from the answers, or "".
func (e *expectation) compare(out []core.Decision, last bool) string {
	whole := len(e.answers) != len(e.ops)
	for i := range out {
		// A step that is answered as a whole says only which rules refuse.
		a := &e.answers[0]
		if !whole {
			a = &e.answers[i]
		}

		allowed := a.allowed || whole && !slices.Contains(a.refused, e.ops[i].Rule)
		switch {
		case out[i].Allowed != allowed:
			return fmt.Sprintf("op %d: not %v", i+1, allowed)
		case out[i].At != Epoch+int64(e.at/time.Microsecond):
			return fmt.Sprintf("op %d: At is %d", i+1, out[i].At)
		case allowed && out[i].RetryAfter != 0:
			return fmt.Sprintf("op %d: a retry after a yes", i+1)
		case whole || !last:
		case a.differs(&out[i]):
			return fmt.Sprintf("op %d: another field", i+1)
		}
	}

	if whole && last && !e.answers[0].allowed {
		return e.compareRetry(out)
	}
	return ""
}

// unlike reports whether a number is stated and another.
func unlike(want *int64, got int64) bool { return want != nil && *want != got }

func (a *answer) differs(d *core.Decision) bool {
	return unlike(a.remaining, d.Remaining) || unlike(a.taken, d.Taken) ||
		unlike(a.credit, d.Credit) || unlike(a.lent, d.FromCredit) ||
		a.ends != nil && Epoch+a.ends.Microseconds() != d.CreditUntil ||
		a.reset != nil && *a.reset != d.ResetAfter ||
		a.retry != nil && *a.retry != d.RetryAfter ||
		a.wait != d.Wait || a.banned != d.Banned
}

// compareRetry compares the expected retry with the longest of any op.
func (e *expectation) compareRetry(out []core.Decision) string {
	var longest time.Duration
	for i := range out {
		longest = max(longest, out[i].RetryAfter)
	}
	if longest != *e.answers[0].retry {
		return fmt.Sprintf("the longest retry is %s", longest)
	}
	return ""
}
