package proxy

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/policy"
)

// refuses is an address that refuses connections.
func refuses(t *testing.T) *url.URL {
	t.Helper()
	return &url.URL{Scheme: "http", Host: freeport.Addr(t)}
}

// retried puts an address that refuses connections before the upstream, so that each request is
// sent twice.
func retried(t *testing.T) func(*options) {
	return func(o *options) {
		up := &o.upstreams[0]
		up.Addresses = []*url.URL{refuses(t), up.Addresses[0]}
		up.Attempts, up.Balance = 2, upstream.RoundRobin
	}
}

// fourTimes calls f four times, so that each address has its turn twice.
func fourTimes(f func(i int)) {
	for i := range 4 {
		f(i)
	}
}

// serve starts a server and returns its address.
func serve(t *testing.T, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestProxyCountsARetriedRequestOnce(t *testing.T) {
	var asked atomic.Int64
	g := before(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 1 {
			w.WriteHeader(503)
		}
	}, func(o *options) {
		o.policies = []policy.Policy{limited("3/1h fixed-window")}
		o.upstreams[0].Attempts, o.upstreams[0].Statuses = 2, []int{503}
	})

	// Each request is sent twice, and the limit is 3.
	for i, want := range []int{200, 200, 200, 429} {
		if res, _ := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil)); res.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, res.StatusCode, want)
		}
	}

	if n := asked.Load(); n != 6 {
		t.Errorf("the upstream was asked %d times, want twice for each of 3", n)
	}
}

func TestProxyChoosesByHostAndPath(t *testing.T) {
	api := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "api ", r.Host) })
	g := before(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "rest ", r.Host) }, func(o *options) {
		o.upstreams[0].Match = policy.Match{Host: "shop.example"}
		o.upstreams = append([]upstream.Options{{Name: "api", Addresses: []*url.URL{api}, Host: "inside",
			Match: policy.Match{Path: "/api/"}}}, o.upstreams...)
	})

	// The path of the first applies to all hosts, and the second asks for a host.
	for _, row := range []struct{ host, path, want string }{
		{"shop.example", "/api/x", "api inside"}, {"other.example", "/api", "api inside"},
		{"shop.example", "/", "rest shop.example"},
	} {
		r := request(t, "GET", g.URL+row.path, nil)
		r.Host = row.host
		if _, body := ask(t, g.Client(), r); body != row.want {
			t.Errorf("%s%s: %q, want %q", row.host, row.path, body, row.want)
		}
	}

	r := request(t, "GET", g.URL+"/", nil)
	r.Host = "other.example"
	if res, body := ask(t, g.Client(), r); res.StatusCode != 404 || !strings.Contains(body, "no server for this host") {
		t.Errorf("without an upstream: %d %s", res.StatusCode, body)
	}
}

func TestProxySwitchesProtocolsAtARetriedUpstream(t *testing.T) {
	g := before(t, echo, retried(t))
	fourTimes(func(i int) {
		conn, res, r := upgrade(t, g)
		defer conn.Close()
		if res.StatusCode != 101 {
			t.Fatalf("request %d: %d", i, res.StatusCode)
		}
		// Both directions of the tunnel work.
		io.WriteString(conn, "hello\n")
		if got, err := r.ReadString('\n'); err != nil || got != "hello\n" {
			t.Errorf("request %d: %q came back, %v", i, got, err)
		}
	})
}

