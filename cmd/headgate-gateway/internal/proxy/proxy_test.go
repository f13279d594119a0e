package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// gate is a proxy before an upstream, on a port.
type gate struct {
	*httptest.Server
	log     *logged
	limiter *limiter.Limiter

	mu    sync.Mutex
	proxy *Proxy // guarded by mu
}

// replace puts another proxy in place of the one that answers.
func (g *gate) replace(p *Proxy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proxy = p
}

// options are what a test may change.
type options struct {
	Options
	upstreams []upstream.Options // the first is the upstream of the test
	policies  []policy.Policy
	trusted   []string
	tls       bool
	user      string
}

// before starts a proxy before a handler.
func before(t *testing.T, h http.HandlerFunc, change func(*options)) *gate {
	t.Helper()
	up := httptest.NewUnstartedServer(h)
	up.Config.Protocols = protocols()
	up.Start()
	t.Cleanup(up.Close)
	return beforeURL(t, up.URL, change)
}

func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// limited is a policy of n requests of all callers.
func limited(limit string) policy.Policy {
	return policy.Policy{Name: "all", Apps: []string{"shop"}, Limit: core.MustParseLimit(limit), Key: "global"}
}

func beforeURL(t *testing.T, server string, change func(*options)) *gate {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	o := options{policies: []policy.Policy{limited("1000/1h fixed-window")}}
	o.upstreams = []upstream.Options{{Name: "up", Addresses: []*url.URL{u},
		ConnectTimeout: time.Minute, HeaderTimeout: time.Minute}}
	if change != nil {
		change(&o)
	}

	g := &gate{log: &logged{}}
	logger := slog.New(slog.NewTextHandler(g.log, nil))
	o.Log = quietlog.New(logger)
	if o.Upstreams, err = upstream.New(o.upstreams, logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Log.Close)

	co := callers.Options{Trusted: o.trusted, UserHeader: o.user}
	if o.Callers, err = callers.New(co); err != nil {
		t.Fatal(err)
	}

	e, err := engine.Open(t.Context(), engine.Options{Apps: []string{"shop"}, Source: engine.Fixed(o.policies),
		Bindings: o.Callers.Bindings(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { e.Close() })
	if g.proxy, err = New(e, o.Options); err != nil {
		t.Fatal(err)
	}
	if g.limiter, err = e.Limiter("shop", Face); err != nil {
		t.Fatal(err)
	}
	o.Upstreams.Start(nil)
	t.Cleanup(func() { o.Upstreams.Close(nil) })

	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		p := g.proxy
		g.mu.Unlock()
		p.ServeHTTP(w, r)
	}))
	g.Config.Protocols = protocols()
	g.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

	if o.tls {
		g.EnableHTTP2 = true
		g.StartTLS()
	} else {
		g.Start()
	}
	t.Cleanup(g.Close)
	return g
}

// ask sends a request and returns the answer and its body.
func ask(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func request(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestProxyAdmitsTheQuota(t *testing.T) {
	asked := 0
	g := before(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		io.WriteString(w, "hello\n")
	}, func(o *options) { o.policies = []policy.Policy{limited("3/1h fixed-window")} })

	passed := 0
	for range 10 {
		res, body := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil))
		switch {
		case res.StatusCode == 200 && body == "hello\n":
			passed++
		case res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || len(res.Header["Ratelimit"]) != 1 ||
			len(res.Header["Ratelimit-Policy"]) != 1:
			t.Errorf("answered with %d %v", res.StatusCode, res.Header)
		}
	}

	if passed != 3 || asked != 3 {
		t.Errorf("%d passed and the upstream was asked %d times, want 3", passed, asked)
	}
}

// The status that the upstream has sent decides what a request costs in the end.
func TestProxyGivesBackByTheAnswer(t *testing.T) {
	status := 0
	p := limited("3/1h fixed-window")
	p.Refund = policy.Statuses{"304", "5xx"}
	g := before(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) },
		func(o *options) { o.policies = []policy.Policy{p} })

	for i, row := range []struct{ answered, want int }{
		{304, 304}, {500, 500}, {200, 200}, {304, 304}, {404, 404}, {503, 503}, {200, 200}, {200, 429}, {304, 429},
	} {
		status = row.answered
		if res, _ := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil)); res.StatusCode != row.want {
			t.Errorf("request %d: %d, want %d", i, res.StatusCode, row.want)
		}
	}
}

