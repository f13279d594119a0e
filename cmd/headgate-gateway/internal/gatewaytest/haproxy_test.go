//go:build linux

package gatewaytest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/freeport"
)

// A client cannot make a request too large for the frame in which HAProxy asks about it,
// and so pass uncounted: not with one long header, not with many short ones, not with a
// long path.
func TestHAProxyAsksAboutLargeRequests(t *testing.T) {
	w := open(t, "HAProxy", patient...)
	c := Client(t, "127.0.0.13")

	// One request uses the quota up, so that each of the 200 that follow passes only if it is not
	// asked about.
	if a := Do(t, c, "GET", w.front+"/forged", nil); a.Status != 200 {
		t.Fatalf("the first request: %d, want 200", a.Status)
	}

	by := map[int]int{}
	send := func(path string, h http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", w.front+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		answer, err := c.Do(r)
		if err != nil { // HAProxy refuses it while it is being sent, and the answer may get lost
			by[400]++
			return
		}
		answer.Body.Close()
		by[answer.StatusCode]++
	}

	// The frames of the example have 16380 bytes: the sizes begin well below and end above.
	for size := 14000; size < 16500; size += 50 {
		send("/forged", http.Header{"X-Long": {strings.Repeat("x", size)}})
		send("/forged?"+strings.Repeat("x", size), http.Header{})
		send(strings.Repeat("/", size)+"forged", http.Header{})
	}
	for n := 1; n < 100; n += 2 { // HAProxy takes 101 headers at most
		send("/forged", http.Header{"A": make([]string, n), "B": {strings.Repeat("x", 14000)}})
	}

	if by[200] != 0 || by[429] < 100 || by[429]+by[400]+by[431] != 200 {
		t.Errorf("answers %v, want 200 of 429, 400 and 431", by)
	}

	if n := len(w.service.Seen()); n != 1 {
		t.Errorf("the service saw %d requests, want 1", n)
	}
}

// A request that does not fit in a frame is refused, also where requests pass that no
// gateway has answered.
func TestHAProxyRefusesWhatItCannotAskAbout(t *testing.T) {
	w := open(t, "HAProxy", patient...)
	addr := freeport.Addr(t)

	// Frames of 2 kB instead of 16 kB, so that a usual header does not fit.
	spoe := Config(t, examples("haproxy-spoe.cfg"), "groups requests", "groups requests\n    max-frame-size 2048")
	HAProxy(t,
		Config(t, examples("haproxy.cfg"), "127.0.0.1:8080", addr, "127.0.0.1:3000", w.service.Addr,
			"config haproxy-spoe.cfg", "config "+spoe,
			"127.0.0.1:9089", w.gateways[0].SPOE, "127.0.0.1:9189", w.gateways[1].SPOE), addr)

	c := Client(t, "127.0.0.14")

	// Under /open the example lets requests pass that no gateway has answered.
	for _, path := range []string{"/free", "/open/free"} {
		for size, want := range map[int]int{100: 200, 3000: 431} {
			if a := Do(t, c, "GET", "http://"+addr+path,
				http.Header{"X-Long": {strings.Repeat("x", size)}}); a.Status != want {
				t.Errorf("%s with a header of %d bytes: %d, want %d", path, size, a.Status, want)
			}
		}
	}

	if n := len(w.service.Seen()); n != 2 {
		t.Errorf("the service saw %d requests, want 2", n)
	}
}

// HAProxy knows no path of some targets. Clients choose them, so they are answered, and none is
// a mistake in the log.
func TestHAProxyAsksAboutTargetsWithoutAPath(t *testing.T) {
	w := open(t, "HAProxy", patient...)
	for request, want := range map[string]int{
		"OPTIONS * HTTP/1.1": 200, "GET * HTTP/1.1": 400, "CONNECT shop.test:443 HTTP/1.1": 400,
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.front, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(Patience))
		io.WriteString(c, request+"\r\nHost: shop.test:443\r\n\r\n")

		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()

		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", request, answer.StatusCode, want)
		}
	}

	for _, g := range w.gateways {
		if strings.Contains(g.Output(), "ERROR") {
			t.Error(g.Output())
		}
	}
}
