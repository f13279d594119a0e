//go:build linux

// This file tests nginx and Caddy in front of two gateways, started from the files in
// examples/gateway.

package gatewaytest

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/redistest"
)

func TestMain(m *testing.M) { Main(m) }

const policies = `policies:
- {name: api, apps: [default], limit: 50/1h fixed-window, key: ip, match: {path: /api/}}
- {name: short, apps: [default], limit: 5/1h fixed-window, key: ip, match: {path: /short/}}
- {name: killed, apps: [default], limit: 50/1h fixed-window, key: ip, match: {path: /killed}}
- {name: forged, apps: [default], limit: 1/1h fixed-window, key: ip+method+host, match: {path: /forged, methods: [GET]}}
- {name: cheap, apps: [default], limit: 1/1h fixed-window, key: ip, on_limit: degrade, match: {path: /cheap}}
- {name: denied, apps: [default], limit: 9/1h, key: ip, match: {path: /denied}, access: {deny: {networks: [127.0.0.0/8]}}}
- {name: local, apps: [default], limit: 50/1h fixed-window, key: ip, on_store_error: local, match: {path: /local}}
- {name: passing, apps: [default], limit: 1000/1h fixed-window, key: ip, on_store_error: open, match: {path: /passing}}
- {name: closed, apps: [default], limit: 1000/1h fixed-window, key: ip, on_store_error: closed, match: {path: /closed}}
`

// world is a proxy before a service, and the two gateways that it asks.
type world struct {
	front    string // the URL of the proxy
	redis    *redistest.Clock
	gateways [2]*Gateway
	service  *Service
}

// proxies holds the proxies, by how they are started.
var proxies = map[string]func(t *testing.T, w *world, addr string){
	"nginx": func(t *testing.T, w *world, addr string) { w.nginx(t, addr) },
	"nginx that appends": func(t *testing.T, w *world, addr string) {
		w.nginx(t, addr, "X-Forwarded-For $remote_addr", "X-Forwarded-For $proxy_add_x_forwarded_for")
	},
	"Caddy": func(t *testing.T, w *world, addr string) {
		Caddy(t,
			Config(t, examples("Caddyfile"), "http://:8080", "http://:"+port(addr), "127.0.0.1:3000", w.service.Addr,
				"127.0.0.1:8089", w.gateways[0].Addr, "127.0.0.1:8189", w.gateways[1].Addr), addr)
	},
	"HAProxy": func(t *testing.T, w *world, addr string) {
		HAProxy(t, Config(t, examples("haproxy.cfg"), "127.0.0.1:8080", addr, "127.0.0.1:3000", w.service.Addr,
			"config haproxy-spoe.cfg", "config "+Config(t, examples("haproxy-spoe.cfg")),
			"127.0.0.1:9089", w.gateways[0].SPOE, "127.0.0.1:9189", w.gateways[1].SPOE), addr)
	},
}

// nginx starts nginx with the example, in which old texts are replaced by new ones.
func (w *world) nginx(t *testing.T, addr string, replace ...string) {
	t.Helper()
	Nginx(t, Config(t, examples("nginx.conf"), append(replace, "127.0.0.1:8080", addr, "127.0.0.1:3000", w.service.Addr,
		"127.0.0.1:8089", w.gateways[0].Addr, "127.0.0.1:8189", w.gateways[1].Addr, "http {", "http {\n"+
			temporary(t))...), addr)
}

// temporary moves nginx's temporary files, which are in a folder of root, into one of the
// test.
func temporary(t *testing.T) (lines string) {
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		lines += of + "_temp_path " + t.TempDir() + ";\n"
	}
	return lines
}

func port(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err)
	}
	return port
}

func examples(name string) string { return filepath.Join("../../../../examples/gateway", name) }

// noon is an instant at which the clock of Redis stands.
var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// patient are the arguments of gateways that wait for Redis for long, so that a busy machine
// changes no count.
var patient = []string{"-redis-timeout", "10s"}

// open starts a proxy and what it needs. The gateways get the arguments more.
func open(t *testing.T, proxy string, more ...string) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}

	w := &world{redis: redistest.StartClock(t, 0), service: Serve(t)}
	w.redis.StandAt(noon)

	// Two gateways on one Redis, each of which knows of the other by -instances.
	for i := range w.gateways {
		w.gateways[i] = Start(t,
			append([]string{"-app", "default", "-app", "other", "-redis", "redis://" + w.redis.Addr,
				"-policies", file, "-trusted-proxy", "127.0.0.1", "-instances", "2"}, more...)...)
	}

	addr := freeport.Addr(t)
	proxies[proxy](t, w, addr)
	w.front = "http://" + addr
	return w
}

