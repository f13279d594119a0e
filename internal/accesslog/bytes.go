package accesslog

import "bytes"

// cutByte returns what stands before and behind the first c.
func cutByte(b []byte, c byte) (before, after []byte, ok bool) {
	i := bytes.IndexByte(b, c)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

func indexOf(b []byte, text string) int {
	for i := 0; i+len(text) <= len(b); i++ {
		if string(b[i:i+len(text)]) == text {
			return i
		}
	}
	return -1
}

// quoted reads a text in quotes at the beginning of b, which may have spaces before it, and returns
// what is behind it. Escapes of nginx, Apache and Envoy are replaced in their place.
func quoted(b []byte) (text, rest []byte, ok bool) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}

	// Nearly all texts have no escape before their end.
	b = b[1:]
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return nil, b, false
	}
	if bytes.IndexByte(b[:end], '\\') < 0 {
		return b[:end], b[end+1:], true
	}

	// What follows a backslash ends no text.
	for end = 0; end < len(b) && b[end] != '"'; end++ {
		if b[end] == '\\' {
			end++
		}
	}
	if end >= len(b) {
		return nil, b, false
	}

	return unescape(b[:end]), b[end+1:], true
}

// unescape replaces the escapes of a text in its place, where all are as long or longer than what
// they stand for.
func unescape(b []byte) []byte {
	n := 0
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' && i+1 < len(b) {
			// A byte that is no escape stands for itself.
			i++
			switch c = b[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'x':
				if i+2 < len(b) && hex(b[i+1]) >= 0 && hex(b[i+2]) >= 0 {
					c = byte(hex(b[i+1])<<4 | hex(b[i+2]))
					i += 2
				}
			}
		}
		b[n] = c
		n++
	}

	return b[:n]
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// token returns the text up to the next space, and what is behind it.
func token(b []byte) (text, rest []byte) {
	text, rest, _ = cutByte(b, ' ')
	return text, rest
}

// number reads a whole number of at most 18 digits.
func number(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0 && len(b) <= 18
}
