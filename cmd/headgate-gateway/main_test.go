package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/headgate/headgate/internal/test/redistest"
)

// file writes a file of policies for the application default.
func file(t *testing.T, limits ...string) string {
	t.Helper()
	text := "policies:\n"
	if len(limits) == 0 {
		text = "policies: []\n"
	}
	for i, l := range limits {
		text += "- {name: limit" + string(rune('a'+i)) + ", apps: [default], key: global, limit: " + l + "}\n"
	}
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// get returns the status of an answer, or 0 if there is none.
func get(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	// A connection of its own, so that a port that no longer listens is seen at once.
	r.Close = true
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0
	}

	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return res.StatusCode
}

// slow is an upstream whose path /slow answers when the test says so.
func slow(t *testing.T) (url string, inside, end chan bool) {
	t.Helper()

	inside, end = make(chan bool, 8), make(chan bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			inside <- true
			// A request that the gateway breaks off must not hold the upstream.
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, inside, end
}

func TestGatewayStartsWithoutAnySettings(t *testing.T) {
	upstream, _, _ := slow(t)
	p := begin(t, "gateway", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-upstream", upstream)
	proxy, admin := "http://"+p.address(t, "proxy")+"/", "http://"+p.address(t, "admin")

	passed := 0
	for get(t, proxy) == 200 {
		passed++
	}
	if passed < 20 || passed > 21 { // a unit of the example comes back each second
		t.Errorf("%d passed, want the 20 of the example", passed)
	}

	if status := get(t, proxy); status != 429 {
		t.Errorf("the next is answered with %d", status)
	}

	if a, b, c := get(t, admin+"/healthz"), get(t, admin+"/readyz"),
		get(t, admin+"/"); a != 200 || b != 200 || c != 404 {
		t.Errorf("the admin port answers %d %d %d, want 200 200 404", a, b, c)
	}

	// The first to be refused shows up on the page, and both refusals in the metrics.
	if body := read(t, admin+"/debug/limits?format=json"); !strings.Contains(body, `"per-address"`) ||
		!strings.Contains(body, `"\"127.0.0.1\""`) {
		t.Errorf("the page of limits does not show who is refused: %s", body)
	}

	if got := decisions(t, read(t, admin+"/metrics")); got["per-address allowed"] != float64(passed) ||
		got["per-address refused"] != 2 {
		t.Errorf("the metrics are %v, want %d allowed and 2 refused", got, passed)
	}

	if out := p.output(); !strings.Contains(out, "built-in example") ||
		!strings.Contains(out, "Try:  curl -i http://127.0.0.1") {
		t.Errorf("it does not say what to try:\n%s", out)
	}

	p.cmd.Process.Signal(os.Interrupt)
	if code := p.end(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, p.output())
	}
}

// decisions returns the counts of headgate_decisions_total by rule and result, in the text of a
// page of metrics.
func decisions(t *testing.T, text string) map[string]float64 {
	t.Helper()

	counts := map[string]float64{}
	for from := expfmt.NewDecoder(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeTextPlain)); ; {
		family := &dto.MetricFamily{}
		if err := from.Decode(family); err == io.EOF {
			return counts
		} else if err != nil {
			t.Fatal(err)
		}

		// The other families of the page are of the process and of Go.
		if family.GetName() != "headgate_decisions_total" {
			continue
		}

		for _, m := range family.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			counts[labels["headgate_rule"]+" "+labels["headgate_result"]] = m.GetCounter().GetValue()
		}
	}
}

// read returns the body of a page.
func read(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res.Status, err)
	}
	return string(body)
}

// The command that a gateway without settings prints works, and shows the example's limit.
func TestGatewayPrintsACommandThatWorks(t *testing.T) {
	p := begin(t, "gateway", "-listen", "127.0.0.1:0")
	p.until(t, "it prints a command", func() bool {
		return strings.Contains(p.output(), "Try:  curl -i http://"+p.address(t, "api")+"/v1/take ")
	})

	_, body, _ := strings.Cut(p.output(), "-d '")
	body, _, _ = strings.Cut(body, "'\n")

	allowed := 0
	for range 25 {
		res, err := http.Post("http://"+p.address(t, "api")+"/v1/take", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}

		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(text), `"policy":"per-address"`) {
			t.Fatalf("%d %s %v", res.StatusCode, text, err)
		}

		if strings.Contains(string(text), `"allowed":true,"outcome"`) {
			allowed++
		}
	}

	if allowed < 20 || allowed > 21 { // a unit of the example comes back each second
		t.Errorf("%d allowed, want the 20 of the example", allowed)
	}
}

