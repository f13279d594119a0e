package ginmw_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
)

func ExampleNew() {
	r := gin.New()
	r.Use(gin.Recovery(), ginmw.New(limiter.PerIP("2/1h fixed-window")))
	r.GET("/", func(c *gin.Context) { c.String(200, "hello\n") })

	for range 3 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}

// The key may be a function of the *gin.Context, for example a value that middleware for
// authentication has set.
func ExampleKey() {
	user := ginmw.Key(func(c *gin.Context) (string, bool) {
		id := c.GetString("user")
		return id, true // all requests without a user share one count
	})

	rule := limiter.Rule{Name: "user", Key: user, Limit: core.MustParseLimit("5000/1h fixed-window")}
	fmt.Println(rule.Name, rule.Limit)
	// Output: user 5000/1h fixed-window
}

// A server admits 100 requests a minute from each address.
func Example() {
	r := gin.New()
	r.Use(gin.Recovery(), ginmw.New(limiter.PerIP("100/1m")))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	log.Fatal(r.Run("127.0.0.1:8080"))
}
