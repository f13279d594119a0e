package forwardauth

import (
	"net/http"
	"strings"
	"testing"
)

// lines makes headers of "Name: value" lines.
func lines(list ...string) http.Header {
	h := http.Header{}
	for _, line := range list {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestClaim(t *testing.T) {
	const (
		method = "X-Original-Method: POST"
		uri    = "X-Original-URI: /a?b=c"
		fullup = "X-Original-URL: https://shop.test/a?b=c"
		host   = "X-Forwarded-Host: shop.test"
		fmeth  = "X-Forwarded-Method: POST"
		furi   = "X-Forwarded-Uri: /a?b=c"
	)

	post := claim{"POST", "/a?b=c", "shop.test"}
	long := strings.Repeat("x", 10<<10)
	rows := []struct {
		name    string
		headers []string
		want    claim
		fault   fault
	}{
		// What the gateways send by their documentation, and what they may send beside it.
		{"nginx", []string{method, uri, host}, post, ""},
		{"ingress-nginx", []string{method, fullup}, post, ""},

		// The URL has the host that nginx saw. What a client forwards is not asked about then.
		{"a forwarded host of the client beside a URL", []string{method, fullup, "X-Forwarded-Host: evil.test"}, post,
			""},
		{"Caddy, Traefik and APISIX", []string{fmeth, furi, host}, post, ""},
		{"both families say the same", []string{method, uri, fmeth, furi, host}, post, ""},
		{"both families and a URL say the same", []string{method, fullup, uri, fmeth, furi, host}, post, ""},
		{"the case of a host does not matter", []string{method, fullup, fmeth, furi, "X-Forwarded-Host: Shop.Test"},
			claim{"POST", "/a?b=c", "Shop.Test"}, ""},
		{"a host with a port", []string{method, uri, "X-Forwarded-Host: [2001:db8::1]:8443"},
			claim{"POST", "/a?b=c", "[2001:db8::1]:8443"}, ""},
		{"a method of one's own", []string{"X-Forwarded-Method: PURGE", furi, host},
			claim{"PURGE", "/a?b=c", "shop.test"}, ""},
		{"OPTIONS *", []string{"X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: *", host},
			claim{"OPTIONS", "*", "shop.test"}, ""},
		{"a long target", []string{method, "X-Original-URI: /" + long, host}, claim{"POST", "/" + long, "shop.test"},
			""},
		{"headers that are not read",
			[]string{method, uri, host, "X-Forwarded-Proto: gopher", "Forwarded: host=evil.test",
				"X-Original-Host: evil.test", "X-Rewrite-Url: /evil", "X-Http-Method-Override: GET"}, post, ""},
		{"an empty header counts as none", []string{method, uri, host, "X-Forwarded-Uri: "}, post, ""},

		{"nothing", nil, claim{}, noOriginal},

		// Half of a family is no request: what is missing could come from the client.
		{"a host alone", []string{host}, claim{}, noOriginal},
		{"a URI without a method", []string{uri, host}, claim{}, noMethod},
		{"a URI with the method of the other family", []string{uri, fmeth, host}, claim{}, noMethod},
		{"a method without a URI", []string{method, host}, claim{}, noTarget},
		{"a method with the URI of the other family", []string{method, furi, host}, claim{}, noTarget},
		{"a forwarded method alone", []string{fmeth, host}, claim{}, halfForward},
		{"a forwarded URI alone", []string{furi, host}, claim{}, halfForward},
		{"half a family beside a whole one", []string{method, uri, furi, host}, claim{}, halfForward},
		{"no host", []string{method, uri}, claim{}, noHost},
		{"no host beside a URL and the other family", []string{method, fullup, fmeth, furi}, claim{}, noHost},

		// A client that adds the other family to its gateway's does not choose between them.
		{"families with different methods", []string{method, uri, "X-Forwarded-Method: GET", furi, host}, claim{},
			contradicted},
		{"families with different URIs", []string{method, uri, fmeth, "X-Forwarded-Uri: /a", host}, claim{},
			contradicted},
		{"families with different hosts", []string{method, fullup, fmeth, furi, "X-Forwarded-Host: evil.test"}, claim{},
			contradicted},
		{"a URI and a URL that differ", []string{method, uri, "X-Original-URL: https://shop.test/", host}, claim{},
			contradicted},
		{"a method in two lines", []string{method, method, uri, host}, claim{}, repeated},
		{"a URI in two lines", []string{method, uri, uri, host}, claim{}, repeated},
		{"a URL in two lines", []string{method, fullup, fullup}, claim{}, repeated},
		{"a forwarded method in two lines", []string{fmeth, fmeth, furi, host}, claim{}, repeated},
		{"a forwarded URI in two lines", []string{fmeth, furi, "X-Forwarded-Uri: /b", host}, claim{}, repeated},
		{"a host in two lines", []string{method, uri, host, host}, claim{}, repeated},

		// What a gateway would not send, and what would be read in another way than by the
		// gateway.
		{"a method with a space", []string{"X-Original-Method: GET /", uri, host}, claim{}, badMethod},
		{"a method with a control character", []string{"X-Original-Method: GE\x00T", uri, host}, claim{}, badMethod},
		{"a method that is too long", []string{"X-Original-Method: " + strings.Repeat("M", 33), uri, host}, claim{},
			badMethod},
		{"a target without a slash", []string{method, "X-Original-URI: a", host}, claim{}, badTarget},
		{"an absolute URL as target", []string{method, "X-Original-URI: http://evil.test/", host}, claim{}, badTarget},
		{"POST *", []string{method, "X-Original-URI: *", host}, claim{}, badTarget},
		{"a target of 17 kB", []string{method, "X-Original-URI: /" + strings.Repeat("x", 16<<10), host}, claim{},
			longTarget},
		{"a host with a path", []string{method, uri, "X-Forwarded-Host: a/b"}, claim{}, badHost},
		{"a list of hosts", []string{method, uri, "X-Forwarded-Host: a.test, b.test"}, claim{}, badHost},
		{"a host of 10 kB", []string{method, uri, "X-Forwarded-Host: " + long}, claim{}, badHost},
		{"a host with a control character", []string{method, uri, "X-Forwarded-Host: a\x7f"}, claim{}, badHost},
		{"a URL without a scheme", []string{method, "X-Original-URL: shop.test/a"}, claim{}, badURL},
		{"a URL of another scheme", []string{method, "X-Original-URL: gopher://shop.test/a"}, claim{}, badURL},
		{"a URL without a path", []string{method, "X-Original-URL: http://shop.test"}, claim{}, badURL},
		{"a URL without a host", []string{method, "X-Original-URL: http:///a"}, claim{}, badURL},

		// A parser that looks for the slash would take "shop.test?x" for a host.
		{"a URL whose host ends the path early", []string{method, "X-Original-URL: http://shop.test?x/a"}, claim{},
			badHost},
		{"a URL with a user", []string{method, "X-Original-URL: http://u@shop.test/a"}, claim{}, badHost},
	}

	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var c claim
			if f := c.read(lines(row.headers...)); f != row.fault {
				t.Fatalf("fault %q, want %q", f, row.fault)
			} else if f == "" && c != row.want {
				t.Errorf("got %.80q, want %.80q", c, row.want)
			}
		})
	}
}
