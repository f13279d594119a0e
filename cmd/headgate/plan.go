package main

import (
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

var planCommand = command{
	name: "plan", args: "-policies FILE LOG…",
	does: "says whom policies would have refused, by access logs",
	examples: []string{
		"headgate plan -policies limits.yaml access.log access.log.1.gz",
		"headgate plan -policies new.yaml -against limits.yaml access.log",
		"zcat access.*.gz | headgate plan -policies limits.yaml -fail-if-denied 0.1% -",
		"headgate plan -policies limits.yaml -proxies 10.0.0.0/8 -json access.log",
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		var p planFlags
		p.define(f)
		f.StringVar(&p.policies, "policies", "", "the `file` of the policies")
		f.StringVar(&p.against, "against", "", "the `file` of the policies that are in force, to compare with")
		f.StringVar(&p.app, "app", "", "the `name` of an application, whose policies count; without it all do")
		f.StringVar(&p.fail, "fail-if-denied", "",
			"exit with 3 if more than this `share` of the requests is refused, as 0.1%")
		return func(e *env, files []string) int { return plan(e, files, &p) }
	},
}

type planFlags struct {
	logFlags
	policies, against, app, fail string
}

// planResult is what plan prints as JSON.
type planResult struct {
	Logs  []logReport `json:"logs"`
	Notes []string    `json:"notes"`
	*replay.Report

	known bool // the fields of the logs are known
	cut   bool // a log could not be read to its end
}

func plan(e *env, files []string, p *planFlags) int {
	most, err := shareOf(p.fail, 100)
	switch {
	case err != nil:
		return e.fail("plan: -fail-if-denied: %s", safe(err.Error()))
	case p.policies == "":
		return e.fail("plan: -policies names no file; see headgate help plan")
	case len(files) == 0:
		return e.fail("plan: no log is named; - is the standard input")
	}

	// The policies are read first, so that a mistake in them does not come after a long log.
	o := replay.Options{App: p.app, Proxies: p.trusted(), Users: p.users, MaxKeys: p.maxKeys,
		Compare: p.against != "", Lanes: runtime.GOMAXPROCS(0)}
	var code int
	if o.Policies, code = e.validPolicies(p.policies); code != fine {
		return code
	}
	if o.Compare {
		if o.Against, code = e.validPolicies(p.against); code != fine {
			return code
		}
	}

	in, err := e.openLogs(files, &p.logFlags)
	if err != nil {
		return e.fail("plan: %s", safe(err.Error()))
	}

	has, known := in.has()
	r, err := replay.NewReplay(o, has)
	if err != nil {
		in.close()
		return e.fail("plan: %s", safe(textform.Line(err)))
	}
	in.each(e, r.Add)

	result := planResult{Report: r.Report()}
	result.Logs, result.Notes = in.reports(p.reorder)
	if result.SharedKeys > 0 {
		result.Notes = append(result.Notes, sharedKeys(result.SharedKeys, p.maxKeys))
	}

	if result.Undecided > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%s because a policy could not decide",
			plural(result.Undecided, "request passed", "requests passed")))
	}
	result.known, result.cut = known, len(in.errors) > 0
	return result.print(e, p, most)
}

// print prints the result, and returns the exit code.
func (p *planResult) print(e *env, f *planFlags, most float64) int {
	code, why := fine, ""
	switch {
	case f.fail != "" && float64(p.Refused) > most*float64(p.Requests):
		code, why = tooMany, fmt.Sprintf("more than %s of the requests are refused", f.fail)
	case p.Requests == 0:
		code = findings
	case !p.known:
		code = findings
		p.Notes = append(p.Notes, unknown)
	case f.fail != "" && len(p.gaps()) > 0:
		code, why = findings, "-fail-if-denied cannot decide: "+strings.Join(p.gaps(), "; ")
		if f.json {
			p.Notes = append(p.Notes, why)
		}
	case p.cut:
		code = findings
	}

	// A list without entries is one in JSON too.
	if f.json {
		p.Notes = append([]string{}, p.Notes...)
		return max(code, e.printJSON(p))
	}

	printLogs(e, p.Logs, p.Notes)
	if p.Requests == 0 {
		fmt.Fprintln(e.out, "no request was read, so nothing can be said")
		return code
	}
	if !p.known {
		return code
	}

	printReport(e, p.Report, f)
	if why != "" {
		fmt.Fprintf(e.out, "\n%s: %s\n", e.paint(red, "failed"), why)
	}

	return code
}

// gaps returns what the result does not cover, so that few refusals do not mean that all is well.
func (p *planResult) gaps() (list []string) {
	if len(p.Policies) == 0 && len(p.LeftOut) == 0 {
		list = append(list, "no policy is in force")
	}
	if n := int64(len(p.LeftOut)); n > 0 {
		list = append(list, plural(n, "policy is", "policies are")+" left out")
	}
	if p.Undecided > 0 {
		list = append(list, plural(p.Undecided, "request was", "requests were")+" not decided")
	}
	if p.SharedKeys > 0 {
		list = append(list, plural(p.SharedKeys, "request", "requests")+" shared limits")
	}

	for _, l := range p.Logs {
		if l.Broken > l.Requests {
			list = append(list, "most lines of "+safe(l.File)+" are broken")
		}
	}
	if p.cut {
		list = append(list, "a log is cut off")
	}

	return list
}

