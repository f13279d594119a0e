package main

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestSearchIsLimitedApart(t *testing.T) {
	h := handler()
	for i, row := range []struct {
		path   string
		status int
		body   string
		limit  string // the policies that the answer names
	}{
		{"/search", 200, `"nothing found"`, `"all";q=100;w=60, "search";q=2;w=60`},
		{"/search", 200, `"nothing found"`, `"all";q=100;w=60, "search";q=2;w=60`},
		{"/search", 429, `"violated-policies":["search"]`, `"all";q=100;w=60, "search";q=2;w=60`},

		// The greeting counts under the other limit alone, and the description under none.
		{"/greeting/ann", 200, `"hello ann"`, `"all";q=100;w=60`},
		{"/openapi.json", 200, `"openapi"`, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", row.path, nil))

		if got := w.Header().Get("RateLimit-Policy"); w.Code != row.status ||
			!strings.Contains(w.Body.String(), row.body) || got != row.limit {
			t.Errorf("%d: %s: %d %s, policies %s", i, row.path, w.Code, w.Body.String(), got)
		}
	}
}
