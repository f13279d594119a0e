package keyfuncs

import "strings"

// notation is how a list of addresses is written.
type notation struct {
	// lastEntry takes the last entry off a line; more reports whether others precede
	// it.
	lastEntry func(line string) (before, entry string, more bool)
	// parse reads an entry.
	parse func(entry string) (address, bool)
}

// xForwardedFor is the customary list: "192.0.2.1, 2001:db8::1".
var xForwardedFor = notation{lastEntry: cutLast, parse: parseAddress}

// cutLast cuts at the last comma.
func cutLast(line string) (before, entry string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", line, false
	}
	return line[:i], line[i+1:], true
}

// trail reads the entries of all lines of a header, the last one first. It
// reads no more of the text than it needs: text to the left of an entry cannot
// change that entry.
type trail struct {
	lines []string // those of which nothing has been read
	line  string   // what has not been read of the line after them
	more  bool     // line has at least one entry, which may be empty
}

// previous returns the entry before the one that it returned last. ok is false
// at the end and for an entry that is not an address.
func (t *trail) previous(n *notation) (a address, ok bool) {
	if !t.more {
		last := len(t.lines) - 1
		if last < 0 {
			return address{}, false
		}
		t.line, t.lines = t.lines[last], t.lines[:last]
	}
	var entry string
	t.line, entry, t.more = n.lastEntry(t.line)
	return n.parse(trimSpace(entry))
}

// trimSpace removes HTTP's optional whitespace.
func trimSpace(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
