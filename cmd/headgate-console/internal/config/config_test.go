package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func parse(env map[string]string, args ...string) (Config, error) {
	return Parse(args, func(name string) string { return env[name] }, io.Discard)
}

func TestParseDefaults(t *testing.T) {
	c, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}

	// The path is absolute, so that the URL of the database means the same file from everywhere.
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	// All else is nil: without flags there is no Redis, no TLS, no proxy and no provider.
	want := Config{Listen: "127.0.0.1:8080", DB: "sqlite://" + filepath.Join(wd, "headgate-data", "console.db")}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}

func TestParsePlainHTTPNeedsLoopbackOrConsent(t *testing.T) {
	cert, key := certificate(t)

	// Only addresses that cannot be reached from elsewhere need no TLS: a name that looks like
	// localhost is none.
	for _, row := range []struct {
		args []string
		ok   bool
	}{
		{[]string{"-listen", "127.0.0.1:1"}, true},
		{[]string{"-listen", "127.9.9.9:1"}, true},
		{[]string{"-listen", "[::1]:1"}, true},
		{[]string{"-listen", "[::ffff:127.0.0.1]:1"}, true},
		{[]string{"-listen", "localhost:1"}, true},
		{[]string{"-listen", ":8080"}, false},
		{[]string{"-listen", "0.0.0.0:8080"}, false},
		{[]string{"-listen", "[::]:8080"}, false},
		{[]string{"-listen", "192.0.2.1:8080"}, false},
		{[]string{"-listen", "example.com:8080"}, false},
		{[]string{"-listen", "localhost.example.com:8080"}, false},
		{[]string{"-listen", "8080"}, false},

		// With leave or with TLS every address will do; half of a pair, or a pair the wrong way
		// round, is no TLS.
		{[]string{"-listen", ":8080", "-insecure-http"}, true},
		{[]string{"-listen", ":8080", "-tls-cert", cert, "-tls-key", key}, true},
		{[]string{"-listen", ":8080", "-tls-cert", cert}, false},
		{[]string{"-listen", ":8080", "-tls-cert", key, "-tls-key", cert}, false},
	} {
		if _, err := parse(nil, row.args...); (err == nil) != row.ok {
			t.Errorf("%v: %v", row.args, err)
		}
	}
}

func TestParseReportsEveryMistakeButNoPassword(t *testing.T) {
	// Each flag has a mistake, and both URLs have a password, too, which an error would show if it
	// quoted what it cannot read.
	_, err := parse(nil,
		"-listen", "x",
		"-db", "postgres://u:s3cret@h/d",
		"-redis", "redis://:s3cret@h:%zz",
		"-tls-key", "x",
		"-redis-prefix", "{",
		"-trusted-proxy", "10.0.0.1/8",
		"-trusted-proxy", "proxy.example",
		"-identity-header", "a b",
		"more")
	if err == nil {
		t.Fatal("no error")
	}

	// A person who mends one mistake should not meet the next one only at the next start.
	for _, name := range []string{"-listen", "-db", "-redis:", "-tls-key", "-redis-prefix", `"10.0.0.1/8"`,
		`-trusted-proxy: "proxy.example"`, "-identity-header", `"more"`} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}

	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error tells the password:\n%v", err)
	}
}

func TestParseEnvironmentFillsMissingFlags(t *testing.T) {
	env := map[string]string{EnvDB: "mysql://u:p@env/d", EnvRedis: "redis://127.0.0.1:1/2"}

	c, err := parse(env)
	if err != nil || c.DB != env[EnvDB] || c.Redis.Addrs[0] != "127.0.0.1:1" || c.Redis.DB != 2 ||
		!c.Redis.ContextTimeoutEnabled {
		t.Errorf("%+v %v", c, err)
	}

	// A flag wins over the environment.
	if c, err = parse(env, "-db", "mysql://u:p@flag/d", "-redis", "redis://127.0.0.1:2"); err != nil ||
		c.DB != "mysql://u:p@flag/d" || c.Redis.Addrs[0] != "127.0.0.1:2" {
		t.Errorf("%+v %v", c, err)
	}

	// A sentinel without a port has that of sentinels, and not that of Redis.
	if c, err = parse(nil, "-redis", "redis+sentinel://127.0.0.1:1,127.0.0.1/main"); err != nil ||
		!slices.Equal(c.Redis.Addrs, []string{"127.0.0.1:1", "127.0.0.1:26379"}) || c.Redis.MasterName != "main" {
		t.Errorf("%+v %v", c, err)
	}
}