// validPolicies reads a file of policies without mistakes. Otherwise it prints them, and returns
// the exit code.
func (e *env) validPolicies(name string) (policy.Set, int) {
	p, err := e.readPolicies(name)
	if err != nil {
		return nil, e.fail("%s", safe(err.Error()))
	}
	if p.count(mistake) > 0 {
		shown := *e
		shown.out = e.err
		printFindings(&shown, p.findings)
		return nil, findings
	}
	return p.set, fine
}

// shareOf reads a share such as 0.1%; "" is the default, in percent.
func shareOf(text string, percent float64) (float64, error) {
	if text == "" {
		return percent / 100, nil
	}
	number, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n >= 0 && n <= 100) {
		return 0, fmt.Errorf("%q is not a share within 0%% to 100%%, such as 0.1%%", text)
	}
	return n / 100, nil
}

const timeForm = "2006-01-02 15:04:05"

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(timeForm)
}

// printReport prints what would have become of the requests.
func printReport(e *env, r *replay.Report, f *planFlags) {
	// Many callers are counted by a sample.
	about := ""
	if r.Estimated {
		about = "about "
	}
	fmt.Fprintf(e.out, "%s to %s UTC: %s of %s%s\n", when(r.First), when(r.Last), counted(r.Requests, "request"), about,
		counted(r.Callers, "caller"))

	color := green
	if r.Refused > 0 {
		color = red
	}
	fmt.Fprintf(e.out, "%s (%s) of %s (%s) would be refused", e.paint(color, counted(r.Refused, "request")),
		percent(r.Refused, r.Requests), counted(r.RefusedCallers, "caller"), percent(r.RefusedCallers, r.Callers))
	if r.Waited > 0 {
		fmt.Fprintf(e.out, ", and %s would wait", count(r.Waited))
	}
	fmt.Fprint(e.out, "\n\n")

	// The policies in the order in which they are asked.
	t := table{head: []string{"policy", "limit", "#requests", "#callers", "#over", "#refused", "#callers over",
		"first", "last"}}
	for _, p := range r.Policies {
		name := p.Policy
		if p.Mode != policy.Enforce.String() {
			name += " (" + p.Mode + ")"
		}
		t.add(name, p.Limit, count(p.Requests), count(p.Callers), count(p.Over), count(p.Refused), count(p.Touched),
			when(p.First), when(p.Last))
	}
	if len(t.rows) > 0 {
		t.print(e)
	}
	printLeftOut(e, "policies", r.LeftOut)
	for _, p := range r.Policies {
		if p.CostNeeds != "" {
			fmt.Fprintf(e.out, "%s: a request costs the default or the estimate of %s, as the logs have not %s\n",
				e.paint(yellow, "estimated"), p.Policy, safe(p.CostNeeds))
		}
	}

	if r.Refused > 0 {
		fmt.Fprintf(e.out, "\nrefusals over time, %s each\n  %s\n", r.Refusals.Step,
			drawing.Line(floats(r.Refusals.Counts)))
	}
	printTop(e, r.Top)
	printComparison(e, r.Against, f)
}

func printLeftOut(e *env, what string, list []replay.LeftOut) {
	for _, l := range list {
		fmt.Fprintf(e.out, "%s of the %s: %s needs %s, which the logs have not\n", e.paint(yellow, "left out"), what,
			l.Policy, safe(l.Needs))
	}
}

// printTop prints the callers that were over a limit most often.
func printTop(e *env, list []replay.Touched) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(e.out, "\nthe callers that are over a limit most often")
	t := table{head: []string{"policy", "caller", "#times"}}
	for _, x := range list {
		t.add(x.Policy, safe(textform.Clip(x.Key)), count(x.Times))
	}
	t.print(e)
}

// printComparison prints what changes for the requests.
func printComparison(e *env, c *replay.Comparison, f *planFlags) {
	if c == nil {
		return
	}
	fmt.Fprintf(e.out, "\nagainst %s, which would refuse %s\n", safe(f.against), counted(c.Refused, "request"))
	for _, change := range []struct {
		what              string
		requests, callers int64
	}{{"allow -> deny", c.AllowToDeny, c.DeniedCallers}, {"deny -> allow", c.DenyToAllow, c.LetInCallers}} {
		fmt.Fprintf(e.out, "  %s  %s of %s\n", change.what, counted(change.requests, "request"),
			counted(change.callers, "caller"))
	}
	printLeftOut(e, "policies in force", c.LeftOut)
}

func floats(counts []int64) []float64 {
	list := make([]float64, len(counts))
	for i, n := range counts {
		list[i] = float64(n)
	}
	return list
}
