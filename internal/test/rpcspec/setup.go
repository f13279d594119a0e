package rpcspec

import (
	"log"
	"log/slog"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

var setup = []spec{
	{"a second Config is ignored and logged", secondConfig},
	{"a limiter that cannot decide is logged and answers Unavailable", noKey},
	{"a limiter that is nil is logged and fails closed", nilLimiter},
	{"the view of no call is nil", noRequest},
}

// mistake returns the log line about a mistake in a call of the adapter's New.
func (b *bench) mistake(text string) string {
	return `level=ERROR msg="headgate: ` + b.Package + `.New was called with a mistake" error="` + text + "\"\n"
}

func secondConfig(b *bench) {
	log := &journal{}
	b.serve(App{
		Limiter:      b.configured(limiter.Config{Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")}, Logger: log.logger()}),
		SecondConfig: true,
	})
	b.steps(
		step{0, "", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "", refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
	want := b.mistake("more than one Config was given, and all but the first are ignored")
	if got := log.String(); got != want {
		b.Errorf("logged\n%s\nwant\n%s", got, want)
	}
}

func noKey(b *bench) {
	log := &journal{}
	rules := []limiter.Rule{{Limit: core.MustParseLimit("1/10s")}}
	b.serve(App{Limiter: b.configured(limiter.Config{Rules: rules, Logger: log.logger()})})
	b.steps(step{0, "", unavailable()}, step{0, "", unavailable()})
	want := b.mistake(`rule 0 \"default\": the Key function is nil, so no request can be counted`)
	rest, ok := strings.CutPrefix(log.String(), want)
	if !ok || strings.Count(rest, "\n") != 1 || !strings.Contains(rest, "code="+findings.NoKey+" rule=default") {
		b.Errorf("logged\n%s\nwant\n%sand a line about the first request", log, want)
	}
}

// nilLimiter reads the log of the program, because the limiter has none.
func nilLimiter(b *bench) {
	journal, before, output, flags := &journal{}, slog.Default(), log.Writer(), log.Flags()
	b.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(output)
		log.SetFlags(flags)
	})
	slog.SetDefault(journal.logger())
	b.serve(App{})
	b.steps(step{0, "", unavailable()}, step{0, "", unavailable()})
	if got, want := journal.String(), b.mistake("headgate: the limiter is nil"); got != want {
		b.Errorf("logged\n%s\nwant\n%s", got, want)
	}
}

func noRequest(b *bench) {
	if b.NoRequest != nil {
		b.Errorf("%T, want nil", b.NoRequest)
	}
}
