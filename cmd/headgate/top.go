// This file shows who is refused now, by what the instances report to Redis.

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
)

var topCommand = command{
	name: "top", args: "",
	does: "shows what policies refuse now, and the keys that are refused most",
	examples: []string{
		"headgate top -redis redis://127.0.0.1:6379",
		"headgate top -app shop -policy api",
		"headgate top -once -json | jq '.apps[].policies'",
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		t := topFlags{every: time.Second}
		t.define(f)
		f.StringVar(&t.app, "app", "", "the `name` of an application; without it, all that policies name")
		f.StringVar(&t.policy, "policy", "", "the `name` of a policy, to show nothing else")
		f.BoolVar(&t.once, "once", false, "print one table, as without a terminal and with -json")
		f.IntVar(&t.rows, "rows", 10, "how many policies and keys of an application are shown at most")
		return func(e *env, args []string) int { return showTop(e, args, &t) }
	},
}

type topFlags struct {
	redisFlags
	app, policy string
	once        bool
	rows        int
	every       time.Duration // between two tables
}

func showTop(e *env, args []string, f *topFlags) int {
	switch {
	case len(args) > 0:
		return e.fail("top: %q is no flag, and there is no operand", safe(textform.Clip(args[0])))
	case f.rows < 1 || f.rows > 1000:
		return e.fail("top: -rows: %d is not within 1 to 1000", f.rows)
	}

	ctx, end := e.context()
	defer end()
	client, err := f.connect(ctx)
	if err != nil {
		return e.failed("top", err)
	}
	defer client.Close()

	// The first table finds mistakes in the names too.
	w, err := f.watch(ctx, client)
	if err != nil {
		return e.failed("top", err)
	}
	first, err := w.look(ctx)
	if err == nil {
		err = w.checkPolicy(first)
	}
	switch {
	case err != nil:
		return e.failed("top", err)
	case f.json:
		return e.printJSON(first)
	case f.once || !e.screen:
		first.print(e, f.rows)
		return fine
	}
	return w.live(ctx, e, first)
}

// watch is what top looks at.
type watch struct {
	flags   *topFlags
	client  redis.UniversalClient
	known   []string // the names of policies that are published
	courses []*course
}

// watch finds the applications.
func (t *topFlags) watch(ctx context.Context, client redis.UniversalClient) (*watch, error) {
	set, err := published(ctx, client, t.prefix)
	if err != nil && !errors.Is(err, policy.ErrMissing) {
		return nil, err
	}

	apps := appsOf(set)
	switch {
	case t.app == "" && len(apps) == 0:
		return nil, fmt.Errorf("no policies are published in Redis under the prefix %q: "+
			"name the application of a service that has its own by -app", t.prefix)
	case t.app != "" && !slices.Contains(apps, t.app):
		// A service may have its policies from a file.
		if reported, err := reports(ctx, client, t.prefix, t.app); err != nil || !reported {
			return nil, errors.Join(err, fmt.Errorf("no policy names the application %q, and no instance of it has "+
				"reported for a day; the applications are: %s", textform.Clip(t.app), among(apps)))
		}
	}

	w := &watch{flags: t, client: client}
	if t.app != "" {
		apps = []string{t.app}
	}
	for _, app := range apps {
		w.courses = append(w.courses, &course{app: app})
	}
	for i := range set {
		w.known = append(w.known, set[i].Name)
	}
	return w, nil
}

// shownTable is what top shows.
type shownTable struct {
	At   time.Time   `json:"at"` // by the server's clock
	Apps []appCounts `json:"apps"`
}

// look reads what the instances have reported by now.
func (w *watch) look(ctx context.Context) (*shownTable, error) {
	t := &shownTable{Apps: []appCounts{}}
	for _, c := range w.courses {
		if err := c.read(ctx, w.client, w.flags.prefix); err != nil {
			return nil, explained(err)
		}
		t.Apps = append(t.Apps, c.counts(w.flags.policy))
		t.At = c.now
	}
	return t, nil
}

// checkPolicy returns an error if neither a policy nor a report has the name of -policy.
func (w *watch) checkPolicy(t *shownTable) error {
	names := map[string]bool{}
	for _, name := range w.known {
		names[name] = true
	}
	for _, a := range t.Apps {
		for _, name := range a.names {
			names[name] = true
		}
	}

	if w.flags.policy == "" || names[w.flags.policy] {
		return nil
	}
	return fmt.Errorf("there is no policy %q; the policies are: %s", textform.Clip(w.flags.policy),
		among(slices.Sorted(maps.Keys(names))))
}

// The sequences with which a table is drawn anew on a screen of its own.
const (
	openScreen  = "\x1b[?1049h\x1b[?25l"
	closeScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K\n"
	clearBelow  = "\x1b[J"
)

