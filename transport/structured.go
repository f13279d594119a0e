// This file parses structured fields, as far as fields about limits need it.

package transport

import "unicode/utf8"

// Bounds of what is read of an answer.
const (
	maxField  = 8 << 10 // bytes of all lines of a structured field
	maxNumber = 15      // digits of an Integer. Source: RFC 9651, 3.3.1
)

// member is one member of a List or Dictionary of Items. Strings are as they were sent, with
// their escapes.
type member struct {
	key    string // in a Dictionary
	value  bareItem
	params params
}

// params are the parameters that fields about limits have. A number that is missing is -1.
// Source: draft-ietf-httpapi-ratelimit-headers.
type params struct {
	r  int64  // the units that remain
	t  int64  // the seconds until they are more
	w  int64  // the seconds of the window
	qu string // what is counted; "" means requests

	wrong uint8 // a bit for each that has another type, or is negative
}

// The bits of wrong.
const (
	wrongR = 1 << iota
	wrongT
	wrongW
	wrongQu
)

// kind is the type of a bare item.
type kind uint8

const (
	integer kind = iota
	text         // a String
	token
	other
)

// bareItem is the value of an Item or a parameter. Only the field of its kind is set.
type bareItem struct {
	kind kind
	text string // of a String or Token
	n    int64  // of an Integer
}

// parse calls f for each member of a field whose lines are a List of Items or a Dictionary of
// Items, and reports whether they have that form. f may have been called if they have not.
// Source: RFC 9651, 4.2. A member that goes on in the next line is not accepted.
func parse(lines []string, f func(member)) bool {
	size := 0
	for _, line := range lines {
		size += len(line)
	}
	if size > maxField {
		return false
	}

	members, form := 0, form(0)
	for _, line := range lines {
		p := parser{s: line}
		p.skip(" ")

		for {
			var m member
			if !p.member(&m) || !form.holds(&m) {
				return false
			}
			f(m)
			members++

			// The lines are parts of one field, so each ends after a member.
			p.skip(" \t")
			if p.done() {
				break
			}
			if !p.accept(',') {
				return false
			}
			p.skip(" \t")
		}
	}
	return members > 0
}

// form is a List or a Dictionary, and 0 before the first member.
type form uint8

// holds reports whether the form has such members. The first member decides it.
func (f *form) holds(m *member) bool {
	is := form(1)
	if m.key != "" {
		is = 2
	}
	if *f == 0 {
		*f = is
	}
	return *f == is
}

// parser reads a line from left to right.
type parser struct {
	s string
	i int
}

// done reports whether the line has been read to its end.
func (p *parser) done() bool { return p.i == len(p.s) }

// next returns the next byte, and 0 at the end. No field value holds a 0.
func (p *parser) next() byte {
	if p.done() {
		return 0
	}
	return p.s[p.i]
}

// accept reads the byte c, and reports whether it came next.
func (p *parser) accept(c byte) bool {
	if p.next() != c || p.done() {
		return false
	}
	p.i++
	return true
}

// skip skips the bytes of set, which has one or two.
func (p *parser) skip(set string) {
	for !p.done() && (p.s[p.i] == set[0] || p.s[p.i] == set[len(set)-1]) {
		p.i++
	}
}

// member reads a member with its parameters.
func (p *parser) member(m *member) bool {
	m.params = params{r: -1, t: -1, w: -1}
	begin := p.i
	if key, ok := p.key(); ok && (p.next() == '=' || p.endsMember()) {
		m.key = key
		if !p.accept('=') { // a Token in a List, or a Dictionary's member that is true
			m.key, m.value = "", bareItem{kind: token, text: key}
			return p.params(&m.params)
		}
		return p.bare(&m.value) && p.params(&m.params)
	}
	p.i = begin
	return p.bare(&m.value) && p.params(&m.params)
}

// endsMember reports whether a key that has been read is a whole bare item.
func (p *parser) endsMember() bool {
	switch p.next() {
	case 0, ' ', '\t', ',', ';':
		return true
	}
	return false
}

// params reads parameters. Of two with one name the last counts.
func (p *parser) params(to *params) bool {
	for p.accept(';') {
		p.skip(" ")
		key, ok := p.key()
		if !ok {
			return false
		}

		value := bareItem{kind: other} // true
		if p.accept('=') && !p.bare(&value) {
			return false
		}
		to.set(key, &value)
	}
	return true
}

// set takes over a parameter that has a meaning.
func (p *params) set(key string, value *bareItem) {
	n := int64(-1)
	if value.kind == integer {
		n = value.n
	}

	// A later parameter of the same name takes the place of a wrong one too.
	switch key {
	case "r":
		p.r = n
		p.judge(wrongR, n < 0)
	case "t":
		p.t = n
		p.judge(wrongT, n < 0)
	case "w":
		p.w = n
		p.judge(wrongW, n < 0)
	case "qu":
		p.qu = value.text
		p.judge(wrongQu, value.kind != text && value.kind != token)
	}
}

