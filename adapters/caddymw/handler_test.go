package caddymw

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte("policies:\n- {name: p, apps: [a], "+text+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// provision returns a handler as Caddy makes it.
func provision(t *testing.T, c Config) *Handler {
	t.Helper()
	h := &Handler{Config: c}
	if err := h.open(slog.DiscardHandler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(h.Cleanup(), h.Cleanup())
		if err != nil && c.Redis == "" { // without Redis the last counts of the page are lost
			t.Error(err)
		}
	})
	return h
}

// newTry returns a request as Caddy's server prepares it.
func newTry() *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), nil)
}

func serve(t *testing.T, h *Handler, r *http.Request, next caddyhttp.HandlerFunc) (*httptest.ResponseRecorder, error) {
	t.Helper()
	caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, "192.0.2.1")
	w := httptest.NewRecorder()
	err := h.ServeHTTP(w, r, next)
	return w, err
}

func hello(w http.ResponseWriter, _ *http.Request) error {
	_, err := io.WriteString(w, "hi")
	return err
}

func TestUnmarshalCaddyfileReadsEveryOption(t *testing.T) {
	// Every option at least once, none with its default: the loop at the end finds one that was
	// added and is not here.
	var h Handler
	err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`headgate {
		app a
		policies limits.yaml
		redis {env.URL}
		prefix x:
		timeout 20ms
		expected 3
		on_store_error closed
		headers x-ratelimit-delta ratelimit
		poll 1s
		last_good good.json
		plan claim {http.auth.user.plan}
		upgrades websocket mqtt
		plan header {header.X-Plan}
		handle_errors
	}`))

	want := Config{App: "a", Policies: "limits.yaml", Redis: "{env.URL}", Prefix: "x:", Timeout: 20e6, Expected: 3,
		OnStoreError: "closed",
		Headers:      []string{"x-ratelimit-delta", "ratelimit"}, Poll: 1e9, LastGood: "good.json", HandleErrors: true,
		Upgrades: []string{"websocket", "mqtt"},
		Plans:    map[string]string{"claim": "{http.auth.user.plan}", "header": "{header.X-Plan}"}}
	if err != nil || !reflect.DeepEqual(h.Config, want) {
		t.Errorf("%+v %v", h.Config, err)
	}

	// Caddy keeps its configuration as JSON, and loads it again from there.
	text, err := json.Marshal(&h)
	var again Handler
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil || !reflect.DeepEqual(again.Config, want) {
		t.Errorf("%s: %+v %v", text, again.Config, err)
	}

	for i := range reflect.TypeFor[Config]().NumField() {
		if reflect.ValueOf(want).Field(i).IsZero() {
			t.Errorf("%s is not tried", reflect.TypeFor[Config]().Field(i).Name)
		}
	}
}

func TestDirectiveIsBehindAuthentication(t *testing.T) {
	text, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(`:80 {
	reverse_proxy 127.0.0.1:1
	encode gzip
	headgate {
		app a
		policies limits.yaml
	}
	basic_auth {
		ann JDJhJDA0JDVkL0ZGcGJZSDRrcTRPMlV4bHNVNk9
	}
	rewrite /x /y
}`), nil)
	if err != nil {
		t.Fatal(err, warnings)
	}

	// Where Caddy sorts the directive: behind the user's name, and before what makes or changes an
	// answer.
	last := -1
	for _, name := range []string{`"rewrite"`, `"authentication"`, `"headgate"`, `"encode"`, `"reverse_proxy"`} {
		at := bytes.Index(text, []byte(`"handler":`+name))
		if at <= last {
			t.Errorf("%s is at %d, after %d:\n%s", name, at, last, text)
		}
		last = at
	}
}

// Two handlers of one configuration in a row count a request once.
func TestNestedHandlersCountOnce(t *testing.T) {
	c := Config{App: "a", Policies: file(t, "limit: 2/1h fixed-window, key: ip")}
	outer, inner := provision(t, c), provision(t, c)
	passed := 0
	for range 3 {
		_, err := serve(t, outer, newTry(), func(w http.ResponseWriter, r *http.Request) error {
			return inner.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
				passed++
				return hello(w, r)
			}))
		})
		if err != nil {
			t.Error(err)
		}
	}

	if passed != 2 {
		t.Errorf("%d requests passed, want 2", passed)
	}
}