// burst sends n requests, eight at a time, and returns the answers by their status.
func (w *world) burst(t *testing.T, c *http.Client, path string, n int) map[int][]Answer {
	t.Helper()
	answers := make([]Answer, n)

	todo := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range todo {
				answers[i] = Do(t, c, "GET", w.front+path, nil)
			}
		})
	}

	for i := range n {
		todo <- i
	}
	close(todo)
	wg.Wait()

	by := map[int][]Answer{}
	for _, a := range answers {
		by[a.Status] = append(by[a.Status], a)
	}
	return by
}

// counts returns how many answers there are of each status.
func counts(by map[int][]Answer) map[int]int {
	n := map[int]int{}
	for status, list := range by {
		n[status] = len(list)
	}
	return n
}

func wantCounts(t *testing.T, by map[int][]Answer, want map[int]int) {
	t.Helper()
	if got := counts(by); !maps.Equal(got, want) {
		t.Fatalf("answers %v, want %v", got, want)
	}
}

// wantHeader fails the test unless the answer has the header once, with the value; "" is
// no header at all.
func wantHeader(t *testing.T, a Answer, name, want string) {
	t.Helper()
	if got := a.Header.Values(name); len(got) > 1 || a.Header.Get(name) != want || want == "" && len(got) > 0 {
		t.Errorf("%d: %s: %q, want %q", a.Status, name, got, want)
	}
}

func TestProxies(t *testing.T) {
	for _, proxy := range slices.Sorted(maps.Keys(proxies)) {
		t.Run(proxy, func(t *testing.T) {
			w := open(t, proxy, patient...)
			t.Run("admits the quota", w.admitsTheQuota)
			t.Run("is not deceived", func(t *testing.T) { w.isNotDeceived(t, proxy) })
			t.Run("tells the service to be cheap", w.tellsToBeCheap)
			t.Run("passes on a denial", w.passesOnADenial)
			t.Run("opens no tunnel", func(t *testing.T) { w.opensNoTunnel(t, proxy) })
			t.Run("passes on no other spelling", w.passesOnNoOtherSpelling)
			t.Run("admits the quota in the short form", w.admitsTheQuotaInTheShortForm)
		})
	}
}

// admitsTheQuotaInTheShortForm is about Caddy's forward_auth. nginx has one form.
func (w *world) admitsTheQuotaInTheShortForm(t *testing.T) {
	by := w.burst(t, Client(t, "127.0.0.9"), "/short/form", 20)
	wantCounts(t, by, map[int]int{200: 5, 429: 15})
	for _, a := range by[429] {
		wantHeader(t, a, "Retry-After", "3600")
		wantHeader(t, a, "RateLimit", `"short";r=0;t=3600`)
		wantHeader(t, a, "RateLimit-Policy", `"short";q=5;w=3600`)
	}
	if n := len(w.service.Seen()); n != 5 {
		t.Errorf("the service saw %d requests, want 5", n)
	}
}

func TestProxiesWhileRedisHangs(t *testing.T) {
	for _, proxy := range slices.Sorted(maps.Keys(proxies)) {
		t.Run(proxy, func(t *testing.T) { open(t, proxy).answersWhileRedisHangs(t, proxy) })
	}
}

func (w *world) admitsTheQuota(t *testing.T) {
	c := Client(t, "127.0.0.9")
	by := w.burst(t, c, "/api/users?id=1", 200)
	wantCounts(t, by, map[int]int{200: 50, 429: 150})

	if n := len(w.service.Seen()); n != 50 {
		t.Errorf("the service saw %d requests, want 50", n)
	}

	left := map[string]int{}
	for _, a := range by[200] {
		left[a.Header.Get("RateLimit")]++
		wantHeader(t, a, "RateLimit-Policy", `"api";q=50;w=3600`)
		wantHeader(t, a, "Retry-After", "")
	}

	// Each number of what is left is in one answer: none was counted twice, and none was left out.
	for n := range 50 {
		if key := fmt.Sprintf(`"api";r=%d;t=3600`, n); left[key] != 1 {
			t.Errorf("%d answers have RateLimit: %s, want 1", left[key], key)
		}
	}

	for _, a := range by[429] {
		wantHeader(t, a, "Retry-After", "3600")
		wantHeader(t, a, "RateLimit", `"api";r=0;t=3600`)
		wantHeader(t, a, "RateLimit-Policy", `"api";q=50;w=3600`)
		wantHeader(t, a, "Content-Type", "application/problem+json")
		wantHeader(t, a, "Cache-Control", "no-store")
	}

	w.redis.StandAt(noon.Add(time.Hour - time.Microsecond))
	refused := Do(t, c, "GET", w.front+"/api/users", nil)
	if refused.Status != 429 {
		t.Fatalf("a microsecond too early: %d, want 429", refused.Status)
	}
	wantHeader(t, refused, "Retry-After", "1")
	w.redis.StandAt(noon.Add(time.Hour))
	if a := Do(t, c, "POST", w.front+"/api/users", nil); a.Status != 200 {
		t.Errorf("after the time that Retry-After said: %d, want 200", a.Status)
	}
	w.service.Seen()
}