func TestProxyPassesOnWhatTheClientAsks(t *testing.T) {
	var got string
	var header http.Header
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.RequestURI, body)
		header = r.Header
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(201)
		io.WriteString(w, "made")
		w.Header().Set("X-Sum", "42")
	}, nil)

	// What holds for one connection alone, and what would confuse the upstream about where the
	// body ends, is left out. The path and the query arrive as they were sent.
	r := request(t, "PUT", g.URL+"/a%2Fb/../c?x=1;y=%zz&z", strings.NewReader("text"), "Connection", "X-Hop",
		"X-Hop", "1", "Keep-Alive", "9", "Te", "trailers", "Proxy-Authorization", "x", "Proxy-Connection", "x",
		"X-End", "2", "Transfer-Encoding", "x")
	r.Host = "shop.example"
	res, body := ask(t, g.Client(), r)

	if want := `PUT shop.example /a%2Fb/../c?x=1;y=%zz&z "text"`; got != want {
		t.Errorf("the upstream was asked for\n%s, want\n%s", got, want)
	}

	for _, name := range []string{"X-Hop", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Connection"} {
		if header[name] != nil {
			t.Errorf("the upstream got the header %s: %q", name, header[name])
		}
	}
	if header.Get("X-End") != "2" || header.Get("Te") != "trailers" {
		t.Errorf("the upstream got %v", header)
	}

	if res.StatusCode != 201 || body != "made" || res.Trailer.Get("X-Sum") != "42" {
		t.Errorf("the client got %d %q and the trailers %v", res.StatusCode, body, res.Trailer)
	}
}

func TestProxyAsksForTheHostOfTheOptions(t *testing.T) {
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Host, r.Header.Get("X-Forwarded-Host"))
	}, func(o *options) { o.upstreams[0].Host = "inside.example"; o.upstreams[0].Addresses[0].Path = "/base" })
	r := request(t, "GET", g.URL+"/", nil)
	r.Host = "shop.example"
	if _, body := ask(t, g.Client(), r); body != "inside.example shop.example" {
		t.Error(body)
	}
}

func TestProxyForwardsWhatTrustedProxiesSay(t *testing.T) {
	g := func(trusted ...string) *gate {
		return before(t, func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
				"X-Forwarded-Port", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-User"} {
				fmt.Fprintf(w, "%s=%s\n", name, strings.Join(r.Header[name], "|"))
			}
		}, func(o *options) {
			o.trusted = trusted
			if trusted != nil {
				o.user = "X-User"
			}
		})
	}

	// Each header by which some upstream learns an address, a scheme or a user, all of them
	// forged.
	headers := []string{"X-Forwarded-For", "198.51.100.1", "X-Forwarded-For", "203.0.113.9",
		"X-Forwarded-Host", "forged.example", "X-Forwarded-Proto", "https", "X-Forwarded-Port", "443",
		"Forwarded", "for=198.51.100.1", "X-Real-Ip", "198.51.100.1", "True-Client-Ip", "198.51.100.1",
		"Cf-Connecting-Ip", "198.51.100.1", "X-Client-Ip", "198.51.100.1", "X-User", "root"}

	for _, row := range []struct {
		name    string
		trusted []string
		want    string
	}{
		{"no proxy is trusted", nil,
			"X-Forwarded-For=127.0.0.1\nX-Forwarded-Host=shop.example\nX-Forwarded-Proto=http\nX-Forwarded-Port=\n" +
				"Forwarded=\nX-Real-Ip=\nTrue-Client-Ip=\nCf-Connecting-Ip=\nX-Client-Ip=\nX-User=root\n"},

		// The rows differ by who is trusted: a configured user header is read from a trusted peer
		// alone.
		{"another is trusted", []string{"192.0.2.1"},
			"X-Forwarded-For=127.0.0.1\nX-Forwarded-Host=shop.example\nX-Forwarded-Proto=http\nX-Forwarded-Port=\n" +
				"Forwarded=\nX-Real-Ip=\nTrue-Client-Ip=\nCf-Connecting-Ip=\nX-Client-Ip=\nX-User=\n"},
		{"the peer is trusted", []string{"127.0.0.0/8"},
			"X-Forwarded-For=198.51.100.1, 203.0.113.9, 127.0.0.1\nX-Forwarded-Host=forged.example\nX-Forwarded-Proto=https\nX-Forwarded-Port=443\n" +
				"Forwarded=for=198.51.100.1|for=127.0.0.1\nX-Real-Ip=198.51.100.1\nTrue-Client-Ip=198.51.100.1\nCf-Connecting-Ip=198.51.100.1\nX-Client-Ip=198.51.100.1\nX-User=root\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := g(row.trusted...)
			r := request(t, "GET", g.URL+"/", nil, headers...)
			r.Host = "shop.example"
			if _, body := ask(t, g.Client(), r); body != row.want {
				t.Errorf("the upstream got\n%swant\n%s", body, row.want)
			}

			// By naming a header in Connection a client asks that it is removed: here it would
			// remove what the gateway says.
			r = request(t, "GET", g.URL+"/", nil,
				append(headers, "Connection", "X-Forwarded-For, X-User, X-Forwarded-Proto")...)
			r.Host = "shop.example"
			if _, body := ask(t, g.Client(), r); row.trusted == nil &&
				!strings.HasPrefix(body,
					"X-Forwarded-For=127.0.0.1\nX-Forwarded-Host=shop.example\nX-Forwarded-Proto=http\n") {
				t.Errorf("a client removed headers by naming them in Connection:\n%s", body)
			}
		})
	}
}