func TestGatewayFinishesRequestsAtItsEnd(t *testing.T) {
	upstream, inside, end := slow(t)
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)

	// The gateways share a lease in Redis, which the request at the first one holds.
	args := []string{"-listen", "127.0.0.1:0", "-upstream", upstream, "-policies", file(t, "1 concurrent ttl=1m"),
		"-redis", "redis://" + addr, "-redis-prefix", prefix, "-redis-timeout", "5s"}

	one, two := begin(t, "gateway", append(args, "-admin-listen", "127.0.0.1:0")...), begin(t, "gateway", args...)
	first, second := "http://"+one.address(t, "proxy"), "http://"+two.address(t, "proxy")
	ready := "http://" + one.address(t, "admin") + "/readyz"

	answer := make(chan int)
	go func() { answer <- get(t, first+"/slow") }()
	<-inside

	if status := get(t, second+"/"); status != 429 {
		t.Fatalf("while the other gateway holds the lease: %d", status)
	}

	// The order of the end: not ready, then no new connections, and the request under way to its
	// end.
	one.cmd.Process.Signal(syscall.SIGTERM)
	one.until(t, "it is not ready", func() bool { return get(t, ready) == 503 })
	one.until(t, "it refuses connections", func() bool { return get(t, first+"/") == 0 })

	close(end)
	if status := <-answer; status != 200 {
		t.Errorf("the request under way is answered with %d", status)
	}
	if code := one.end(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, one.output())
	}

	if status := get(t, second+"/"); status != 200 {
		t.Errorf("after its end the lease is not free: %d", status)
	}
}

// A WebSocket that goes on for ever is broken off within the time-out, and its lease is
// released by then.
func TestGatewayEndsWithinItsTimeout(t *testing.T) {
	upstream, inside, _ := slow(t)
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)

	args := []string{"-listen", "127.0.0.1:0", "-upstream", upstream, "-policies", file(t, "1 concurrent ttl=1m"),
		"-redis", "redis://" + addr, "-redis-prefix", prefix, "-redis-timeout", "5s"}

	other := begin(t, "gateway", args...)
	for _, row := range []struct {
		name    string
		timeout string
		signals int
	}{{"the time-out", "500ms", 1}, {"a second signal", "1h", 2}} {
		p := begin(t, "gateway", append(args, "-shutdown-timeout", row.timeout)...)
		answer := make(chan int)
		go func() { answer <- get(t, "http://"+p.address(t, "proxy")+"/slow") }()

		<-inside

		// A second signal is one when the first is known to have come.
		for i := range row.signals {
			p.cmd.Process.Signal(syscall.SIGTERM)
			p.until(t, "it ends", func() bool { return i > 0 || strings.Contains(p.output(), "shutting down") })
		}

		// The code says to the program that started the gateway that requests were lost.
		if code := p.end(t); code != 1 || !strings.Contains(p.output(), "requests were broken off") {
			t.Errorf("%s: it ended with %d:\n%s", row.name, code, p.output())
		}

		if status := <-answer; status != 503 && status != 0 {
			t.Errorf("%s: the request is answered with %d", row.name, status)
		}

		if status := get(t, "http://"+other.address(t, "proxy")+"/"); status != 200 {
			t.Errorf("%s: after its end the lease is not free: %d", row.name, status)
		}
	}
}

func TestGatewayServesAWebSocketWithItsBounds(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		io.Copy(conn, rw)
	}))

	defer up.Close()

	// Both bounds are far below the pauses of the test: they hold until the protocol is another
	// one.
	p := begin(t, "gateway", "-listen", "127.0.0.1:0", "-upstream", up.URL, "-policies", file(t, "10/1h"),
		"-piece-timeout", "50ms", "-idle-timeout", "50ms")

	conn, err := net.Dial("tcp", p.address(t, "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatal(res, err)
	}

	for range 2 {
		io.WriteString(conn, "ping\n")
		if line, err := r.ReadString('\n'); err != nil || line != "ping\n" {
			t.Fatalf("%q %v", line, err)
		}
		conn.SetReadDeadline(time.Now().Add(150 * time.Millisecond)) // longer than the bounds
		if _, err := r.ReadByte(); !os.IsTimeout(err) {
			t.Fatalf("a resting connection ended: %v", err)
		}
		conn.SetReadDeadline(time.Time{})
	}
}

