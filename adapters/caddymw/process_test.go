package caddymw_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/bcrypt"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// count makes 200 requests, 100 to each of two addresses, and returns how many passed and
// were refused.
func count(t *testing.T, urls []string) (admitted, refused int64) {
	var passed, over atomic.Int64
	var done sync.WaitGroup
	// Ten at a time, each of whom asks one and the other in turn.
	for i := range 10 {
		done.Go(func() {
			c := client(t)
			for j := range 20 {
				switch a := ask(t, c, urls[(i+j)%2]+"/x"); a.StatusCode {
				case 200:
					passed.Add(1)
				case 429:
					over.Add(1)
				default:
					t.Errorf("%s", a.Status)
				}
			}
		})
	}

	done.Wait()
	return passed.Load(), over.Load()
}

// The ready configuration, twice before one service and on one Redis, admits exactly the
// quota of a limit.
func TestTwoCaddiesShareOneQuota(t *testing.T) {
	server := redistest.Start(t)
	up := service(t)
	file := policies(t, "name: all, limit: 50/1h fixed-window, key: ip")

	// The example as it stands, but that a busy machine has more time for Redis: what differs
	// between the machines comes from the environment.
	text, err := os.ReadFile("../../examples/gateway/Caddyfile.module")
	if err != nil {
		test.Skip(t, "the ready configuration is in the repository, and not in the released module")
	}
	config := filepath.Join(t.TempDir(), "Caddyfile")
	text = bytes.Replace(text, []byte("headgate {"), []byte("headgate {\n\t\ttimeout 10s"), 1)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}

	var urls []string
	for range 2 {
		c := &caddy{t: t, addr: freeport.Addr(t), admin: freeport.Addr(t), folder: t.TempDir()}
		c.run([]string{"CADDY_ADMIN=" + c.admin, "SITE=http://" + c.addr, "REDIS_URL=redis://" + server.Addr + "/0",
			"HEADGATE_POLICIES=" + file,
			"UPSTREAM=" + strings.TrimPrefix(up.URL, "http://")}, "run", "--config", config, "--adapter", "caddyfile")
		urls = append(urls, "http://"+c.addr)
	}

	admitted, refused := count(t, urls)
	if admitted != 50 || refused != 150 || up.count() != 50 {
		t.Errorf("of 200 requests %d passed, %d were refused and %d reached the service, want 50, 150 and 50", admitted,
			refused, up.count())
	}
	for _, url := range urls {
		wantRefusal(t, ask(t, client(t), url))
	}
}

// wantRefusal checks an answer under a limit of 50/1h that is used up.
func wantRefusal(t *testing.T, a answer) {
	t.Helper()
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if want := fmt.Sprintf(`"all";r=0;t=%d`, after); err != nil || after < 1 || after > 3600 ||
		a.Header.Get("Ratelimit") != want ||
		a.Header.Get("Ratelimit-Policy") != `"all";q=50;w=3600` ||
		a.Header.Get("Content-Type") != "application/problem+json" ||
		!json.Valid([]byte(a.body)) || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v\n%s", a.Header, a.body)
	}
}

// A client that waits for Retry-After passes.
func TestRetryAfterIsTrue(t *testing.T) {
	c := start(t, site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tpolicies " +
		policies(t, "name: slow, limit: 1/2s, key: ip") + "\n\t}\n\trespond hi\n}\n"})

	http := client(t)
	if a := ask(t, http, "http://"+c.addr); a.StatusCode != 200 || a.body != "hi" ||
		a.Header.Get("Ratelimit") != `"slow";r=0;t=2` {
		t.Fatal(a.Status, a.Header)
	}

	// On a busy machine two seconds may have passed already.
	var a answer
	until(t, "a refusal", func() bool {
		a = ask(t, http, "http://"+c.addr)
		return a.StatusCode != 200
	})
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.StatusCode != 429 || err != nil || after < 1 || after > 2 {
		t.Fatal(a.Status, a.Header)
	}

	// The test waits by the clock: the limit is Caddy's, in a process of its own.
	<-time.After(time.Duration(after) * time.Second)
	if a := ask(t, http, "http://"+c.addr); a.StatusCode != 200 {
		t.Error(a.Status, a.Header)
	}
}

