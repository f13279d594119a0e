// This file reads messages: which request HAProxy asks about.
//
// HAProxy sends one message for each request, named "headgate", with these arguments:
//
//	src      the address of the client, by HAProxy's src
//	method   by method
//	path     by path
//	headers  all headers, by req.hdrs_bin
//	app      the application, unless it is the default
//	user     the user, if HAProxy has authenticated one
//	plan     the plan of the caller, if HAProxy knows it
//	claims   the payload of a token that HAProxy has verified, as package callers reads it
//
// The gateway believes HAProxy: src is the peer of the connection, whose forwarded headers
// count if it is a trusted proxy, see package callers.

package spoe

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// described is what a message says about a request.
type described struct {
	app, user, plan, claims string
	request                 http.Request
}

// readMessages reads the payload of a NOTIFY frame. The message of another name is of
// another agent. The error is about the frame, and ok reports whether it has the message.
func readMessages(payload, name string) (d described, ok bool, err error) {
	p := parser{rest: payload}
	for p.rest != "" && p.err == nil {
		// Every message is read to its end, as its length is known by nothing else.
		mine := p.text() == name
		args := map[string]value{}
		for n := p.byte(); n > 0 && p.err == nil; n-- {
			key, v := p.text(), p.value()
			if mine {
				args[key] = v
			}
		}

		if mine && p.err == nil {
			ok = true
			if err := d.fill(args); err != nil {
				return d, true, err
			}
		}
	}
	return d, ok, p.err
}

// unreadable is why a message does not say which request it is about. Its text holds
// nothing that a client sent.
type unreadable string

func (u unreadable) Error() string { return string(u) }

// The mistakes in messages.
const (
	noMethod   unreadable = `the argument "method" is missing`
	noPath     unreadable = `the argument "path" is missing`
	noSource   unreadable = `the argument "src" is missing, or no address`
	noHeaders  unreadable = `the argument "headers" is missing, or not that of req.hdrs_bin`
	unknownApp unreadable = `the argument "app" names no application of the gateway`

	// These are the client's mistakes.
	badPath  unreadable = "the path cannot be decoded"
	noTarget unreadable = "the request has no path"
)

// fill reads the arguments of the message.
func (d *described) fill(args map[string]value) error {
	d.app, d.user, d.plan, d.claims = args["app"].text, args["user"].text, args["plan"].text, args["claims"].text
	d.request.Method = args["method"].text
	if d.request.Method == "" {
		return noMethod
	}

	src, named := args["src"]
	switch {
	case src.address.IsValid():
		d.request.RemoteAddr = netip.AddrPortFrom(src.address, 0).String()
	case !named || src.kind != typeNull: // a client over a Unix socket has none
		return noSource
	}

	var ok bool
	if d.request.Header, ok = readHeaders(args["headers"].text); !ok {
		return noHeaders
	}

	d.request.Host = d.request.Header.Get("Host")
	path, err := d.path(args)
	if err != nil {
		return err
	}

	// Servers disagree about whether a path ends at a "#", so a client could ask for one and
	// be counted under another.
	u, err := url.ParseRequestURI(path)
	if err != nil || strings.Contains(path, "#") {
		return badPath
	}
	d.request.URL = u
	return nil
}

// path returns the argument. HAProxy knows the path of no target that is not a URL or a path:
// OPTIONS may have the target *, and that of CONNECT is a host.
func (d *described) path(args map[string]value) (string, error) {
	path, named := args["path"]
	switch {
	case path.kind == typeString:
		return path.text, nil
	case !named || path.kind != typeNull:
		return "", noPath
	case d.request.Method == http.MethodOptions:
		return "*", nil
	}
	return "", noTarget
}

// readHeaders reads the value of HAProxy's req.hdrs_bin: names and values, up to an empty
// name and an empty value.
func readHeaders(s string) (http.Header, bool) {
	p, h := parser{rest: s}, http.Header{}
	for p.err == nil {
		name, v := p.text(), p.text()
		if name == "" {
			return h, p.err == nil && v == "" && p.rest == ""
		}
		name = http.CanonicalHeaderKey(name)
		h[name] = append(h[name], v)
	}
	return nil, false
}
