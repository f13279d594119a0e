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
	"flag"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/examples/internal/who"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() { serve.Main("tiers", &program{}) }

type program struct{ user, anonymous core.Limit }

func (p *program) Flags(f *flag.FlagSet) {
	f.TextVar(&p.user, "user", hourly(5000), "limit of a user")
	f.TextVar(&p.anonymous, "anonymous", hourly(60), "limit of an address without a user")
}

func hourly(quota int64) core.Limit {
	return core.Limit{Algorithm: core.FixedWindow, Quota: quota, Period: time.Hour}
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	user := keyfuncs.UserID(who.FromContext)
	signedIn := keyfuncs.Known(user)
	l, err := limiter.New(limiter.Config{
		Store: store,
		Rules: []limiter.Rule{
			{Name: "user", Key: keyfuncs.When(signedIn, user), Limit: p.user},
			{Name: "anonymous", Key: keyfuncs.Unless(signedIn, keyfuncs.RemoteIP), Limit: p.anonymous},
		},
		Headers: limiter.XRateLimit,
		OnError: serve.LogError,
	})
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery(), authenticate, ginmw.New(l))
	r.GET("/", func(c *gin.Context) {
		name, ok := who.FromContext(c.Request.Context())
		if !ok {
			name = "stranger"
		}
		c.String(http.StatusOK, "hello %s\n", name)
	})
	return &serve.App{Limiter: l, Server: serve.HTTP(r)}, nil
}

// authenticate comes before the limiter, which counts by the user that it finds.
func authenticate(c *gin.Context) {
	if user, ok := who.Is(c.GetHeader("Authorization")); ok {
		c.Request = c.Request.WithContext(who.NewContext(c.Request.Context(), user))
	}
}