// judge notes whether a parameter is wrong.
func (p *params) judge(bit uint8, wrong bool) {
	p.wrong &^= bit
	if wrong {
		p.wrong |= bit
	}
}

// key reads a key of a Dictionary, or the name of a parameter.
func (p *parser) key() (string, bool) {
	begin := p.i
	if c := p.next(); !isLower(c) && c != '*' {
		return "", false
	}
	for c := p.next(); isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'; c = p.next() {
		p.i++
	}
	return p.s[begin:p.i], true
}

// bare reads a bare item.
func (p *parser) bare(to *bareItem) bool {
	switch c := p.next(); {
	case c == '-' || isDigit(c):
		return p.number(to)
	case c == '"':
		return p.text(to)
	case isLower(c|0x20) || c == '*':
		return p.token(to)
	case c == ':':
		return p.bytes(to)
	case c == '?':
		p.i++
		to.kind = other
		return p.accept('0') || p.accept('1')
	case c == '@':
		// A Date is an Integer after the sign.
		p.i++
		ok := p.number(to) && to.kind == integer
		to.kind = other
		return ok
	case c == '%':
		return p.display(to)
	}
	return false
}

// number reads an Integer of at most 15 digits, or a Decimal of at most 12 and 3.
func (p *parser) number(to *bareItem) bool {
	negative := p.accept('-')
	whole := p.digits(&to.n)
	if to.kind = integer; negative {
		to.n = -to.n
	}
	if whole == 0 || whole > maxNumber || !p.accept('.') {
		return whole > 0 && whole <= maxNumber
	}
	to.kind = other
	var ignored int64
	fraction := p.digits(&ignored)
	return whole <= 12 && fraction >= 1 && fraction <= 3
}

// digits reads a number of up to 15 digits. It returns how many digits there are.
func (p *parser) digits(n *int64) (count int) {
	*n = 0
	for ; isDigit(p.next()); p.i++ {
		if count++; count <= maxNumber {
			*n = *n*10 + int64(p.next()-'0')
		}
	}
	return count
}

// text reads a String, and leaves its escapes as they are.
func (p *parser) text(to *bareItem) bool {
	p.i++
	begin := p.i
	for ; !p.done(); p.i++ {
		switch c := p.s[p.i]; {
		case c == '"':
			to.kind, to.text = text, p.s[begin:p.i]
			p.i++
			return true
		case c == '\\':
			// Only a quote and a backslash may be escaped.
			if p.i++; p.next() != '"' && p.next() != '\\' {
				return false
			}
		case c < 0x20 || c > 0x7e:
			return false
		}
	}
	return false
}

// token reads a Token, whose first byte has been checked.
func (p *parser) token(to *bareItem) bool {
	begin := p.i
	for isTokenByte(p.next()) {
		p.i++
	}
	to.kind, to.text = token, p.s[begin:p.i]
	return true
}

// bytes reads a Byte Sequence, whatever it means.
func (p *parser) bytes(to *bareItem) bool {
	p.i++
	to.kind = other
	for {
		switch c := p.next(); {
		case isLower(c | 0x20), isDigit(c), c == '+', c == '/', c == '=':
			p.i++
		default:
			return p.accept(':')
		}
	}
}

// display reads a Display String, whatever it means.
func (p *parser) display(to *bareItem) bool {
	to.kind = other
	if p.i++; !p.accept('"') {
		return false
	}

	// It is decoded only to find out whether it is UTF-8, which is part of the form.
	var decoded []byte
	for !p.done() {
		c := p.s[p.i]
		p.i++
		switch {
		case c == '"':
			return utf8.Valid(decoded)
		case c < 0x20 || c > 0x7e:
			return false
		case c == '%':
			high, ok1 := p.hex()
			low, ok2 := p.hex()
			if !ok1 || !ok2 {
				return false
			}
			c = high<<4 | low
		}
		decoded = append(decoded, c)
	}
	return false
}

// hex reads a lower-case hexadecimal digit.
func (p *parser) hex() (byte, bool) {
	c := p.next()
	switch {
	case isDigit(c):
		c -= '0'
	case c >= 'a' && c <= 'f':
		c -= 'a' - 10
	default:
		return 0, false
	}
	p.i++
	return c, true
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isTokenByte reports whether a Token may have the byte behind its first.
func isTokenByte(c byte) bool {
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~', ':', '/':
		return true
	}
	return isLower(c|0x20) || isDigit(c)
}