// An answer of a retried upstream is passed on piece by piece, with its trailers.
func TestProxyStreamsFromARetriedUpstream(t *testing.T) {
	next := make(chan bool)
	g := before(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		for i := range 3 {
			fmt.Fprintf(w, "piece %d\n", i)
			http.NewResponseController(w).Flush()
			<-next
		}
		w.Header().Set("X-Sum", "42")
	}, func(o *options) { retried(t)(o); o.tls = true })

	fourTimes(func(n int) {
		res, err := g.Client().Do(request(t, "GET", g.URL+"/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewReader(res.Body)
		for i := range 3 {
			if got, err := lines.ReadString('\n'); err != nil || got != fmt.Sprintf("piece %d\n", i) {
				t.Fatalf("%q %v", got, err)
			}
			next <- true // the next piece is not sent before this one has come
		}
		if _, err := lines.ReadByte(); err != io.EOF || res.Trailer.Get("X-Sum") != "42" || res.ProtoMajor != 2 {
			t.Errorf("%s: %v, trailers %v", res.Proto, err, res.Trailer)
		}
	})
}

// A client that waits to be told to send its body is told once, and all attempts have the body.
func TestProxyContinuesAtARetriedUpstream(t *testing.T) {
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusContinue) // once more, as it may come when the body is on its way
		fmt.Fprintf(w, "%s %s", r.Method, body)
	}, retried(t))
	fourTimes(func(n int) {
		conn, err := net.Dial("tcp", g.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != 100 {
			t.Fatalf("request %d: %v %v", n, res, err)
		}
		// The body is sent once by the client, whatever happens behind the gateway.
		io.WriteString(conn, "hello")
		res, err = http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); res.StatusCode != 200 || string(body) != "PUT hello" {
			t.Errorf("request %d: %d %q %v", n, res.StatusCode, body, err)
		}
	})
}

// Of a request whose end two readers could see at different places, none reaches an upstream.
func TestProxyPassesOnNoSmuggledRequest(t *testing.T) {
	var asked atomic.Int64
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %q %q", r.ContentLength, r.TransferEncoding, body)
	}, nil)
	const smuggled = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, row := range map[string]struct {
		headers string
		want    string // of the upstream; "" if it must not be asked
	}{
		// By RFC 9112 the chunks decide, and the length is not passed on.
		"both":                {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", `-1 ["chunked"] ""`},
		"two lengths":         {"Content-Length: 5\r\nContent-Length: 6\r\n", ""},
		"a list of lengths":   {"Content-Length: 5, 6\r\n", ""},
		"a signed length":     {"Content-Length: +5\r\n", ""},
		"another coding":      {"Transfer-Encoding: xchunked\r\n", ""},
		"two codings":         {"Transfer-Encoding: chunked, identity\r\n", ""},
		"two lines":           {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", ""},
		"a space in the name": {"Transfer-Encoding : chunked\r\n", ""},
	} {
		asked.Store(0)
		res, body := raw(t, g,
			"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+row.headers+"\r\n0\r\n\r\n"+smuggled)

		switch {
		case row.want != "" && (asked.Load() != 1 || body != row.want):
			t.Errorf("%s: asked %d times, %q, want once and %q", name, asked.Load(), body, row.want)
		case row.want == "" && (asked.Load() != 0 || res.StatusCode < 400):
			t.Errorf("%s: asked %d times, %d", name, asked.Load(), res.StatusCode)
		}
	}
}

// Requests that are under way go on with the upstreams with which they began.
func TestProxyTakesOtherUpstreams(t *testing.T) {
	inside, end := make(chan bool), make(chan bool)
	g := before(t, func(w http.ResponseWriter, _ *http.Request) {
		inside <- true
		<-end
		io.WriteString(w, "former")
	}, nil)
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "other") })

	got := make(chan string)
	go func() {
		_, body := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil))
		got <- body
	}()
	<-inside

	table, err := upstream.New([]upstream.Options{{Name: "up", ConnectTimeout: time.Minute,
		Addresses: []*url.URL{other}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	o := g.proxy.options
	table.Start(o.Upstreams)
	o.Upstreams.Close(table)
	o.Upstreams = table
	g.replace(g.proxy.With(o))
	if _, body := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil)); body != "other" {
		t.Errorf("after the change: %q", body)
	}

	close(end)
	if body := <-got; body != "former" {
		t.Errorf("the request that had begun: %q", body)
	}
}
