package echov5mw_test

import (
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
)

func TestConfigIsTheMiddlewareOfNew(t *testing.T) {
	var config echo.MiddlewareConfigurator = echov5mw.Config{
		Limiter: limited(t, "1/1h"),
		Options: []echov5mw.Option{echov5mw.WithSkip(func(c *echo.Context) bool { return c.QueryParam("skip") != "" })},
	}
	middleware, err := config.ToMiddleware()
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Use(middleware)
	e.GET("/", func(c *echo.Context) error { return c.NoContent(204) })
	for i, row := range []struct {
		path string
		want int
	}{{"/", 204}, {"/", 429}, {"/?skip=yes", 204}} {
		if got := call(e, row.path).Code; got != row.want {
			t.Errorf("request %d: %d, want %d", i, got, row.want)
		}
	}
}

func TestConfigReportsAllMistakes(t *testing.T) {
	middleware, err := echov5mw.Config{Options: []echov5mw.Option{nil, echov5mw.WithSkip(nil)}}.ToMiddleware()
	const want = "headgate: the limiter is nil\noption 0 is nil and ignored\nWithSkip was given nil and is ignored"
	if err == nil || err.Error() != want || middleware != nil {
		t.Errorf("%v, %v, want %s", middleware != nil, err, want)
	}
}