// live draws tables until ctx ends, and leaves the last.
func (w *watch) live(ctx context.Context, e *env, t *shownTable) int {
	tick := time.NewTicker(w.flags.every)
	defer tick.Stop()

	fmt.Fprint(e.out, openScreen)
	trouble := ""
	for ctx.Err() == nil {
		var b bytes.Buffer
		drawn := *e
		drawn.out = &b
		fmt.Fprint(&b, trouble)
		t.print(&drawn, w.flags.rows)
		fmt.Fprint(e.out, home+strings.ReplaceAll(b.String(), "\n", clearLine)+clearBelow)

		select {
		case <-ctx.Done():
		case <-tick.C:
		}

		// A Redis that is away for a while ends nothing.
		next, err := w.look(ctx)
		if trouble = ""; err == nil {
			t = next
		} else {
			trouble = e.paint(red, "Redis: "+safe(textform.Line(err))) + "\n\n"
		}
	}

	fmt.Fprint(e.out, closeScreen)
	t.print(e, w.flags.rows)
	return fine
}

// print prints the table.
func (s *shownTable) print(e *env, rows int) {
	for i := range s.Apps {
		if i > 0 {
			fmt.Fprintln(e.out)
		}
		s.Apps[i].print(e, rows)
	}
}

func (a *appCounts) print(e *env, rows int) {
	if a.Reported == nil {
		fmt.Fprintf(e.out, "%s: no instance has reported a request in this minute and the one before\n", safe(a.App))
		return
	}

	// Counts are those of whole minutes, until two looks have shown what came in between.
	over := textform.Duration(a.span.Round(time.Second))
	if a.whole {
		over += ", this minute and the one before"
	}
	fmt.Fprintf(e.out, "%s: %s requests/s, %s refused/s (%s), over %s\n", safe(a.App), rate(a.Requests, a.span),
		e.paint(red, rate(a.Refused, a.span)), percent(a.Refused, a.Requests), over)
	fmt.Fprintf(e.out, "instances report once a second; the last report came %s before\n",
		textform.Duration(a.late.Round(100*time.Millisecond)))
	if a.Lost > 0 {
		fmt.Fprintf(e.out, "%s more came while Redis was away, of which nothing else is known\n",
			counted(a.Lost, "request"))
	}

	policies := table{head: []string{"policy", "#requests/s", "#refused/s", "#share"}}
	for _, p := range a.Policies[:min(rows, len(a.Policies))] {
		policies.add(safe(cmp.Or(p.Policy, "(others)")), rate(p.Requests, a.span), rate(p.Refused, a.span),
			percent(p.Refused, p.Requests))
	}
	fmt.Fprintln(e.out)
	policies.print(e)
	if more := len(a.Policies) - rows; more > 0 {
		fmt.Fprintf(e.out, "  and %s\n", plural(int64(more), "policy more", "policies more"))
	}
	a.printKeys(e, rows)
}

func (a *appCounts) printKeys(e *env, rows int) {
	var all []keyCount
	for _, r := range a.Keys {
		for _, k := range r.Refused.Keys {
			all = append(all, keyCount{r.Policy, k})
		}
	}
	slices.SortStableFunc(all, func(x, y keyCount) int { return cmp.Compare(y.Least(), x.Least()) })

	switch {
	case a.Instances == 0:
		fmt.Fprintln(e.out, "\nno instance publishes keys: see Top in docs/seeing.md, and -top-keys of the gateway")
		return
	case len(all) == 0:
		fmt.Fprintf(e.out, "\nno key was refused, by the lists of %s\n", counted(int64(a.Instances), "instance"))
		return
	}

	// The key stands last, because its width on the screen is the client's choice.
	keys := table{head: []string{"policy", "#refused", "since (UTC)", "key"}}
	for _, k := range all[:min(rows, len(all))] {
		times := count(k.Least())
		if k.Error > 0 {
			times += "+"
		}
		keys.add(safe(k.policy), times, k.Since.UTC().Format("15:04:05"), shown(k.Key.Key))
	}
	fmt.Fprintf(e.out, "\nthe keys refused most, in %s up to %s ago, by the lists of %s\n",
		textform.Duration(a.keySpan.Round(time.Second)), textform.Duration(a.keyLate.Round(time.Second)),
		counted(int64(a.Instances), "instance"))
	keys.print(e)
}

// keyCount is a key that a policy has refused.
type keyCount struct {
	policy string
	topkeys.Key
}

// rate writes how many there were in a second.
func rate(n int64, span time.Duration) string {
	v := float64(n) / max(span.Seconds(), 0.001)
	switch {
	case v >= 100:
		return count(int64(v + 0.5))
	case n > 0 && v < 0.01:
		return "<0.01"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
