package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/watch"
)

// A change of each setting, but for those of TLS: the lines of a file before and after it.
var changes = map[string]string{
	"watch": "watch: 5s", "listen": "listen: 127.0.0.1:11", "upstream": "upstream: http://up.example:22",
	"upstream-host": "upstream-host: other.example", "upstream-connect-timeout": "upstream-connect-timeout: 11s",
	"upstream-timeout": "upstream-timeout: 12s", "refusals": "refusals: [{status: 503}]", "upgrade": "upgrade: [mqtt]",
	"api-listen": "api-listen: 127.0.0.1:13", "envoy-listen": "envoy-listen: 127.0.0.1:14",
	"envoy-limits": "envoy-limits: other/", "envoy-debit": "envoy-debit: [tokens, words]",
	"envoy-closed-as-error": "envoy-closed-as-error: false", "spoe-listen": "spoe-listen: 127.0.0.1:15",
	"admin-listen": "admin-listen: 127.0.0.1:16", "top-keys": "top-keys: 31", "app": "app: [blog, shop]",
	"policies": "policies: other.json", "last-good": "last-good: /var/lib/other",
	"redis": "redis: redis://127.0.0.1:17", "redis-prefix": `redis-prefix: "blog:"`,
	"redis-timeout": "redis-timeout: 21ms", "instances": "instances: 4", "cache-refusals": "cache-refusals: 1001",
	"max-keys":    "max-keys: 2001",
	"json-client": "json-client: [shop:2123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef]",
	"json-secret": "json-secret: 1123456789abcdef0123456789abcdef-text", "json-keep": "json-keep: 2h",
	"trusted-proxy": "trusted-proxy: 10.0.0.0/16", "address-header": "address-header: X-Client-Ip",
	"user-header": "user-header: X-Login", "plan-header": "plan-header: X-Tier",
	"claims-header": "claims-header: X-Token", "api-key-header": "api-key-header: X-K",
	"insecure-http": "insecure-http: false", "max-header-bytes": "max-header-bytes: 4097",
	"max-body-bytes": "max-body-bytes: 5001", "max-connections": "max-connections: 7",
	"header-timeout": "header-timeout: 4s", "piece-timeout": "piece-timeout: 5s", "idle-timeout": "idle-timeout: 6s",
	"shutdown-delay": "shutdown-delay: 7s", "shutdown-timeout": "shutdown-timeout: 2m",
	"access-log": "access-log: other.log", "access-log-format": "access-log-format: json",
	"access-log-query": "access-log-query: false", "access-log-header": "access-log-header: [User-Agent]",
	"log-format": "log-format: text", "log-level": "log-level: error",
}

// with returns the text of a file in which a line takes the place of the one of the same name.
func with(text, line string) string {
	name, _, _ := strings.Cut(line, ":")
	var b strings.Builder
	skip := false
	for l := range strings.Lines(text) {
		if skip = strings.HasPrefix(l, name+":") || skip && strings.HasPrefix(l, "-"); !skip {
			b.WriteString(l)
		}
	}

	return b.String() + line + "\n"
}

// documented returns when a change is in force, by the setting, as the documentation says.
func documented(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/gateway-settings.md")
	if err != nil {
		t.Fatal(err)
	}

	// The cells are the names, the variable, the default, and when a change is in force.
	when := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") && len(cells) > 3 {
			_, rest, _ := strings.Cut(cells[0], "`")
			name, _, _ := strings.Cut(rest, "`")
			when[name] = cells[3]
		}
	}

	return when
}

// Each change is seen by its setting alone. It is taken over if it can be in force at once, and
// otherwise changes nothing.
func TestEverySettingIsInForceAtOnceOrAfterARestart(t *testing.T) {
	running, err := parse(nil, "-config", file(t, all))
	if err != nil {
		t.Fatal(err)
	}

	when := documented(t)
	for _, s := range new(given).settings() {
		line := changes[s.name]
		switch {
		case s.command, s.name == "config", s.name == "upstreams", s.live == withTLS: // as below
			continue
		case line == "":
			t.Errorf("the test has no change of %s", s.name)
			continue
		}

		c, err := parse(nil, "-config", file(t, with(all, line)))
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		next, change, err := c.Over(&running)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}

		is := fmt.Sprint(change.Live, change.Restart)
		want, same := "["+s.name+"] []", false
		if when[s.name] == "restart" {
			want, same = "[] ["+s.name+"]", true
		}
		if is != want || isSameConfig(*next, running) != same || reflect.DeepEqual(next.Live, running.Live) != same {
			t.Errorf("%s: %s, want %s; the configuration is the same: %v", s.name, is, want, !same)
		}

		// What is in force is no change any more, and what waits for a restart is one until then.
		if _, again, err := c.Over(next); err != nil || again.Live != nil ||
			!slices.Equal(again.Restart, change.Restart) {
			t.Errorf("%s: again %v %v", s.name, again, err)
		}
	}
}

