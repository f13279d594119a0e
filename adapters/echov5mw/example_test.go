package echov5mw_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

func ExampleNew() {
	e := echo.New()
	e.Use(echov5mw.New(limiter.PerIP("2/1h fixed-window")))
	e.GET("/", func(c *echo.Context) error { return c.String(200, "hello\n") })
	for range 3 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}

// The key may be a function of the *echo.Context, for example a value that middleware for
// authentication has set.
func ExampleKey() {
	user := echov5mw.Key(func(c *echo.Context) (string, bool) {
		id, _ := c.Get("user").(string)
		return id, true // all requests without a user share one count
	})
	rule := limiter.Rule{Name: "user", Key: user, Limit: core.MustParseLimit("5000/1h fixed-window")}
	fmt.Println(rule.Name, rule.Limit)
	// Output: user 5000/1h fixed-window
}

// A server admits 100 requests a minute from each address.
func Example() {
	e := echo.New()
	e.Use(echov5mw.New(limiter.PerIP("100/1m")))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	log.Fatal(e.Start("127.0.0.1:8080"))
}
