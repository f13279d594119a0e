package caddymw

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("headgate", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := new(Handler)
		return handler, handler.UnmarshalCaddyfile(h.Dispenser)
	})
	// Behind the authentication, which knows the user, and before all that answers.
	httpcaddyfile.RegisterDirectiveOrder("headgate", httpcaddyfile.After, "forward_auth")
}

var (
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)

// UnmarshalCaddyfile reads the directive:
//
//	headgate [<matcher>] {
//	    app            <name>
//	    policies       <file>
//	    redis          <url>
//	    prefix         <text>
//	    timeout        <duration>
//	    expected       <instances>
//	    on_store_error open|closed|local
//	    headers        x-ratelimit|x-ratelimit-delta|ratelimit|none ...
//	    poll           <duration>
//	    last_good      <file>
//	    plan           <name> <placeholder>
//	    handle_errors
//	}
//
// The error names every mistake.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	var errs []error
	d.Next() // the name of the directive
	line := d.Token()
	if d.NextArg() {
		errs = append(errs, d.Errf("headgate takes a block of options, not the argument %q", d.Val()))
		d.RemainingArgs()
	}
	seen := map[string]bool{}
	for d.NextBlock(0) {
		name := d.Val()
		args := d.RemainingArgs()
		if err := h.set(name, args); err != nil {
			errs = append(errs, d.WrapErr(err))
		}
		if name == "plan" && len(args) > 0 {
			name += " " + args[0]
		}
		if seen[name] {
			errs = append(errs, d.Errf("%s is given twice", quoted(name)))
		}
		seen[name] = true
	}
	if err := h.checkNow(); err != nil {
		errs = append(errs, fmt.Errorf("%w, at %s:%d", err, line.File, line.Line))
	}
	return errors.Join(errs...)
}

// checkNow checks what needs no value of a placeholder, which may have another one where
// the configuration is used.
func (h *Handler) checkNow() error {
	for _, text := range []string{h.App, h.Policies, h.Redis, h.Prefix, h.LastGood} {
		if isPlaceholder(text) {
			return nil
		}
	}
	return h.check()
}

// set sets the option to the arguments.
func (h *Handler) set(name string, args []string) (err error) {
	texts := map[string]*string{"app": &h.App, "policies": &h.Policies, "redis": &h.Redis, "prefix": &h.Prefix,
		"on_store_error": &h.OnStoreError, "last_good": &h.LastGood}
	durations := map[string]*caddy.Duration{"timeout": &h.Timeout, "poll": &h.Poll}
	text, isText := texts[name]
	duration, isDuration := durations[name]
	switch {
	case isText && len(args) == 1:
		*text = args[0]
	case isDuration && len(args) == 1:
		*duration, err = parseDuration(args[0])
	case name == "expected" && len(args) == 1:
		h.Expected, err = strconv.Atoi(args[0])
		if err != nil {
			err = errors.New("it is not a number")
		}
	case name == "headers" && len(args) > 0:
		h.Headers = args
	case name == "plan" && len(args) == 2:
		if h.Plans == nil {
			h.Plans = map[string]string{}
		}
		h.Plans[args[0]] = args[1]
	case name == "handle_errors" && len(args) == 0:
		h.HandleErrors = true
	case isText, isDuration, name == "expected", name == "headers", name == "plan", name == "handle_errors":
		err = fmt.Errorf("it does not take %d arguments", len(args))
	default:
		return fmt.Errorf("headgate has no option %s", quoted(name))
	}
	if err != nil {
		return fmt.Errorf("headgate: %s: %w", name, err)
	}
	return nil
}

func parseDuration(text string) (caddy.Duration, error) {
	d, err := caddy.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, errors.New("it is not a duration, such as 50ms")
	}
	return caddy.Duration(d), nil
}

// quoted returns a name for an error, and no more of a text than a name may have.
func quoted(name string) string {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "…"
	}
	return strconv.Quote(name)
}