func TestProxyCountsTheCallerThatATrustedProxyNames(t *testing.T) {
	p := limited("2/1h fixed-window")
	p.Key = "ip"
	g := before(t, func(http.ResponseWriter, *http.Request) {}, func(o *options) {
		o.policies, o.trusted = []policy.Policy{p}, []string{"127.0.0.1"}
	})

	// The address that counts is the last that no trusted proxy has: what stands before it is the
	// client's own claim.
	for _, row := range []struct {
		from string
		want int
	}{{"198.51.100.1", 200}, {"198.51.100.1", 200}, {"198.51.100.1", 429}, {"192.0.2.7, 198.51.100.1", 429},
		{"198.51.100.2", 200}} {
		if res, _ := ask(t, g.Client(),
			request(t, "GET", g.URL+"/", nil, "X-Forwarded-For", row.from)); res.StatusCode != row.want {
			t.Errorf("%s: %d, want %d", row.from, res.StatusCode, row.want)
		}
	}
}

func TestProxyStreams(t *testing.T) {
	next := make(chan bool)
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		for range 3 {
			io.WriteString(w, "data: x\n\n")
			http.NewResponseController(w).Flush()
			<-next
		}
	}, nil)

	for _, kind := range []string{"text/event-stream", "application/x-ndjson"} {
		res, err := g.Client().Do(request(t, "GET", g.URL+"/?type="+url.QueryEscape(kind), nil))
		if err != nil {
			t.Fatal(err)
		}

		buf := make([]byte, len("data: x\n\n"))
		for range 3 { // each piece arrives before the upstream goes on
			if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "data: x\n\n" {
				t.Fatalf("%s: %q %v", kind, buf, err)
			}
			next <- true
		}

		if n, err := res.Body.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("%s: %d bytes and %v after the end", kind, n, err)
		}
		res.Body.Close()
	}
}

func TestProxyStreamsRequests(t *testing.T) {
	got := make(chan string)
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 4)
		for {
			n, err := io.ReadFull(r.Body, buf)
			if n > 0 {
				got <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}, nil)

	r, w := io.Pipe()
	done := make(chan int)
	go func() {
		res, err := g.Client().Do(request(t, "POST", g.URL+"/", r))
		if err != nil {
			t.Error(err)
			close(done)
			return
		}
		res.Body.Close()
		done <- res.StatusCode
	}()

	for _, text := range []string{"one ", "two "} {
		io.WriteString(w, text)
		if s := <-got; s != text { // before the next is sent
			t.Errorf("the upstream got %q, want %q", s, text)
		}
	}

	w.Close()
	if status := <-done; status != 200 {
		t.Error(status)
	}
}

