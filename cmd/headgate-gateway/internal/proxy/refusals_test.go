package proxy

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/refusal"
	"github.com/headgate/headgate/policy"
)

func TestProxyAnswersRefusalsAsTheConfigurationSays(t *testing.T) {
	book, err := refusal.New([]refusal.Options{{Status: 503, Type: "text/html",
		Body: "<p>{{status}} by {{policy}}", Headers: map[string]string{"X-Why": "{{title}}"}}})
	if err != nil {
		t.Fatal(err)
	}

	denies := limited("100/1h fixed-window")
	denies.Name, denies.Match.Path, denies.Key = "denies", "/denied", "ip"
	denies.Access.Deny.Networks = []string{"127.0.0.0/8"}
	g := before(t, func(http.ResponseWriter, *http.Request) {}, func(o *options) {
		o.policies, o.Refusals = []policy.Policy{limited("1/1h fixed-window"), denies}, book
	})

	// The first is denied, the second passes, and the others are over the limit.
	for i, row := range []struct {
		method, path string
		status       int
		body, why    string
	}{
		{"GET", "/denied", 403, "<p>403 by denies", "Forbidden"},
		{"GET", "/", 200, "", ""},
		{"GET", "/", 503, "<p>503 by all", "Service Unavailable"},
		{"HEAD", "/", 503, "", "Service Unavailable"},
	} {
		res, body := ask(t, g.Client(), request(t, row.method, g.URL+row.path, nil))
		if res.StatusCode != row.status || body != row.body || res.Header.Get("X-Why") != row.why {
			t.Errorf("request %d: %d %q %v", i, res.StatusCode, body, res.Header)
		}
		if row.status == 503 && (res.Header.Get("Content-Type") != "text/html" || res.Header.Get("Retry-After") == "" ||
			res.ContentLength != int64(len("<p>503 by all"))) {
			t.Errorf("request %d: %v, %d bytes", i, res.Header, res.ContentLength)
		}
	}

	// Other options are in force at once, and without a book the answer is the limiter's.
	o := g.proxy.options
	o.Refusals = nil
	g.replace(g.proxy.With(o))
	if res, _ := ask(t, g.Client(), request(t, "GET", g.URL+"/", nil)); res.StatusCode != 429 ||
		res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("without refusals: %d %v", res.StatusCode, res.Header)
	}
}
