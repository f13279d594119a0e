package limiter

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Redirect answers 303 See Other, with the target in Location: a path such as
// "/busy", or an http or https URL. Everything in it is ASCII without spaces, as
// in an HTTP message. The target must not be limited by the same limiter, else
// clients go in circles.
func Redirect(target string) (Template, error) {
	if err := checkTarget(target); err != nil {
		return nil, fmt.Errorf("Redirect: %w", err)
	}
	return Fixed(Answer{Status: 303, Headers: []Header{{"Location", target}}}), nil
}

// MustRedirect is [Redirect] for program text. It panics where that returns an
// error.
func MustRedirect(target string) Template { return must(Redirect(target)) }

func checkTarget(target string) error {
	for _, c := range []byte(target) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return fmt.Errorf("the target holds the byte %#x", c)
		}
	}
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return errors.New("the target is not a URL")
	case u.Scheme == "" && strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//"):
		return nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("the target is neither a path that begins with one slash nor an http or https URL")
	case u.User != nil:
		return errors.New("the target holds a user")
	}
	return nil
}

func must(t Template, err error) Template {
	if err != nil {
		panic(err)
	}
	return t
}
