// Headgate checks limits and policies, says what they would do before they are in force, and looks
// after a running system.
//
//	headgate check limits.yaml              every mistake, and what can never match
//	headgate explain "100/1m burst=20"      a limit in words, as a table and as a drawing
//	headgate fmt -w limits.yaml             policies in one form
//	headgate plan -policies limits.yaml access.log
//	headgate suggest -touch 0.1% access.log
//	headgate top                            who is refused now, by a Redis
//	headgate keys peek -policy api alice    what is left for a key
//	headgate doctor                         whether a Redis suits
//	headgate bench                          whether it is fast enough
//
// See help, and help with the name of a command.
package main

import (
	"os"
	_ "time/tzdata" // for calendars, on a machine without time zones
)

func main() {
	e := &env{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	e.screen, e.color = isScreen(os.Stdout), mayColor(os.Stdout)
	e.progress = isTerminal(os.Stderr)
	os.Exit(run(e, os.Args[1:]))
}

// isScreen reports whether what is written to the file may be drawn anew.
func isScreen(f *os.File) bool { return isTerminal(f) && os.Getenv("TERM") != "dumb" }

// mayColor reports whether what is written to the file may be coloured.
func mayColor(f *os.File) bool { return isScreen(f) && os.Getenv("NO_COLOR") == "" }

// isTerminal reports whether the file is a terminal, or another device of characters than the
// one that takes everything.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
