package accesslog

import (
	"bytes"
	"fmt"
	"strings"
)

// Format is one of the forms of a line. The zero value is Guess.
type Format uint8

// The formats.
const (
	Guess    Format = iota // by the first lines
	Combined               // of nginx and Apache, also with X-Forwarded-For at the end
	JSON                   // of nginx, Caddy and Traefik
	Envoy                  // its default
	ALB                    // of AWS's application load balancers
)

var formatNames = [...]string{"guess", "combined", "json", "envoy", "alb"}

// String returns the name of the format, as ParseFormat reads it.
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return "unknown format"
}

// ParseFormat reads the name of a format; "" is Guess.
func ParseFormat(name string) (Format, error) {
	for i, known := range formatNames {
		if name == known || name == "" {
			return Format(i), nil
		}
	}
	return 0, fmt.Errorf("there is no format %q; the formats are %s", name, strings.Join(formatNames[:], ", "))
}

// parse reads a line into the entry, whose memory holds it. It returns what is wrong with the
// line, or "".
func (f Format) parse(e *Entry, c *clock) (wrong string) {
	switch f {
	case JSON:
		return parseJSON(e, c)
	case Envoy:
		return parseEnvoy(e, c)
	case ALB:
		return parseALB(e, c)
	}
	return parseCombined(e, c)
}

// guess returns the format of the first line that has one, and Combined if none has.
func guess(sample []byte) Format {
	for line := range bytes.Lines(sample) {
		line = bytes.TrimRight(line, "\r\n")
		for _, f := range []Format{Combined, JSON, Envoy, ALB} {
			e := Entry{line: bytes.Clone(line)}
			if f.parse(&e, new(clock)) == "" {
				return f
			}
		}
	}
	return Combined
}

// What may be wrong with a line.
const (
	noTime    = "it has no time"
	noRequest = "it has no request"
	noStatus  = "it has no status"
	noObject  = "it is no object of JSON"
	tooLong   = "it is longer than a line may be"
	strayTime = "its time is more than 7 days after the lines around it"
)

// parseCombined reads
//
//	192.0.2.7 - ada [28/Nov/2026:07:37:17 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8" "10.0.0.1"
//
// of which the last text is that of nginx's format main, and the last three may be missing.
func parseCombined(e *Entry, c *clock) (wrong string) {
	address, rest, ok := cutByte(e.line, ' ')
	if !ok {
		return noTime
	}

	// The name of a user may have spaces, and even a time in brackets, but no quote: servers escape
	// it. So the time is what a request follows.
	at, from := int64(0), 0
	for {
		i := bytes.IndexByte(rest[from:], '[')
		if i < 0 {
			return noTime
		}
		from += i + 1
		if len(rest) >= from+29 && string(rest[from+26:from+29]) == "] \"" {
			if at, ok = c.combined(rest[from : from+26]); ok {
				break
			}
		}
	}

	user := rest[:from-1]
	rest = rest[from+27:]

	// What was no request is answered by the server itself, and reaches no limiter.
	request, rest, ok := quoted(rest)
	if !ok || !e.setRequest(request) {
		return noRequest
	}
	if len(rest) < 4 || !e.setStatus(rest[1:]) {
		return noStatus
	}

	// Before the time stand the name that identd knows, and that of the user.
	e.At, e.Address = at, known(address)
	if i := bytes.IndexByte(user, ' '); i >= 0 {
		e.User = known(bytes.TrimSpace(user[i:]))
	}

	// Behind the status and the size there may be texts.
	_, rest = token(rest[1:])
	_, rest = token(rest)
	for _, to := range []*string{&e.Referer, &e.Agent, &e.Forwarded} {
		var text []byte
		if text, rest, ok = quoted(rest); !ok {
			break
		}
		*to = known(text)
	}

	return ""
}

