// Package gatewaytest has helpers for the tests of the gateway: it builds the program, and starts
// gateways and the proxies in front of them. [Start] returns a [Gateway], and [Program] the path
// of the program.
package gatewaytest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Forgery is what a client sends to pose as another caller, or to have a request counted
// as another one.
type Forgery struct {
	Name   string
	Header http.Header // not in canonical form where the spelling matters
}

// forged holds the headers in which some proxy names an address, with values that a
// client may send.
var forged = map[string][]string{
	"X-Forwarded-For": {
		"%s", "%[1]s, 198.51.100.2", "127.0.0.1", "%[1]s, 127.0.0.1", "[2001:db8::1]", "%s:80", "unknown", "",
		",", "%s,", "10.0.0.1", "::ffff:203.0.113.1", "_hidden", "\"%s\"", " %s ", "%[1]s %[1]s",
	},
	"Forwarded": {
		"for=%s", "for=%s;host=evil.test;proto=https", "for=\"[2001:db8::1]\"", "for=unknown", "host=evil.test",
		"for=%s, for=127.0.0.1", "for=\"%s",
	},
}

// addressHeaders hold one address. Other proxies, CDNs and frameworks believe them.
var addressHeaders = []string{
	"X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP", "X-Originating-IP", "X-Remote-IP", "X-Remote-Addr",
	"X-ProxyUser-Ip", "True-Client-IP", "CF-Connecting-IP", "CF-Connecting-IPv6", "Fastly-Client-IP", "Client-IP",
	"X-Azure-ClientIP", "X-Appengine-User-Ip", "X-Envoy-External-Address", "X-Forwarded", "Forwarded-For",
	"X-Forwarded-Client-Ip", "X-Original-Forwarded-For", "X-Original-Remote-Addr", "X-Coming-From", "Via",
	"X-Sent-From",
}

// targetHeaders name another method, path or host than those of the request.
var targetHeaders = map[string][]string{
	"X-Original-Method": {"DELETE", "get", "", "GET POST"},
	"X-Original-URI":    {"/other", "/other?x=1", "other", "", "*", "//evil.test/", "/%2e%2e/other", "/a#b"},
	"X-Original-URL": {
		"http://shop.test/other", "https://evil.test/", "/other", "", "http://evil.test?x/other",
	},
	"X-Forwarded-Method":      {"DELETE", "get", "", "GET POST"},
	"X-Forwarded-Uri":         {"/other", "/other?x=1", "other", "", "*", "//evil.test/", "/%2e%2e/other", "/a#b"},
	"X-Forwarded-Host":        {"evil.test", "evil.test:80", "", "a/b", "evil.test, shop.test"},
	"X-Forwarded-Proto":       {"https", "gopher", "", "http, https"},
	"X-Forwarded-Port":        {"443", "x"},
	"X-Forwarded-Prefix":      {"/other"},
	"X-Forwarded-Path":        {"/other"},
	"X-Forwarded-Server":      {"evil.test"},
	"X-Original-Host":         {"evil.test"},
	"X-Host":                  {"evil.test"},
	"X-Rewrite-Url":           {"/other"},
	"X-Override-Url":          {"/other"},
	"X-Http-Method-Override":  {"DELETE"},
	"X-Http-Method":           {"DELETE"},
	"X-Method-Override":       {"DELETE"},
	"X-Http-Destinationurl":   {"http://evil.test/other"},
	"X-Envoy-Original-Path":   {"/other"},
	"X-Auth-Request-Redirect": {"/other"},
	"Headgate-Status":         {"200"},
	"Headgate-Degraded":       {"1"},
}

// hidden are headers that a client asks proxies to remove, as those of one connection.
var hidden = []string{
	"X-Forwarded-For", "X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Original-Method",
	"X-Original-URI", "X-Api-Key",
}

// Forgeries returns more than 200 sets of headers that a client forges. All are valid in
// HTTP, and every header is at most 10 kB long. Each names other addresses than the rest,
// so that every one that is believed is a caller of its own.
func Forgeries() []Forgery {
	var all []Forgery
	add := func(name string, headers ...[2]string) {
		all = append(all, forgery(len(all)+1, name, headers))
	}

	// Headers that name the caller.
	for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
		for _, value := range forged[name] {
			add(name+" "+value, [2]string{name, value})
			add(name+" in two lines", [2]string{name, value}, [2]string{name, "%s"})
			add(name+" in lower case", [2]string{strings.ToLower(name), value})
		}
		add(name+" of 10 kB", [2]string{name, strings.Repeat("203.0.113.1, ", 800)})
		add(name+" of commas", [2]string{name, strings.Repeat(",", 9000)})
		add(name+" with underscores", [2]string{strings.ReplaceAll(name, "-", "_"), "%s"})
	}
	for _, name := range addressHeaders {
		add(name, [2]string{name, "%s"})
		add(name+" with X-Forwarded-For", [2]string{name, "%s"}, [2]string{"X-Forwarded-For", "%s"})
	}

	// Headers that name another request than the one that is sent.
	for _, name := range slices.Sorted(maps.Keys(targetHeaders)) {
		for _, value := range targetHeaders[name] {
			add(name+" "+value, [2]string{name, value})
		}
		add(name+" in two lines", [2]string{name, targetHeaders[name][0]}, [2]string{name, targetHeaders[name][0]})
		add(name+" of 8 kB", [2]string{name, "/" + strings.Repeat("x", 7900)})
		add(name+" in lower case", [2]string{strings.ToLower(name), targetHeaders[name][0]})
	}

	// Both families at once are complete, so nothing but who sends them speaks against them.
	for _, family := range []string{"Original", "Forwarded"} {
		for _, method := range []string{"GET", "DELETE"} {
			whole := [][2]string{{"X-" + family + "-Method", method}, {"X-" + family + "-URI", "/other"}}
			add("a whole family", whole...)
			add("a whole family with a host", append(whole,
				[2]string{"X-Forwarded-Host", "evil.test"}, [2]string{"X-Forwarded-For", "%s"})...)
		}
	}

	// A proxy that obeys Connection removes the headers that it has just set.
	for _, name := range hidden {
		add("Connection hides "+name, [2]string{"Connection", "close, " + name}, [2]string{name, "%s"})
	}
	add("Connection hides all", [2]string{"Connection", "close, " + strings.Join(hidden, ", ")})

	return all
}

// forgery returns the n-th set of headers. Its number is in the address that it forges, so that
// each poses as a caller of its own.
func forgery(n int, name string, headers [][2]string) Forgery {
	h := http.Header{}
	for _, pair := range headers {
		value := pair[1]
		if strings.Contains(value, "%s") || strings.Contains(value, "%[1]s") {
			value = fmt.Sprintf(value, address(n))
		}
		h[pair[0]] = append(h[pair[0]], value)
	}
	return Forgery{fmt.Sprintf("%d: %s", n, name), h}
}

// address returns an address that no other small n has.
func address(n int) string { return fmt.Sprintf("198.18.%d.%d", n/256, n%256) }
