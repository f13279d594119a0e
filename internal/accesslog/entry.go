// Package accesslog reads the access logs of servers and proxies: combined, as nginx and Apache
// write it, JSON of nginx, Caddy and Traefik, Envoy's default format, and that of AWS's
// application load balancers.
//
//	r, err := accesslog.New("access.log", file, accesslog.Options{})
//	if err != nil {
//		return err
//	}
//	for {
//		e, err := r.Next()
//		if err != nil {
//			return err // io.EOF at the end
//		}
//		count(e.Address, e.At)
//	}
//
// A [Reader] reads one file, and [Merge] several by their times. A line that cannot be read is
// counted and left out. The memory is bounded, however long the log and its lines are.
package accesslog

import (
	"strings"
	"unsafe"
)

// Entry is one request of a log. Its texts point into memory that the reader uses again: they are
// valid until the next call of Next.
type Entry struct {
	// At is the time that the line names, in microseconds since the Unix epoch. Where lines are
	// further out of order than the reader sorts, it is raised to that of the entry before.
	At int64

	// Began reports whether At is the instant at which the request began, and not that of its line,
	// which some servers write when the request ends.
	Began bool

	Address   string // the peer, with or without a port; "" if the line has none
	Forwarded string // X-Forwarded-For
	User      string
	Method    string
	Target    string // as it was sent, with its query
	Host      string
	Agent     string
	Referer   string
	Status    int

	line []byte // the memory of all texts
}

// Fields is a set of what a log has.
type Fields uint16

// What a log may have.
const (
	HasAddress Fields = 1 << iota
	HasForwarded
	HasUser
	HasHost
	HasAgent
	HasReferer
	HasQuery
	HasFractions // of seconds
	HasBeginnings
)

// fields returns what the entry has.
func (e *Entry) fields() (f Fields) {
	for _, x := range []struct {
		text string
		is   Fields
	}{{e.Address, HasAddress}, {e.Forwarded, HasForwarded}, {e.User, HasUser}, {e.Host, HasHost},
		{e.Agent, HasAgent}, {e.Referer, HasReferer}} {
		if x.text != "" {
			f |= x.is
		}
	}
	if strings.Contains(e.Target, "?") {
		f |= HasQuery
	}
	if e.At%1e6 != 0 {
		f |= HasFractions
	}
	if e.Began {
		f |= HasBeginnings
	}

	return f
}

// CopyTo returns a copy of the entry whose texts are in memory that is appended to text. They stay
// valid until that memory is used for others.
func (e *Entry) CopyTo(text *[]byte) Entry {
	from := len(*text)
	*text = append(*text, e.line...)
	c := *e
	c.line = (*text)[from:len(*text):len(*text)]

	for _, s := range [...]*string{&c.Address, &c.Forwarded, &c.User, &c.Method, &c.Target, &c.Host, &c.Agent,
		&c.Referer} {
		*s = moved(*s, e.line, c.line)
	}
	return c
}

// moved returns the text at the place in the copy that it has in the line. A text that is not of
// the line stays where it is.
func moved(text string, line, copied []byte) string {
	if text == "" || len(line) == 0 {
		return text
	}
	at := uintptr(unsafe.Pointer(unsafe.StringData(text))) - uintptr(unsafe.Pointer(&line[0]))
	if at >= uintptr(len(line)) {
		return text
	}
	return textOf(copied[at : at+uintptr(len(text))])
}

// reset empties the entry but for its memory.
func (e *Entry) reset() { *e = Entry{line: e.line[:0]} }

// textOf returns bytes of the entry's line as a text without a copy.
func textOf(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// known is textOf for a field in which "-" stands for nothing.
func known(b []byte) string {
	if len(b) == 1 && b[0] == '-' {
		return ""
	}
	return textOf(b)
}

// setRequest reads a request line, such as GET /path HTTP/1.1. It reports whether it is one.
func (e *Entry) setRequest(b []byte) bool {
	method, rest, ok := cutByte(b, ' ')
	if !ok || !isMethod(method) {
		return false
	}

	// HTTP/0.9 has no protocol, and a target may have a space in it.
	end := len(rest)
	for i := len(rest) - 1; i >= 0; i-- {
		if rest[i] == ' ' {
			if i+5 <= len(rest) && string(rest[i+1:i+5]) == "HTTP" {
				end = i
			}
			break
		}
	}

	e.Method = textOf(method)
	return e.setTarget(rest[:end])
}

// setTarget reads the target of a request, of which a whole URL names the host too.
func (e *Entry) setTarget(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	if b[0] != '/' {
		// The host ends where the path begins, or the query of an empty path.
		if i := indexOf(b, "://"); i > 0 {
			rest := b[i+3:]
			end := 0
			for end < len(rest) && rest[end] != '/' && rest[end] != '?' {
				end++
			}
			e.Host = textOf(rest[:end])
			if b = rest[end:]; len(b) == 0 {
				e.Target = "/"
				return true
			}
		}
	}

	e.Target = textOf(b)
	return true
}

// isMethod reports whether the bytes are a method in upper case, or one of a client that invents
// its own.
func isMethod(b []byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 32
}
