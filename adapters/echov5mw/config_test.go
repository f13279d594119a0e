package echov5mw_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

func TestConfigIsTheMiddlewareOfNew(t *testing.T) {
	var config echo.MiddlewareConfigurator = echov5mw.Config{
		Limiter: limited(t, "1/1h"),
		Skip:    func(c *echo.Context) bool { return c.QueryParam("skip") != "" },
	}
	middleware, err := config.ToMiddleware()
	if err != nil {
		t.Fatal(err)
	}

	e := echo.New()
	e.Use(middleware)
	e.GET("/", func(c *echo.Context) error { return c.NoContent(204) })

	// The third is skipped, though the limit is used up.
	for i, row := range []struct {
		path string
		want int
	}{{"/", 204}, {"/", 429}, {"/?skip=yes", 204}} {
		if got := call(e, row.path).Code; got != row.want {
			t.Errorf("request %d: %d, want %d", i, got, row.want)
		}
	}
}

func TestConfigReportsItsMistake(t *testing.T) {
	noKey := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("1/1h")}}})
	for want, config := range map[string]echov5mw.Config{
		"headgate: the limiter is nil":                                            {},
		`rule 0 "default": the Key function is nil, so no request can be counted`: {Limiter: noKey},
	} {
		if middleware, err := config.ToMiddleware(); err == nil || err.Error() != want || middleware != nil {
			t.Errorf("%v, %v, want %s", middleware != nil, err, want)
		}
	}
}

// New has its own limiter. That of the Config may be the same.
func TestConfigOfNewHasNoOtherLimiter(t *testing.T) {
	var log bytes.Buffer
	logged := func(text string) *limiter.Limiter {
		return gatetest.Limiter(t,
			limiter.Config{Rules: []limiter.Rule{gatetest.Rule(text)},
				Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}

	l, other := logged("1/1h"), logged("9/1h fixed-window")
	echov5mw.New(l, echov5mw.Config{Limiter: l})

	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}

	e := echo.New()
	e.Use(echov5mw.New(l, echov5mw.Config{Limiter: other}))
	e.GET("/", func(c *echo.Context) error { return c.NoContent(204) })

	const want = `error="Config.Limiter is another limiter than that of New, and is ignored"` + "\n"
	if got := log.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %s", got)
	}

	// The limit of New decides, and nothing is taken of the other.
	for _, want := range []int{204, 429} {
		if got := call(e, "/").Code; got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}

	gatetest.WantLeft(t, other, 9)
}
