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
	httpcaddyfile.RegisterHandlerDirective("headgate", readDirective)

	// Behind the authentication, which knows the user, and before all that answers.
	httpcaddyfile.RegisterDirectiveOrder("headgate", httpcaddyfile.After, "forward_auth")
}

// readDirective reads the directive of a Caddyfile as a handler.
func readDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
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
	directive := d.Token()
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

		// Each plan is an option of its own.
		if name == "plan" && len(args) > 0 {
			name += " " + args[0]
		}
		if seen[name] {
			errs = append(errs, d.Errf("%s is given twice", quoted(name)))
		}
		seen[name] = true
	}

	// These mistakes may be of several options together, so they are reported for the directive.
	if err := h.checkNow(); err != nil {
		errs = append(errs, fmt.Errorf("%w, at %s:%d", err, directive.File, directive.Line))
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

// option is how an option is read.
type option struct {
	args int // how many arguments it takes; -1 for one or more
	set  func(args []string) error
}

// options returns the options by name.
func (h *Handler) options() map[string]option {
	return map[string]option{
		"app":            text(&h.App),
		"policies":       text(&h.Policies),
		"redis":          text(&h.Redis),
		"prefix":         text(&h.Prefix),
		"on_store_error": text(&h.OnStoreError),
		"last_good":      text(&h.LastGood),
		"timeout":        duration(&h.Timeout),
		"poll":           duration(&h.Poll),

		"expected": {1, func(args []string) (err error) {
			if h.Expected, err = strconv.Atoi(args[0]); err != nil {
				return errors.New("it is not a number")
			}
			return nil
		}},
		"headers": {-1, func(args []string) error {
			h.Headers = args
			return nil
		}},
		"upgrades": {-1, func(args []string) error {
			h.Upgrades = args
			return nil
		}},
		"plan": {2, func(args []string) error {
			if h.Plans == nil {
				h.Plans = map[string]string{}
			}
			h.Plans[args[0]] = args[1]
			return nil
		}},
		"handle_errors": {0, func([]string) error {
			h.HandleErrors = true
			return nil
		}},
	}
}

func text(to *string) option {
	return option{1, func(args []string) error {
		*to = args[0]
		return nil
	}}
}

func duration(to *caddy.Duration) option {
	return option{1, func(args []string) (err error) {
		*to, err = parseDuration(args[0])
		return err
	}}
}

// set sets the option to the arguments.
func (h *Handler) set(name string, args []string) error {
	o, known := h.options()[name]
	if !known {
		return fmt.Errorf("headgate has no option %s", quoted(name))
	}

	if o.args >= 0 && len(args) != o.args || o.args < 0 && len(args) == 0 {
		return fmt.Errorf("headgate: %s: it does not take %d arguments", name, len(args))
	}

	if err := o.set(args); err != nil {
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
