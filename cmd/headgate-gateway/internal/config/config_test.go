package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/watch"
)

func parse(env map[string]string, args ...string) (Config, error) {
	var environ []string
	for name, text := range env {
		environ = append(environ, name+"="+text)
	}
	return Parse(args, environ, io.Discard)
}

// isSameConfig reports whether two configurations say the same, wherever it comes from.
func isSameConfig(a, b Config) bool {
	a.Origin, b.Origin = Origin{}, Origin{}
	return reflect.DeepEqual(a, b)
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseDefaults(t *testing.T) {
	want := Config{
		Listen: "127.0.0.1:8089", TopKeys: 20, Apps: []string{"default"}, RedisTimeout: 50 * time.Millisecond,
		MaxHeaderBytes: 32768, MaxConnections: 10000, HeaderTimeout: 10 * time.Second, PieceTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute,
		Live: Live{
			Proxied:  Proxied{UpstreamConnect: 5 * time.Second, UpstreamTimeout: time.Minute},
			JSONKeep: 24 * time.Hour, ShutdownTimeout: 30 * time.Second, LogLevel: slog.LevelInfo,
			Watch: 2 * time.Second,
		},
	}

	got, err := parse(nil)
	if err != nil || !isSameConfig(got, want) {
		t.Errorf("%+v %v, want\n%+v", got, err, want)
	}

	if got, err = parse(nil, "-config", file(t, "# nothing\n")); err != nil || !isSameConfig(got, want) {
		t.Errorf("of an empty file: %+v %v", got, err)
	}

	// A wrong setting does not hide the version: it is asked for when something is wrong.
	if got, err = parse(nil, "-version", "-listen", "x"); err != nil || !got.Version {
		t.Errorf("-version: %+v %v", got, err)
	}
}

// all are values of every setting that the file may have, none of them the default.
const all = `
watch: 3s
listen: 127.0.0.1:1
upstream: https://up.example:2/base
upstream-host: shop.example
upstream-connect-timeout: 1s
upstream-timeout: 2s
upgrade: [websocket, mqtt]
api-listen: "127.0.0.1:3"
envoy-listen: 127.0.0.1:4
envoy-limits: limits/
envoy-debit: [tokens]
envoy-closed-as-error: true
spoe-listen: 127.0.0.1:5
admin-listen: 127.0.0.1:6
top-keys: 30
app: [shop, blog]
policies: limits.json
last-good: /var/lib/headgate
redis: redis+sentinel://user:s3cret@127.0.0.1:7,127.0.0.1:8/main/3
redis-prefix: "shop:"
redis-timeout: 20ms
instances: 3
cache-refusals: 1000
max-keys: 2000
json-client: [shop:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, blog:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef]
json-secret: 0123456789abcdef0123456789abcdef-text
json-keep: 1h
trusted-proxy:
- 10.0.0.0/8
- 192.0.2.1
address-header: X-Real-Ip
user-header: X-User
plan-header: X-Plan
claims-header: X-Jwt-Payload
api-key-header: X-Key
insecure-http: true
max-header-bytes: 4096
max-body-bytes: 5000
max-connections: 6
header-timeout: 3s
piece-timeout: 4s
idle-timeout: 5s
shutdown-delay: 6s
shutdown-timeout: 1m
access-log: access.log
access-log-format: combined
access-log-query: true
access-log-header: [User-Agent, Referer]
log-format: json
log-level: warn
`

// flagsOf returns the flags that say the same as a file.
func flagsOf(text string) []string {
	var args []string
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		item, isItem := strings.CutPrefix(line, "- ")

		// An item of a list belongs to the setting that was named before it.
		if isItem {
			args = append(args, "-"+name+"="+item)
			continue
		}
		var value string

		name, value, _ = strings.Cut(line, ":")
		value = strings.Trim(strings.TrimSpace(value), `"`)

		switch {
		case strings.HasPrefix(value, "["):
			for item := range strings.SplitSeq(strings.Trim(value, "[]"), ", ") {
				args = append(args, "-"+name+"="+item)
			}
		case value != "":
			args = append(args, "-"+name+"="+value)
		}
	}
	return args
}

