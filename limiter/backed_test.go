package limiter_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

// backedStore brings a memory, and counts its uses. It is always down.
type backedStore struct {
	brokenStore
	memory         core.Store
	uses, releases int
}

func newBacked() *backedStore {
	return &backedStore{brokenStore: func() error { return errDown }, memory: newStore()}
}

func (s *backedStore) Back() (core.Standby, func()) {
	s.uses++
	sides, _ := standby{s.memory}.Back()
	sides.Store = remoteStandby{standby{s.memory}}
	return sides, func() { s.releases++ }
}

// remoteStandby asks a server, which is always down.
type remoteStandby struct{ standby }

func (remoteStandby) Report() events.Report { return events.Report{MaxCall: time.Second} }

// halfBacked brings no side but a fallback, and counts its releases.
type halfBacked struct {
	brokenStore
	releases *int
}

func (s halfBacked) Back() (core.Standby, func()) {
	return core.Standby{Fallback: newStore()}, func() { *s.releases++ }
}

// A Back that lacks a side is a mistake with a name.
func TestBackWithoutASide(t *testing.T) {
	releases := 0
	_, err := limiter.New(limiter.Config{Store: halfBacked{func() error { return nil }, &releases}})
	want := "the Store is a limiter_test.halfBacked whose Back returns no Store or no Strict"
	if err == nil || err.Error() != want || releases != 1 {
		t.Errorf("%v, %d releases", err, releases)
	}
}

// A limiter over a store that brings a memory uses it until it is closed.
func TestLimiterUsesTheMemoryOfItsStore(t *testing.T) {
	want := func(s *backedStore, uses, releases int) {
		t.Helper()
		if s.uses != uses || s.releases != releases {
			t.Errorf("%d uses and %d releases, want %d and %d", s.uses, s.releases, uses, releases)
		}
	}
	quiet := slog.New(slog.DiscardHandler)

	t.Run("until Close", func(t *testing.T) {
		s := newBacked()
		l := configured(t, limiter.Config{Store: s, Logger: quiet,
			Rules: []limiter.Rule{rule(t, "a", "2/1h fixed-window")}})

		for i, outcome := range []limiter.Outcome{limiter.Pass, limiter.Pass, limiter.Refused} {
			if got := admit(l); got != outcome {
				t.Errorf("request %d: %s", i, got)
			}
		}

		// Without a setting the memory decides while the store is away.
		if mode := l.Status().Rules[0].OnStoreError; mode != limiter.FailLocal {
			t.Errorf("%s", mode)
		}
		want(s, 1, 0)

		l.Close()
		want(s, 1, 1)
	})

	t.Run("until Shutdown", func(t *testing.T) {
		s := newBacked()
		l := configured(t, limiter.Config{Store: s, Logger: quiet})
		if err := l.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		want(s, 1, 1)
	})

	t.Run("not after a mistake", func(t *testing.T) {
		s := newBacked()
		if _, err := limiter.New(limiter.Config{Store: s, Top: -1}); err == nil {
			t.Error("no error")
		}
		want(s, 1, 1)
	})

	t.Run("not where a standby is given", func(t *testing.T) {
		s := newBacked()
		// A program that wires failover itself has chosen its fallback, so the memory of the store
		// is not opened.
		wired := failover.MustNew(s, failover.Options{Fallback: memstore.MustNew(memstore.Options{}), Logger: quiet})
		defer wired.Close()
		configured(t, limiter.Config{Store: wired, Logger: quiet}).Close()
		want(s, 0, 0)
	})
}

// pageOfFindings is the address of the page of findings, up to two digits of a code.
const pageOfFindings = "https://github.com/headgate/headgate/blob/main/docs/findings.md#hg0"

// remoteStore asks a server and brings no memory.
type remoteStore struct{ brokenStore }

func (remoteStore) Report() events.Report { return events.Report{MaxCall: time.Second} }

