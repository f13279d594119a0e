//go:build linux

package gatewaytest

import (
	"encoding/base64"
	"net/http"
	"os"
	"strings"
	"testing"
)

// The policies of examples/gateway/claims.yaml, which docs/gateway.md shows.
func TestClaimsExample(t *testing.T) {
	file := examples("claims.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml\n"+string(text)+"```\n") {
		t.Error("docs/gateway.md does not have the file")
	}

	service := Serve(t)
	gateway := Start(t, "-policies", file, "-upstream", "http://"+service.Addr, "-trusted-proxy", "127.0.0.1",
		"-user-header", "X-User", "-claims-header", "X-Jwt-Payload")

	// The policies of a request are those whose limits its answer has.
	for _, row := range []struct{ from, path, claims, want string }{
		{"127.0.0.1", "/", `{"plan":"free"}`, "api-free without-token"},
		{"127.0.0.1", "/", `{"plan":"trial","exp":1}`, "api-free without-token"},
		{"127.0.0.1", "/", `{"plan":"pro"}`, "without-token"},
		{"127.0.0.1", "/", `{"realm_access":{"roles":["user","batch"]}}`, "batch without-token"},
		{"127.0.0.1", "/orders?export=xlsx", "", "exports without-token"},
		{"127.0.0.1", "/orders?a=1&export=csv", `{"plan":"free"}`, "api-free exports without-token"},
		{"127.0.0.1", "/orders", "", "without-token"},
		{"127.0.0.1", "/orders?export=pdf", "", "without-token"},
		{"127.0.0.2", "/", `{"plan":"free"}`, "without-token"}, // no trusted proxy
	} {
		h := http.Header{"X-User": {"ann"}}
		if row.claims != "" {
			h.Set("X-Jwt-Payload", base64.RawURLEncoding.EncodeToString([]byte(row.claims)))
		}
		a := Do(t, Client(t, row.from), "GET", "http://"+gateway.Addr+row.path, h)

		var names []string
		for _, name := range []string{"api-free", "batch", "exports", "without-token"} {
			if strings.Contains(a.Header.Get("Ratelimit-Policy"), `"`+name+`"`) {
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); a.Status != 200 || got != row.want {
			t.Errorf("%+v: %d, %s", row, a.Status, got)
		}
	}
}