// The faces that cannot carry out a policy are named, and those that can are not.
func TestCheckNamesWhatFacesLeaveOut(t *testing.T) {
	p := begin(t, "gateway", "-check", "-policies", file(t, "1 concurrent ttl=1m", "5/1h", "5/1h, refund: [304], cost: 2",
		"5/1h, count_only: [401]"), "-upstream",
		"http://127.0.0.1:1",
		"-api-listen", "127.0.0.1:0", "-envoy-listen", "127.0.0.1:0", "-spoe-listen", "127.0.0.1:0", "-trusted-proxy",
		"127.0.0.1")
	if code := p.end(t); code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, p.output())
	}

	// A lease can be released by the proxy and by a caller of the JSON API alone.
	for _, row := range []struct {
		face string
		want int
	}{{"proxy", 0}, {"forward-auth", 1}, {"envoy", 1}, {"spoe", 1}, {"json", 0}} {
		if n := strings.Count(p.output(), "a face leaves out a policy that it cannot carry out\" face="+row.face+
			" app=default policy=limita "); n != row.want {
			t.Errorf("%s: %d warnings, want %d:\n%s", row.face, n, row.want, p.output())
		}
	}

	// The proxy alone sees how a request is answered.
	for _, row := range []struct {
		face string
		want int
	}{{"proxy", 0}, {"forward-auth", 2}, {"envoy", 2}, {"spoe", 2}, {"json", 2}} {
		if n := strings.Count(p.output(), "a face sees no answers, so none gives units of this policy back\" face="+
			row.face+" app=default policy=limit"); n != row.want {
			t.Errorf("%s: %d warnings about answers, want %d:\n%s", row.face, n, row.want, p.output())
		}
	}

	if n := strings.Count(p.output(), "so the cost of this policy means nothing there\" face=envoy app=default "+
		"policy=limitc"); n != 1 || strings.Count(p.output(), "the cost of this policy") != 1 {
		t.Errorf("%d warnings about a cost:\n%s", n, p.output())
	}

	// The limit that all faces can carry out is not named, and a check serves nothing.
	if strings.Contains(p.output(), "policy=limitb") || strings.Contains(p.output(), "msg=serving") {
		t.Errorf("it has printed\n%s", p.output())
	}
}

func TestGatewayNamesItsMistakes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer taken.Close()
	for _, row := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		// Each row is a way to start that ends, by its code: 1 is a mistake, and the text names
		// what to mend.
		{"settings", []string{"-listen", "x", "-max-keys", "y"}, 1,
			[]string{"headgate-gateway: -listen: ", "-max-keys: "}},
		{"a port that is taken", []string{"-listen", taken.Addr().String()}, 1,
			[]string{"headgate-gateway: api: listen tcp " + taken.Addr().String()}},
		{"a file that is not there", []string{"-policies", "/does/not/exist.yaml", "-upstream", "http://127.0.0.1:1"},
			1, []string{"/does/not/exist.yaml"}},
		{"policies", []string{"-check", "-upstream", "http://127.0.0.1:1", "-policies", file(t, "often", "1/1h x")}, 1,
			[]string{"often"}},
		{"nothing", []string{"-check", "-upstream", "http://127.0.0.1:1", "-policies", file(t, "1/1h")}, 0,
			[]string{"the configuration and the policies are valid"}},
		{"another application", []string{"-check", "-upstream", "http://127.0.0.1:1", "-policies", file(t, "1/1h"),
			"-app", "default", "-app", "shop", "-app", "blog"}, 1,
			[]string{"no policy names the application shop, blog, so nothing would be limited there"}},
		{"no policies", []string{"-check", "-upstream", "http://127.0.0.1:1", "-policies", file(t)}, 1,
			[]string{"no policy names the application default"}},
		{"limits of Envoy", []string{"-check", "-envoy-listen", "127.0.0.1:0", "-envoy-limits", "../../examples/gateway/envoy-limits",
			"-policies", file(t)}, 0, []string{"HG018", "the configuration and the policies are valid"}},
		{"no Redis", []string{"-check", "-upstream", "http://127.0.0.1:1", "-redis", "redis://127.0.0.1:1"}, 1,
			[]string{"connection refused"}},
		{"the version", []string{"-version"}, 0, []string{"headgate-gateway ", "go1."}},
		{"help", []string{"-h"}, 0, []string{"-upstream", "-shutdown-timeout"}},
	} {
		p := begin(t, "gateway", row.args...)
		if code := p.end(t); code != row.code {
			t.Errorf("%s: it ended with %d, want %d:\n%s", row.name, code, row.code, p.output())
		}

		for _, want := range row.want {
			if !strings.Contains(p.output(), want) {
				t.Errorf("%s: it does not say %q:\n%s", row.name, want, p.output())
			}
		}
	}
}
