package adapterspec

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
	{"a limiter that cannot decide is logged and fails closed", noKey},
	{"a limiter that is nil is logged and fails closed", nilLimiter},
	{"the view of no request is nil", noView},
}

// mistake returns the log line about a mistake in a call of the adapter's New.
func (b *bench) mistake(text string) string {
	return `level=ERROR msg="headgate: ` + b.pkg() + `.New was called with a mistake" error="` + text + "\"\n"
}

func secondConfig(b *bench) {
	log := &journal{}
	rules := []limiter.Rule{b.rule("a", "1/10s fixed-window")}
	b.serve(app{limiter: b.configured(limiter.Config{Rules: rules, Logger: log.logger()}), secondConfig: true})

	// The second Config would skip every request.
	b.steps(
		step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)

	want := b.mistake("more than one Config was given, and all but the first are ignored")
	if got := log.String(); got != want {
		b.Errorf("logged\n%s\nwant\n%s", got, want)
	}
}

func noKey(b *bench) {
	log := &journal{}
	rules := []limiter.Rule{{Limit: core.MustParseLimit("1/10s")}}
	b.serve(app{limiter: b.configured(limiter.Config{Rules: rules, Logger: log.logger()})})
	b.steps(step{0, "", b.failure(second)}, step{0, "", b.failure(second)})

	// New logs the mistake, and the first request a finding: one line for both requests.
	want := b.mistake(`rule 0 \"default\": the Key function is nil, so no request can be counted`)
	rest, ok := strings.CutPrefix(log.String(), want)
	if !ok || strings.Count(rest, "\n") != 1 || !strings.Contains(rest, "code="+findings.NoKey+" rule=default") {
		b.Errorf("logged\n%s\nwant\n%sand a line about the first request", log, want)
	}
}

func nilLimiter(b *bench) {
	// The limiter has no log, so New writes to that of the program.
	journal, before, output, flags := &journal{}, slog.Default(), log.Writer(), log.Flags()
	b.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(output)
		log.SetFlags(flags)
	})
	slog.SetDefault(journal.logger())

	b.serve(app{})
	b.everyForm("", b.failure(second))
	if got, want := journal.String(), b.mistake("headgate: the limiter is nil"); got != want {
		b.Errorf("logged\n%s\nwant\n%s", got, want)
	}
}

func noView(b *bench) {
	if v := b.noRequest(); v != nil {
		b.Errorf("%T, want nil", v)
	}
}
