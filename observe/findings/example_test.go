package findings_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/findings"
)

// A program asks its limiter for a mistake: a rule for requests has no Key.
func Example() {
	l := limiter.MustNew(limiter.Config{
		Rules:  []limiter.Rule{{Name: "visitors", Limit: core.MustParseLimit("100/1m")}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	defer l.Close()

	// The first request shows the mistake, which is logged once.
	handler := nethttp.New(l)(http.NotFoundHandler())
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))

	for _, found := range l.Status().Findings {
		if found.Code == findings.NoKey {
			fmt.Println(found.Rule, "has no key")
		}
	}
	// Output: visitors has no key
}
