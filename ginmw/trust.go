package ginmw

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/findings"
)

// maxChecked is the number of requests whose keys are checked.
const maxChecked = 1000

// trust checks the keys of the first requests. It finds keys that contain the address
// of gin.Context.ClientIP while the engine trusts every proxy, as it does by default.
// Clients can forge such keys.
type trust struct {
	done  atomic.Bool
	seen  atomic.Int64
	known atomic.Bool // the engine trusts every proxy
}

// checkedRequest makes [Key] pass its keys to inspect.
type checkedRequest struct {
	request
	middleware *middleware
}

// view returns the view that rules have of the request.
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

// trustsAllProxies reports whether the engine takes the address of a client from
// headers that an unknown peer sent.
func (m *middleware) trustsAllProxies(c *gin.Context) bool {
	if m.trust.known.Load() {
		return true
	}
	const peer, forged = "203.0.113.7", "198.51.100.9"
	probe := c.Copy()
	probe.Request = &http.Request{RemoteAddr: peer + ":1", Header: http.Header{
		"X-Forwarded-For": {forged}, "X-Real-Ip": {forged},
	}}
	if probe.ClientIP() != forged {
		return false
	}
	m.trust.known.Store(true)
	return true
}

// inspect warns of a key that contains an address from a header.
func (m *middleware) inspect(c *gin.Context, key string) {
	ip := c.ClientIP()
	if ip == "" || ip == c.RemoteIP() || !strings.Contains(key, ip) {
		return
	}
	m.trust.done.Store(true)
	m.limiter.Warn(core.Finding{Code: findings.GinTrustsAll, Text: "a key is the address of gin.Context.ClientIP, and the engine " +
		"trusts every proxy, so clients can choose it: call SetTrustedProxies, or use keyfuncs.ForwardedIP"})
}
