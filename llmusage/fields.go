package llmusage

import "bytes"

// fieldReader reads the fields of an object, which is valid JSON. It has none if the
// text is no object.
type fieldReader struct {
	text []byte
	next int           // the index of the next field, or of what stands before it
	room [maxName]byte // of a name that has escapes
}

// fieldsOf returns a reader of the fields of a text of valid JSON.
func fieldsOf(text []byte) fieldReader {
	if i := skipSpace(text, 0); i < len(text) && text[i] == '{' {
		return fieldReader{text: text, next: i + 1}
	}
	return fieldReader{}
}

// field returns the name and the value of the next field, or false at the end. A name that is
// longer than those that requests have, or has other escapes than of letters, may be empty. The
// name is valid until the next call.
func (f *fieldReader) field() (name, value []byte, ok bool) {
	i := skipSpace(f.text, f.next)
	if i < len(f.text) && f.text[i] == ',' {
		i = skipSpace(f.text, i+1)
	}
	if i >= len(f.text) || f.text[i] == '}' {
		return nil, nil, false
	}

	// Behind the name come a colon and the value.
	end := skipString(f.text, i)

	from := skipSpace(f.text, skipSpace(f.text, end)+1)
	f.next = skipValue(f.text, from)
	return plainName(f.text[i+1:end-1], f.room[:0]), f.text[from:f.next], true
}

// skipSpace returns the index of the first byte from i on that is no space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that begins at i.
func skipString(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++ // what is escaped may be a quote
		}
	}
	return i + 1
}

// skipValue returns the index behind the value that begins at i.
func skipValue(text []byte, i int) int {
	open := 0

	for i < len(text) {
		switch text[i] {
		case '"':
			i = skipString(text, i)
		case '{', '[':
			open++
			i++
		case '}', ']':
			open--
			i++
		default:
			// Within brackets all else is a part of the value, and outside it ends at what follows.
			for i++; i < len(text) && !endsScalar(text[i], open); i++ {
			}
		}
		if open == 0 {
			return i
		}
	}
	return i
}

// endsScalar reports whether a byte is none of a number, null or a boolean, or none of what stands
// between strings and brackets.
func endsScalar(c byte, open int) bool {
	switch c {
	case '"', '{', '[', '}', ']':
		return true
	case ',', ' ', '\n', '\t', '\r':
		return open == 0
	}
	return false
}

// maxName is one more than the length of the longest name of a field that is read.
const maxName = 24

// plainName returns the name in a string without its quotes, in room if it has escapes.
func plainName(quoted, room []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted
	}

	for i := 0; i < len(quoted); i++ {
		c := quoted[i]
		if c == '\\' {

			// The names that are read have letters and _ alone, so they have no other escapes.
			if i+5 >= len(quoted) || quoted[i+1] != 'u' || quoted[i+2] != '0' || quoted[i+3] != '0' {
				return nil
			}
			c = unhex(quoted[i+4])<<4 | unhex(quoted[i+5])
			i += 5
		}

		if len(room) == maxName {
			return nil
		}
		room = append(room, c)
	}
	return room
}

// unhex returns the value of a hexadecimal digit.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