func TestParseReadsEverySettingFromFlagsAndFile(t *testing.T) {
	fromFile, err := parse(nil, "-config", file(t, all))
	if err != nil {
		t.Fatal(err)
	}

	cert, key := certificate(t)
	fromFlags, err := parse(nil, flagsOf(all)...)
	if err != nil || !isSameConfig(fromFlags, fromFile) {
		t.Errorf("the flags give\n%+v %v, want what the file gives:\n%+v", fromFlags, err, fromFile)
	}

	checkComplete(t, fromFile)

	c, err := parse(nil, "-tls-cert", cert, "-tls-key", key, "-tls-client-ca", cert, "-listen", "0.0.0.0:1",
		"-envoy-listen", ":2")
	if err != nil || c.TLS == nil || c.TLS.MinVersion != tls.VersionTLS12 ||
		c.TLS.ClientAuth != tls.RequireAndVerifyClientCert || c.TLS.ClientCAs == nil {
		t.Errorf("TLS: %+v %v", c.TLS, err)
	}
}

// checkComplete checks that every setting was there, so that no field of the result is
// zero, except for TLS and the flags that are no settings.
func checkComplete(t *testing.T, fromFile Config) {
	t.Helper()

	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		switch field.Name {
		case "TLS", "Check", "Version", "Settings", "Origin", "Refusals":
		default:
			if reflect.ValueOf(fromFile).FieldByIndex(field.Index).IsZero() {
				t.Errorf("%s is not set by any line", field.Name)
			}
		}
	}

	// The settings that the file may have, and those that the constant names, are the same.
	g := &given{}
	for _, s := range g.settings() {
		elsewhere := s.flagOnly || s.setList != nil || strings.HasPrefix(s.name, "tls-")
		if !elsewhere && !strings.Contains(all, "\n"+s.name+":") {
			t.Errorf("the test has no value for %s", s.name)
		}
	}
}

func TestParsePrefersFlagsToTheEnvironmentAndThatToTheFile(t *testing.T) {
	path := file(t, "redis: redis://127.0.0.1:1\nlisten: 127.0.0.1:1\napp: [a, b]\n")
	env := map[string]string{Variable("redis"): "redis://127.0.0.1:2"}
	for _, row := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		// Each row has all of the row before, and a source that precedes it.
		{nil, nil, "127.0.0.1:1 127.0.0.1:1 [a b]"},
		{env, nil, "127.0.0.1:2 127.0.0.1:1 [a b]"},
		{env, []string{"-redis", "redis://127.0.0.1:3", "-listen", "127.0.0.1:3", "-app", "c"},
			"127.0.0.1:3 127.0.0.1:3 [c]"},
	} {
		c, err := parse(row.env, append(row.args, "-config", path)...)
		if err != nil {
			t.Fatal(err)
		}

		if got := fmt.Sprint(c.Redis.Addrs[0], " ", c.Listen, " ", c.Apps); got != row.want {
			t.Errorf("%v: %s, want %s", row.args, got, row.want)
		}
	}
}