// Policies that are published in Redis are in force, before and after a change.
func TestPublishedPoliciesAreFollowed(t *testing.T) {
	server := redistest.Start(t)
	db := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer db.Close()
	source, err := redissource.New(db, redissource.Options{})
	if err != nil {
		t.Fatal(err)
	}

	publish := func(quota, before string) (version string) {
		set, err := policy.DecodeJSON([]byte(`{"policies":[{"name":"p","apps":["default"],"limit":"` + quota +
			`/1h","key":"ip"}]}`))
		if err == nil {
			version, err = source.Publish(t.Context(), set, before)
		}
		if err != nil {
			t.Fatal(err)
		}
		return version
	}

	c := start(t, site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tredis redis://" + server.Addr +
		"\n\t}\n\trespond hi\n}\n"})
	http := client(t)

	if a := ask(t, http, "http://"+c.addr); a.StatusCode != 200 || a.Header.Get("Ratelimit") != "" ||
		!strings.Contains(c.log.String(), "all requests pass") {
		t.Errorf("without policies: %s %v\n%s", a.Status, a.Header, c.log.String())
	}

	version := publish("3", "")
	until(t, "the policies are in force", func() bool {
		return ask(t, http, "http://"+c.addr).Header.Get("Ratelimit-Policy") == `"p";q=3;w=3600`
	})

	publish("1000", version)
	until(t, "the change is in force", func() bool {
		return ask(t, http, "http://"+c.addr).Header.Get("Ratelimit-Policy") == `"p";q=1000;w=3600`
	})
}

// With Redis frozen each policy decides as it says, and no request waits for longer than the
// time-out of the store.
func TestFrozenRedis(t *testing.T) {
	server := redistest.Start(t)
	file := policies(t,
		"name: local, limit: 10/1h fixed-window, key: ip, match: {path: /local}",
		"name: open, limit: 10/1h fixed-window, key: ip, match: {path: /open}, on_store_error: open",
		"name: closed, limit: 10/1h fixed-window, key: ip, match: {path: /closed}, on_store_error: closed")
	c := start(t,
		site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tredis redis://" + server.Addr + "\n\t\tpolicies " +
			file + "\n\t}\n\trespond hi\n}\n"})

	http := client(t)

	// Until then a decision may be one of memory, in which the gateway is alone.
	until(t, "Redis has counted the instance, and decides", func() bool {
		a := ask(t, http, "http://"+c.addr+"/closed")
		return a.StatusCode != 503 && strings.HasPrefix(a.Header.Get("Ratelimit"), `"closed"`)
	})

	server.Freeze()
	defer server.Thaw()

	// One instance alone is known, so that it admits the whole quota by itself.
	for _, row := range []struct {
		path string
		want map[int]int
	}{
		{"/local", map[int]int{200: 10, 429: 10}}, {"/open", map[int]int{200: 20}}, {"/closed", map[int]int{503: 20}},
	} {
		got, longest := map[int]int{}, time.Duration(0)
		for range 20 {
			begun := time.Now()
			got[ask(t, http, "http://"+c.addr+row.path).StatusCode]++
			longest = max(longest, time.Since(begun))
		}

		if fmt.Sprint(got) != fmt.Sprint(row.want) {
			t.Errorf("%s: %v, want %v", row.path, got, row.want)
		}

		test.AtMost(t, "the longest request of "+row.path+" with Redis frozen", longest, 70*time.Millisecond)
	}
}

// forged are headers in which a client may pretend to be another.
func forged(i int) []string {
	address := fmt.Sprintf("198.51.%d.%d", i/250, i%250)
	names := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip",
		"Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Forwarded"}
	if name := names[i%len(names)]; name != "Forwarded" {
		return []string{name, address}
	}
	return []string{"Forwarded", "for=" + address}
}

// Whatever a client claims, it is one caller, unless a proxy that Caddy trusts says so.
func TestForgedAddressesCountAsOneCaller(t *testing.T) {
	file := policies(t, "name: all, limit: 5/1h fixed-window, key: ip")
	text := "ADDR {\n\theadgate {\n\t\tapp default\n\t\tpolicies " + file + "\n\t}\n\trespond hi\n}\n"
	direct := start(t, site{text: text})
	proxied := start(t, site{text, "trusted_proxies static 127.0.0.0/8\n\t\ttrusted_proxies_strict"})
	http := client(t)
	passed := map[bool]int{}

	for i := range 240 {
		header := forged(i)
		if ask(t, http, "http://"+direct.addr, header...).StatusCode == 200 {
			passed[false]++
		}

		// Behind the proxy the client's claim stands before what the proxy adds, or beside it.
		if header[0] == "X-Forwarded-For" { // the proxy adds what it sees
			header[1] += ", 203.0.113.7"
		} else {
			header = append(header, "X-Forwarded-For", "203.0.113.7")
		}
		if ask(t, http, "http://"+proxied.addr, header...).StatusCode == 200 {
			passed[true]++
		}
	}

	if passed[false] != 5 || passed[true] != 5 {
		t.Errorf("of 240 requests %d passed directly and %d by the proxy, want 5", passed[false], passed[true])
	}

	// That five pass must not be because the proxy's clients are one.
	if a := ask(t, http, "http://"+proxied.addr, "X-Forwarded-For", "203.0.113.8"); a.StatusCode != 200 {
		t.Errorf("another client of the proxy: %s", a.Status)
	}

	if strings.Contains(proxied.log.String()+direct.log.String(), "trusted_proxies_strict") {
		t.Error("the log warns of trusted_proxies without need")
	}

	// Without strict, the first address of the header counts, which a client can choose.
	loose := start(t, site{text, "trusted_proxies static 127.0.0.0/8"})
	ask(t, http, "http://"+loose.addr)
	ask(t, http, "http://"+loose.addr)
	if n := strings.Count(loose.log.String(), "without trusted_proxies_strict"); n != 1 {
		t.Errorf("the log warns %d times of trusted_proxies without strict, want once", n)
	}
}

