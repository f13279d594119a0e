package nethttp_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/nethttp"
)

func TestTemplatesAnswerWithTheHeadersOfTheLimiter(t *testing.T) {
	rows := []struct {
		template             core.Template
		status               int
		header, value, wants string
	}{
		{core.PlainText, 429, "Content-Type", "text/plain; charset=utf-8", "Too many requests. Retry after 60 seconds.\n"},
		{core.JSON, 429, "Content-Type", "application/json", `{"error":"too_many_requests","retry_after":60,"rules":["a"]}`},
		{core.MustRedirect("/busy"), 303, "Location", "/busy", ""},
	}
	for _, row := range rows {
		h := nethttp.New(limited(t, "1/1m fixed-window"), nethttp.WithRefused(nethttp.Answer(row.template)))(http.HandlerFunc(hello))
		get(h, "/")
		w := get(h, "/")
		if w.Code != row.status || w.Header().Get(row.header) != row.value || w.Body.String() != row.wants {
			t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
		}
		if w.Header().Get("Retry-After") != "60" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v", w.Header())
		}
	}
}
