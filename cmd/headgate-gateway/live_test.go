package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// echoes is a server that answers with what it was asked for.
func echoes(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "host %s upgrade %s", r.Host, r.Header.Get("Upgrade"))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// policed writes a file of one policy, and returns the line of the settings that names it.
func policed(t *testing.T, fields string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, path, "policies: [{name: a, apps: [default], limit: 1/1h, "+fields+"}]")
	return "policies: " + path + "\n"
}

// statuses returns the statuses of requests, each with one header.
func (r *reloadable) statuses(headers ...string) string {
	r.t.Helper()
	var all []string
	for _, h := range headers {
		res, _ := ask(r.t, http.DefaultClient, "GET", r.url+"/", h)
		all = append(all, fmt.Sprint(res.StatusCode))
	}
	return strings.Join(all, " ")
}

// counts checks by which header a policy counts before and after a change.
func counts(key, before, after, one, other string) func(t *testing.T) {
	return func(t *testing.T) {
		common := "upstream: " + says(t, "a") + "\ntrusted-proxy: [127.0.0.1]\n" + policed(t, key)
		r := configured(t, common+before)

		// The first header tells two callers apart, and then the second.
		if got := r.statuses(one+": 192.0.2.1", one+": 192.0.2.1", one+": 192.0.2.2"); got != "200 429 200" {
			t.Errorf("before: %s", got)
		}
		r.take(common+after, "changed=")
		if got := r.statuses(other+": 192.0.2.3", other+": 192.0.2.3", other+": 192.0.2.4"); got != "200 429 200" {
			t.Errorf("after: %s", got)
		}
	}
}

// logged changes the access log and wants a line that begins or goes on so.
func logged(before, after, want string) func(t *testing.T) {
	return func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "access.log")
		common := "upstream: " + says(t, "a") + "\n"
		lines := func() string {
			text, _ := os.ReadFile(path) // which may not be there yet
			return string(text)
		}
		r := configured(t, common+strings.ReplaceAll(before, "PATH", path))
		ask(t, http.DefaultClient, "GET", r.url+"/a?b=c")
		r.take(common+strings.ReplaceAll(after, "PATH", path), "changed=")
		if strings.Contains(lines(), want) {
			t.Errorf("before: %s", lines())
		}

		// A log is written beside the answer.
		ask(t, http.DefaultClient, "GET", r.url+"/a?b=c")
		r.until(t, "the line is written", func() bool { return strings.Contains(lines(), want) })
	}
}

// elsewhere has the settings whose effect another test sees.
var elsewhere = map[string]func(*testing.T){
	"watch": TestFilesAreFollowed, "tls-cert": TestCertificatesAreReplaced, "tls-key": TestCertificatesAreReplaced,
	"tls-client-ca": TestAuthoritiesOfClientsAreReplaced,
	"json-keep":     nil, // a token is good for a minute at least: TestWithTakesOtherOptions of package jsonapi
}