// isNotDeceived sends the forgeries after a request that has used up the quota. One that
// is believed gets 200.
func (w *world) isNotDeceived(t *testing.T, proxy string) {
	c := Client(t, "127.0.0.10")
	if a := Do(t, c, "GET", w.front+"/forged", nil); a.Status != 200 {
		t.Fatalf("the first request: %d, want 200", a.Status)
	}
	w.service.Seen()

	all := Forgeries()
	if len(all) < 200 {
		t.Errorf("%d forgeries, want at least 200", len(all))
	}

	for _, forgery := range all {
		want := 429
		if strings.HasPrefix(proxy, "nginx") && longest(forgery.Header) > 8000 {
			want = 400 // by nginx itself
		}
		if a := Do(t, c, "GET", w.front+"/forged", forgery.Header); a.Status != want {
			t.Errorf("%s: %d, want %d", forgery.Name, a.Status, want)
		}
	}

	// The path is the same page in each of them, and the queries are those of the gateways' own
	// check.
	for _, target := range []string{"/forged/", "//forged", "/x/../forged", "/%66orged", "/FORGED?x=/other", "/forged?",
		"/forged?app=other", "/forged?deny_status=599", "/forged?app=other&deny_status=403"} {
		if a := Do(t, c, "GET", w.front+target, nil); a.Status != 429 {
			t.Errorf("%s: %d, want 429", target, a.Status)
		}
	}

	if seen := w.service.Seen(); len(seen) > 0 {
		t.Errorf("the service saw %d requests, the first %q", len(seen), seen[0].Header)
	}

	// That all are refused must not be because all callers are one.
	if a := Do(t, Client(t, "127.0.0.11"), "GET", w.front+"/forged", nil); a.Status != 200 {
		t.Errorf("another caller: %d, want 200", a.Status)
	}
	w.service.Seen()
}

func longest(h http.Header) (n int) {
	for _, values := range h {
		for _, v := range values {
			n = max(n, len(v))
		}
	}
	return n
}

func (w *world) tellsToBeCheap(t *testing.T) {
	c := Client(t, "127.0.0.9")
	for _, want := range []string{"", "1", "1"} {
		a := Do(t, c, "GET", w.front+"/cheap", http.Header{"Headgate-Degraded": {"forged"}})
		seen := w.service.Seen()
		if a.Status != 200 || len(seen) != 1 {
			t.Fatalf("%d, and the service saw %d requests", a.Status, len(seen))
		}
		if got := seen[0].Header.Values("Headgate-Degraded"); fmt.Sprint(got) !=
			fmt.Sprint(slices.DeleteFunc([]string{want}, func(s string) bool { return s == "" })) {
			t.Errorf("the service saw Headgate-Degraded %q, want %q", got, want)
		}
	}
}

