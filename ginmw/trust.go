package ginmw

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// maxChecked is how many requests are looked at for a key that anyone can forge.
const maxChecked = 1000

// trust looks at the first requests for a key that is what gin.Context.ClientIP
// says while the engine trusts every proxy, as Gin does by default.
type trust struct {
	done  atomic.Bool
	seen  atomic.Int64
	known atomic.Bool // that the engine trusts everybody
}

// checkedRequest has [Key] show the keys that it makes.
type checkedRequest struct {
	request
	middleware *middleware
}

// view is the request for rules to see.
func (m *middleware) view(c *gin.Context) core.Request {
	if m.trust.done.Load() || m.limiter == nil {
		return request{c}
	}
	if m.trust.seen.Add(1) > maxChecked || !m.trustsAllProxies(c) {
		m.trust.done.Store(true)
		return request{c}
	}
	return checkedRequest{request{c}, m}
}

// trustsAllProxies asks the engine whom a stranger's headers make him.
func (m *middleware) trustsAllProxies(c *gin.Context) bool {
	if m.trust.known.Load() {
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
	m.trust.known.Store(true)
	return true
}

// inspect tells of a key in which there is an address that a header brought.
func (m *middleware) inspect(c *gin.Context, key string) {
	says := c.ClientIP()
	if says == "" || says == c.RemoteIP() || !strings.Contains(key, says) {
		return
	}
	m.trust.done.Store(true)
	m.limiter.Warn(core.Finding{Code: limiter.CodeGinTrustsAll, Text: "a key is what gin.Context.ClientIP says, and the engine " +
		"trusts every proxy, so callers can choose it: call SetTrustedProxies, or use keyfuncs.ForwardedIP"})
}
