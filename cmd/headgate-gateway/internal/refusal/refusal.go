// Package refusal makes the answers to requests that are refused, as the configuration says: a
// status, headers and a body for the requests that a policy refuses, or for all.
//
// A [Book] has the answers of one configuration.
package refusal

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
)

// Bounds of the Options.
const (
	MaxRefusals = 1000
	MaxBody     = 64 << 10 // bytes
	MaxHeaders  = 32
)

// Options are one answer.
type Options struct {
	// Policy is the name of the policy whose refusals are answered so; "" means those that no
	// other answer is for, and failures.
	Policy string

	// Status takes the place of 429: 400 to 599, or 0 for none. A denial and a failure keep
	// theirs.
	Status int

	// Type is the Content-Type; "" means text in UTF-8.
	Type string

	// Body and the values of Headers may have placeholders; see New.
	Body    string
	Headers map[string]string
}

// FieldError is a mistake in one field of the Options of a list, by its name in the configuration
// file.
type FieldError struct {
	At    int // the place in the list
	Field string
	Err   error
}

// Error names the field.
func (f *FieldError) Error() string { return f.Field + ": " + f.Err.Error() }

// Unwrap returns the mistake without the field.
func (f *FieldError) Unwrap() error { return f.Err }

// Book has the answers of one configuration. It does not change.
type Book struct {
	byPolicy map[string]*page
	rest     *page // or nil
}

// page is one answer.
type page struct {
	status  int
	headers []header // with the Content-Type
	body    template
}

type header struct {
	name  string
	value template
}

// New returns the book of a list. In bodies and headers {{retry_after}} stands for the seconds of
// Retry-After, 0 if a retry is of no use, {{status}} and {{title}} for the status and its name, and
// {{policy}} for the policy that has refused, or nothing. None of them holds what a client has
// sent. The error joins a [*FieldError] for each mistake.
func New(list []Options) (*Book, error) {
	if len(list) > MaxRefusals {
		return nil, fmt.Errorf("there are %d refusals, and there may be %d", len(list), MaxRefusals)
	}

	b := &Book{byPolicy: map[string]*page{}}
	var errs []error
	for i := range list {
		o := &list[i]
		p, found := newPage(i, o)
		errs = append(errs, found...)

		// Of two answers for one policy the second would never be given.
		switch {
		case b.byPolicy[o.Policy] != nil, o.Policy == "" && b.rest != nil:
			errs = append(errs, &FieldError{i, "policy", errors.New("another refusal is for it too")})
		case o.Policy == "":
			b.rest = p
		default:
			b.byPolicy[o.Policy] = p
		}
	}

	return b, errors.Join(errs...)
}

// newPage returns an answer, and its mistakes.
func newPage(at int, o *Options) (p *page, errs []error) {
	mistake := func(field string, err error) {
		if err != nil {
			errs = append(errs, &FieldError{at, field, err})
		}
	}

	// These bounds keep an answer small.
	if o.Status != 0 && (o.Status < 400 || o.Status > 599) {
		mistake("status", fmt.Errorf("%d is not within 400 to 599", o.Status))
	}

	if len(o.Body) > MaxBody {
		mistake("body", fmt.Errorf("%d bytes are more than %d", len(o.Body), MaxBody))
	}

	if len(o.Headers) > MaxHeaders {
		mistake("headers", fmt.Errorf("%d are more than %d", len(o.Headers), MaxHeaders))
	}

	// A type without a character set would let browsers guess one.
	p = &page{status: o.Status}
	kind := o.Type
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}

	if !httpguts.ValidHeaderFieldValue(kind) {
		mistake("type", fmt.Errorf("%q is no content type", textform.Clip(kind)))
	}

	p.headers = append(p.headers, header{"Content-Type", template{{text: kind}}})

	// A placeholder adds nothing to a header that may not be there.
	var err error
	p.body, err = parse(o.Body)
	mistake("body", err)
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		value, err := parse(o.Headers[name])
		mistake("headers."+name, errors.Join(err, checkHeader(name, o.Headers[name])))
		p.headers = append(p.headers, header{http.CanonicalHeaderKey(name), value})
	}

	return p, errs
}

// checkHeader returns an error if no answer can have the header.
func checkHeader(name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("%q is not the name of a header", textform.Clip(name))
	case !httpguts.ValidHeaderFieldValue(value):
		return errors.New("the value has a byte that no header may have, such as the end of a line")
	}

	switch http.CanonicalHeaderKey(name) {
	case "Content-Type":
		return errors.New("type says what it is")
	case "Connection", "Content-Length", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return errors.New("it is of the connection, and the server's to send")
	case "Retry-After":
		return errors.New("the limiter sends it")
	}

	return nil
}

// Answer returns the answer to a request that does not pass, or false if the limiter's own is
// sent. A nil book has none.
func (b *Book) Answer(a *limiter.Admission) (limiter.Answer, bool) {
	if b == nil {
		return limiter.Answer{}, false
	}

	// The first policy that has refused and has an answer of its own decides.
	p, by := b.rest, ""
	for i, name := range a.Violated() {
		if own := b.byPolicy[name]; own != nil {
			p, by = own, name
			break
		}
		if i == 0 {
			by = name
		}
	}

	if p == nil {
		return limiter.Answer{}, false
	}

	// A denial and a failure say more by their own status.
	status := a.Status()
	if status == http.StatusTooManyRequests && p.status != 0 {
		status = p.status
	}

	v := values{retryAfter: a.RetryAfter(), status: status, policy: by}
	answer := limiter.Answer{Status: status, Body: p.body.fill(&v)}
	for _, h := range p.headers {
		answer.Headers = append(answer.Headers, limiter.Header{Name: h.name, Value: string(h.value.fill(&v))})
	}

	return answer, true
}
