package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/examples/internal/try"
)

const proxy, caller = "127.0.0.1", "203.0.113.7"

func expect(t *testing.T, h http.Handler, from, header string, status, remaining int) {
	t.Helper()
	r := try.Request{From: from}
	if header != "" {
		r.Header = map[string]string{"X-Forwarded-For": header}
	}
	a := try.Ask(h, r)
	if a.Status != status || a.Show("X-RateLimit-Remaining") != fmt.Sprint(remaining) {
		t.Errorf("from %s, %q: %d, %s left; want %d, %d left",
			from, header, a.Status, a.Show("X-RateLimit-Remaining"), status, remaining)
	}
}

func TestProxyNamesTheCaller(t *testing.T) {
	h := handler()
	for _, address := range []string{caller, "203.0.113.8", "2001:db8::1", ""} {
		for i := range 5 {
			expect(t, h, proxy, address, 200, 4-i)
		}
		expect(t, h, proxy, address, 429, 0)
	}
}

func TestProxyIgnoresForgedEntries(t *testing.T) {
	h := handler()
	for i, forged := range []string{"", "198.51.100.1, ", "198.51.100.2, 198.51.100.3,", "junk, ", "127.0.0.1, "} {
		expect(t, h, proxy, forged+caller, 200, 4-i)
	}
	expect(t, h, proxy, "198.51.100.4, "+caller, 429, 0)
}

func TestProxyIgnoresTheHeaderOfOtherPeers(t *testing.T) {
	h := handler()
	for i := range 5 {
		expect(t, h, "127.0.0.2", fmt.Sprint("198.51.100.", i), 200, 4-i)
	}
	expect(t, h, "127.0.0.2", caller, 429, 0)
	expect(t, h, proxy, caller, 200, 4) // no caller can use up the limit of another
}

// A real reverse proxy, that of net/http/httputil, appends the address of its client.
func TestProxyOverConnections(t *testing.T) {
	app := httptest.NewServer(handler())
	defer app.Close()
	target, err := url.Parse(app.URL)
	if err != nil {
		t.Fatal(err)
	}

	// A proxy would drop the header that its client sent; this one appends to it.
	outer := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
		r.SetXForwarded() // appends
	}}

	// What the caller claims differs each time, and he is counted by what the proxy appended.
	for i := range 5 {
		expect(t, outer, caller, fmt.Sprint("198.51.100.", i), 200, 4-i)
	}
	expect(t, outer, caller, "203.0.113.8", 429, 0)

	// The address that he claimed last is that of another client, and has all its units.
	expect(t, outer, "203.0.113.8", "", 200, 4)

	// Without the proxy, the peer is the client.
	resp, err := app.Client().Get(app.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "hello\n" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}
