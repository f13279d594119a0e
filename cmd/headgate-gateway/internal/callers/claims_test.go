package callers

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

const payload = `{"sub":"ann","plan":"free","level":12345678901234567890,"roles":["a","b"],"realm":{"x":true}}`

func TestReadClaims(t *testing.T) {
	// The longest text that is refused is no longer than a header may be.
	big := `{"plan":"` + strings.Repeat("x", MaxClaims) + `"}`
	for _, row := range []struct{ name, text, want string }{
		{"JSON", " " + payload + " ", ""},
		{"base64url", base64.RawURLEncoding.EncodeToString([]byte(payload)), ""},
		{"padded base64url", base64.URLEncoding.EncodeToString([]byte(payload)), ""},
		{"an empty text", "", "it is not an object of JSON"},
		{"a token", "eyJhIjoxfQ.eyJhIjoxfQ.x", "it is neither an object of JSON nor base64url"},
		{"half", payload[:9], "it is not an object of JSON"},
		{"more", payload + "{}", "it goes on after its object"},
		{"a list", "W10", "it is not an object of JSON"},
		{"null", "bnVsbA", "it is not an object of JSON"},
		{"too much", big, fmt.Sprintf("%d bytes are more than 16384", len(big))},
		{"too deep", `{"a":` + strings.Repeat("[", 12000), "it is not an object of JSON"},
	} {
		claims, err := ReadClaims(row.text)
		if row.want == "" {
			if got := fmt.Sprint(claims); err != nil ||
				got != "map[level:12345678901234567890 plan:free realm:map[x:true] roles:[a b] sub:ann]" {
				t.Errorf("%s: %v, %v", row.name, claims, err)
			}
			continue
		}
		if err == nil || err.Error() != row.want || claims != nil {
			t.Errorf("%s: %v, %v", row.name, claims, err)
		}
	}
}

func TestClaimsAreThoseOfTrustedProxies(t *testing.T) {
	var log bytes.Buffer
	events := quietlog.New(slog.New(slog.NewTextHandler(&log, nil)))
	c := callers(t, Options{Trusted: []string{"10.0.0.0/8"}, ClaimsHeader: "x-jwt-payload", Log: events})
	for _, row := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"a trusted proxy", "10.0.0.1:1", []string{payload}, "free"},
		{"another peer", "192.0.2.1:1", []string{payload}, ""},
		{"none", "10.0.0.1:1", nil, ""},
		{"two", "10.0.0.1:1", []string{payload, payload}, ""},
		{"nonsense", "10.0.0.1:1", []string{"{"}, ""},
	} {
		r := &test.Request{Peer: row.peer, Headers: http.Header{"X-Jwt-Payload": row.lines}}

		b := c.Bindings()
		if got, _ := b.Claims(r)["plan"].(string); got != row.want {
			t.Errorf("%s: %q", row.name, got)
		}
	}

	// Whatever comes, the log has a line at once and one a minute.
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "more than one line") {
		t.Errorf("the log:\n%s", got)
	}

	// What another peer sends reaches no server behind the gateway.
	for peer, want := range map[string]string{"10.0.0.1:1": payload, "192.0.2.1:1": ""} {
		var seen string
		h := c.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = r.Header.Get("X-Jwt-Payload")
		}))

		r, _ := http.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Jwt-Payload", payload)
		h.ServeHTTP(nil, r)
		if seen != want {
			t.Errorf("%s: %q", peer, seen)
		}
	}
}

func TestClaimsOfDescribedRequests(t *testing.T) {
	p := []policy.Policy{{Name: "x", Apps: []string{"shop"}, Limit: core.MustParseLimit("1/1s"), Key: "global",
		Match: policy.Match{Claims: map[string]policy.Values{"realm.x": {"true"}}}}}
	if _, err := policy.Compile("shop", p, callers(t, Options{}).bindings); err == nil ||
		!strings.Contains(err.Error(), "Bindings.Claims") {
		t.Errorf("without a header: %v", err)
	}

	compiled, err := policy.Compile("shop", p, Described(callers(t, Options{}).Bindings()))
	if err != nil {
		t.Fatal(err)
	}
	claims, _ := ReadClaims(payload)
	for _, row := range []struct {
		claims map[string]any
		want   bool
	}{{claims, true}, {nil, false}, {map[string]any{}, false}} {
		r, _ := http.NewRequestWithContext(WithClaims(t.Context(), row.claims), "GET", "/", nil)
		if _, ok := compiled.Rules()[0].Key(nethttp.Request(r)); ok != row.want {
			t.Errorf("%v: %t", row.claims, ok)
		}
	}
}
