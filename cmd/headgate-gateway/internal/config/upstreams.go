// This file reads the upstreams of the configuration.

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/watch"
	"github.com/headgate/headgate/policy"
)

// writtenUpstream is an upstream as the file has it.
type writtenUpstream struct {
	Name           string         `yaml:"name"`
	Match          policy.Match   `yaml:"match"`
	Addresses      []string       `yaml:"addresses"`
	Balance        string         `yaml:"balance"`
	Host           string         `yaml:"host"`
	CA             string         `yaml:"ca"`
	TLSName        string         `yaml:"tls_name"`
	ConnectTimeout string         `yaml:"connect_timeout"`
	Timeout        string         `yaml:"timeout"`
	Idle           *int           `yaml:"idle"`
	Health         *writtenHealth `yaml:"health"`
	Failures       *int           `yaml:"failures"`
	Out            string         `yaml:"out"`
	Retry          *writtenRetry  `yaml:"retry"`
}

type writtenHealth struct {
	Path      string `yaml:"path"`
	Interval  string `yaml:"interval"`
	Timeout   string `yaml:"timeout"`
	Threshold *int   `yaml:"threshold"`
}

type writtenRetry struct {
	Attempts int   `yaml:"attempts"`
	Statuses []int `yaml:"statuses"`
}

// The defaults of an upstream in the file, but for its time-outs, which are those of the flags.
const (
	defaultFailures  = 3
	defaultOut       = 10 * time.Second
	defaultInterval  = 5 * time.Second
	defaultHealth    = time.Second
	defaultThreshold = 2
)

// setUpstreams checks the upstreams of a list and keeps them. The time-outs of the flags are known
// by then.
func (g *given) setUpstreams(l list) error {
	// Thousands of mistakes would help less than this one.
	if len(l.items) > upstream.MaxUpstreams {
		return fmt.Errorf("%s: %s: there are %d upstreams, and there must be 1 to %d", l.from, l.name, len(l.items),
			upstream.MaxUpstreams)
	}

	var errs []error
	for i := range l.items {
		var w writtenUpstream
		if err := l.decode(i, &w); err != nil {
			errs = append(errs, err)
			continue
		}
		o, err := g.upstream(&w, i, l)
		errs = append(errs, err)
		g.Upstreams = append(g.Upstreams, o)
	}

	// What cannot be read is not compared with the others.
	if err := errors.Join(errs...); err != nil {
		return err
	}

	if len(l.items) == 0 {
		return fmt.Errorf("%s: %s: there is no upstream", l.from, l.name)
	}

	_, err := upstream.New(g.Upstreams, slog.New(slog.DiscardHandler))
	return placed(l, err)
}

// placed returns the errors of upstream.New with their lines.
func placed(l list, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, placed(l, e))
		}
		return errors.Join(errs...)
	}

	var of *upstream.Error
	if !errors.As(err, &of) {
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", l.from, l.name, err)
		}
		return err
	}

	// The line is that of the field, or of the whole upstream.
	field, why := "", of.Err
	var in *upstream.FieldError
	if errors.As(of.Err, &in) {
		field, why = in.Field, in.Err
	}

	return l.at(of.At, field, why)
}

