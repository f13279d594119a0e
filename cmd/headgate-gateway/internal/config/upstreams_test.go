package config

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/policy"
)

const twoUpstreams = `
upstream-timeout: 7s
upstreams:
- name: api
  match: {host: api.example.com, path: /v1/}
  addresses: [https://10.0.0.1:8443, https://10.0.0.2:8443]
  balance: round-robin
  host: api.internal
  ca: CA
  tls_name: api.internal
  connect_timeout: 1s
  timeout: 2s
  idle: 9
  health: {path: /healthz, interval: 3s, timeout: 500ms, threshold: 4}
  failures: 5
  out: 20s
  retry: {attempts: 3, statuses: [502, 503]}
- name: rest
  addresses: [http://127.0.0.1:3000]
`

func TestUpstreamsOfTheFile(t *testing.T) {
	ca, _ := certificate(t)
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}

	parsed := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}

	want := []upstream.Options{
		{Name: "api", Match: policy.Match{Host: "api.example.com", Path: "/v1/"},
			Addresses: []*url.URL{parsed("https://10.0.0.1:8443"), parsed("https://10.0.0.2:8443")},
			Balance:   upstream.RoundRobin, Host: "api.internal", CA: pem, TLSName: "api.internal",
			ConnectTimeout: time.Second, HeaderTimeout: 2 * time.Second, Idle: 9,
			Health: upstream.Health{Path: "/healthz", Interval: 3 * time.Second,
				Timeout: 500 * time.Millisecond, Threshold: 4},
			Failures: 5, Out: 20 * time.Second, Attempts: 3, Statuses: []int{502, 503}},
		{Name: "rest", Addresses: []*url.URL{parsed("http://127.0.0.1:3000")},
			ConnectTimeout: 5 * time.Second, HeaderTimeout: 7 * time.Second, Failures: 3, Out: 10 * time.Second},
	}

	text := strings.ReplaceAll(twoUpstreams, "CA\n", ca+"\n")
	path := file(t, text)
	c, err := parse(nil, "-config", path)
	if err != nil || !reflect.DeepEqual(c.Upstreams, want) ||
		!slices.Equal(slices.Sorted(maps.Keys(c.Origin.Files)), slices.Sorted(slices.Values([]string{path, ca}))) {
		t.Errorf("%+v %q %v, want\n%+v", c.Upstreams, c.Origin.Files, err, want)
	}

	// A variable has the same in YAML, and so has a flag.
	_, list, _ := strings.Cut(text, "upstreams:\n")
	fromEnv, err := parse(map[string]string{Variable("upstreams"): list, Variable("upstream-timeout"): "7s"})
	if err != nil || !reflect.DeepEqual(fromEnv.Upstreams, want) {
		t.Errorf("of the environment: %+v %v", fromEnv.Upstreams, err)
	}

	fromFlag, err := parse(nil, "-upstreams", list, "-upstream-timeout", "7s")
	if err != nil || !reflect.DeepEqual(fromFlag.Upstreams, want) {
		t.Errorf("of a flag: %+v %v", fromFlag.Upstreams, err)
	}
}

func TestMistakesInUpstreamsAreNamedByTheirLine(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"upstreams: x", "gateway.yaml:1: upstreams: it is not a list"},
		{"upstreams: []", "gateway.yaml: upstreams: there is no upstream"},
		{"upstreams:\n- name: a\n", "gateway.yaml:2: upstreams: addresses: there are 0"},
		{"upstreams:\n- addresses: [http://h]\n", `gateway.yaml:2: upstreams: name: "" is not a name`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  helth: {}\n", `gateway.yaml:4: upstreams: `},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  match: {path: v1}\n",
			`gateway.yaml:4: upstreams: match.path: "v1" does not begin with a slash`},
		{"upstreams:\n- name: a\n  addresses:\n  - http://h\n  - http://u:s3cret@h\n",
			`gateway.yaml:5: upstreams: addresses[1]: it has a user`},
		{"upstreams:\n- name: a\n  addresses: [http://h, http://h]\n", `addresses[1]: "h" is there twice`},
		{"upstreams:\n- name: a\n  addresses: [http://h, https://i]\n", `addresses[1]: it has another scheme`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  balance: best\n", `:4: upstreams: balance: "best"`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  ca: /does/not/exist\n", `:4: upstreams: ca: open`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  tls_name: x\n", `ca: without https:// there is no TLS`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  timeout: 0s\n  out: x\n  idle: 0\n",
			`:4: upstreams: timeout: |:5: upstreams: out: |:6: upstreams: idle: `},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  health: {interval: 1s}\n", `health.path: it is missing`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  health:\n    path: x\n    interval: 1s\n    timeout: 2s\n",
			`:5: upstreams: health.path: "x" is no path|:7: upstreams: health.timeout: 2s is not above 0`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  retry: {attempts: 11, statuses: [200]}\n",
			`retry.attempts: "11" is not`},
		{"upstreams:\n- name: a\n  addresses: [http://h]\n  retry: {attempts: 2, statuses: [200]}\n",
			`:4: upstreams: retry.statuses: 200 is not within`},
		{"upstreams:\n- {name: a, addresses: [http://h]}\n- {name: b, addresses: [http://i]}\n",
			`:3: upstreams: match: it never gets a request, as "a" before it`},
		{"upstreams:\n- {name: a, addresses: [http://h]}\n- {name: a, addresses: [http://i], match: {path: /x}}\n",
			`:3: upstreams: name: another upstream has it too`},
		{"upstream: http://h\nupstreams:\n- {name: a, addresses: [http://h]}\n", "-upstream and upstreams: one of them"},

		// An address of the gateway itself would send requests in a circle.
		{"upstream: http://localhost:8089\n", "localhost:8089 is this gateway's own -listen"},
		{"upstream: http://127.0.0.1\nlisten: 0.0.0.0:80\ninsecure-http: true\n", "127.0.0.1 is this gateway's own"},
		{"upstream: https://[::1]\nadmin-listen: \"[::1]:443\"\n", "own -admin-listen"},
		{"upstream: http://0.0.0.0:8089\n", "own -listen"},
	} {
		_, err := parse(nil, "-config", file(t, row.text))
		for want := range strings.SplitSeq(row.want, "|") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %q is not in:\n%v", row.text, want, err)
			}
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error tells the password: %v", row.text, err)
		}
	}

	// Another port or machine is no loop.
	for _, text := range []string{"upstream: http://127.0.0.1:8088\n", "upstream: http://127.0.0.2:8089\n",
		"upstream: http://shop.example:8089\n", "upstream: http://127.0.0.1:8089\nlisten: 127.0.0.1:0\n"} {
		if _, err := parse(nil, "-config", file(t, text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestNumberOfUpstreamsIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("upstreams:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "- {name: u%d, addresses: [http://h], match: {path: /%d/}}\n", i, i)
	}

	text := b.String()
	_, err := parse(nil, "-config", file(t, text))
	if err == nil || !strings.Contains(err.Error(), "there are 10000 upstreams, and there must be 1 to 1000") ||
		len(err.Error()) > 200 {
		t.Errorf("%.300v", err)
	}

	// As many as there may be are fast to read.
	most := strings.Join(strings.SplitAfter(text, "\n")[:1+upstream.MaxUpstreams], "")
	if c, err := parse(nil, "-config", file(t, most)); err != nil || len(c.Upstreams) != upstream.MaxUpstreams {
		t.Errorf("%d %v", len(c.Upstreams), err)
	}
}
