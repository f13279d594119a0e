package llmusage

import "bytes"

// lines splits server-sent events into lines and hands the data of each event to a
// scanner. A line ends with LF, CR or both. Source: HTML Living Standard, 9.2.6. The
// scanner does not get the ends of lines, because no string or number of
// JSON goes on in the next line.
type lines struct {
	part part
	name int  // how many bytes of the field's name match that of data
	cr   bool // the last byte was a CR, so an LF belongs to it
}

// part is the part of a line that the next byte belongs to.
type part uint8

const (
	name   part = iota // the name of the field
	value              // the value of the field data
	passed             // a comment, or another field
)

const dataField = "data"

// split reads the next bytes of a stream.
func (l *lines) split(p []byte, s *scanner) {
	for len(p) > 0 {
		if l.cr && p[0] == '\n' {
			p = p[1:]
		}
		l.cr = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			l.read(p, s)
			return
		}
		l.read(p[:end], s)
		l.end(s)
		l.cr = p[end] == '\r'
		p = p[end+1:]
	}
}

// read reads the next bytes of a line.
func (l *lines) read(p []byte, s *scanner) {
	for i, c := range p {
		switch {
		case l.part == name && c == ':' && l.name == len(dataField):
			l.part = value
		case l.part == name && l.name < len(dataField) && c == dataField[l.name]:
			l.name++
		case l.part == name:
			l.part = passed
			return
		case l.part == passed:
			return
		default:
			s.scan(p[i:])
			return
		}
	}
}

// end ends a line. An empty line ends the event.
func (l *lines) end(s *scanner) {
	if l.part == name && l.name == 0 {
		s.reset()
	}
	l.part, l.name = name, 0
}
