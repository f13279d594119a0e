package caddymw_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/nethttp"
)

// quic asks by HTTP/3.
func quic(t *testing.T) *http.Client {
	tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(func() { _ = tr.Close() })
	return &http.Client{Transport: tr}
}

// one asks by HTTP/1.1.
func one(t *testing.T) *http.Client {
	c := client(t)
	c.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	c.Transport.(*http.Transport).TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	return c
}

// A server of quic-go sends every value in the header map of an answer, also under a name
// that no header can have, and its client refuses such an answer.
func TestNetHTTPBehindHTTP3(t *testing.T) {
	cert := httptest.NewTLSServer(nil)
	cert.Close()

	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	// Twice the same limit: the mark by which the second knows that the first has counted is in
	// the header map.
	limit := nethttp.New(gatetest.Limited(t, "2/1h fixed-window"))
	s := &http3.Server{TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: cert.TLS.Certificates}),
		Handler: limit(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hi")
		})))}

	served := make(chan error)
	go func() { served <- s.Serve(conn) }()

	c := quic(t)
	got := ""

	for range 3 {
		a := ask(t, c, "https://"+conn.LocalAddr().String())
		got += fmt.Sprint(a.ProtoMajor, " ", a.StatusCode, " ", a.Header.Get("X-Ratelimit-Remaining"), ";")
		for name := range a.Header {
			if strings.Contains(strings.ToLower(name), "headgate") {
				t.Errorf("sent %q", name)
			}
		}
	}

	if want := "3 200 1;3 200 0;3 429 0;"; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	c.Transport.(*http3.Transport).CloseIdleConnections()
	_ = s.Close()
	<-served
	_ = conn.Close()
}

// The three versions of HTTP share one limit.
func TestEveryVersionOfHTTP(t *testing.T) {
	up := service(t)
	c := start(t, site{text: "SECURE {\n\theadgate {\n\t\tapp default\n\t\tpolicies " +
		policies(t, "name: all, limit: 6/1h fixed-window, key: global") +
		"\n\t}\n\treverse_proxy " + up.URL + "\n\tlog {\n\t\toutput stdout\n\t}\n}\n"})
	clients := []*http.Client{one(t), client(t), quic(t)}
	got := ""

	// In turns, so that a limit of each version would admit twice as many.
	for range 3 {
		for _, asks := range clients {
			a := ask(t, asks, "https://"+c.secure)
			got += fmt.Sprint(a.ProtoMajor, " ", a.StatusCode, " ", a.Header.Get("Ratelimit")[:9], ";")
			if a.StatusCode == 429 &&
				(a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "application/problem+json") {
				t.Errorf("%v", a.Header)
			}
		}
	}

	want := `1 200 "all";r=5;2 200 "all";r=4;3 200 "all";r=3;1 200 "all";r=2;2 200 "all";r=1;3 200 "all";r=0;1 429 "all";r=0;2 429 "all";r=0;3 429 "all";r=0;`
	if got != want || up.count() != 6 {
		t.Errorf("%s, want %s; the service got %d requests", got, want, up.count())
	}

	if strings.Contains(c.log.String(), "headgate mark") {
		t.Errorf("the access log shows the mark")
	}
}

// lasting returns a service that streams an answer until next has a value, and echoes a
// line over a WebSocket.
func lasting(t *testing.T, next <-chan struct{}) *httptest.Server {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			_, _ = io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
			}
		case "/socket":

			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()

			// The headers of the upstream, by hand: from here on it is not HTTP.
			_, _ = rw.WriteString(
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = rw.Flush()

			line, _ := rw.ReadString('\n')
			_, _ = conn.Write([]byte("echo " + line))
			_, _ = io.Copy(io.Discard, conn)
		}
	}))
	t.Cleanup(up.Close)
	return up
}

// A streamed answer holds its lease until it ends, by each version of HTTP, and a WebSocket
// until it is closed.
func TestLeasesLastAsLongAsTheAnswer(t *testing.T) {
	next := make(chan struct{})
	up := lasting(t, next)
	text := "headgate {\n\t\tapp default\n\t\tpolicies " +
		policies(t, "name: few, limit: 1 concurrent ttl=1m, key: global") + "\n\t}\n\treverse_proxy " + up.URL + "\n}\n"

	c := start(t, site{text: "SECURE {\n\t" + text + "ADDR {\n\t" + text})
	url := "https://" + c.secure

	// Three times, for a lease must not be released by a refusal.
	isHeld := func(by string) {
		t.Helper()
		for range 3 {
			if a := ask(t, client(t), url+"/quick"); a.StatusCode != 429 {
				t.Errorf("%s while %s is open", a.Status, by)
			}
		}
	}

	isFree := func() {
		t.Helper()
		until(t, "the lease is released", func() bool { return ask(t, client(t), url+"/quick").StatusCode == 200 })
	}

	for i, asks := range []*http.Client{one(t), client(t), quic(t)} {
		r, err := asks.Get(url + "/stream")
		if err != nil {
			t.Fatal(err)
		}

		first := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, first); err != nil || r.ProtoMajor != i+1 || string(first) != "first" {
			t.Fatalf("%s %q %v", r.Proto, first, err)
		}

		isHeld("a stream of " + r.Proto)

		// The service ends its answer, and only then the place is free.
		next <- struct{}{}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		r.Body.Close()
		isFree()
	}

	conn := socket(t, c.addr)
	isHeld("a WebSocket")
	conn.Close()
	isFree()
}

// socket opens a WebSocket that echoes a line.
func socket(t *testing.T, addr string) net.Conn {
	t.Helper()

	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })

	_, _ = io.WriteString(conn, "GET /socket HTTP/1.1\r\nHost: "+addr+
		"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n")

	br := bufio.NewReader(conn)
	a, err := http.ReadResponse(br, nil)
	if err != nil || a.StatusCode != 101 || a.Header.Get("Ratelimit-Policy") == "" {
		t.Fatal(a, err)
	}

	fmt.Fprintln(conn, "hello")
	if line, err := br.ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("%q %v", line, err)
	}
	return conn
}