func TestParseNamesEveryMistake(t *testing.T) {
	cert, key := certificate(t)
	digest := strings.Repeat("0f", 32)
	for _, row := range []struct {
		args string
		want []string // each in the error; none for no error
	}{
		{"-listen 8089", []string{`-listen: "8089" is not host:port`}},
		{"-listen 127.0.0.1:http", []string{"-listen: "}},

		// Whom a port can be reached by decides whether it needs TLS: loopback does not, by any of
		// its names.
		{"-listen :8089", []string{`-listen: others can reach ":8089"`, "-insecure-http"}},
		{"-listen 0.0.0.0:8089", []string{"-listen: others can reach"}},
		{"-listen [::]:8089 -insecure-http", nil},
		{"-listen [::1]:8089", nil},
		{"-listen localhost:8089", nil},
		{"-listen localhost.example.com:8089", []string{"-listen: others"}},

		// TLS is for the ports that callers use, and not for those of the operator and of HAProxy.
		{"-listen :1 -tls-cert " + cert + " -tls-key " + key, nil},
		{"-admin-listen :1 -tls-cert " + cert + " -tls-key " + key, []string{"-admin-listen: others", "has no TLS"}},
		{"-spoe-listen :1 -tls-cert " + cert + " -tls-key " + key, []string{"-spoe-listen: others", "has no TLS"}},
		{"-tls-cert " + cert, []string{"-tls-cert and -tls-key: one is missing"}},
		{"-tls-cert " + key + " -tls-key " + cert, []string{"-tls-cert and -tls-key: "}},
		{"-tls-client-ca " + cert, []string{"-tls-client-ca: without"}},
		{"-tls-client-ca " + key + " -tls-cert " + cert + " -tls-key " + key,
			[]string{"-tls-client-ca: ", "no certificate"}},
		{"-tls-client-ca /does/not/exist -tls-cert " + cert + " -tls-key " + key, []string{"-tls-client-ca: "}},

		// No mistake repeats a password or a secret of the setting.
		{"-upstream localhost:3000", []string{"-upstream: "}},
		{"-upstream http://u:s3cret@h", []string{"-upstream: ", "user or password"}},
		{"-upstream http://u:s3cret@h:%zz", []string{"-upstream: "}},
		{"-upgrade h2c -upgrade a,b", []string{"-upgrade: it carries requests", `-upgrade: "a,b"`}},
		{"-upstream-host x", []string{"-upstream-host: "}},

		{"-api-listen 127.0.0.1:1", []string{"-api-listen: "}},
		{"-envoy-limits x", []string{"there is no -envoy-listen"}},
		{"-json-secret s3cret -json-keep 1s -json-client shop:s3cret -json-client x",
			[]string{"-json-secret: it has fewer than 32", "-json-keep: ", "-json-client: it is not"}},
		{"-json-client a:" + digest + " -json-client b:" + digest, []string{`-json-client: "b" has the token of "a"`}},
		{"-app shop -app shop", []string{`-app: "shop" is named twice`}},
		{"-app a,b", []string{`-app: "a,b"`}},
		{"-policies limits.txt", []string{`-policies: "limits.txt"`}},
		{"-redis redis://:s3cret@h:%zz", []string{"-redis: "}},
		{"-redis postgres://:s3cret@h", []string{"-redis: "}},
		{"-redis-prefix x", []string{"-redis-prefix: there is no -redis"}},
		{"-redis redis://h -redis-prefix {x}", []string{"-redis-prefix: it holds a brace"}},
		{"-redis-timeout 0s -instances -1 -cache-refusals x -max-keys 9999999999999",
			[]string{"-redis-timeout: ", "-instances: ", "-cache-refusals: ", "-max-keys: "}},

		// A prefix with bits of a host is a slip, and a trust in everybody is one too.
		{"-trusted-proxy 10.0.0.1/8", []string{"-trusted-proxy", "10.0.0.1/8"}},
		{"-trusted-proxy proxy.example -trusted-proxy 0.0.0.0/0", []string{"proxy.example", "0.0.0.0/0"}},
		{"-user-header X-User -plan-header X-Plan -claims-header X-Claims -address-header X-Ip",
			[]string{"-user-header: without", "-plan-header: without", "-claims-header: without", "-address-header: without"}},
		{"-trusted-proxy 10.0.0.0/8 -user-header Cookie -plan-header a:b -claims-header Authorization",
			[]string{"-user-header: the header Cookie", "-claims-header: the header Authorization",
				`-plan-header: "a:b"`}},
		{"-api-key-header a:b", []string{"-api-key-header: ", "a:b"}},
		{"-max-header-bytes 10 -max-body-bytes -1 -max-connections x",
			[]string{"-max-header-bytes: ", "-max-body-bytes: ", "-max-connections: "}},
		{"-header-timeout x -piece-timeout 0s -idle-timeout -1s",
			[]string{"-header-timeout: ", "-piece-timeout: ", "-idle-timeout: "}},
		{"-shutdown-delay 5s -shutdown-timeout 5s", []string{"-shutdown-delay: 5s"}},
		{"-access-log x", []string{"-access-log: there is no -upstream"}},
		{"-access-log-query", []string{"there is no -access-log"}},
		{"-access-log-format csv -access-log-header a:b", []string{`-access-log-format: "csv"`,
			`-access-log-header: "a:b" is not the name`}},
		{"-log-format xml -log-level loud", []string{`-log-format: "xml"`, `-log-level: "loud"`}},
		{"-insecure-http=maybe", []string{"-insecure-http: "}},

		{"-listen x more", []string{"-listen: ", `the argument "more"`}},
		{"-no-such-flag", []string{"no-such-flag"}},
		{"-config /does/not/exist.yaml -listen x", []string{"-config: /does/not/exist.yaml", "-listen: "}},
	} {
		_, err := parse(nil, strings.Fields(row.args)...)
		if row.want == nil {
			if err != nil {
				t.Errorf("%s: %v", row.args, err)
			}
			continue
		}

		if err == nil {
			t.Errorf("%s: no error", row.args)
			continue
		}

		for _, want := range row.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in:\n%v", row.args, want, err)
			}
		}

		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error tells the password: %v", row.args, err)
		}
	}
}

