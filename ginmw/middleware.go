package ginmw

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may be used in any number of places. A request that meets
// l more than once is counted the first time; see [limiter.Limiter.Counted].
// New logs mistakes in l and in the Config to the log of l; see
// [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, config ...Config) gin.HandlerFunc {
	return (&middleware{config: configOf(l, config), limiter: l}).handle
}

// configOf returns the Config of New, and logs the mistakes in it.
func configOf(l *limiter.Limiter, list []Config) Config {
	config, err := setup.ConfigOf(l, list)
	l.LogSetup("ginmw.New", err)
	return config
}

// middleware limits the requests to the handlers after it.
type middleware struct {
	config  Config
	limiter *limiter.Limiter
	trust   trust
}

func (m *middleware) handle(c *gin.Context) {
	if m.config.Skip != nil && m.limiter.Try("Config.Skip", func() bool { return m.config.Skip(c) }) {
		return
	}
	header, mark := c.Writer.Header(), httpexchange.In(c.Request.Context())
	if m.limiter.Counted(header) || mark != nil && m.limiter.CountedBy(mark) {
		m.next(c, limiter.Degraded(c.Request.Context()))
		return
	}
	a := m.limiter.Admit(m.view(c))
	if mark != nil {
		a.Merge(mark, header.Get)
	}
	a.SetHeaders(header)
	switch a.Status() {
	case 0:
		c.Request = httpexchange.Leave(c.Writer, header, c.Request, a)
		m.pass(c, a)
	case http.StatusServiceUnavailable:
		reject(c, a, m.config.Failed)
	default:
		reject(c, a, m.config.Refused)
	}
}

func (m *middleware) pass(c *gin.Context, a *limiter.Admission) {
	returned := false
	defer func() { a.Done(statusOf(c, a, returned)) }()
	if a.NeedsContext() {
		c.Request = c.Request.WithContext(limiter.NewContext(c.Request.Context(), a))
	}
	if a.NeedsStatus() || a.HoldsLeases() {
		c.Writer = &writer{ResponseWriter: c.Writer, admission: a}
	}
	if a.Degraded() {
		m.degrade(c, a)
	} else {
		c.Next()
	}
	returned = true // not reached by a panic
}

// statusOf returns the status of the answer. Without one, an error among those of the context
// is for a middleware around this one to answer, by a status that is not known here.
func statusOf(c *gin.Context, a *limiter.Admission, returned bool) int {
	status := c.Writer.Status()
	switch {
	case c.Writer.Written():
		return status
	case !returned, len(c.Errors) > 0 && status == http.StatusOK:
		return http.StatusInternalServerError
	}
	return a.Unanswered(status)
}

// degrade answers a request over the limit of a Degrade rule.
func (m *middleware) degrade(c *gin.Context, a *limiter.Admission) {
	if m.config.Degraded == nil {
		if answer, ok := a.Answer(); ok {
			c.Abort()
			write(c, answer)
			return
		}
	}
	m.next(c, true)
}

// next calls the handlers, or the fallback for a degraded request if there is one.
func (m *middleware) next(c *gin.Context, degraded bool) {
	if !degraded || m.config.Degraded == nil {
		c.Next()
		return
	}
	c.Abort()
	m.config.Degraded(c)
}