// A change of the file that changes no setting is none.
func TestTheFormOfAFileIsNoChange(t *testing.T) {
	const list = "upstreams:\n- name: a\n  addresses: ['http://127.0.0.1:1']\n"
	running, err := parse(nil, "-config", file(t, list))
	if err != nil {
		t.Fatal(err)
	}

	// Each text is compared with the list above.
	for text, want := range map[string]Change{
		"# more\nupstreams: [{addresses: ['http://127.0.0.1:1'], name: a}]\n": {},
		strings.Replace(list, ":1", ":2", 1):                                  {Live: []string{"upstreams"}},

		// The addresses have the time-out of the flag, and a proxy cannot end.
		"upstream-timeout: 1s\n" + list: {Live: []string{"upstream-timeout"}},
		"upstream-timeout: 1s\n":        {Restart: []string{"upstream-timeout", "upstreams"}},
	} {
		c, err := parse(nil, "-config", file(t, text))
		if err != nil {
			t.Fatal(err)
		}
		next, change, err := c.Over(&running)
		if err != nil || !reflect.DeepEqual(change, want) || len(next.Upstreams) != 1 {
			t.Errorf("%s: %v %v, want %v", text, change, err, want)
		}
	}

	// The port that is open decides which address leads back.
	if running, err = parse(nil, "-upstream", "http://127.0.0.1:1", "-listen", "127.0.0.1:8000"); err != nil {
		t.Fatal(err)
	}

	c, err := parse(nil, "-upstream", "http://127.0.0.1:8000", "-listen", "127.0.0.1:9000")
	if err != nil {
		t.Fatal(err)
	}

	if _, _, err := c.Over(&running); err == nil || !strings.Contains(err.Error(), "own -listen") {
		t.Errorf("an upstream that is this gateway: %v", err)
	}
}

// The contents of a file that a setting names are a part of the setting.
func TestTheFilesOfASettingAreAPartOfIt(t *testing.T) {
	cert, key := certificate(t)
	page, ca := file(t, "slow down"), file(t, "")
	put := func(to, from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	put(ca, cert)
	args := []string{"-upstreams", "[{name: a, addresses: ['https://a'], ca: " + ca + "}]", "-refusals",
		"[{file: " + page + "}]", "-tls-cert", cert, "-tls-key", key, "-tls-client-ca", ca}
	running, err := parse(nil, args...)
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{cert, key, page, ca} {
		if running.Origin.Files[path] == (watch.Sum{}) {
			t.Errorf("%s is not followed", path)
		}
	}

	// The page has any text, and the authorities another certificate.
	otherCert, _ := certificate(t)
	for path, want := range map[string][]string{page: {"refusals"}, ca: {"upstreams", "tls-client-ca"}} {
		put(path, otherCert)
		c, err := parse(nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		next, change, err := c.Over(&running)
		if err != nil || !slices.Equal(change.Live, want) || change.Restart != nil {
			t.Errorf("%s: %v %v, want %v", path, change, err, want)
		}
		running = *next
	}

	// A file that cannot be read is followed, so that it is seen when it is there.
	os.Remove(page)
	if c, err := parse(nil, args...); err == nil || len(c.Origin.Files) != 4 || c.Origin.Files[page] != (watch.Sum{}) {
		t.Errorf("without a file: %v %v", c.Origin.Files, err)
	}
}

// TLS cannot end while the gateway runs.
func TestTLSEndsWithARestart(t *testing.T) {
	cert, key := certificate(t)
	running, err := parse(nil, "-tls-cert", cert, "-tls-key", key, "-tls-client-ca", cert)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}

	next, change, err := c.Over(&running)
	if err != nil || change.Live != nil || next.TLS != running.TLS ||
		!slices.Equal(change.Restart, []string{"tls-cert", "tls-key", "tls-client-ca"}) {
		t.Errorf("without TLS: %v %v", change, err)
	}

	// The documentation says the same of the settings that have no line in the other test.
	for _, name := range []string{"tls-cert", "tls-key", "tls-client-ca", "upstreams"} {
		if when := documented(t)[name]; when != "at once" {
			t.Errorf("%s: %q", name, when)
		}
	}
}

// A certificate that is not valid now takes the place of no other, and is a warning at the start.
func TestACertificateOutsideItsTime(t *testing.T) {
	// The instants are far enough from now for any machine.
	now := time.Now()
	pair := func(from, to time.Time) []string {
		cert, key := certificateOf(t, from, to)
		return []string{"-tls-cert", cert, "-tls-key", key}
	}

	valid, expired := pair(now.Add(-time.Hour), now.Add(time.Hour)), pair(now.Add(-time.Hour), now.Add(-time.Minute))
	early := pair(now.Add(time.Minute), now.Add(time.Hour))
	other := pair(now.Add(-time.Hour), now.Add(time.Hour))

	for name, row := range map[string]struct {
		running, next []string
		want          string
	}{
		"renewed":       {valid, other, ""},
		"expired":       {valid, expired, "-tls-cert: the certificate has expired at "},
		"early":         {valid, early, "-tls-cert: the certificate is not valid before "},
		"as it was":     {expired, append(expired[:4:4], "-log-level", "debug"), ""},
		"after its end": {expired, valid, ""},
		"from bad":      {expired, early, "-tls-cert: the certificate is not valid before "},
	} {
		running, err := parse(nil, row.running...)
		if err != nil || (len(running.Origin.Warnings) > 0) != (&row.running[1] == &expired[1]) {
			t.Errorf("%s: %q %v", name, running.Origin.Warnings, err)
			continue
		}
		c, err := parse(nil, row.next...)
		if err != nil {
			t.Fatal(err)
		}
		_, change, err := c.Over(&running)
		if row.want == "" && (err != nil || change.Live == nil) ||
			row.want != "" && (err == nil || !strings.HasPrefix(err.Error(), row.want)) {
			t.Errorf("%s: %v %v, want %q", name, change, err, row.want)
		}
	}
}