func TestParseNamesEveryMistakeOfTheFile(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		// All the mistakes of a file are in one error, each with its line.
		{"lisen: 127.0.0.1:1\nupstream: x\nmax-keys: many\n",
			"gateway.yaml:1: lisen: there is no such setting|gateway.yaml:2: upstream: |gateway.yaml:3: max-keys: "},
		{"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n", "listen"},
		{"config: other.yaml\ncheck: true\nversion: true\n",
			"gateway.yaml:1: config: this is a flag alone|gateway.yaml:2: check: |gateway.yaml:3: version: "},
		{"listen: [127.0.0.1:1]\n", "gateway.yaml:1: listen: it takes one value, not a list"},
		{"listen: {host: x}\n", "gateway.yaml:1: listen: it is not a text"},
		{"listen:\n", "gateway.yaml:1: listen: it has no value"},
		{"app: [a, {b: c}, 3]\n", "gateway.yaml:1: app: it is not a text"},

		// An alias without its anchor, and other texts that are no YAML.
		{"app: *x\n", "gateway.yaml"},
		{"- listen\n", "it is not a list of names and values"},
		{"listen: x\n---\nlisten: y\n", "more than one document"},
		{"listen: \"x\n", "gateway.yaml"},
		{"redis: redis://:s3cret@h:%zz\n", "gateway.yaml:1: redis: "},
		{"{\x00", "gateway.yaml"},
	} {
		_, err := parse(nil, "-config", file(t, row.text))
		if err == nil {
			t.Errorf("%q: no error", row.text)
			continue
		}

		for want := range strings.SplitSeq(row.want, "|") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %q is not in:\n%v", row.text, want, err)
			}
		}

		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error tells the password: %v", row.text, err)
		}
	}

	if _, err := parse(nil, "-config", file(t, strings.Repeat("#", watch.MaxFile+1))); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("a file that is too large: %v", err)
	}
}

func TestUsageShowsEverySettingAndNoPassword(t *testing.T) {
	var b strings.Builder
	_, err := Parse([]string{"-h"}, []string{Variable("redis") + "=redis://u:s3cret@h"}, &b)
	if !errors.Is(err, flag.ErrHelp) || strings.Contains(b.String(), "s3cret") {
		t.Errorf("%v\n%s", err, b.String())
	}
	g := &given{}
	for _, s := range g.settings() {
		if !strings.Contains(b.String(), "  -"+s.name) {
			t.Errorf("-%s is not in the usage", s.name)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add(all)
	f.Add("app: [a, b]\nlisten: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		parse(nil, "-config", path) // must not panic
	})
}

// certificate writes a pair for the tests.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	return certificateOf(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// certificateOf writes a pair that is valid between two instants.
func certificateOf(t *testing.T, from, to time.Time) (cert, key string) {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}

	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", public), writePEM(t, "PRIVATE KEY", secret)
}

func writePEM(t *testing.T, kind string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