func TestUsageShowsNoPassword(t *testing.T) {
	var b strings.Builder
	_, err := Parse([]string{"-h"}, func(string) string { return "mysql://u:s3cret@h/d" }, &b)
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(b.String(), "-listen") ||
		strings.Contains(b.String(), "s3cret") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// certificate writes a pair for the tests.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
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

func TestParseReadsTheProvider(t *testing.T) {
	none := func(string) string { return "" }
	secret := func(name string) string {
		if name == EnvOIDC {
			return "s3cret"
		}
		return ""
	}

	args := []string{"-oidc-issuer", "https://idp.example", "-oidc-client", "console",
		"-public-url", "https://console.example"}
	if c, err := Parse(args, secret, io.Discard); err != nil || c.Provider == nil {
		t.Errorf("%v %v", c.Provider, err)
	}

	// The secret alone, as an environment may have it for other programs, configures nothing.
	if c, err := Parse(nil, secret, io.Discard); err != nil || c.Provider != nil {
		t.Errorf("without an issuer: %v %v", c.Provider, err)
	}

	// Alerts link to the console without a provider too.
	c, err := Parse(args[4:], secret, io.Discard)
	if err != nil || c.Provider != nil || c.PublicURL != "https://console.example" {
		t.Errorf("a public URL alone: %v %q %v", c.Provider, c.PublicURL, err)
	}

	for _, row := range []struct {
		env  func(string) string
		args []string
		want string
	}{
		// Each lacks one of what belongs together, or has a URL that would lead elsewhere.
		{none, args, "no Secret"},
		{secret, args[2:], "without -oidc-issuer"},
		{secret, []string{"-public-url", "https://console.example/x"}, "-public-url: it has a path"},
		{secret, args[:4], "PublicURL: it is not of the form"},
		{secret, append([]string{"-oidc-issuer", "http://idp.example"}, args[2:]...),
			"Issuer: it does not begin with https://"},
		{secret, append(args[:4:4], "-public-url", "https://console.example/x"), "PublicURL: it has a path"},
		{secret, append(args[:4:4], "-public-url", "https://u:s3cret@console.example"),
			"PublicURL: it is not of the form"},
	} {
		_, err := Parse(row.args, row.env, io.Discard)
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error is %v, want %q", row.args, err, row.want)
		}
	}
}

// The key comes from a file or the environment, and no error shows it.
func TestParseKey(t *testing.T) {
	const good = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	const other = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
	first, second := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)

	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}

	for _, row := range []struct {
		env  string
		args []string
		want [][]byte
	}{
		// The first key is the one that encrypts, so the order counts. A file wins over the
		// variable, whatever that holds, and may have lines that end as on Windows.
		{"", nil, nil},
		{good, nil, [][]byte{first}},
		{other + "\n" + good, nil, [][]byte{second, first}},
		{"", []string{"-key-file", file(good + "\n")}, [][]byte{first}},
		{"wrong", []string{"-key-file", file(good + "\r\n\n " + other)}, [][]byte{first, second}},
	} {
		c, err := parse(map[string]string{EnvKey: row.env}, row.args...)
		if err != nil || !reflect.DeepEqual(c.Keys, row.want) {
			t.Errorf("%q %v: %q %v", row.env, row.args, c.Keys, err)
		}
	}

	// No key is taken that is too short, too long, or two without a space. A file without a good
	// key is a mistake even if the variable has one, as secrets would be encrypted with another key
	// than was meant.
	for _, row := range []struct {
		env  string
		args []string
		name string
	}{
		{"s3cret", nil, EnvKey}, {good[4:], nil, EnvKey}, {good + good, nil, EnvKey},
		{"", []string{"-key-file", file("")}, "-key-file: there is no key"},
		{good + " s3cret", nil, EnvKey + ": the key number 2"},
		{"", []string{"-key-file", file(strings.Repeat(good+"\n", 92))}, "-key-file: it has more than 4096 bytes"},
		{good, []string{"-key-file", file("s3cret")}, "-key-file"},
		{good, []string{"-key-file", file(strings.Repeat("A", 100_000))}, "-key-file"},
		{good, []string{"-key-file", "/none"}, "-key-file"},
	} {
		_, err := parse(map[string]string{EnvKey: row.env}, row.args...)
		if err == nil || !strings.HasPrefix(err.Error(), row.name) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q %v: %v", row.env, row.args, err)
		}
	}
}