func TestProxySpeaksHTTP2(t *testing.T) {
	var proto string
	upstream := func(w http.ResponseWriter, r *http.Request) {
		proto = r.Proto
		io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	}
	overTLS := before(t, upstream, func(o *options) { o.tls = true })

	res, body := ask(t, overTLS.Client(), request(t, "GET", overTLS.URL+"/", nil))
	if res.Proto != "HTTP/2.0" || proto != "HTTP/1.1" || body != "https" {
		t.Errorf("by TLS: the client speaks %s and the upstream %s, %q", res.Proto, proto, body)
	}

	clear := before(t, upstream, func(o *options) { o.upstreams[0].Addresses[0].Scheme = "h2c" })
	only := &http.Protocols{}
	only.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: only}
	defer transport.CloseIdleConnections()

	res, body = ask(t, &http.Client{Transport: transport}, request(t, "GET", clear.URL+"/", nil))
	if res.Proto != "HTTP/2.0" || proto != "HTTP/2.0" || body != "http" {
		t.Errorf("in the clear: the client speaks %s and the upstream %s, %q", res.Proto, proto, body)
	}

	secure := httptest.NewUnstartedServer(http.HandlerFunc(upstream))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	g := beforeURL(t, secure.URL, func(o *options) {
		o.upstreams[0].CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	})

	r := request(t, "GET", g.URL+"/", nil)
	r.Host = "example.com" // in the certificate of the test
	if res, _ := ask(t, g.Client(), r); res.StatusCode != 200 || proto != "HTTP/2.0" {
		t.Errorf("to an upstream with TLS: %d, it speaks %s", res.StatusCode, proto)
	}
}

// askForHints returns an answer, and the number of early hints before it.
func askForHints(t *testing.T, g *gate, path string) (res *http.Response, hints int) {
	t.Helper()
	r := request(t, "GET", g.URL+path, nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(),
		&httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 && h.Get("Link") != "" {
				hints++
			}
			return nil
		}}))
	res, _ = ask(t, g.Client(), r)
	return res, hints
}

func TestProxyReplacesTheLimitsOfTheUpstream(t *testing.T) {
	own := map[string]string{"Ratelimit": `"up";r=7`, "Ratelimit-Policy": `"up";q=9`, "X-Ratelimit-Limit": "9",
		"X-Ratelimit-Used": "2"}

	// With hints an answer has two sets of headers: what the first one got must not stay in the
	// second.
	upstream := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hints" {
			w.Header().Set("Link", "</x.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		}
		if r.URL.Path != "/none" {
			for name, value := range own {
				w.Header().Set(name, value)
			}
		}
		if r.URL.Path == "/refused" || r.URL.Path == "/none" {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}
	}

	for _, row := range []struct {
		path, policies string
		ratelimit      string // what the client gets
		used           string
	}{
		{"/", "all", `"all";`, ""},
		{"/hints", "all", `"all";`, ""},

		// An upstream's own refusal is the one that the client has to heed, unless it says nothing
		// of a limit.
		{"/refused", "all", `"up";`, "2"},
		{"/none", "all", `"all";`, ""},
		{"/", "", `"up";`, "2"},
	} {
		g := before(t, upstream, func(o *options) {
			if row.policies == "" {
				o.policies = nil
			}
		})

		res, hints := askForHints(t, g, row.path)
		if got := res.Header["Ratelimit"]; len(got) != 1 || !strings.HasPrefix(got[0], row.ratelimit) {
			t.Errorf("%s with %q: RateLimit is %q, want one that begins with %s", row.path, row.policies, got,
				row.ratelimit)
		}
		if n, m := len(res.Header["Ratelimit-Policy"]), len(res.Header["X-Ratelimit-Limit"]); n != 1 || m != 1 {
			t.Errorf("%s with %q: %d headers RateLimit-Policy and %d X-RateLimit-Limit", row.path, row.policies, n, m)
		}
		if used := res.Header.Get("X-Ratelimit-Used"); used != row.used {
			t.Errorf("%s with %q: X-RateLimit-Used is %q, want %q", row.path, row.policies, used, row.used)
		}
		if want := strings.Count(row.path, "hints"); hints != want {
			t.Errorf("%s: %d early hints, want %d", row.path, hints, want)
		}
	}
}

