package apply

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/policy"
)

// The exit codes, as diff(1) has them.
const (
	same   = 0
	differ = 1 // of diff only
	failed = 2
)

// maxAttempts bounds how often an import begins anew because other policies than those of
// the files were changed meanwhile.
const maxAttempts = 10

// Main runs a command, whose name is the first argument, and returns the exit code of the
// program. It writes what the command finds to out, and errors to bad.
func Main(ctx context.Context, args []string, env func(string) string, out, bad io.Writer) int {
	o, err := parse(args, env, bad)
	if errors.Is(err, flag.ErrHelp) {
		return same
	}

	code := failed
	// The time limit begins after the command line, which names it.
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		code, err = o.run(ctx, out, bad)
	}

	// An error may have a line of each mistake, and texts of the console, which are not trusted.
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(bad, "%s: %s\n", args[0], printable(strings.TrimSuffix(line, "\n")))
		}
		return failed
	}

	return code
}

func (o *options) run(ctx context.Context, out, bad io.Writer) (int, error) {
	// What was left out is said before any mistake: it may be the reason of one.
	r, err := read(o.paths)
	for _, name := range r.skipped {
		fmt.Fprintf(bad, "%s: %s is not read: policies are kept in .yaml or .yml files\n", o.command, printable(name))
	}

	if err != nil {
		return failed, err
	}

	if err := o.choose(r); err != nil {
		return failed, err
	}

	c := newConsole(o)
	defer c.close()
	w := &worker{options: o, reader: r, console: c, out: out}
	if o.command == diff {
		return w.diff(ctx)
	}
	return same, w.apply(ctx)
}

// choose leaves the policies that the command is about, without what is not theirs but the
// console's.
func (o *options) choose(r *reader) error {
	r.set = slices.DeleteFunc(r.set, func(p policy.Policy) bool {
		meant := func(app string) bool { return slices.Contains(o.apps, app) }
		if o.apps == nil || slices.ContainsFunc(p.Apps, meant) {
			return false
		}
		delete(r.overrides, p.Name)
		return true
	})
	if len(r.set) == 0 && o.apps != nil && r.overrides == nil {
		return fmt.Errorf("no policy in the files is of %s", strings.Join(o.apps, " or "))
	}
	if len(r.set) == 0 && o.prune {
		return errors.New("there is no policy in the files, and -prune would delete all")
	}

	// The files may be an export: then they have versions and authors, which would be taken for
	// those that a change is based on.
	for i := range r.set {
		p := &r.set[i]
		p.Version = 0
		p.CreatedBy, p.UpdatedBy = "", ""
		p.CreatedAt, p.UpdatedAt = time.Time{}, time.Time{}
	}
	return nil
}

// worker carries out a command.
type worker struct {
	*options
	reader  *reader
	console *console
	out     io.Writer
}

// query returns the parameters that a plan and its import have in common.
func (w *worker) query() url.Values {
	q := url.Values{}
	// Without -app the applications are those of the files, so that policies of others are never
	// deleted.
	if w.prune {
		apps := w.apps
		if apps == nil {
			apps = appsOf(w.reader.set)
		}

		// Files without any application have nothing that could be missing.
		if len(apps) > 0 {
			q.Set("missing", "remove")
			q.Set("apps", strings.Join(apps, ","))
		}
	}

	if w.comment != "" {
		q.Set("comment", w.comment)
	}
	return q
}

// plan asks the console what an import would do.
func (w *worker) plan(ctx context.Context) (*plan, error) {
	// Files of overrides alone say nothing of the policies.
	if len(w.reader.set) == 0 && w.reader.overrides != nil {
		return &plan{}, nil
	}

	q := w.query()
	if w.command == diff {
		q.Set("compare", "yes") // to see is enough
	}
	p, err := w.console.post(ctx, w.reader.set, q, "api", "import", "plan")
	return p, placed(err, w.placeOf)
}

