package accesslog

import (
	"bytes"
	"cmp"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads an object of JSON in its place.
type scanner struct {
	b []byte
	i int
}

// maxDepth is more than the depth of any line.
const maxDepth = 32

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t') {
		s.i++
	}
}

// next reports whether c is the next byte but space, and passes it.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// text reads a text, and replaces its escapes in their place.
func (s *scanner) text() (text []byte, ok bool) {
	if !s.next('"') {
		return nil, false
	}

	// Nearly all texts have no escape, and are used where they are.
	from, escaped := s.i, false
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '"':
			text = s.b[from:s.i]
			s.i++
			if escaped {
				text = unescapeJSON(text)
			}
			return text, true
		case '\\':
			escaped = true
			s.i++
		}
	}

	return nil, false
}

// unescapeJSON replaces escapes in their place. A rune is never longer than its escape.
func unescapeJSON(b []byte) []byte {
	out := b[:0]
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			continue
		}

		i++
		switch b[i] {
		case 'b', 'f', 'n', 'r', 't':
			out = append(out, map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}[b[i]])
		case 'u':
			r, ok := unit(b[i:])
			if !ok {
				out = append(out, 'u')
				continue
			}
			i += 4

			// A rune beyond the first 65,536 is a pair of escapes.
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), i+2 < len(b) && b[i+1] == '\\'
				if ok {
					low, ok = unit(b[i+2:])
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, b[i])
		}
	}

	return out
}

// unit reads u and four hexadecimal digits.
func unit(b []byte) (r rune, ok bool) {
	if len(b) < 5 || b[0] != 'u' {
		return 0, false
	}
	for _, c := range b[1:5] {
		n := hex(c)
		if n < 0 {
			return 0, false
		}
		r = r<<4 | rune(n)
	}
	return r, true
}

// value reads a text or a number and such, and passes lists and objects. flat is the text of the
// former.
func (s *scanner) value() (flat []byte, ok bool) {
	s.space()
	if s.i == len(s.b) {
		return nil, false
	}

	switch s.b[s.i] {
	case '"':
		return s.text()
	case '{', '[':
		return nil, s.skip()
	}

	// A number, or one of three words.
	from := s.i
	for s.i < len(s.b) && s.b[s.i] != ',' && s.b[s.i] != '}' && s.b[s.i] != ']' && s.b[s.i] != ' ' {
		s.i++
	}
	if string(s.b[from:s.i]) == "null" {
		return nil, true
	}

	return s.b[from:s.i], s.i > from
}

// skip passes a list or an object.
func (s *scanner) skip() bool {
	// Brackets in texts do not count.
	for depth := 0; s.i < len(s.b); {
		switch s.b[s.i] {
		case '"':
			if _, ok := s.text(); !ok {
				return false
			}
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return true
			}
		}
		s.i++
	}

	return false
}

// object calls f with each name of an object and reads its value with it.
func (s *scanner) object(f func(name []byte) bool) bool {
	if !s.next('{') {
		return false
	}
	if s.next('}') {
		return true
	}

	for {
		name, ok := s.text()
		if !ok || !s.next(':') || !f(name) {
			return false
		}
		if s.next('}') {
			return true
		}
		if !s.next(',') {
			return false
		}
	}
}

// lineFields is an entry that is being read from JSON. Of several names for one thing the one of
// the highest rank counts.
type lineFields struct {
	*Entry
	clock *clock
	ranks [slots]uint8

	ended, began int64 // the time of the line, and that of the request
	whole        bool  // ended has whole seconds
	took         int64 // how long the request took, in microseconds
	nested       bool  // the request is an object of its own, as Caddy's
}

// slot is a thing that a line says.
type slot uint8

const (
	nothing slot = iota
	end
	beginning
	took
	caddyTook
	address
	forwarded
	user
	request
	method
	target
	host
	agent
	referer
	status
	slots
)

// place is what a name means, and how much better than others.
type place struct {
	slot slot
	rank uint8
}

// names has the names that nginx is usually configured with, and those of Caddy and Traefik.
var names = map[string]place{
	"time": {end, 1}, "timestamp": {end, 2}, "@timestamp": {end, 2},
	"ts": {end, 2}, "time_local": {end, 2}, "time_iso8601": {end, 3}, "msec": {end, 5},
	"StartLocal": {beginning, 3}, "StartUTC": {beginning, 4}, "start_time": {beginning, 3},
	"request_time": {took, 1}, "duration": {caddyTook, 1},

	"ClientAddr": {address, 1}, "remote_addr": {address, 2}, "remote_ip": {address, 2}, "ClientHost": {address, 3},
	"client_ip": {address, 3}, "client": {address, 1}, "clientip": {address, 2},
	"http_x_forwarded_for": {forwarded, 1}, "x_forwarded_for": {forwarded, 1},
	"request_X-Forwarded-For": {forwarded, 1},

	"remote_user": {user, 1}, "user_id": {user, 1}, "ClientUsername": {user, 1},
	"request": {request, 1}, "request_method": {method, 1}, "method": {method, 1}, "RequestMethod": {method, 1},
	"uri": {target, 1}, "path": {target, 1}, "request_uri": {target, 2}, "RequestPath": {target, 2},
	"server_name": {host, 1}, "host": {host, 2}, "http_host": {host, 3}, "RequestHost": {host, 2},
	"RequestAddr": {host, 1},

	"http_user_agent": {agent, 1}, "user_agent": {agent, 1}, "request_User-Agent": {agent, 1},
	"http_referer": {referer, 1}, "referer": {referer, 1}, "request_Referer": {referer, 1},
	"status": {status, 1}, "DownstreamStatus": {status, 2},
}