// effects check of each setting that a change is in force at once.
var effects = map[string]func(t *testing.T){
	"upstream": func(t *testing.T) {
		var open atomic.Int64
		former := httptest.NewUnstartedServer(http.NotFoundHandler())
		former.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		former.Start()
		defer former.Close()

		r := configured(t, "upstream: "+former.URL)
		ask(t, http.DefaultClient, "GET", r.url)
		before := open.Load()
		r.take("upstream: "+says(t, "b"), "changed=upstream")
		if _, text := ask(t, http.DefaultClient, "GET", r.url); text != "b" || before != 1 {
			t.Error(text, before)
		}

		// A connection that has no request is not kept for a server that gets none.
		r.until(t, "the connection is closed", func() bool { return open.Load() == 0 })
	},
	"upstreams": func(t *testing.T) {
		list := "upstreams: [{name: a, addresses: ['" + says(t, "a") + "'], match: {path: /%s}}]"
		r := configured(t, fmt.Sprintf(list, "x"))
		r.take(fmt.Sprintf(list, "y"), "changed=upstreams")
		x, _ := ask(t, http.DefaultClient, "GET", r.url+"/x")
		y, _ := ask(t, http.DefaultClient, "GET", r.url+"/y")
		if x.StatusCode != 404 || y.StatusCode != 200 {
			t.Error(x.StatusCode, y.StatusCode)
		}
	},
	"upstream-host": func(t *testing.T) {
		common := "upstream: " + echoes(t) + "\nupstream-host: "
		r := configured(t, common+"one.example")
		r.take(common+"two.example", "changed=upstream-host")
		if _, text := ask(t, http.DefaultClient, "GET", r.url); text != "host two.example upgrade " {
			t.Error(text)
		}
	},
	"upstream-connect-timeout": func(t *testing.T) {
		// A handshake that is never answered belongs to the connection.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		common := "upstream: https://" + l.Addr().String() + "\nupstream-connect-timeout: "
		r := configured(t, common+"10m")
		r.take(common+"50ms", "changed=upstream-connect-timeout")
		if res, _ := ask(t, http.DefaultClient, "GET", r.url); res.StatusCode != 504 {
			t.Error(res.StatusCode)
		}
	},
	"upstream-timeout": func(t *testing.T) {
		url, inside, _ := slow(t)
		r := configured(t, "upstream: "+url)
		r.take("upstream: "+url+"\nupstream-timeout: 50ms", "changed=upstream-timeout")
		if res, _ := ask(t, http.DefaultClient, "GET", r.url+"/slow"); res.StatusCode != 504 {
			t.Error(res.StatusCode)
		}
		<-inside
	},
	"refusals": func(t *testing.T) {
		common := "upstream: " + says(t, "a") + "\n" + policed(t, "key: global")
		r := configured(t, common)
		before := r.statuses("A: a", "A: a")
		r.take(common+"refusals: [{status: 503}]", "changed=refusals")
		if got := before + " " + r.statuses("A: a"); got != "200 429 503" {
			t.Error(got)
		}
	},
	"upgrade": func(t *testing.T) {
		common := "upstream: " + echoes(t)
		r := configured(t, common)
		for _, want := range []string{"", "mqtt"} {
			if want != "" {
				r.take(common+"\nupgrade: ["+want+"]", "changed=upgrade")
			}
			_, text := ask(t, http.DefaultClient, "GET", r.url, "Connection: Upgrade", "Upgrade: mqtt")
			if !strings.HasSuffix(text, "upgrade "+want) {
				t.Errorf("%q, want %q", text, want)
			}
		}
	},
	"max-body-bytes": func(t *testing.T) {
		common := "upstream: " + says(t, "a")
		r := configured(t, common)
		before, _ := ask(t, http.DefaultClient, "POST {}", r.url)
		r.take(common+"\nmax-body-bytes: 1", "changed=max-body-bytes")
		after, _ := ask(t, http.DefaultClient, "POST {}", r.url)

		// A body of unknown length meets the bound while it is read.
		q, err := http.NewRequestWithContext(t.Context(), "POST", r.url, io.MultiReader(strings.NewReader("{}")))
		if err != nil {
			t.Fatal(err)
		}
		chunked, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		chunked.Body.Close()
		if before.StatusCode != 200 || after.StatusCode != 413 || chunked.StatusCode != 413 {
			t.Error(before.StatusCode, after.StatusCode, chunked.StatusCode)
		}
	},
	"json-client": func(t *testing.T) {
		r := configured(t, "")
		before, _ := ask(t, http.DefaultClient, `POST {"key": "a"}`, r.url+"/v1/peek")
		r.take(fmt.Sprintf("json-client: ['shop:%x']", sha256.Sum256([]byte("token"))), "changed=json-client")
		after, _ := ask(t, http.DefaultClient, `POST {"key": "a"}`, r.url+"/v1/peek")
		known, _ := ask(t, http.DefaultClient, `POST {"key": "a"}`, r.url+"/v1/peek", "Authorization: Bearer token")
		if before.StatusCode != 200 || after.StatusCode != 401 || known.StatusCode != 200 {
			t.Error(before.StatusCode, after.StatusCode, known.StatusCode)
		}
	},
	"json-secret": func(t *testing.T) {
		const secret = "json-secret: 0123456789abcdef0123456789abcde"
		r := configured(t, secret+"f")
		_, text := ask(t, http.DefaultClient, `POST {"key": "a"}`, r.url+"/v1/take")
		_, token, _ := strings.Cut(text, `"token":"`)
		token, _, _ = strings.Cut(token, `"`)
		refund := func() int {
			res, _ := ask(t, http.DefaultClient, `POST {"token": "`+token+`"}`, r.url+"/v1/refund")
			return res.StatusCode
		}

		// With the former secret the token is good again.
		r.take(secret+"0", "changed=json-secret")
		other := refund()
		r.take(secret+"f", "changed=json-secret")
		if same := refund(); token == "" || other != 400 || same != 200 {
			t.Error(token, other, same)
		}
	},
	"trusted-proxy": func(t *testing.T) {
		r := configured(t, "")
		auth := func() int {
			res, _ := ask(t, http.DefaultClient, "GET", r.url+"/auth", "X-Forwarded-For: 192.0.2.1",
				"X-Forwarded-Method: GET", "X-Forwarded-Uri: /", "X-Forwarded-Host: a.example")
			return res.StatusCode
		}
		before := auth()
		r.take("trusted-proxy: 127.0.0.1", "changed=trusted-proxy")
		if after := auth(); before != 403 || after != 200 {
			t.Error(before, after)
		}
	},
	"address-header": counts("key: ip", "", "address-header: X-Real-Ip", "X-Forwarded-For", "X-Real-Ip"),
	"user-header":    counts("key: user", "user-header: X-A", "user-header: X-B", "X-A", "X-B"),
	"api-key-header": counts("key: api-key", "", "api-key-header: X-B", "X-Api-Key", "X-B"),
	"plan-header": func(t *testing.T) {
		common := "upstream: " + says(t, "a") + "\ntrusted-proxy: [127.0.0.1]\n" +
			policed(t, "key: global, plan_by: header, plans: {pro: 1000/1h}")
		r := configured(t, common+"plan-header: X-A")
		before := r.statuses("X-A: pro", "X-B: pro", "X-B: pro")
		r.take(common+"plan-header: X-B", "changed=plan-header")
		if after := r.statuses("X-B: pro", "X-A: pro"); before != "200 429 429" || after != "200 429" {
			t.Error(before, after)
		}
	},
	"claims-header": func(t *testing.T) {
		common := "upstream: " + says(t, "a") + "\ntrusted-proxy: [127.0.0.1]\n" +
			policed(t, "key: global, match: {claims: {plan: free}}")
		r := configured(t, common+"claims-header: X-A")
		const free = `: {"plan":"free"}`
		before := r.statuses("X-A"+free, "X-A"+free, "X-B"+free)
		r.take(common+"claims-header: X-B", "changed=claims-header")
		if after := r.statuses("X-A"+free, "X-B"+free); before != "200 429 200" || after != "200 429" {
			t.Error(before, after)
		}
	},
	"access-log": logged("", "access-log: PATH", `"path":"/a"`),
	"access-log-format": logged("access-log: PATH", "access-log: PATH\naccess-log-format: combined",
		`"GET /a HTTP/1.1"`),
	"access-log-query": logged("access-log: PATH", "access-log: PATH\naccess-log-query: true", `/a?b=c`),
	"access-log-header": logged("access-log: PATH", "access-log: PATH\naccess-log-header: [User-Agent]",
		"Go-http-client"),
	"log-level": func(t *testing.T) {
		url, inside, _ := slow(t)
		r := configured(t, "upstream: "+url)
		r.take("upstream: "+url+"\nlog-level: debug", "changed=log-level")

		// That a client has gone is a line of this level.
		ctx, cancel := context.WithCancel(t.Context())
		q, err := http.NewRequestWithContext(ctx, "GET", r.url+"/slow", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { <-inside; cancel() }()
		if _, err := http.DefaultClient.Do(q); err == nil {
			t.Error("it was answered")
		}
		r.until(t, "the line is there", func() bool { return strings.Contains(r.output(), "level=DEBUG") })
	},
	"shutdown-timeout": func(t *testing.T) {
		r := configured(t, "")
		r.take("shutdown-timeout: 7s", "changed=shutdown-timeout")
		r.cmd.Process.Signal(syscall.SIGTERM)
		if code := r.end(t); code != 0 || !strings.Contains(r.output(), `msg="shutting down" timeout=7s`) {
			t.Errorf("%d\n%s", code, r.output())
		}
	},
	"shutdown-delay": func(t *testing.T) {
		common := "upstream: " + says(t, "a") + "\nshutdown-timeout: 2h\n"
		r := configured(t, common)
		r.take(common+"shutdown-delay: 1h", "changed=shutdown-delay")
		r.cmd.Process.Signal(syscall.SIGTERM)
		r.until(t, "it ends", func() bool { return strings.Contains(r.output(), "shutting down") })

		// In the delay it answers still, and a second signal ends it.
		if status := get(t, r.url); status != 200 {
			t.Errorf("in the delay: %d", status)
		}
		r.cmd.Process.Signal(syscall.SIGTERM)
		r.end(t)
	},
}

// Each setting of which the documentation says so is in force at once.
func TestLiveSettingsTakeEffect(t *testing.T) {
	page, err := os.ReadFile("../../docs/gateway-settings.md")
	if err != nil {
		t.Fatal(err)
	}

	// The fourth column says when a change is in force.
	var live []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) > 4 && cells[3] == "at once" {
			live = append(live, strings.Trim(cells[0], "| `"))
		}
	}
	slices.Sort(live)
	tested := slices.Sorted(maps.Keys(effects))
	all := slices.AppendSeq(slices.Clone(tested), maps.Keys(elsewhere))
	if slices.Sort(all); !slices.Equal(live, all) {
		t.Errorf("the settings that are in force at once are\n%q, and the tests are of\n%q", live, all)
	}

	for _, name := range tested {
		t.Run(name, func(t *testing.T) { t.Parallel(); effects[name](t) })
	}
}