// The start says, once and by name, under which rules requests pass while the store cannot
// decide.
func TestStartSaysWhichRulesFailOpen(t *testing.T) {
	const (
		line = `level=WARN msg="headgate: requests pass uncounted while the store cannot decide in time, as under load, under `
		code = `" code=HG017 see=` + pageOfFindings + `17`
		none = `: the store has no fallback; set OnStoreError, or put store/failover before the store`
	)
	remote := remoteStore{func() error { return errDown }}

	open, closed, shadow := rule(t, "open", "1/1h"), rule(t, "closed", "1/1h"), rule(t, "shadow", "1/1h")
	open.OnStoreError, closed.OnStoreError = limiter.FailOpen, limiter.FailClosed
	// A rule in shadow refuses nothing at any time, so it is not named.
	shadow.OnStoreError, shadow.OnLimit = limiter.FailOpen, limiter.Shadow
	plainRule := rule(t, "plain", "1/1h")
	// Eight names fit into the line.
	var many []limiter.Rule
	for i := range 10 {
		many = append(many, rule(t, fmt.Sprint("r", i), "1/1h"))
	}

	for name, row := range map[string]struct {
		config limiter.Config
		want   string
	}{
		// Requests pass for a rule that fails open over a server without a memory, whatever the
		// reason for the mode. A store in memory has no outage.
		"a store in memory": {limiter.Config{OnStoreError: limiter.FailOpen,
			Rules: []limiter.Rule{plainRule}}, ""},
		"a store with a memory": {limiter.Config{Store: newBacked(), Rules: []limiter.Rule{plainRule, closed}},
			""},
		"no rules":      {limiter.Config{Store: remote, OnStoreError: limiter.FailOpen}, ""},
		"a shadow rule": {limiter.Config{Store: remote, Rules: []limiter.Rule{closed, shadow}}, ""},
		"a rule over a server": {limiter.Config{Store: remote, Rules: []limiter.Rule{open, closed}},
			line + "open" + code},
		"a config over a server": {limiter.Config{Store: remote, OnStoreError: limiter.FailOpen,
			Rules: []limiter.Rule{plainRule, open, closed}}, line + "plain, open" + code},
		"the default without a memory": {limiter.Config{Store: remote, Rules: []limiter.Rule{plainRule, open}},
			line + "plain, open" + none + code},
		"many rules": {limiter.Config{Store: remote, OnStoreError: limiter.FailOpen, Rules: many},
			line + "r0, r1, r2, r3, r4, r5, r6, r7 and 2 more" + code},
		"a limiter that has a name": {limiter.Config{Store: remote, Name: "shop", Rules: []limiter.Rule{open}},
			line + `open" limiter=shop code=HG017 see=` + pageOfFindings + `17`},
		"a store that waits for no one": {limiter.Config{Store: brokenStore(func() error { return errDown }),
			Rules: []limiter.Rule{open}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log test.Log
			row.config.Logger = plain(&log)

			l := configured(t, row.config)
			// The same rules once more are no news.
			if err := l.SetRules(row.config.Rules); err != nil {
				t.Fatal(err)
			}
			l.Close()

			want := row.want
			if want != "" {
				want += "\n"
			}
			if got := log.String(); got != want {
				t.Errorf("the log is\n%swant\n%s", got, want)
			}
		})
	}
}

// Rules that are set later are told of as those at the start.
func TestRulesThatAreSetMayFailOpen(t *testing.T) {
	var log test.Log
	l := configured(t, limiter.Config{Store: newBacked(), Logger: plain(&log)})
	defer l.Close()

	open := rule(t, "open", "1/1h")
	open.OnStoreError = limiter.FailOpen
	if err := l.SetRules([]limiter.Rule{open}); err != nil {
		t.Fatal(err)
	}

	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "under open") {
		t.Errorf("the log is\n%s", text)
	}
}

// What a store does not decide for load is no outage in the log: its lines have words of
// their own, and count what became of the requests.
func TestFailureLogOfLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kind = `level=WARN msg="headgate: more comes than the store decides in time, so `
		busy := brokenStore(func() error { return fmt.Errorf("redisstore: %w", core.ErrOverload) })
		var log test.Log

		l := configured(t, limiter.Config{Store: busy, Logger: plain(&log),
			Rules: []limiter.Rule{rule(t, "a", "1/1h")}})
		// Three requests: the first makes a line, the others are counted until Close.
		for range 3 {
			admit(l)
		}

		l.Close()
		open := kind + `OnStoreError decides the rest"`
		cause := ` error="redisstore: more than can be decided in time"`
		lines := []string{open + " passed=1" + cause, open + " times=2 passed=2" + cause}
		wantLog(t, &log, lines...)

		// Over failover the same load is decided by the fallback, in words of its own.
		s := failover.MustNew(busy, failover.Options{Fallback: newStore(), Logger: slog.New(slog.DiscardHandler)})
		defer s.Close()
		l = configured(t, limiter.Config{Store: s, Logger: plain(&log), Rules: []limiter.Rule{rule(t, "a", "1/1h")}})
		for range 4 {
			admit(l)
		}
		// The count is written after a minute, and the end after another without an error.
		time.Sleep(2*time.Minute + 1)
		l.Close()

		local := kind + `its fallback decides the rest"`
		cause = ` error="the fallback of the store decides: redisstore: more than can be decided in time"`
		wantLog(t, &log, append(lines, local+" local=1"+cause, local+" times=3 within=1m0s local=3"+cause,
			`level=INFO msg="headgate: for a minute no more: more comes than the store decides in time, so its fallback decides the rest"`)...)
	})
}

// The lines of a limiter, and its status, have its name.
func TestNameOfALimiter(t *testing.T) {
	var log test.Log
	l := configured(t, limiter.Config{Name: "shop.api-2", Store: brokenStore(func() error { return errDown }),
		Logger: plain(&log),
		Rules:  []limiter.Rule{rule(t, "a", "1/1h")}})
	// A failure, a finding, a mistake in the set-up and the count at the end: every kind of line.
	admit(l)
	admit(l)
	l.Warn(core.Finding{Code: "HG042", Rule: "a", Text: "it is odd"})
	l.LogSetup("nethttp.New", context.Canceled)
	l.Close()
	wantLog(t, &log,
		outageLine+` limiter=shop.api-2 passed=1 error=down`,
		`level=WARN msg="headgate: it is odd" limiter=shop.api-2 code=HG042 rule=a see=`+pageOfFindings+`42`,
		`level=ERROR msg="headgate: nethttp.New was called with a mistake" limiter=shop.api-2 error="context canceled"`,
		outageLine+` limiter=shop.api-2 times=1 passed=1 error=down`)
	if got := l.Status().Name; got != "shop.api-2" {
		t.Errorf("the status has the name %q", got)
	}

	for _, bad := range []string{"Shop", "a b", "2", "a\n", strings.Repeat("a", 200)} {
		if _, err := limiter.New(limiter.Config{Name: bad}); err == nil ||
			!strings.Contains(err.Error(), "the Name of the limiter is not 1 to ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