// A reload, also with other headers and another site, keeps the counts in memory.
func TestReloadKeepsCounts(t *testing.T) {
	file := policies(t, "name: all, limit: 5/1h fixed-window, key: ip")
	text := func(more string) site {
		return site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tpolicies " + file + more +
			"\n\t}\n\trespond hi\n}\n"}
	}

	c := start(t, text(""))
	http := client(t)
	passed := 0

	count := func(n int) {
		for range n {
			if ask(t, http, "http://"+c.addr).StatusCode == 200 {
				passed++
			}
		}
	}

	count(2)

	// What does not concern the counts may change. Six requests in all, one above the limit.
	for _, more := range []string{"", "\n\t\thandle_errors", "\n\t\theaders none", ""} {
		if out, err := c.command("reload", "--config", c.write(text(more)), "--adapter", "caddyfile", "--address",
			c.admin, "--force").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		count(1)
	}

	if passed != 5 {
		t.Errorf("%d of 6 requests passed, want 5", passed)
	}
}

// A user whom Caddy has authenticated is counted by name, and another has a count of their
// own.
func TestUserIsWhomCaddyHasAuthenticated(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("pw"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}

	file := policies(t,
		"name: users, limit: 2/1h fixed-window, key: user, plans: {gold: 3/1h fixed-window}, plan_by: claim")

	// The upstream is not there, so that Caddy's error pages show for each request which status
	// and plan it has.
	c := start(t,
		site{text: fmt.Sprintf(
			"ADDR {\n\treverse_proxy 127.0.0.1:1\n\theadgate {\n\t\tapp default\n\t\tpolicies %s\n\t\tplan claim {vars.plan}\n\t\thandle_errors\n\t}\n"+
				"\tbasic_auth {\n\t\tann %s\n\t\tbob %s\n\t}\n\tvars {\n\t\tplan gold\n\t}\n\thandle_errors {\n\t\trespond \"own {err.status_code} {http.vars.plan}\" {err.status_code}\n\t}\n}\n", file, hash, hash)})

	http := client(t)
	got := ""

	for _, user := range []string{"ann", "ann", "ann", "ann", "bob"} {
		r := ask(t, http, "http://"+user+":pw@"+c.addr)
		got += fmt.Sprintf("%d %s;", r.StatusCode, r.body)
	}

	if a := ask(t, http, "http://"+c.addr); a.StatusCode != 401 || a.Header.Get("Ratelimit") != "" {
		t.Errorf("without a user: %s %v", a.Status, a.Header)
	}

	if want := strings.Repeat("502 own 502 gold;", 3) + "429 own 429 gold;502 own 502 gold;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The policies see what the client has asked for, not what Caddy has made of it.
func TestPathIsTheClients(t *testing.T) {
	file := policies(t, "name: login, limit: 1/1h fixed-window, key: ip, match: {path: /login}")
	c := start(t, site{text: "ADDR {\n\trewrite * /index.php\n\theadgate {\n\t\tapp default\n\t\tpolicies " + file +
		"\n\t}\n\trespond {path}\n}\n"})

	http := client(t)
	got := ""

	// The second is the first in another spelling. The third is what Caddy makes of all, and no
	// client asked for it.
	for _, path := range []string{"/login", "/%6Cogin", "/index.php", "/other"} {
		a := ask(t, http, "http://"+c.addr+path)
		got += fmt.Sprint(a.StatusCode, " ")
		if a.StatusCode == 200 && a.body != "/index.php" {
			t.Errorf("%s: %s", path, a.body)
		}
	}

	if got != "200 429 200 200 " {
		t.Error(got)
	}
}

// caddy validate names all mistakes, in a Caddyfile, in JSON and in the file of policies.
func TestValidateNamesEveryMistake(t *testing.T) {
	c := &caddy{t: t, addr: "127.0.0.1:1", secure: "127.0.0.1:2", admin: "127.0.0.1:3", folder: t.TempDir()}
	bad := filepath.Join(c.folder, "bad.yaml")
	if err := os.WriteFile(bad,
		[]byte("policies:\n- {name: One, apps: [default], limit: 5, key: ip}\n- {name: two, apps: [default], limit: 5/1h, key: nobody}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	validate := func(config, adapter string) string {
		t.Helper()
		out, err := c.command("validate", "--config", config, "--adapter", adapter).CombinedOutput()
		if err == nil {
			t.Errorf("it is valid:\n%s", out)
		}
		return string(out)
	}

	check := func(text string, parts ...string) {
		t.Helper()
		text = strings.ReplaceAll(text, `\"`, `"`) // newer versions print the error in JSON
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in:\n%s", part, text)
			}
		}
		if strings.Contains(text, "s3cret") {
			t.Errorf("the password is shown:\n%s", text)
		}
	}

	// All that can be wrong in one directive, in one run.
	check(validate(
		c.write(
			site{text: "ADDR {\n\theadgate x {\n\t\tredis redis://:s3cret@h/x?pool=1\n\t\tpolicies limits.txt\n\t\ttimeout soon\n\t\texpected many\n\t\theaders none ratelimit x\n\t\tplan p gold\n" +
				"\t\ton_store_error maybe\n\t\tpoll 1ms\n\t\tpoll 1s 2s\n\t\tburst 5\n\t\tprefix {x\n\t}\n}\n"}),
		"caddyfile"),
		`argument "x"`, "headgate: app", "its path", `"pool"`, "limits.txt", "timeout: it is not a duration",
		"expected: it is not a number", `"x" is none`, "none combines",
		"plan p", `"maybe"`, "poll: ", `"poll" is given twice`, "poll: it does not take 2", `no option "burst"`,
		"prefix", "Caddyfile:")

	// The files that the directive names, and a variable that is not there.
	check(validate(c.write(site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tpolicies " + bad + "\n\t}\n}\n"}),
		"caddyfile"), "One", "limit", "nobody")
	check(validate(c.write(site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tpolicies absent.yaml\n\t}\n}\n"}),
		"caddyfile"), "absent.yaml")
	check(validate(c.write(site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tredis {env.NOT_THERE}\n\t}\n}\n"}),
		"caddyfile"), "redis: a placeholder is unknown or empty")

	// JSON is not read by the directive's parser: its fields are examined when Caddy loads them.
	text, err := json.Marshal(
		map[string]any{"apps": map[string]any{"http": map[string]any{"servers": map[string]any{"s": map[string]any{
			"listen": []string{c.addr},
			"routes": []any{map[string]any{"handle": []any{map[string]any{"handler": "headgate", "policies": "x.txt",
				"on_store_error": "local", "expected": 3}}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(c.folder, "caddy.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}

	check(validate(path, ""), "headgate: app", "x.txt", "expected: it is for a redis", "local: it is for a redis")

	// Unknown fields would otherwise be read over.
	if err := os.WriteFile(path, bytes.Replace(text, []byte(`"expected":3`), []byte(`"burst":3`), 1),
		0o600); err != nil {
		t.Fatal(err)
	}
	check(validate(path, ""), "burst")
}

// What go-redis says while Redis is away is in Caddy's log, in the form of its other lines.
func TestLogOfARedisThatIsAway(t *testing.T) {
	server := redistest.Start(t)
	file := policies(t, "name: a, limit: 1000/1h, key: ip")

	c := start(t,
		site{text: "ADDR {\n\theadgate {\n\t\tapp default\n\t\tredis redis://" + server.Addr + "\n\t\tpolicies " +
			file + "\n\t}\n\trespond hi\n}\n"})

	http := client(t)
	ask(t, http, "http://"+c.addr)

	// A connection was open before, so that go-redis has something to complain of.
	server.Kill()
	until(t, "go-redis has said something", func() bool {
		ask(t, http, "http://"+c.addr)
		return strings.Contains(c.log.String(), "go-redis says")
	})

	// The last line may be half written at the moment.
	for line := range strings.Lines(c.log.String()) {
		if strings.HasSuffix(line, "\n") && !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}