// setStatus reads three digits.
func (e *Entry) setStatus(b []byte) bool {
	if len(b) < 3 || len(b) > 3 && b[3] != ' ' {
		return false
	}
	n, ok := number(b[:3])
	e.Status = int(n)
	return ok
}

// parseEnvoy reads
//
//	[2026-11-28T07:37:17.310Z] "POST /v1 HTTP/2" 204 - 154 0 226 100 "192.0.2.7" "curl/8"
//	"ID" "host" "10.0.2.1:80"
//
// in one line. The address is the last of X-Forwarded-For, which Envoy itself has added.
func parseEnvoy(e *Entry, c *clock) (wrong string) {
	b := e.line
	if len(b) == 0 || b[0] != '[' {
		return noTime
	}

	text, rest, _ := cutByte(b[1:], ']')
	at, ok := c.rfc3339(text)
	if !ok {
		return noTime
	}

	request, rest, ok := quoted(rest)
	if !ok || !e.setRequest(request) {
		return noRequest
	}
	if len(rest) < 4 || !e.setStatus(rest[1:]) {
		return noStatus
	}

	// The numbers in between have no quotes.
	if i := bytes.IndexByte(rest, '"'); i >= 0 {
		rest = rest[i:]
	}
	var texts [4][]byte // X-Forwarded-For, agent, the request's ID, authority
	for i := range texts {
		if texts[i], rest, ok = quoted(rest); !ok {
			break
		}
	}

	e.At, e.Began = at, true
	e.setForwarded(texts[0])
	e.Agent, e.Host = known(texts[1]), known(texts[3])
	return ""
}

// setForwarded takes the last entry of X-Forwarded-For as the address of the peer.
func (e *Entry) setForwarded(b []byte) {
	if i := bytes.LastIndexByte(b, ','); i >= 0 {
		e.Forwarded = known(b[:i])
		b = b[i+1:]
	}
	e.Address = known(bytes.TrimSpace(b))
}

// parseALB reads
//
//	https 2026-11-28T07:37:17.186641Z app/lb/50dc 192.0.2.7:2817 10.0.0.1:80 0.0 0.0 0.0 200
//	200 34 366
//	"GET https://example.com:443/ HTTP/1.1" "curl/8" cipher protocol group "trace" "domain" "cert"
//	0 2026-11-28T07:37:17.100000Z …
//
// in one line. The first time is that of the answer, and the second that of the request.
func parseALB(e *Entry, c *clock) (wrong string) {
	_, rest := token(e.line)
	text, rest := token(rest)
	at, ok := c.rfc3339(text)
	if !ok {
		return noTime
	}

	// The balancer, the client, the target, three durations, two statuses and two sizes.
	var client, status []byte
	_, rest = token(rest)
	client, rest = token(rest)
	for range 4 {
		_, rest = token(rest)
	}

	status, rest = token(rest)
	for range 3 {
		_, rest = token(rest)
	}

	request, rest, ok := quoted(rest)
	if !ok || !e.setRequest(request) {
		return noRequest
	}
	if !e.setStatus(status) {
		return noStatus
	}

	agent, rest, _ := quoted(rest)
	e.At, e.Address, e.Agent = at, known(client), known(agent)
	if begun, ok := creationTime(c, rest); ok && begun <= at {
		e.At, e.Began = begun, true
	}
	return ""
}

// creationTime reads the time of the request from what is behind the agent in a line of a load
// balancer. Lines of long ago have none.
func creationTime(c *clock, rest []byte) (at int64, ok bool) {
	rest = bytes.TrimPrefix(rest, []byte(" "))
	for range 3 { // the cipher, the protocol and the group
		_, rest = token(rest)
	}
	for range 3 { // the trace, the domain and the certificate
		if _, rest, ok = quoted(rest); !ok {
			return 0, false
		}
	}

	_, rest = token(bytes.TrimPrefix(rest, []byte(" "))) // the priority of the rule
	text, _ := token(rest)
	return c.rfc3339(text)
}