// diff writes how the console differs from the files, and returns the exit code.
func (w *worker) diff(ctx context.Context) (int, error) {
	p, err := w.plan(ctx)
	if err != nil {
		return failed, err
	}
	over, err := w.overridesBefore(ctx, p)
	if err != nil {
		return failed, err
	}

	printed := &printer{w: w.out}
	for i := range p.Steps {
		printed.difference(&p.Steps[i])
	}
	printed.overrides(over)

	if printed.err != nil {
		return failed, printed.err
	}
	if p.changesAnything() || over.changesAnything() {
		return differ, nil
	}
	return same, nil
}

// apply writes the policies of the files to the console, unless it is a dry run.
func (w *worker) apply(ctx context.Context) error {
	p, err := w.plan(ctx)
	if err != nil {
		return err
	}
	over, err := w.overridesBefore(ctx, p)
	if err != nil {
		return err
	}

	printed := &printer{w: w.out}
	if w.reader.overrides == nil || len(w.reader.set) > 0 {
		printed.summary(p)
	}
	printed.overrides(over)

	// Nothing is changed if the output is broken: what is done has to be seen.
	if printed.err != nil {
		return printed.err
	}

	if p.changesAnything() && !w.dryRun {
		if err := w.carryOut(ctx, p); err != nil {
			return err
		}
	}

	for i := range p.Steps {
		printed.result(&p.Steps[i], w.dryRun)
	}
	for _, name := range p.LeftAlone {
		printed.writeLine("%-9s  %s, which is of other applications too", "left", name)
	}

	if err := w.carryOutOverrides(ctx, over, printed); err != nil {
		return err
	}

	if !p.changesAnything() && !over.changesAnything() {
		printed.writeLine("Nothing to change.")
	}
	return printed.err
}

var errConflict = errors.New(
	"the policies were changed in the console since the plan was made: nothing was written; run it again")

// carryOut makes the changes of a plan. If the policies were changed since, it goes on only
// if the plan from the new versions is the same: a change of other policies does no harm.
func (w *worker) carryOut(ctx context.Context, p *plan) error {
	// A change of other policies moves the set too, so the plan is made again and compared with
	// the one that was shown.
	for range maxAttempts {
		q := w.query()
		q.Set("base", strconv.FormatInt(p.Base, 10))
		_, err := w.console.post(ctx, w.reader.set, q, "api", "import")
		if !isMoved(err) {
			return w.withUnknownOutcome(placed(err, w.placeOf), "policies", "policy")
		}

		again, err := w.plan(ctx)
		if err != nil {
			return err
		}

		if !again.isSame(p) {
			return errConflict
		}
		p = again
	}
	return errConflict
}

// withUnknownOutcome adds to the error of an import without an answer what it means.
func (w *worker) withUnknownOutcome(err error, all, one string) error {
	var answered *problem
	if err == nil || errors.As(err, &answered) && answered.Status < 500 {
		return err
	}
	return fmt.Errorf("%w\nthe console has written either all %s or none; "+
		"%s changes no %s twice, so run it again", err, all, w.command, one)
}

// placeOf returns the file and the line of a field of a policy, or "".
func (w *worker) placeOf(policy, field string) string {
	if s, ok := w.reader.sources[policy]; ok {
		return s.placeOf(field)
	}
	return ""
}

// placed names the place of each mistake that the console has found, where it has one.
func placed(err error, placeOf func(policy, field string) string) error {
	var p *problem
	if !errors.As(err, &p) || len(p.Errors) == 0 {
		return err
	}

	lines := []error{p}
	for _, f := range p.Errors {
		text := f.Message
		if f.Field != "" {
			text = f.Field + ": " + text
		}
		if f.Policy != "" {
			text = fmt.Sprintf("policy %q: %s", f.Policy, text)
		}
		if at := placeOf(f.Policy, f.Field); at != "" {
			text = at + ": " + text
		}
		lines = append(lines, errors.New(text))
	}

	return errors.Join(lines...)
}
