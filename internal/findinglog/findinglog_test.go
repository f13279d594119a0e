package findinglog

import (
	"log/slog"
	"strings"
	"testing"
)

func TestFindingsHaveTheTextsOfTheProgram(t *testing.T) {
	var b strings.Builder
	// The instant would differ from run to run.
	plain := slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return a
	}})

	// One code has a text of the program. The others keep theirs, and so does a code that is no
	// string or no attribute.
	log := slog.New(New(plain, map[string]string{"HG001": "use -flag"}))
	log.Warn("use keyfuncs", "code", "HG001", "rule", "a")
	log.Warn("use keyfuncs", "code", "HG002", "rule", "a")
	log.Warn("use keyfuncs", "code", 1)
	log.Info("HG001")

	// What With and WithGroup return translates as well.
	log.With("face", "proxy").WithGroup("g").Warn("use keyfuncs", "code", "HG001")

	want := `level=WARN msg="use -flag" code=HG001 rule=a
level=WARN msg="use keyfuncs" code=HG002 rule=a
level=WARN msg="use keyfuncs" code=1
level=INFO msg=HG001
level=WARN msg="use -flag" face=proxy g.code=HG001
`
	if got := b.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
