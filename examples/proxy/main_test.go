package main

import (
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/examples/internal/try"
)

func forwarded(from, header string) try.Request {
	r := try.Request{From: from}
	if header != "" {
		r.Header = map[string]string{"X-Forwarded-For": header}
	}
	return r
}

func expect(t *testing.T, s *try.Service, r try.Request, status, remaining int) {
	t.Helper()
	a := s.Ask(r)
	if a.Status != status || a.Show("X-RateLimit-Remaining") != fmt.Sprint(remaining) {
		t.Errorf("from %s, %v: %d, %s left; want %d, %d left",
			r.From, r.Header, a.Status, a.Show("X-RateLimit-Remaining"), status, remaining)
	}
}

func TestTheProxyTellsTheCallers(t *testing.T) {
	s := try.Start(t, &program{}, "-limit", "2/1m fixed-window")
	for _, caller := range []string{"203.0.113.7", "203.0.113.8", "2001:db8::1", ""} {
		r := forwarded("", caller)
		expect(t, s, r, 200, 1)
		expect(t, s, r, 200, 0)
		expect(t, s, r, 429, 0)
	}
}

func TestAForgedEntryIsToTheLeftOfTheTrueOneAndChangesNothing(t *testing.T) {
	s := try.Start(t, &program{})
	forged := []string{"", "198.51.100.1, ", "198.51.100.2, 198.51.100.3,", "junk, ", "127.0.0.1, "}
	for i, entries := range forged {
		expect(t, s, forwarded("", entries+"203.0.113.7"), 200, 4-i)
	}
	expect(t, s, forwarded("", "198.51.100.4, 203.0.113.7"), 429, 0)
}

func TestWhoDoesNotComeThroughTheProxyIsCountedByHisOwnAddress(t *testing.T) {
	try.NeedAddress(t, "127.0.0.2")
	s := try.Start(t, &program{})
	for i := range 5 {
		expect(t, s, forwarded("127.0.0.2", fmt.Sprint("198.51.100.", i)), 200, 4-i)
	}
	expect(t, s, forwarded("127.0.0.2", "203.0.113.7"), 429, 0)
	expect(t, s, forwarded("", "203.0.113.7"), 200, 4) // nobody can use up another's limit
}

// behind puts a proxy, as net/http/httputil has it, in front of the program.
func behind(t *testing.T, s *try.Service) {
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
		r.SetXForwarded() // appends
	}})
	t.Cleanup(proxy.Close)
	s.URL = proxy.URL
}

func TestBehindARealProxyAForgedHeaderChangesNothing(t *testing.T) {
	try.NeedAddress(t, "127.0.0.2", "127.0.0.3")
	s := try.Start(t, &program{})
	behind(t, s)
	for i := range 5 {
		expect(t, s, forwarded("127.0.0.2", fmt.Sprint("198.51.100.", i)), 200, 4-i)
	}
	expect(t, s, forwarded("127.0.0.2", "127.0.0.3"), 429, 0)
	expect(t, s, forwarded("127.0.0.3", ""), 200, 4)
}

func TestProxiesThatMakeNoSenseAreAllNamedInOneLine(t *testing.T) {
	status, wrote := try.Attempt(&program{}, "-trust", "10.1.2.3/8,everybody")
	want := "example: keyfuncs: Proxies: Trusted[0]: \"10.1.2.3/8\" has bits set behind its length; 10.0.0.0/8 or 10.1.2.3 is meant; " +
		"Trusted[1]: \"everybody\" is not an address or a CIDR prefix\n"
	if status != 2 || wrote != want {
		t.Errorf("%d %q", status, wrote)
	}
}
