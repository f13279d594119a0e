// Package upstream passes requests on to servers: it chooses an upstream by host and path, one of
// its addresses by how busy and how healthy they are, and another one where a request may be
// repeated.
//
// A [Table] has all upstreams. [Table.Find] returns the [Pool] for a request, and [Pool.Do] sends
// the request, of which a [Call] keeps what was done with it.
package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// Bounds of the Options.
const (
	MaxUpstreams = 1000
	MaxAddresses = 100 // of one upstream
	MaxAttempts  = 10
	MaxIdle      = 1 << 16
)

// DefaultIdle is how many connections to an address are kept for later requests.
const DefaultIdle = 512

// Balance says which address gets a request.
type Balance uint8

// The balances. The zero value is Least.
const (
	Least      Balance = iota // that with the fewest requests in flight, and of equals the next in turn
	RoundRobin                // the next in turn
)

// Options are one upstream. Name and Addresses must be set.
type Options struct {
	// Name identifies the upstream in logs and errors.
	Name string

	// Match says which requests are for the upstream, as that of a policy does. The zero value
	// matches all.
	Match policy.Match

	// Addresses are servers that answer alike: http://host:port, https:// with TLS, or h2c:// for
	// HTTP/2 without TLS. All have one scheme, and one path, which comes before that of each
	// request.
	Addresses []*url.URL

	Balance Balance

	// Host, unless "", is the host that the upstream is asked for, instead of the client's.
	Host string

	// CA has the authorities in PEM that the certificates of https:// are checked by; nil means
	// those of the system. TLSName, unless "", is the name that the certificates must have,
	// instead of the host of the address.
	CA      []byte
	TLSName string

	// ConnectTimeout bounds a connection, and HeaderTimeout the time until the header of an
	// answer. The answer itself may take any time.
	ConnectTimeout, HeaderTimeout time.Duration

	// Idle is how many connections to each address are kept for later requests; 0 means
	// DefaultIdle.
	Idle int

	// Health asks each address from time to time, unless its Path is "".
	Health Health

	// After Failures connections in a row that failed or broke, an address gets no request for
	// Out, unless it is the only one. 0 means never.
	Failures int
	Out      time.Duration

	// Attempts is how often a request is sent at most; 0 means once. It is sent again if its
	// method is idempotent, its body, if any, is at most maxReplay bytes long, nothing has reached
	// the client, and either the connection has failed or the answer has one of Statuses.
	Attempts int
	Statuses []int
}

// Health says how addresses are asked whether they are well. An answer of 2xx says so.
type Health struct {
	// Path begins with a slash, and may have a query.
	Path string

	// Interval is the time between two questions to an address, and Timeout that for the answer.
	Interval, Timeout time.Duration

	// Threshold is how many answers in a row change what is known of an address.
	Threshold int
}

// FieldError is a mistake in one field of the Options, by its name in the configuration file, such
// as "health.path".
type FieldError struct {
	Field string
	Err   error
}

// Error names the field.
func (f *FieldError) Error() string { return f.Field + ": " + f.Err.Error() }

// Unwrap returns the mistake without the field.
func (f *FieldError) Unwrap() error { return f.Err }

// Validate returns a *FieldError for each mistake, joined, but for those of Match, which New finds.
func (o *Options) Validate() error {
	var errs []error
	mistake := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{field, fmt.Errorf(format, args...)})
	}

	if err := textform.Check(o.Name, 64); o.Name == "" || err != nil {
		mistake("name", "%q is not a name of 1 to 64 bytes", textform.Clip(o.Name))
	}

	if len(o.Addresses) == 0 || len(o.Addresses) > MaxAddresses {
		mistake("addresses", "there are %d, and there must be 1 to %d", len(o.Addresses), MaxAddresses)
	}

	errs = append(errs, o.checkAddresses()...)

	// These are the bounds of single fields.
	if o.Host != "" && !httpguts.ValidHostHeader(o.Host) {
		mistake("host", "%q is no host", textform.Clip(o.Host))
	}

	if o.Idle < 0 || o.Idle > MaxIdle {
		mistake("idle", "%d is not within 1 to %d", o.Idle, MaxIdle)
	}

	if o.Attempts < 0 || o.Attempts > MaxAttempts {
		mistake("retry.attempts", "%d is not within 1 to %d", o.Attempts, MaxAttempts)
	}

	if at := slices.IndexFunc(o.Statuses, func(s int) bool { return s < 400 || s > 599 }); at >= 0 {
		mistake("retry.statuses", "%d is not within 400 to 599", o.Statuses[at])
	}

	if len(o.Statuses) > 0 && o.Attempts < 2 {
		mistake("retry.statuses", "without retry.attempts of at least 2 no request is repeated")
	}

	return errors.Join(append(errs, o.checkTLS(), o.Health.check())...)
}

// checkAddresses returns the mistakes of each address, and of what all must have alike.
func (o *Options) checkAddresses() (errs []error) {
	for i, a := range o.Addresses {
		field := fmt.Sprintf("addresses[%d]", i)
		if err := CheckAddress(a); err != nil {
			errs = append(errs, &FieldError{field, err})
			continue
		}
		// One transport serves all, and the path is set before the address is chosen.
		first := o.Addresses[0]
		if first != nil && (a.Scheme != first.Scheme || a.Path != first.Path) {
			errs = append(errs, &FieldError{field, errors.New("it has another scheme or path than the first")})
		}
		if slices.ContainsFunc(o.Addresses[:i], func(b *url.URL) bool { return b != nil && b.Host == a.Host }) {
			errs = append(errs, &FieldError{field, fmt.Errorf("%q is there twice", textform.Clip(a.Host))})
		}
	}

	return errs
}

// CheckAddress returns an error if no upstream can have the address.
func CheckAddress(u *url.URL) error {
	switch {
	case u == nil:
		return errors.New("it is missing")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return errors.New("it does not begin with http://, https:// or h2c://")
	case u.Hostname() == "":
		return errors.New("it names no host")
	case u.User != nil:
		return errors.New("it has a user or password, which the upstream would not get")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("it has more than a host and a path")
	}

	return nil
}

// checkTLS returns the mistakes of what concerns TLS.
func (o *Options) checkTLS() error {
	if o.CA == nil && o.TLSName == "" {
		return nil
	}
	if len(o.Addresses) > 0 && o.Addresses[0] != nil && o.Addresses[0].Scheme != "https" {
		return &FieldError{"ca", errors.New("without https:// there is no TLS")}
	}
	if _, err := pool(o.CA); err != nil {
		return &FieldError{"ca", err}
	}
	return nil
}

// check returns the mistakes of the questions.
func (h *Health) check() error {
	if h.Path == "" {
		return nil
	}

	// The path is sent as it is, so it must be one.
	var errs []error
	if u, err := url.ParseRequestURI(h.Path); err != nil || h.Path[0] != '/' || u.Host != "" {
		errs = append(errs, &FieldError{"health.path", fmt.Errorf("%q is no path", textform.Clip(h.Path))})
	}

	if h.Interval <= 0 || h.Timeout <= 0 || h.Timeout > h.Interval {
		errs = append(errs, &FieldError{"health.timeout",
			fmt.Errorf("%s is not above 0 and at most health.interval, which is %s", h.Timeout, h.Interval)})
	}

	if h.Threshold < 1 {
		errs = append(errs, &FieldError{"health.threshold", fmt.Errorf("%d is below 1", h.Threshold)})
	}

	return errors.Join(errs...)
}