// parseJSON reads an object of one line. Caddy has the request in an object of its own, and the
// headers in another.
func parseJSON(e *Entry, c *clock) (wrong string) {
	l := lineFields{Entry: e, clock: c}
	s := scanner{b: e.line}
	whole := s.object(func(name []byte) bool {
		if string(name) == "request" && s.peek() == '{' {
			l.nested = true
			return s.object(func(name []byte) bool {
				if string(name) == "headers" && s.peek() == '{' {
					return s.object(func(name []byte) bool { return l.header(&s, name) })
				}
				return l.field(&s, name)
			})
		}
		return l.field(&s, name)
	})

	// What is behind the object would be another line.
	s.space()
	switch {
	case !whole || s.i < len(s.b):
		return noObject
	case !l.setTime():
		return noTime
	case e.Method == "" || e.Target == "":
		return noRequest
	}

	return ""
}

// peek returns the next byte but space.
func (s *scanner) peek() byte {
	s.space()
	if s.i == len(s.b) {
		return 0
	}
	return s.b[s.i]
}

// field reads the value of a name.
func (l *lineFields) field(s *scanner, name []byte) bool {
	p := names[string(name)]
	flat, ok := s.value()
	if ok && p.slot != nothing && p.rank > l.ranks[p.slot] && l.set(p.slot, flat) {
		l.ranks[p.slot] = p.rank
	}
	return ok
}

// header reads a header, whose value is a list of texts.
func (l *lineFields) header(s *scanner, name []byte) bool {
	if s.peek() != '[' {
		_, ok := s.value()
		return ok
	}

	to := nothing
	switch string(name) {
	case "User-Agent":
		to = agent
	case "Referer":
		to = referer
	case "X-Forwarded-For":
		to = forwarded
	}
	if to == nothing {
		return s.skip()
	}

	// The first line of a header is enough for those that have one.
	s.next('[')
	if s.peek() == '"' {
		text, ok := s.text()
		if !ok {
			return false
		}
		l.set(to, text)
	}

	for !s.next(']') {
		if !s.next(',') {
			return false
		}
		if _, ok := s.value(); !ok {
			return false
		}
	}

	return true
}

// set puts a value in its slot. It reports whether the slot can have it.
func (l *lineFields) set(to slot, b []byte) bool {
	e := l.Entry
	switch to {
	case end, beginning:
		return l.setInstant(to, b)
	case took, caddyTook:
		return l.setDuration(to, b)
	case request:
		return e.setRequest(b)
	case target:
		return known(b) != "" && e.setTarget(b)
	case method:
		ok := isMethod(b)
		if ok {
			e.Method = textOf(b)
		}
		return ok
	case status:
		return e.setStatus(b)
	}

	text := known(b)
	if to := l.textOf(to); to != nil && text != "" {
		*to = text
	}

	return text != ""
}

// setInstant keeps the time of the line or that of the request.
func (l *lineFields) setInstant(to slot, b []byte) bool {
	at, ok := l.time(b)
	switch {
	case !ok:
	case to == beginning:
		l.began = at
	default:
		l.ended, l.whole = at, at%1e6 == 0 && bytes.IndexByte(b, '.') < 0
	}
	return ok
}

// setDuration keeps how long the request took. Other servers than Caddy mean other units by the
// name that it has for it.
func (l *lineFields) setDuration(to slot, b []byte) bool {
	d, ok := duration(b)
	if !ok || to == caddyTook && !l.nested {
		return false
	}
	l.took = d
	return true
}

// setTime sets the time of the entry, and reports whether the line has one. nginx and Caddy write
// a line when the request ends. Where it has whole seconds, only whole ones are taken off.
func (l *lineFields) setTime() bool {
	began := l.began
	if began == 0 && l.ended > 0 && l.ranks[took]+l.ranks[caddyTook] > 0 {
		began = l.ended - l.took
		if l.whole {
			began += l.took % 1e6
		}
	}

	l.At, l.Began = cmp.Or(began, l.ended), began > 0
	return l.At > 0
}

// duration reads seconds with a fraction, at most a week, as microseconds.
func duration(b []byte) (micros int64, ok bool) {
	whole, rest, fractional := cutByte(b, '.')
	n, ok := number(whole)
	if !ok || n >= maxJump/1e6 {
		return 0, false
	}
	if fractional {
		micros, rest = fractionOf(rest)
	}
	return n*1e6 + micros, len(rest) == 0
}

// textOf returns the text of a slot.
func (l *lineFields) textOf(of slot) *string {
	switch of {
	case address:
		return &l.Address
	case forwarded:
		return &l.Forwarded
	case user:
		return &l.User
	case host:
		return &l.Host
	case agent:
		return &l.Agent
	case referer:
		return &l.Referer
	}

	return nil
}

// time reads a time in any of the forms of logs.
func (l *lineFields) time(b []byte) (at int64, ok bool) {
	if at, ok = l.clock.rfc3339(b); ok {
		return at, ok
	}
	if at, ok = unix(b); ok {
		return at, ok
	}
	return l.clock.combined(b)
}
