package limiter_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

func TestDiagnosisIncompleteIsRepeatedAfterPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		start := time.Now()
		var asked []time.Duration
		s := &diagnosing{mapStore: newTicking(), findings: func(context.Context) []core.Finding {
			asked = append(asked, time.Since(start))
			if len(asked) < 4 {
				return []core.Finding{{Code: findings.Unanswered}, {Code: "HG006", Text: "a"}}
			}
			return []core.Finding{{Code: "HG007", Text: "b"}}
		}}

		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "500000/1h")},
			Logger: j.logger()})
		for time.Since(start) < 20*time.Second {
			send(l, caller("192.0.2.1:1"))
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}

		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}
		if !slices.Equal(asked, want) || j.codes() != "HG006, HG007" {
			t.Errorf("asked at %v, want %v; logged %q", asked, want, j.codes())
		}
	})
}

func TestDiagnosisPauseIsAtMostAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var asked []time.Duration
		s := &diagnosing{mapStore: newTicking(), findings: func(context.Context) []core.Finding {
			asked = append(asked, time.Since(start))
			return []core.Finding{{Code: findings.Unanswered}}
		}}

		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "500000/1h")}})
		for time.Since(start) <= 5*time.Hour {
			send(l, caller("192.0.2.1:1"))
			synctest.Wait()
			time.Sleep(time.Second)
		}
		// Pauses of 1, 2, 4 ... 2048 seconds, and then of an hour each.
		if n := len(asked); n != 16 || asked[12] != 4095*time.Second || asked[15]-asked[14] != time.Hour {
			t.Errorf("asked at %v", asked)
		}
	})
}

func TestDiagnosisNeedsRequestsAndEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &diagnosing{mapStore: newTicking(), findings: func(context.Context) []core.Finding {
			return []core.Finding{{Code: findings.Unanswered}}
		}}

		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "50/1h")}})
		// The answer was that nothing answered. Another question needs another request.
		send(l, caller("192.0.2.1:1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.asked != 1 {
			t.Errorf("asked %d times for one request", s.asked)
		}

		_ = l.Close()
		for range 3 {
			send(l, caller("192.0.2.1:1"))
			synctest.Wait()
			time.Sleep(time.Hour)
		}
		if s.asked != 1 {
			t.Errorf("asked %d times, after Close too", s.asked)
		}
	})
}

func TestDiagnosisIsStartedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &diagnosing{mapStore: newTicking(), findings: func(context.Context) []core.Finding {
			return []core.Finding{{Code: findings.Unanswered}}
		}}

		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "50000/1h")}})
		// Fifty requests at once ask once.
		for want := 1; want <= 3; want++ {
			for range 50 {
				go send(l, caller("192.0.2.1:1"))
			}
			synctest.Wait()
			if s.asked != want {
				t.Errorf("asked %d times, want %d", s.asked, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Set-ups change while a service runs: other services start, and servers get other
// settings.
func TestDiagnosisIsRepeatedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		start := time.Now()
		var asked []time.Duration
		// The third examination finds what was not so before.
		s := &diagnosing{mapStore: newTicking(), findings: func(context.Context) []core.Finding {
			if asked = append(asked, time.Since(start)); len(asked) < 3 {
				return nil
			}
			return []core.Finding{{Code: "HG007", Text: "b"}}
		}}

		dark := withOnLimit(rule(t, "dark", "7/1h fixed-window"), limiter.Shadow)
		l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "500000/1h"), dark},
			Logger: j.logger()})

		for time.Since(start) < 200*time.Second {
			send(l, caller("192.0.2.1:1"))
			synctest.Wait()
			time.Sleep(700 * time.Millisecond)
		}

		// The first request after a minute is the 86th.
		want := []time.Duration{0, 60200 * time.Millisecond, 120400 * time.Millisecond, 180600 * time.Millisecond}
		if !slices.Equal(asked, want) || j.codes() != "HG007" {
			t.Errorf("asked at %v, want %v; logged %q", asked, want, j.codes())
		}

		var rules []string
		// The diagnosis is about all rules, also those in shadow, and about no key.
		for _, op := range s.rules {
			rules = append(rules, op.Rule+" "+op.Limit.String()+op.Key)
		}
		if !slices.Equal(rules, []string{"a 500000/1h", "dark 7/1h fixed-window"}) {
			t.Errorf("asked about %q", rules)
		}

		_ = l.Close()
		time.Sleep(time.Hour)
		send(l, caller("192.0.2.1:1"))
		synctest.Wait()
		if len(asked) != len(want) {
			t.Errorf("asked at %v, after Close too", asked)
		}
	})
}
