package ginmw

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// watched is how many requests are looked at for a key that anyone can forge.
const watched = 1000

// trust looks at the first requests for a key that is what gin.Context.ClientIP
// says while the engine trusts every proxy, as Gin does by default.
type trust struct {
	over  atomic.Bool
	seen  atomic.Int64
	knows atomic.Bool // that the engine trusts everybody
}

// watchedRequest has [Key] show the keys that it makes.
type watchedRequest struct {
	request
	gate *gate
}

// view is the request for rules to see.
func (g *gate) view(c *gin.Context) core.Request {
	if g.trust.over.Load() || g.limiter == nil {
		return request{c}
	}
	if g.trust.seen.Add(1) > watched || !g.trustsEverybody(c) {
		g.trust.over.Store(true)
		return request{c}
	}
	return watchedRequest{request{c}, g}
}

// trustsEverybody asks the engine whom a stranger's headers make him.
func (g *gate) trustsEverybody(c *gin.Context) bool {
	if g.trust.knows.Load() {
		return true
	}
	const stranger, forged = "203.0.113.7", "198.51.100.9"
	probe := c.Copy()
	probe.Request = &http.Request{RemoteAddr: stranger + ":1", Header: http.Header{
		"X-Forwarded-For": {forged}, "X-Real-Ip": {forged},
	}}
	if probe.ClientIP() != forged {
		return false
	}
	g.trust.knows.Store(true)
	return true
}

// inspect tells of a key in which there is an address that a header brought.
func (g *gate) inspect(c *gin.Context, key string) {
	says := c.ClientIP()
	if says == "" || says == c.RemoteIP() || !strings.Contains(key, says) {
		return
	}
	g.trust.over.Store(true)
	g.limiter.Warn(core.Finding{Code: limiter.CodeGinTrustsAll, Text: "a key is what gin.Context.ClientIP says, and the engine " +
		"trusts every proxy, so callers can choose it: call SetTrustedProxies, or use keyfuncs.ForwardedIP"})
}