// upgrade asks for another protocol, and returns the connection, the answer, and what
// reads from it.
func upgrade(t *testing.T, g *gate) (net.Conn, *http.Response, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	io.WriteString(conn,
		"GET /socket HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n")

	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, res, r
}

// echo is an upstream that takes the connection over and returns what it gets.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprintf(rw,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nRateLimit: \"up\";r=1\r\n\r\n",
		r.Header.Get("Upgrade"))
	rw.Flush()
	io.Copy(conn, rw)
}

func TestProxyHoldsTheLeaseOfAWebSocket(t *testing.T) {
	g := before(t, echo, func(o *options) { o.policies = []policy.Policy{limited("1 concurrent ttl=1m")} })
	conn, res, r := upgrade(t, g)
	if res.StatusCode != 101 || res.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("answered with %d %v", res.StatusCode, res.Header)
	}
	if got := res.Header["Ratelimit"]; len(got) != 1 || strings.HasPrefix(got[0], `"up"`) {
		t.Errorf("RateLimit is %q, want that of the gateway alone", got)
	}

	for i := range 3 {
		text := fmt.Sprintf("message %d\n", i)
		io.WriteString(conn, text)
		if got, err := r.ReadString('\n'); err != nil || got != text {
			t.Fatalf("%q came back, %v; want %q", got, err, text)
		}
	}

	// One connection is allowed at a time, and the first is still open.
	if _, res, _ := upgrade(t, g); res.StatusCode != 429 {
		t.Errorf("a second connection was answered with %d, want 429", res.StatusCode)
	}

	conn.Close()
	deadline := time.Now().Add(time.Minute)

	// The gateway learns of the end on its own time: until then the second is refused.
	for {
		_, res, _ := upgrade(t, g)
		if res.StatusCode == 101 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the lease was not released when the connection ended")
		}
	}
}

func TestProxyReleasesTheLeaseOfARequest(t *testing.T) {
	inside, end := make(chan bool), make(chan bool)
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			inside <- true
			<-end
		}
	}, func(o *options) { o.policies = []policy.Policy{limited("1 concurrent ttl=1m")} })

	done := make(chan bool)
	go func() {
		ask(t, g.Client(), request(t, "GET", g.URL+"/slow", nil))
		close(done)
	}()

	<-inside
	if res, _ := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil)); res.StatusCode != 429 {
		t.Errorf("a second request was answered with %d, want 429", res.StatusCode)
	}

	close(end)
	<-done
	if res, _ := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil)); res.StatusCode != 200 {
		t.Errorf("after the first the next was answered with %d, want 200", res.StatusCode)
	}
}

