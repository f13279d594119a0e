package echomw_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

func everyone(core.Request) (string, bool) { return "k", true }

// limiter has one rule.
func newLimiter(t testing.TB, limit string, change func(*limiter.Rule)) *limiter.Limiter {
	t.Helper()
	l, err := core.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	r := limiter.Rule{Name: "a", Limit: l, Key: everyone}
	change(&r)
	return limiter.MustNew(limiter.Config{Store: memstore.MustNew(memstore.Options{}), Rules: []limiter.Rule{r}, Logger: slog.New(slog.DiscardHandler)})
}

func byDefault(*limiter.Rule) {}

// call has the server answer a GET.
func call(e *echo.Echo, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}