// opensNoTunnel asks for protocols under no policy. The service sees only a WebSocket, and
// that only behind a proxy whose example passes it on. A gateway refuses what its proxy has left.
func (w *world) opensNoTunnel(t *testing.T, proxy string) {
	c := Client(t, "127.0.0.9")
	// nginx passes on none. Of two lines Caddy passes on the first, and HAProxy both.
	websocket, two, others := "[websocket]", "refused", "refused"
	switch {
	case strings.HasPrefix(proxy, "nginx"):
		websocket, two, others = "[]", "[]", "[]"
	case proxy == "Caddy":
		two = "[websocket]"
	}
	for name, row := range map[string]struct {
		wish []string
		want string // that the service sees
	}{
		"websocket":       {[]string{"websocket"}, websocket},
		"h2c":             {[]string{"h2c"}, "[]"},
		"a list":          {[]string{"h2c, websocket"}, "[]"},
		"two lines":       {[]string{"websocket", "h2c"}, two},
		"two other lines": {[]string{"h2c", "websocket"}, others},
	} {
		h := http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Http2-Settings": {"AAMAAABkAAQCAAAAAAIAAAAA"},
			"Upgrade":           row.wish,
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"}}
		a, seen := Do(t, c, "GET", w.front+"/free", h), w.service.Seen()

		got := fmt.Sprint(a.Status)
		switch {
		case a.Status == 400 && len(seen) == 0:
			got = "refused"
		case a.Status == 200 && len(seen) == 1:
			got = fmt.Sprint(seen[0].Header["Upgrade"])
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// passesOnNoOtherSpelling is about names that programs read as those of other headers.
func (w *world) passesOnNoOtherSpelling(t *testing.T) {
	forged := http.Header{"Headgate_Degraded": {"1"}, "HEADGATE-DEGRADED": {"1"}, "headgate_Degraded": {"1"},
		"X_User": {"root"}, "X_forwarded_For": {"1.2.3.4"}}
	a, seen := Do(t, Client(t, "127.0.0.9"), "GET", w.front+"/free", forged), w.service.Seen()
	if a.Status != 200 || len(seen) != 1 {
		t.Fatalf("%d, and the service saw %d requests", a.Status, len(seen))
	}
	for name := range seen[0].Header {
		if strings.Contains(name, "_") || name == "Headgate-Degraded" {
			t.Errorf("the service sees %s", name)
		}
	}
}

func (w *world) passesOnADenial(t *testing.T) {
	a := Do(t, Client(t, "127.0.0.9"), "GET", w.front+"/denied", nil)
	if a.Status != 403 || len(w.service.Seen()) != 0 {
		t.Errorf("%d, want 403", a.Status)
	}

	wantHeader(t, a, "Retry-After", "")
	wantHeader(t, a, "RateLimit", "")

	if free := Do(t, Client(t, "127.0.0.9"), "GET", w.front+"/free", nil); free.Status != 200 {
		t.Errorf("without a policy: %d, want 200", free.Status)
	} else {
		wantHeader(t, free, "RateLimit", "")
		if free.Body != "hello" || len(w.service.Seen()) != 1 {
			t.Errorf("without a policy the answer is %q, want that of the service", free.Body)
		}
	}
}

func (w *world) answersWhileRedisHangs(t *testing.T, proxy string) {
	const rounds = 21
	c := Client(t, "127.0.0.12")

	ask := func(path string) (list []time.Duration) {
		for range rounds {
			begun := time.Now()
			if a := Do(t, c, "GET", w.front+path, nil); a.Status != 200 {
				t.Errorf("%s: %d, want 200", path, a.Status)
			}
			list = append(list, time.Since(begun))
		}
		slices.Sort(list)
		return list
	}

	healthy := ask("/passing")
	w.redis.Freeze()
	defer w.redis.Thaw()
	frozen := ask("/passing")

	// The median without a fault stands for what the proxy and the service need.
	usual := healthy[rounds/2]
	test.AtMost(t, "added while Redis hangs, median", frozen[rounds/2]-usual, 70*time.Millisecond)
	test.AtMost(t, "added while Redis hangs, longest", frozen[rounds-1]-usual, 70*time.Millisecond)
	if frozen[rounds-1] > 5*time.Second {
		t.Errorf("an answer took %s", frozen[rounds-1])
	}

	// What the questions of the two rounds left is not counted below.
	w.service.Seen()

	closed := w.burst(t, c, "/closed", 20)
	wantCounts(t, closed, map[int]int{503: 20})
	for _, a := range closed[503] {
		if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 {
			t.Errorf("Retry-After: %q", a.Header.Get("Retry-After"))
		}
	}
	if n := len(w.service.Seen()); n != 0 {
		t.Errorf("the service saw %d requests", n)
	}

	// Each of the two gateways admits its half of the quota.
	if proxy == "HAProxy" { // which gives its gateways as many connections, not as many requests
		w.gateways[0].Kill()
		wantCounts(t, w.burst(t, c, "/local", 200), map[int]int{200: 25, 429: 175})
		return
	}
	wantCounts(t, w.burst(t, c, "/local", 200), map[int]int{200: 50, 429: 150})
}

func TestProxiesWithoutGateways(t *testing.T) {
	for _, proxy := range slices.Sorted(maps.Keys(proxies)) {
		t.Run(proxy, func(t *testing.T) {
			w := open(t, proxy, patient...)
			c := Client(t, "127.0.0.9")
			wantCounts(t, w.burst(t, c, "/killed", 20), map[int]int{200: 20})

			// The proxy goes on with the other gateway, where 30 of the 50 are left.
			w.gateways[0].Kill()
			wantCounts(t, w.burst(t, c, "/killed", 60), map[int]int{200: 30, 429: 30})

			// Without any gateway nothing passes, but where the example says that it may.
			w.gateways[1].Kill()
			w.service.Seen()
			for _, a := range w.burst(t, c, "/killed", 10)[503] {
				wantHeader(t, a, "Retry-After", "1")
			}

			if n := len(w.service.Seen()); n != 0 {
				t.Errorf("the service saw %d requests that no gateway let pass", n)
			}

			wantCounts(t, w.burst(t, c, "/killed", 10), map[int]int{503: 10})
			wantCounts(t, w.burst(t, c, "/open/killed", 10), map[int]int{200: 10})
		})
	}
}
