package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The exit codes.
const (
	fine     = 0
	findings = 1 // mistakes, doubts, or differences were found
	usage    = 2 // the command was called with a mistake, or a file or Redis cannot be read
	tooMany  = 3 // more requests would be refused than -fail-if-denied allows
)

// env is what a command has to do with the world.
type env struct {
	in       io.Reader
	out, err io.Writer
	color    bool // out may be coloured
	screen   bool // out is a terminal, on which a table may be drawn anew
	progress bool // err may show the progress

	ctx context.Context // ends what a command does; nil means never
}

// command is one of the commands.
type command struct {
	name, args, does string
	examples         []string
	words            []string // that an operand may be, for shells

	// setup defines the flags, and returns what carries the command out.
	setup func(f *flag.FlagSet) func(e *env, args []string) int
}

// commands returns all commands in the order of the help.
func commands() []command {
	return []command{
		checkCommand, explainCommand, fmtCommand, planCommand, suggestCommand,
		topCommand, keysCommand, doctorCommand, benchCommand,
		completionCommand,
	}
}

func named(name string) (command, bool) {
	list := commands()
	i := slices.IndexFunc(list, func(c command) bool { return c.name == name })
	if i < 0 {
		return command{}, false
	}
	return list[i], true
}

// run carries out the command that the arguments name, and returns the exit code. Output that
// cannot be written is a failure, whatever the command has found.
func run(to *env, args []string) int {
	out := &keeper{w: to.out}
	e := *to
	e.out = out

	code := e.run(args)
	if out.err != nil {
		return max(code, e.fail("the output cannot be written: %s", safe(out.err.Error())))
	}
	return code
}

// keeper is a writer that keeps its first error, and writes nothing after it.
type keeper struct {
	w   io.Writer
	err error
}

func (k *keeper) Write(b []byte) (n int, err error) {
	if k.err != nil {
		return 0, k.err
	}
	n, k.err = k.w.Write(b)
	return n, k.err
}

func (e *env) run(args []string) int {
	if len(args) == 0 {
		printHelp(e.err)
		return usage
	}

	// help and -h ask for the help, which is an answer and no mistake.
	name, rest := args[0], args[1:]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		if len(rest) == 0 {
			printHelp(e.out)
			return fine
		}
		name, rest = rest[0], []string{"-h"}
	}

	c, ok := named(name)
	if !ok {
		return e.fail("there is no command %q; headgate help lists them", safe(name))
	}

	// The flags of a command print their mistakes here, in one line.
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	do := c.setup(f)
	operands, err := parseFlags(f, rest)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.printHelp(e.out, f)
		return fine
	case err != nil:
		return e.fail("%s: %s; see headgate help %s", c.name, safe(err.Error()), c.name)
	}
	return do(e, operands)
}

// parseFlags reads flags, which may also stand behind the operands, and returns the operands.
func parseFlags(f *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}

		// The flags end at an operand, or for good behind "--".
		rest := f.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			return append(operands, rest...), nil
		}
		if len(rest) == 0 {
			return operands, nil
		}
		operands, args = append(operands, rest[0]), rest[1:]
	}
}

// fail reports a mistake in the call, and returns its exit code.
func (e *env) fail(format string, args ...any) int {
	fmt.Fprintf(e.err, "headgate: "+format+"\n", args...)
	return usage
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, "headgate checks limits and policies, says what they would do, and looks after a running system.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  headgate %-10s %s\n", c.name, c.does)
	}
	fmt.Fprint(w, "\nheadgate help COMMAND has the flags of a command, and examples.\n")
}

// printHelp prints the help of the command, whose flags are f.
func (c *command) printHelp(w io.Writer, f *flag.FlagSet) {
	fmt.Fprintf(w, "headgate %s: %s\n\n  headgate %s [flags] %s\n\nFlags:\n", c.name, c.does, c.name, c.args)
	f.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)

		if f.DefValue != "" && f.DefValue != "false" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %-22s %s\n", strings.TrimSpace("-"+f.Name+" "+value), text)
	})

	fmt.Fprint(w, "\nExamples:\n")
	for _, x := range c.examples {
		fmt.Fprintf(w, "  %s\n", x)
	}
	fmt.Fprint(w, "\nExit codes: 0 fine, 1 findings, 2 a mistake in the call, or a file, Redis or output that fails")
	if f.Lookup("fail-if-denied") != nil {
		fmt.Fprint(w, ",\n3 more is refused than -fail-if-denied allows")
	}
	fmt.Fprint(w, ".\n")
}
