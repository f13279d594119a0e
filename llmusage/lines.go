package llmusage

import "bytes"

// lines splits server-sent events into lines and hands the data of each event to a
// scanner. A line ends with LF, CR or both. Source: HTML Living Standard, 9.2.6. The
// scanner does not get the ends of lines, because no string or number of
// JSON goes on in the next line.
type lines struct {
	in   linePart
	name int  // how many bytes of the field's name match that of data
	cr   bool // the last byte was a CR, so an LF belongs to it
}

// linePart is the part of a line that the next byte belongs to.
type linePart uint8

const (
	name    linePart = iota // the name of the field
	value                   // the value of the field data
	skipped                 // a comment, or another field
)

const dataField = "data"

// split reads the next bytes of a stream.
func (l *lines) split(p []byte, s *scanner) {
	for len(p) > 0 {
		// After a CR the LF is part of the same end, also if it comes in the next piece.
		if l.cr && p[0] == '\n' {
			p = p[1:]
		}

		l.cr = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			l.readLine(p, s)
			return
		}

		l.readLine(p[:end], s)
		l.endLine(s)
		l.cr = p[end] == '\r'
		p = p[end+1:]
	}
}

// readLine reads the next bytes of a line.
func (l *lines) readLine(p []byte, s *scanner) {
	for i, c := range p {
		switch {
		case l.in == name && c == ':' && l.name == len(dataField):
			l.in = value
		case l.in == name && l.name < len(dataField) && c == dataField[l.name]:
			l.name++

		// The name is another than data, or the line a comment: nothing of it matters.
		case l.in == name:
			l.in = skipped
			return
		case l.in == skipped:
			return
		default:
			s.scan(p[i:])
			return
		}
	}
}

// endLine ends a line. An empty line ends the event.
func (l *lines) endLine(s *scanner) {
	if l.in == name && l.name == 0 {
		s.reset()
	}
	l.in, l.name = name, 0
}
