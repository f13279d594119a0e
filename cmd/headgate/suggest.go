package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

var suggestCommand = command{
	name: "suggest", args: "LOG…",
	does: "finds the smallest limits that refuse hardly a caller, by access logs",
	examples: []string{
		"headgate suggest -touch 0.1% access.log access.log.1.gz",
		"headgate suggest -period 1h -path /api/ -html report.html access.log",
		"zcat access.*.gz | headgate suggest -key user -user -json -",
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		var s suggestFlags
		s.define(f)
		f.StringVar(&s.touch, "touch", "0.1%", "the `share` of callers that may be refused a request")
		f.DurationVar(&s.period, "period", time.Minute, "the period of the limits")
		f.StringVar(&s.key, "key", "ip", "the `recipe` of the key that callers are counted by, as in a policy")
		f.StringVar(&s.path, "path", "", "the `pattern` of the paths that count, as in a policy; without it all do")
		f.StringVar(&s.html, "html", "", "write a report with pictures to the `file`")
		return func(e *env, files []string) int { return suggest(e, files, &s) }
	},
}

type suggestFlags struct {
	logFlags
	touch, key, path, html string
	period                 time.Duration
}

// suggestResult is what suggest prints as JSON.
type suggestResult struct {
	Logs  []logReport `json:"logs"`
	Notes []string    `json:"notes"`
	*replay.SuggestReport

	refusals replay.Timeline // of the first suggestion
}

func suggest(e *env, files []string, f *suggestFlags) int {
	touch, err := shareOf(f.touch, 0)
	switch {
	case err != nil:
		return e.fail("suggest: -touch: %s", safe(err.Error()))
	case len(files) == 0:
		return e.fail("suggest: no log is named; - is the standard input")
	}

	in, err := e.openLogs(files, &f.logFlags)
	if err != nil {
		return e.fail("suggest: %s", safe(err.Error()))
	}

	// Without a request there is nothing to find.
	has, known := in.has()
	if !known {
		in.each(e, func(*accesslog.Entry) {})
		result := &suggestResult{}
		result.Logs, result.Notes = in.reports(f.reorder)
		return result.nothing(e, f, unknown)
	}

	s, err := replay.NewSuggester(replay.SuggestOptions{Key: f.key, Match: policy.Match{Path: f.path}, Period: f.period,
		Touch: touch, Proxies: f.trusted(), Users: f.users, MaxKeys: f.maxKeys}, has)
	if err != nil {
		in.close()
		return e.fail("suggest: %s", safe(textform.Line(err)))
	}
	in.each(e, s.Add)

	result := &suggestResult{}
	result.Logs, result.Notes = in.reports(f.reorder)
	if result.SuggestReport, err = s.Report(); err != nil {
		return result.nothing(e, f, safe(err.Error()))
	}

	// The suggestions are tried on the same log, unless it can be read only once.
	if slices.Contains(files, "-") {
		result.Notes = append(result.Notes, "the standard input is read once, so no refusals are counted")
	} else if err := result.try(e, files, f, s, has); err != nil {
		return e.fail("suggest: %s", safe(err.Error()))
	}

	return result.write(e, f, len(in.errors) > 0)
}

// nothing prints why nothing is suggested, and returns the exit code.
func (s *suggestResult) nothing(e *env, f *suggestFlags, why string) int {
	if f.json {
		s.Notes = append(s.Notes, why)
		return max(findings, e.printJSON(s))
	}
	printLogs(e, s.Logs, s.Notes)
	fmt.Fprintln(e.out, why)
	return findings
}

// try replays the log with what was suggested.
func (s *suggestResult) try(e *env, files []string, f *suggestFlags, by *replay.Suggester,
	has accesslog.Fields,
) error {
	in, err := e.openLogs(files, &f.logFlags)
	if err != nil {
		return err
	}
	t, err := by.Try(s.SuggestReport, has)
	if err != nil {
		in.close()
		return err
	}
	in.each(e, t.Add)

	shared := int64(0)
	if s.refusals, shared = t.End(); shared > 0 {
		s.Notes = append(s.Notes, sharedKeys(shared, f.maxKeys))
	}
	return nil
}

// write prints the result, and writes the report. It returns the exit code.
func (s *suggestResult) write(e *env, f *suggestFlags, cut bool) int {
	code := fine
	if cut {
		code = findings
	}
	if f.html != "" {
		if err := os.WriteFile(f.html, []byte(s.page()), 0o644); err != nil {
			return e.fail("suggest: %s", safe(err.Error()))
		}
	}

	// A list without entries is one in JSON too.
	if f.json {
		s.Notes = append([]string{}, s.Notes...)
		return max(code, e.printJSON(s))
	}
	printLogs(e, s.Logs, s.Notes)
	s.print(e, f)
	return code
}

func (s *suggestResult) print(e *env, f *suggestFlags) {
	fmt.Fprintf(e.out, "%s to %s UTC: %s of %s by %s\n", when(s.First), when(s.Last), counted(s.Requests, "request"),
		counted(s.Callers, "caller"), safe(f.key))
	if s.OneIn > 1 {
		why := ""
		if s.MemoryFull {
			why = ", as all would take more than 256 MB"
		}
		fmt.Fprintf(e.out, "by a sample of one caller in %d%s\n", s.OneIn, why)
	}
	fmt.Fprintf(e.out, "the smallest limits that refuse a request to at most %s of them:\n\n", f.touch)

	t := table{head: []string{"limit", "#callers refused", "#share", "#requests refused", ""}}
	for _, x := range s.Suggestions {
		refused, about := "-", ""
		if x.Refused != nil {
			refused = count(*x.Refused)
		}
		switch {
		case x.Knee:
			about = "the knee"
		case x.Same != "":
			about = "as " + x.Same
		}
		t.add(x.Limit, count(x.Touched), percent(x.Touched, s.Callers), refused, about)
	}
	t.print(e)
	s.printKnee(e, f)
}

// printKnee draws which burst each quota needs.
func (s *suggestResult) printKnee(e *env, f *suggestFlags) {
	const most = 60
	curve := s.Curve
	end := slices.IndexFunc(curve, func(p replay.Point) bool { return p.Burst <= p.Quota }) + 1
	if end < 3 {
		return
	}

	curve = curve[:end]

	// At most so many quotas, and the last.
	var values []float64
	step := (len(curve) + most - 1) / most
	for i := 0; i < len(curve); i += step {
		values = append(values, float64(curve[i].Burst))
	}
	fmt.Fprintf(e.out, "\nthe burst that a quota needs, of %d each %s on the left to %d on the right\n%s",
		curve[0].Quota, textform.Duration(s.Period), curve[len(curve)-1].Quota, drawing.Area(values, 8))
	for _, x := range s.Suggestions {
		if x.Knee {
			fmt.Fprintf(e.out, "the knee is %s: a lower quota needs a much larger burst,\n"+
				"and a higher one hardly a smaller\n", x.Limit)
		}
	}
}
