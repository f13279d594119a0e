package requestlog

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of the texts of a line in bytes, as they are written. With MaxHeaders headers a line
// has less than MaxLine.
const (
	MaxLine   = 6 << 10
	maxTarget = 2 << 10
	maxText   = 256
	maxName   = 64
)

// appendLine appends the line of a request.
func (l *Log) appendLine(b []byte, x *Record, r *http.Request, took time.Duration) []byte {
	target := x.target
	if !l.options.Query {
		target, _, _ = strings.Cut(target, "?")
	}

	// A handler that wrote nothing has answered 200.
	status := x.status
	if status == 0 {
		status = http.StatusOK
	}

	if l.options.Combined {
		return l.appendCombined(b, x, r, target, status, took)
	}

	return l.appendJSON(b, x, r, target, status, took)
}

// appendJSON appends an object in one line.
func (l *Log) appendJSON(b []byte, x *Record, r *http.Request, target string, status int, took time.Duration) []byte {
	b = x.start.UTC().AppendFormat(append(b, `{"time":"`...), "2006-01-02T15:04:05.000000Z")
	b = member(append(b, '"'), "client_ip", x.address, maxName)
	b = member(b, "method", r.Method, maxName)
	b = member(b, "host", r.Host, maxText)
	b = member(b, "path", target, maxTarget)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(status), 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), x.bytes, 10)
	b = strconv.AppendFloat(append(b, `,"duration":`...), took.Seconds(), 'f', 6, 64)
	b = member(b, "request_id", x.id, maxName)

	// What most requests do not have is left out.
	if x.Upstream != "" {
		b = member(b, "upstream", x.Upstream, maxText)
	}

	if x.Attempts > 1 {
		b = strconv.AppendInt(append(b, `,"attempts":`...), int64(x.Attempts), 10)
	}

	if x.Policy != "" {
		b = member(b, "policy", x.Policy, maxName)
	}

	// The names are those that readers of logs know: user_agent of User-Agent.
	for _, name := range l.options.Headers {
		if values := r.Header[name]; len(values) > 0 {
			b = member(b, strings.ToLower(strings.ReplaceAll(name, "-", "_")), strings.Join(values, ", "), maxText)
		}
	}

	return append(b, '}', '\n')
}

// appendCombined appends a line of the combined format, with more behind it: X-Forwarded-For, which
// is never logged, the duration in seconds, the upstream, the policy and the id.
func (l *Log) appendCombined(b []byte, x *Record, r *http.Request, target string, status int,
	took time.Duration) []byte {
	b = escaped(b, x.address, maxName, inCombined)
	b = x.start.UTC().AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = escaped(append(escaped(b, r.Method, maxName, inCombined), ' '), target, maxTarget, inCombined)
	b = append(append(append(b, ' '), r.Proto...), '"', ' ')
	b = strconv.AppendInt(b, int64(status), 10)
	b = strconv.AppendInt(append(b, ' '), x.bytes, 10)

	// The two headers of the format are secrets unless they are named.
	for _, name := range []string{"Referer", "User-Agent", ""} {
		b = quoted(b, l.header(r, name), maxText)
	}
	b = strconv.AppendFloat(append(b, ' '), took.Seconds(), 'f', 6, 64)
	b = quoted(b, x.Upstream, maxText)
	b = quoted(b, x.Policy, maxName)
	b = quoted(b, x.id, maxName)
	return append(b, '\n')
}

// header returns a header of the request if the options name it.
func (l *Log) header(r *http.Request, name string) string {
	for _, n := range l.options.Headers {
		if n == name {
			return strings.Join(r.Header[name], ", ")
		}
	}
	return ""
}

// quoted appends a text of the combined format.
func quoted(b []byte, text string, most int) []byte {
	if text == "" {
		text = "-"
	}
	return append(escaped(append(b, ' ', '"'), text, most, inCombined), '"')
}

// member appends a name and a text of an object.
func member(b []byte, name, text string, most int) []byte {
	b = append(append(append(b, ',', '"'), name...), '"', ':', '"')
	return append(escaped(b, text, most, inJSON), '"')
}

// A style says how a byte or a rune is escaped.
type style bool

const (
	inJSON     style = true  // \u000a
	inCombined style = false // \x0a, byte by byte
)

const digits = "0123456789abcdef"

// isPlain reports whether a rune is written as it is: controls are not, nor are those of Unicode
// and its two ends of lines.
func isPlain(r rune) bool {
	if r < 0x7f {
		return r >= ' ' && r != '"' && r != '\\'
	}
	return r > 0x9f && r != '\u2028' && r != '\u2029'
}

// escaped appends at most so many bytes of a text, of which those that could end a line or a text
// are escaped, and those that are no UTF-8 too.
func escaped(b []byte, text string, most int, s style) []byte {
	end := len(b) + most
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		valid := r != utf8.RuneError || size > 1

		from := len(b)
		switch {
		case valid && isPlain(r):
			b = append(b, text[i:i+size]...)
		case bool(s) && valid:
			b = append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		case bool(s):
			b = append(b, '\\', 'u', '0', '0', digits[text[i]>>4], digits[text[i]&15])
		default:
			for _, c := range []byte(text[i : i+size]) {
				b = append(b, '\\', 'x', digits[c>>4], digits[c&15])
			}
		}

		// A text is cut before what does not fit whole.
		if len(b) > end {
			return b[:from]
		}
		i += size
	}

	return b
}