// Only a protocol that is named is asked for, because a tunnel is one counted request. That
// which clients send to say so does not reach the upstream either.
func TestProxyPassesOnNoOtherUpgrade(t *testing.T) {
	for name, row := range map[string]struct {
		named  []string
		header string
		want   string // that the upstream gets
	}{
		"websocket": {nil, "Connection: Upgrade\r\nUpgrade: WebSocket\r\n", "Upgrade WebSocket"},
		"h2c": {nil,
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n", " "},
		"TLS":                   {nil, "Connection: upgrade\r\nUpgrade: TLS/1.2\r\n", " "},
		"a list":                {nil, "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n", " "},
		"two lines":             {nil, "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", " "},
		"two lines, h2c first":  {nil, "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n", " "},
		"without a connection":  {nil, "Upgrade: h2c\r\n", " "},
		"one that is named":     {[]string{"mqtt"}, "Connection: Upgrade\r\nUpgrade: MQTT\r\n", "Upgrade MQTT"},
		"one that is not named": {[]string{"mqtt"}, "Connection: Upgrade\r\nUpgrade: websocket\r\n", " "},
	} {
		g := before(t, func(w http.ResponseWriter, r *http.Request) {
			for name := range r.Header {
				if strings.HasPrefix(name, "Http2") {
					t.Errorf("the upstream gets %s", name)
				}
			}
			fmt.Fprint(w, r.Header.Get("Connection"), " ", r.Header.Get("Upgrade"))
		}, func(o *options) { o.Upgrades = row.named })
		if _, got := raw(t, g, "GET / HTTP/1.1\r\nHost: a\r\n"+row.header+"\r\n"); got != row.want {
			t.Errorf("%s: the upstream gets %q, want %q", name, got, row.want)
		}
	}
}

// raw sends the bytes of a request, and returns the answer and its body.
func raw(t *testing.T, g *gate, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, request)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// The upstream learns that a request is over the limit of a policy that degrades, and nobody
// else can say so, nor anything else by a name that it reads as another's.
func TestProxyTellsTheUpstreamWhatIsDegraded(t *testing.T) {
	soft := limited("2/1h fixed-window")
	soft.OnLimit = "degrade"

	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)

		fmt.Fprint(w, r.Header["Headgate-Degraded"], r.Trailer["Headgate-Degraded"])

		// X_User and X.User are read as X-User by servers that put names into variables, as CGI
		// does.
		for _, h := range []http.Header{r.Header, r.Trailer} {
			for name := range h {
				if strings.ContainsAny(name, "_.") || strings.Contains(name, "User") && name != "User-Agent" {
					fmt.Fprint(w, name)
				}
			}
		}
	}, func(o *options) {
		o.policies, o.trusted, o.user = []policy.Policy{soft}, []string{"10.9.9.9"}, "X-User"
	})

	for _, want := range []string{"[] []", "[] []", "[1] []", "[1] []"} {
		// Each request claims in every spelling, in headers and in trailers, that it is degraded
		// and is root. The limit is 2.
		_, got := raw(t, g,
			"POST / HTTP/1.1\r\nHost: a\r\nHeadgate-Degraded: 7\r\nheadgate-degraded: 8\r\nHeadgate_Degraded: 9\r\n"+
				"X_User: root\r\nX.User: root\r\nX-User: root\r\nX_Forwarded_For: 1.2.3.4\r\nTrailer: Headgate-Degraded, X_User, X-User\r\nTransfer-Encoding: chunked\r\n\r\n"+
				"1\r\na\r\n0\r\nHeadgate-Degraded: 1\r\nX_User: root\r\nX-User: root\r\nNot-Announced: 1\r\n\r\n")
		if got != want {
			t.Errorf("the upstream gets %q, want %q", got, want)
		}
	}
}

func TestProxyPassesOnTrailers(t *testing.T) {
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v", body, r.Trailer)
	}, nil)
	_, got := raw(t, g,
		"POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: abc\r\nX-T: d\r\n\r\n")
	if want := "a map[X-T:[abc d]]"; got != want {
		t.Errorf("the upstream gets %q, want %q", got, want)
	}
}

// The target * is that of OPTIONS alone.
func TestProxyRefusesTheTargetOfAll(t *testing.T) {
	g := before(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, nil)
	if res, _ := raw(t, g, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"); res.StatusCode != 400 {
		t.Errorf("GET * gets %d", res.StatusCode)
	}
}

func TestProxyMakesNoTunnels(t *testing.T) {
	g := before(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, nil)
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 405 {
		t.Errorf("%v %v", res, err)
	}
}

// answers asks n times and returns the status of the last answer.
func answers(t *testing.T, g *gate, n int, r func() *http.Request) int {
	t.Helper()
	status := 0
	for range n {
		res, body := ask(t, g.Client(), r())
		status = res.StatusCode

		if ct := res.Header.Get("Content-Type"); ct != "application/problem+json" ||
			!strings.Contains(body, fmt.Sprint(`"status":`, status)) {
			t.Errorf("answered with %d %s %q", status, ct, body)
		}

		if len(res.Header["Ratelimit"]) != 1 {
			t.Errorf("%d has the headers RateLimit %q", status, res.Header["Ratelimit"])
		}
	}
	return status
}

