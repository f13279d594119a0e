package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/observe/eventlog"
	"github.com/headgate/headgate/observe/events"
)

// start returns a log, and the lines that were written since the last call, without the times.
func start(t *testing.T, o eventlog.Options) (*eventlog.Log, func() []string) {
	t.Helper()

	text := &test.Log{}
	o.Logger = slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(groups []string,
		a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))

	l, err := eventlog.New(o)
	if err != nil {
		t.Fatal(err)
	}

	// Each call returns what is new since the last, sorted, as lines of rules may come in any
	// order.
	seen := 0
	return l, func() []string {
		all := text.String()
		lines := strings.Split(strings.TrimSuffix(all[seen:], "\n"), "\n")
		seen = len(all)
		slices.Sort(lines)
		return lines
	}
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(want) == 0 {
		want = []string{""}
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func request(v events.Verdict, rules ...string) *events.Request {
	e, limit := &events.Request{Verdict: v}, core.MustParseLimit("5/1m")
	for _, name := range rules {
		e.Rules = append(e.Rules, events.Rule{Name: name, Key: "secret", Verdict: v, Limit: &limit, Cost: 1})
	}
	return e
}

const refused = `level=INFO msg="headgate: a request did not pass" result=refused rule=`

func TestRefusalsAreLoggedOnceAndThenByNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := start(t, eventlog.Options{})
		observe := func(n int, e *events.Request) {
			for range n {
				l.Observe(t.Context(), e)
			}
		}

		// The rule that refused is named, and not the one that was overruled.
		mixed := request(events.Refused, "b", "a")
		mixed.Rules[0].Verdict = events.Overruled
		mixed.Rules[1].Decision.RetryAfter = 12 * time.Second
		mixed.Rules[1].Verdict = events.Refused
		observe(1, mixed)
		want(t, lines(), refused+`a limit=5/1m cost=1 retry_after=12s`)

		// Forty more of the same within the minute wait for the end of it. Another rule has its own
		// first line.
		observe(40, request(events.Refused, "a"))
		observe(1, request(events.Refused, "c"))
		want(t, lines(), refused+`c limit=5/1m cost=1`)

		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, lines(), refused+`a times=40 within=1m0s`)

		// In the second minute only the number is said, and after a minute without a refusal
		// nothing.
		observe(2, request(events.Refused, "a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, lines(), refused+`a times=2 within=1m0s`)

		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, lines())
		observe(4, request(events.Refused, "a")) // the next one is the first again

		want(t, lines(), refused+`a limit=5/1m cost=1`)

		// What was not yet said is said at Close, and nothing after it.
		_ = l.Close()
		want(t, lines(), refused+`a times=3 within=1m0s`)
		observe(4, request(events.Refused, "a"))

		observe(4, request(events.Refused, "new"))
		_ = l.Close()
		want(t, lines())
	})
}

func TestLines(t *testing.T) {
	// The error has a line end, which must not begin a line of the log.
	down := request(events.FailedOpen, "a")
	down.Rules[0].Err = errors.New("connection\nrefused")
	waited := request(events.Canceled, "a")

	waited.Rules[0].Waited, waited.Rules[0].Decision.Fallback,
		waited.Rules[0].Decision.RetryAfter = time.Second, true, core.Never

	// A request without a rule, which failed before any was asked.
	alone := &events.Request{Verdict: events.FailedClosed, Err: errors.New("down")}
	for _, row := range []struct {
		o    eventlog.Options
		e    *events.Request
		want []string
	}{
		// What passes as it should is not logged, and neither is what a program has chosen so.
		{eventlog.Options{}, request(events.Allowed, "a"), nil},
		{eventlog.Options{}, request(events.Waited, "a"), nil},
		{eventlog.Options{}, request(events.ShadowRefused, "a"), nil},
		{eventlog.Options{}, request(events.Degraded, "a"), nil},
		{eventlog.Options{}, down,
			[]string{`level=WARN msg="headgate: a request passed" result=failed_open rule=a limit=5/1m cost=1 error="connection; refused"`}},
		{eventlog.Options{}, waited,
			[]string{`level=INFO msg="headgate: a request did not pass" result=canceled rule=a limit=5/1m cost=1 waited=1s fallback=true`}},
		{eventlog.Options{}, alone,
			[]string{`level=WARN msg="headgate: a request did not pass" result=failed_closed error=down`}},
		// Options.Verdicts takes the place of the default, even with none.
		{eventlog.Options{Verdicts: []events.Verdict{events.ShadowRefused}}, request(events.ShadowRefused, "a"),
			[]string{`level=INFO msg="headgate: a request passed" result=shadow_refused rule=a limit=5/1m cost=1`}},
		{eventlog.Options{Verdicts: []events.Verdict{events.ShadowRefused}}, request(events.Refused, "a"), nil},
		{eventlog.Options{Verdicts: []events.Verdict{events.Overruled}}, request(events.Overruled, "a"),
			[]string{`level=INFO msg="headgate: a request did not pass" result=overruled rule=a limit=5/1m cost=1`}},
		{eventlog.Options{Verdicts: []events.Verdict{}}, request(events.Refused, "a"), nil},
	} {
		l, lines := start(t, row.o)

		l.Observe(t.Context(), row.e)
		want(t, lines(), row.want...)
		_ = l.Close()
	}
}

// However many rules come and go, memory is bounded, and every request is counted.
func TestManyRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := start(t, eventlog.Options{Every: time.Hour})
		for i := range 5000 {
			l.Observe(t.Context(), request(events.Refused, fmt.Sprint("r", i)))
		}
		if got := lines(); len(got) != 1001 {
			t.Errorf("%d lines", len(got))
		}
		_ = l.Close()
		want(t, lines(), `level=INFO msg="headgate: a request did not pass" result=refused times=3999 within=1h0m0s`)
	})
}

// Requests at the same time are all counted, once each.
func TestRequestsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := start(t, eventlog.Options{})
		e := request(events.Refused, "a")

		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 1000 {
					l.Observe(t.Context(), e)
				}
			})
		}
		all.Wait()

		_ = l.Close()

		// The first of 8000 has its line, and the others are a number.
		want(t, lines(), refused+`a limit=5/1m cost=1`, refused+`a times=7999 within=1m0s`)
	})
}

func TestMistakes(t *testing.T) {
	l, err := eventlog.New(eventlog.Options{Every: time.Millisecond, Verdicts: []events.Verdict{99}})
	const want = "eventlog: Every is 1ms; want at least 1s, or 0 for 1m0s\neventlog: Verdicts has 99, which is no verdict"
	if l != nil || err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// panics is a handler that panics.
type panics struct{ slog.Handler }

func (panics) Enabled(context.Context, slog.Level) bool { panic("handler") }

func TestHandlerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventlog.MustNew(eventlog.Options{Logger: slog.New(panics{})})
		l.Observe(t.Context(), request(events.Refused, "a"))
		l.Observe(t.Context(), request(events.Refused, "a"))
		time.Sleep(time.Hour)
	})
}

// Requests cost no allocation, but for those that are logged.
func TestObserveAllocatesNothing(t *testing.T) {
	l, _ := start(t, eventlog.Options{})
	for _, e := range []*events.Request{request(events.Allowed, "a"), request(events.Refused, "a")} {
		l.Observe(t.Context(), e)
		if n := testing.AllocsPerRun(1000, func() { l.Observe(t.Context(), e) }); n != 0 {
			t.Errorf("%s: %v allocations", e.Verdict, n)
		}
	}
	_ = l.Close()
}