// upstream returns the options of an upstream.
func (g *given) upstream(w *writtenUpstream, at int, l list) (upstream.Options, error) {
	o := upstream.Options{
		Name: w.Name, Match: w.Match, Host: w.Host, TLSName: w.TLSName,
		ConnectTimeout: g.UpstreamConnect, HeaderTimeout: g.UpstreamTimeout,
		Failures: defaultFailures, Out: defaultOut,
	}

	var errs []error
	mistake := func(field string, err error) {
		if err != nil {
			errs = append(errs, l.at(at, field, err))
		}
	}

	for i, text := range w.Addresses {
		u, err := url.Parse(text)
		if err != nil { // its text may show a password
			mistake(fmt.Sprintf("addresses[%d]", i), errors.New("it is not a URL such as http://127.0.0.1:3000"))
		}
		o.Addresses = append(o.Addresses, u)
	}

	// What is missing has the defaults above.
	switch w.Balance {
	case "", "least":
	case "round-robin":
		o.Balance = upstream.RoundRobin
	default:
		mistake("balance", fmt.Errorf("%q is not least or round-robin", clip(w.Balance)))
	}

	if w.CA != "" {
		text, err := g.read(l.name, w.CA)
		mistake("ca", err)
		o.CA = text
	}

	mistake("connect_timeout", unlessEmpty(w.ConnectTimeout, span(&o.ConnectTimeout, time.Millisecond, 10*time.Minute)))
	mistake("timeout", unlessEmpty(w.Timeout, span(&o.HeaderTimeout, time.Millisecond, 24*time.Hour)))
	mistake("idle", count(w.Idle, &o.Idle, 1, upstream.MaxIdle))
	mistake("failures", count(w.Failures, &o.Failures, 0, 1000))
	mistake("out", unlessEmpty(w.Out, span(&o.Out, 100*time.Millisecond, time.Hour)))
	if w.Health != nil {
		w.Health.read(&o.Health, mistake)
	}

	if w.Retry != nil {
		o.Attempts, o.Statuses = w.Retry.Attempts, w.Retry.Statuses
		mistake("retry.attempts", count(&w.Retry.Attempts, &o.Attempts, 1, upstream.MaxAttempts))
	}

	return o, errors.Join(errs...)
}

// read reads the questions about health.
func (w *writtenHealth) read(h *upstream.Health, mistake func(string, error)) {
	h.Path, h.Interval, h.Timeout, h.Threshold = w.Path, defaultInterval, defaultHealth, defaultThreshold
	if w.Path == "" {
		mistake("health.path", errors.New("it is missing"))
	}
	mistake("health.interval", unlessEmpty(w.Interval, span(&h.Interval, 100*time.Millisecond, time.Hour)))
	if w.Timeout == "" {
		h.Timeout = min(h.Timeout, h.Interval)
	}
	mistake("health.timeout", unlessEmpty(w.Timeout, span(&h.Timeout, time.Millisecond, time.Hour)))
	mistake("health.threshold", count(w.Threshold, &h.Threshold, 1, 100))
}

// unlessEmpty sets a text unless it is missing.
func unlessEmpty(text string, set func(string) error) error {
	if text == "" {
		return nil
	}
	return set(text)
}

// count sets a number unless it is missing.
func count(n, to *int, from, last int) error {
	if n == nil {
		return nil
	}
	return number(to, int64(from), int64(last))(strconv.Itoa(*n))
}

// read reads a file that a setting names, and keeps its name and its digest.
func (g *given) read(setting, path string) ([]byte, error) {
	text, sum, err := watch.Read(path)
	if g.Origin.Files == nil {
		g.Origin.Files, g.files = map[string]watch.Sum{}, map[string][]string{}
	}
	g.Origin.Files[path] = sum
	g.files[setting] = append(g.files[setting], path)
	return text, err
}

// checkLoops refuses an upstream whose address is a port of this gateway, as each request would
// come back without end. Names other than localhost are not looked up.
func (c *Config) checkLoops() error {
	var errs []error
	for _, o := range c.Upstreams {
		for _, a := range o.Addresses {
			if a == nil {
				continue
			}
			for _, port := range c.ports() {
				if isSame(a, port.address) {
					errs = append(errs, fmt.Errorf("upstream %s: %s is this gateway's own -%s, "+
						"so requests would come back", clip(o.Name), clip(a.Host), port.name))
				}
			}
		}
	}

	return errors.Join(errs...)
}

// isSame reports whether a URL leads to a port that listens at an address.
func isSame(u *url.URL, listen string) bool {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" || port != portOf(u) {
		return false
	}

	// A port that listens at no particular address has all of this machine.
	to, asked := addrOf(u.Hostname()), addrOf(host)
	switch {
	case u.Hostname() == host:
		return true
	case !to.IsValid():
		return false
	case to.IsUnspecified():
		to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}

	return to == asked || (host == "" || asked.IsUnspecified()) && isOwn(to)
}

// portOf returns the port of a URL, which the scheme says if the URL does not.
func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// addrOf returns the address of a host, which is not valid for a name other than localhost.
func addrOf(host string) netip.Addr {
	if host == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap()
}

// isOwn reports whether an address is one of this machine.
func isOwn(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	own, _ := net.InterfaceAddrs() // without them, loopback alone is known
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}
