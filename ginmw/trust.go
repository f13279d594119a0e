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
	seen        atomic.Int64
	done, known atomic.Bool // known: the engine trusts every proxy
}

// checkedRequest makes [Key] pass its keys to inspect.
type checkedRequest struct {
	request
	framework *framework
}

// view returns the view that rules have of the request.
func (f *framework) view(c *gin.Context) core.Request {
	if f.trust.done.Load() || f.limiter == nil {
		return request{c}
	}
	if f.trust.seen.Add(1) > maxChecked || !f.trustsAllProxies(c) {
		f.trust.done.Store(true)
		return request{c}
	}
	return checkedRequest{request{c}, f}
}

// trustsAllProxies reports whether the engine takes the address of a client from
// headers that an unknown peer sent.
func (f *framework) trustsAllProxies(c *gin.Context) bool {
	if f.trust.known.Load() {
		return true
	}
	const peer, forged = "203.0.113.7", "198.51.100.9"

	// The engine is asked about a request of a peer that no engine has been told to trust.
	probe, header := c.Copy(), http.Header{"X-Forwarded-For": {forged}, "X-Real-Ip": {forged}}
	probe.Request = &http.Request{RemoteAddr: peer + ":1", Header: header}
	f.trust.known.Store(probe.ClientIP() == forged)
	return f.trust.known.Load()
}

// inspect warns of a key that contains an address from a header.
func (f *framework) inspect(c *gin.Context, key string) {
	if ip := c.ClientIP(); ip != "" && ip != c.RemoteIP() && strings.Contains(key, ip) {
		f.trust.done.Store(true)
		f.limiter.Warn(core.Finding{Code: findings.GinTrustsAll, Text: "a key is the address of " +
			"gin.Context.ClientIP, and the engine trusts every proxy, so clients can choose it: " +
			"call SetTrustedProxies, or use keyfuncs.ForwardedIP"})
	}
}