func TestProxyTellsFailuresApart(t *testing.T) {
	hang := make(chan bool)
	hangs := func(http.ResponseWriter, *http.Request) { <-hang }
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	reads := func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }

	get := func(g *gate) func() *http.Request {
		return func() *http.Request { return request(t, "GET", g.URL+"/", nil) }
	}
	for _, row := range []struct {
		name   string
		gate   *gate
		ask    func(*gate) func() *http.Request
		status int
		text   string
	}{
		// No process listens on the port, and no other test takes it.
		{"refused", beforeURL(t, "http://"+freeport.Addr(t), nil), get, 502, "the upstream refuses connections"},

		// The address of broadcast: a connection to it fails at once on every machine.
		{"no way", beforeURL(t, "http://255.255.255.255", nil), get, 502, "the upstream cannot be reached"},
		{"late", before(t, hangs, func(o *options) { o.upstreams[0].HeaderTimeout = 20 * time.Millisecond }), get, 504,
			"the upstream did not answer in time"},
		{"broken", before(t, breaks, nil), get, 502, "the upstream broke off a request"},
		{"too large", before(t, reads, func(o *options) { o.BodyBytes = 10 }), func(g *gate) func() *http.Request {
			return func() *http.Request { return request(t, "POST", g.URL+"/", strings.NewReader("12345678901")) }
		}, 413, "a request had a larger body"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if status := answers(t, row.gate, 5, row.ask(row.gate)); status != row.status {
				t.Errorf("answered with %d, want %d", status, row.status)
			}

			// Five at once are one line at first, and the other four are counted when the log
			// ends.
			if log := row.gate.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, row.text) {
				t.Errorf("five failures were logged as\n%swant one line with %q", log, row.text)
			}
			row.gate.proxy.options.Log.Close()
			if log := row.gate.log.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "count=4") {
				t.Errorf("at the end the log is\n%swant the count of four more", log)
			}
		})
	}

	close(hang)
}

func TestProxyBoundsABodyOfUnknownSize(t *testing.T) {
	g := before(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }, nil)
	h := g.Config.Handler
	g.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1000)
		h.ServeHTTP(w, r)
	})

	// A reader without a size is sent in chunks: the bound is met while the body is on its way.
	unknown := func(n int) io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, n))) }

	if res, _ := ask(t, g.Client(), request(t, "POST", g.URL+"/", unknown(1000))); res.StatusCode != 200 {
		t.Errorf("1000 bytes: %d", res.StatusCode)
	}
	if res, _ := ask(t, g.Client(), request(t, "POST", g.URL+"/", unknown(1001))); res.StatusCode != 413 {
		t.Errorf("1001 bytes: %d", res.StatusCode)
	}
}

func TestProxyEndsTheRequestOfAClientThatHasGone(t *testing.T) {
	inside, ended := make(chan bool), make(chan bool)
	g := before(t, func(_ http.ResponseWriter, r *http.Request) {
		inside <- true
		<-r.Context().Done()
		ended <- true
	}, func(o *options) { o.policies = []policy.Policy{limited("1 concurrent ttl=1m")} })

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-inside
		cancel()
	}()

	if res, err := g.Client().Do(request(t, "GET", g.URL+"/", nil).WithContext(ctx)); err == nil {
		t.Errorf("answered with %d", res.StatusCode)
	}
	<-ended // the upstream learns of it

	// The second client goes by its connection instead of its context: over the network both look
	// the same.
	go func() {
		<-inside
		g.CloseClientConnections()
	}()

	deadline := time.Now().Add(time.Minute)
	for { // until the lease is free
		res, err := g.Client().Do(request(t, "GET", g.URL+"/", nil))
		if err != nil {
			break // the upstream was asked, so the lease was free
		}
		res.Body.Close()
		if res.StatusCode != 429 || time.Now().After(deadline) {
			t.Fatalf("answered with %d", res.StatusCode)
		}
	}

	<-ended

	// That a client went away is no failure of the upstream, which would be logged as one.
	if log := g.log.String(); log != "" {
		t.Errorf("a client that went away was logged:\n%s", log)
	}
}

func TestProxyBreaksOffAnAnswerThatTheUpstreamBreaksOff(t *testing.T) {
	g := before(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "200000")
		w.Write(make([]byte, 100000))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, nil)

	for range 3 {
		res, err := g.Client().Do(request(t, "GET", g.URL+"/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err == nil || len(body) > 100000 {
			t.Errorf("the client got %d bytes and %v, want a part and an error", len(body), err)
		}
		res.Body.Close()
	}

	if log := g.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "an answer was broken off") {
		t.Errorf("three were logged as\n%s", log)
	}
}
