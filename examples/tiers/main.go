// Tiers limits as GitHub does: 5000 requests an hour for a user who is signed
// in, and 60 an hour for each address of other clients. Every answer, even a 404,
// has X-RateLimit-Limit, -Remaining and -Reset:
//
//	go run ./examples/tiers
//	curl -i http://127.0.0.1:8080/
//	curl -i -H 'Authorization: Bearer alice-token' http://127.0.0.1:8080/
//
// A request with an unknown token counts by address, so that guessing tokens is
// limited too.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler())) }

func handler() http.Handler {
	// Users are counted by name, and all others by address.
	user := ginmw.Key(func(c *gin.Context) (string, bool) { return c.GetString("user"), c.GetString("user") != "" })
	signedIn := keyfuncs.Known(user)

	l := limiter.MustNew(limiter.Config{
		Rules: []limiter.Rule{
			{
				Name:  "user",
				Key:   keyfuncs.When(signedIn, user),
				Limit: core.MustParseLimit("5000/1h fixed-window"),
			},
			{
				Name:  "anonymous",
				Key:   keyfuncs.Unless(signedIn, keyfuncs.RemoteIP),
				Limit: core.MustParseLimit("60/1h fixed-window"),
			},
		},
		Headers: limiter.XRateLimit,
	})

	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery(), authenticate, ginmw.New(l))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello %s\n", c.GetString("user")) })
	return r
}

// authenticate comes before the limiter, which counts by the user that it finds.
func authenticate(c *gin.Context) {
	tokens := map[string]string{"Bearer alice-token": "alice", "Bearer bob-token": "bob"}
	c.Set("user", tokens[c.GetHeader("Authorization")])
}
