package forwardauth

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/gatewaytest"
	"github.com/headgate/headgate/policy"
)

// A gateway replaces the headers that it sets, except that it may append to
// X-Forwarded-For, and passes on all others of the client.
func TestForgedHeaders(t *testing.T) {
	const client = "192.0.2.1"

	// The families of headers that gateways set themselves, over whatever the client sent.
	gateways := map[string][]string{
		"nginx": {"X-Original-Method: GET", "X-Original-Uri: /shop?q=1", "X-Forwarded-Host: shop.test"},
		"nginx as in examples": {"X-Original-Method: GET", "X-Original-Uri: /shop?q=1", "X-Forwarded-Host: shop.test",
			"X-Original-Url: ", "X-Forwarded-Method: ", "X-Forwarded-Uri: "},
		"ingress-nginx": {"X-Original-Method: GET", "X-Original-Url: http://shop.test/shop?q=1"},
		"Caddy":         {"X-Forwarded-Method: GET", "X-Forwarded-Uri: /shop?q=1", "X-Forwarded-Host: shop.test"},
	}

	every := limit("all", "1/1h fixed-window", "ip+method+path+host")

	// One request an hour for all that is asked: a forgery that changes any of it would count anew
	// and pass.
	for name, own := range gateways {
		for _, appends := range []bool{false, true} {
			in(t, Options{}, []policy.Policy{every}, func(t *testing.T, f *face) {
				counted := 0
				ask := func(forged http.Header) int {
					h := http.Header{}
					for name, values := range forged {
						h[http.CanonicalHeaderKey(name)] = append(h[http.CanonicalHeaderKey(name)], values...)
					}

					// What the gateway sets replaces the client's. Some append to the addresses,
					// and some replace them.
					maps.Copy(h, lines(own...))
					if !appends {
						h.Del("X-Forwarded-For")
					}
					h.Add("X-Forwarded-For", client)

					r, w := httptest.NewRequest("GET", Path, nil), httptest.NewRecorder()
					r.Header, r.RemoteAddr = h, proxy+":1"
					f.ServeHTTP(w, r)
					return w.Code
				}

				if got := ask(nil); got != 200 {
					t.Fatalf("%s: the first request got %d", name, got)
				}
				all := gatewaytest.Forgeries()

				for _, forgery := range all {
					switch got := ask(forgery.Header); got {
					case 429:
						counted++
					case 400: // the client contradicts its gateway
					default:
						t.Errorf("%s: %s: %d, so the request counts as another: %q", name, forgery.Name, got,
							forgery.Header)
					}
				}

				// The example for nginx empties what it does not set, so that nothing of the
				// client is left to contradict it.
				if name == "nginx as in examples" && counted != len(all) || len(all) < 200 {
					t.Errorf("%s: %d of %d are counted, want all, and at least 200", name, counted, len(all))
				}
			})
		}
	}
}