// The headers of limits in a row are merged, and nothing else is in the header map.
func TestHandlersOfDifferentLimitsMergeTheirHeaders(t *testing.T) {
	outer := provision(t,
		Config{App: "a", Policies: file(t, "limit: 9/1h fixed-window, key: ip"), Headers: []string{"ratelimit"}})

	path := filepath.Join(t.TempDir(), "limits.json")
	if err := os.WriteFile(path,
		[]byte(`{"policies":[{"name":"q","apps":["b"],"limit":"2/1h fixed-window","key":"ip"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}

	inner := provision(t, Config{App: "b", Policies: path, Headers: []string{"ratelimit"}})
	w, err := serve(t, outer, newTry(), func(w http.ResponseWriter, r *http.Request) error {
		return inner.ServeHTTP(w, r, caddyhttp.HandlerFunc(hello))
	})

	// Beside the two headers of limits there is the type that the recorder sees in the body.
	if err != nil || len(w.Header()) != 3 || w.Header().Get("Ratelimit-Policy") != `"p";q=9;w=3600, "q";q=2;w=3600` ||
		!strings.HasPrefix(w.Header().Get("Ratelimit"), `"q";r=1;`) {
		t.Errorf("%v %v", w.Header(), err)
	}
}

func TestDegradedRequestsHaveAVariable(t *testing.T) {
	h := provision(t, Config{App: "a", Policies: file(t, "limit: 1/1h fixed-window, key: ip, on_limit: degrade")})
	for _, want := range []any{nil, "true"} {
		_, err := serve(t, h, newTry(), func(_ http.ResponseWriter, r *http.Request) error {
			if got := caddyhttp.GetVar(r.Context(), "headgate.degraded"); got != want {
				t.Errorf("%v, want %v", got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The recorder reports the status that the client sees.
func TestRecorderKnowsTheStatus(t *testing.T) {
	for name, row := range map[string]struct {
		next caddyhttp.HandlerFunc
		want int
	}{
		"nothing": {func(http.ResponseWriter, *http.Request) error { return nil }, 200},
		"a body":  {hello, 200},

		// The first status is sent, and no other one after it. A hint of the range 1xx is not yet
		// one.
		"a status": {func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(404)
			w.WriteHeader(500)
			return nil
		}, 404},
		"a hint": {func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(103)
			w.WriteHeader(201)
			return nil
		}, 201},
		"a copy": {func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.Copy(w, strings.NewReader("hi"))
			return err
		}, 200},
		"an error": {func(http.ResponseWriter, *http.Request) error { return errors.New("x") }, 500},
		"Caddy's error": {func(http.ResponseWriter, *http.Request) error {
			return caddyhttp.Error(502, errors.New("x"))
		}, 502},

		"without status": {func(http.ResponseWriter, *http.Request) error { return caddyhttp.HandlerError{} }, 500},

		// What was sent before the error is what the client has.
		"a late error": {func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(202)
			return caddyhttp.Error(502, errors.New("x"))
		}, 202},
	} {
		rec := &recorder{
			ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: httptest.NewRecorder()}}
		err := row.next(rec, nil)

		if got := cmp.Or(rec.sent, statusOfError(err)); got != row.want {
			t.Errorf("%s: %d, want %d", name, got, row.want)
		}
	}
}

// A lease is released after a panic, too.
func TestPanicReleasesLease(t *testing.T) {
	h := provision(t, Config{App: "a", Policies: file(t, "limit: 1 concurrent ttl=1m, key: ip")})
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic: the request was refused")
				}
			}()
			_, _ = serve(t, h, newTry(), func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) })
		}()
	}
}

// A client without an address, as at a Unix socket, shares one count with others of its
// kind, and the log goes to the configuration that runs.
func TestLogFollowsTheConfiguration(t *testing.T) {
	c := Config{App: "a", Policies: file(t, "limit: 1/1h fixed-window, key: ip")}
	first := provision(t, c)
	var old, now bytes.Buffer
	first.engine.log.set(slog.NewTextHandler(&old, nil))

	// The logger stays in the engine, which a reload hands over: it must not write to the log of
	// before.
	logger := first.engine.logger.With("k", 1).WithGroup("g")
	logger.Info("before")

	second := provision(t, c)
	if second.engine != first.engine {
		t.Fatal("two engines of one configuration")
	}

	second.engine.log.set(slog.NewTextHandler(&now, nil))
	logger.Info("after", "x", 2)
	if !strings.Contains(old.String(), "msg=before k=1") || strings.Contains(old.String(), "after") ||
		!strings.Contains(now.String(), "msg=after k=1 g.x=2") {
		t.Errorf("%s\n%s", &old, &now)
	}

	r := newTry()
	r.RemoteAddr = "@"
	if got := newRequest(r).RemoteAddr(); got != "" {
		t.Errorf("the address %q of a client without one", got)
	}
}

// The lease of a connection that was taken over ends with it, also after the handler.
func TestConnectionKeepsLease(t *testing.T) {
	h := provision(t, Config{App: "a", Policies: file(t, "limit: 1 concurrent ttl=1m, key: ip")})
	taken := make(chan net.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
		_ = h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			conn, _, err := http.NewResponseController(w).Hijack()
			taken <- conn
			return err
		}))
	}))

	defer server.Close()
	client, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	defer client.Close()
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}

	conn := <-taken
	try := func(want int) {
		t.Helper()

		// Without the variable that serve sets, as the request of the connection: both are of
		// clients without an address, who share one count.
		r := newTry()
		w := httptest.NewRecorder()
		if err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(hello)); err != nil || w.Code != want {
			t.Errorf("%d %v, want %d", w.Code, err, want)
		}
	}

	try(429)
	conn.Close()
	try(200)
}

// Without a Redis that answers, the option decides.
func TestOnStoreError(t *testing.T) {
	for mode, want := range map[string]string{"open": "200 200 200 ", "closed": "503 503 503 ", "local": "200 429 429 ",
		"": "200 429 429 "} {
		h := provision(t,
			Config{App: "a", Policies: file(t, "limit: 2/1h fixed-window, key: ip"), Redis: "redis://127.0.0.1:1",
				Expected: 2, OnStoreError: mode})
		got := ""

		for range 3 {
			w, err := serve(t, h, newTry(), hello)
			if err != nil {
				t.Error(err)
			}
			got += strconv.Itoa(w.Code) + " "
		}
		if got != want {
			t.Errorf("%q: %s, want %s", mode, got, want)
		}
	}
}

// Only a WebSocket is one conversation, so no other protocol is asked for.
func TestHandlerPassesOnNoOtherUpgrade(t *testing.T) {
	h := provision(t, Config{App: "a", Policies: file(t, "limit: 100/1h, key: ip")})
	for name, row := range map[string]struct {
		wish []string
		want string
	}{
		"none":      {nil, "Upgrade"},
		"websocket": {[]string{"WebSocket"}, "Upgrade WebSocket"},
		"h2c":       {[]string{"h2c"}, ""},
		"a list":    {[]string{"h2c, websocket"}, ""},
		"two lines": {[]string{"websocket", "h2c"}, ""},
	} {
		r := newTry()
		r.Header["Upgrade"], r.Header["Connection"] = row.wish, []string{"Upgrade"}

		got := ""
		_, err := serve(t, h, r, func(_ http.ResponseWriter, r *http.Request) error {
			got = strings.Join(append(r.Header["Connection"], r.Header["Upgrade"]...), " ")
			return nil
		})

		if err != nil || got != row.want {
			t.Errorf("%s: %q is passed on, want %q: %v", name, got, row.want, err)
		}
	}

	h.Upgrades = []string{"mqtt"}
	for wish, want := range map[string]bool{"MQTT": true, "websocket": false} {
		r := newTry()
		r.Header["Upgrade"] = []string{wish}
		if _, err := serve(t, h, r, func(_ http.ResponseWriter, r *http.Request) error {
			if got := r.Header.Get("Upgrade") != ""; got != want {
				t.Errorf("%s is passed on: %t, want %t", wish, got, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// Costs are what a trusted proxy, the answer or its usage says.
func TestCosts(t *testing.T) {
	const usage = `{"usage": {"prompt_tokens": 30, "completion_tokens": 12}}`
	for name, row := range map[string]struct {
		cost    string
		trusted bool
		left    string // of what the next request finds
	}{
		"a proxy":   {"{header: X-Cost, default: 2}", true, "986"},
		"a client":  {"{header: X-Cost, default: 2}", false, "996"},
		"an answer": {"{answer_header: X-Cost, estimate: 9}", true, "984"},
		"its usage": {"{usage: tokens, estimate: 50}", true, "908"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := file(t, "limit: 1000/1h fixed-window, key: ip, cost: "+row.cost)
			h := provision(t, Config{App: "a", Policies: limits})

			left := ""
			for range 2 {
				// Only a server says which proxies it trusts.
				r := caddyhttp.PrepareRequest(httptest.NewRequest("GET", "/", nil), caddy.NewReplacer(),
					httptest.NewRecorder(), &caddyhttp.Server{TrustedProxiesStrict: 1})
				r.Header.Set("X-Cost", "7")
				r.Header.Set("Accept-Encoding", "gzip")
				caddyhttp.SetVar(r.Context(), caddyhttp.TrustedProxyVarKey, row.trusted)

				w, err := serve(t, h, r, func(w http.ResponseWriter, _ *http.Request) error {
					w.Header().Set("X-Cost", "7")
					_, err := io.Copy(w, strings.NewReader(usage))
					return err
				})
				if err != nil || w.Body.String() != usage || w.Header().Get("X-Cost") != "7" {
					t.Errorf("%q, %v", w.Body, err)
				}
				left = w.Header().Get("X-RateLimit-Remaining")
			}

			// The second request is charged its estimate, and the first what it has used.
			if left != row.left {
				t.Errorf("%s left, want %s", left, row.left)
			}
		})
	}
}
