package core

// Finding is a likely mistake in how a limiter is set up. Package observe/findings lists the
// codes.
type Finding struct {
	Code string
	Rule string // the rule's name, or "" if it is about no single rule
	Text string // one line, written by the program and never by a client
}
