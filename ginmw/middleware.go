package ginmw

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// New returns middleware that has l decide about every request. A request that
// meets l more than once is counted the first time; see [limiter.Limiter.Counted].
// New writes what is wrong with l or an option to the log of l; see
// [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, opts ...Option) gin.HandlerFunc {
	return (&gate{options: newOptions(l, opts), limiter: l}).handle
}

// gate stands before the handlers after it.
type gate struct {
	options
	limiter *limiter.Limiter
	trust   trust
}

func (g *gate) handle(c *gin.Context) {
	if g.skip != nil && g.skip(c) {
		return
	}
	header := c.Writer.Header()
	if g.limiter.Counted(header) {
		g.next(c, limiter.Degraded(c.Request.Context()))
		return
	}
	a := g.limiter.Admit(g.view(c))
	a.SetHeaders(header)
	switch a.Outcome() {
	case limiter.Refused:
		turnAway(c, a, g.refused)
	case limiter.Failed:
		turnAway(c, a, g.failed)
	default:
		g.pass(c, a)
	}
}

func (g *gate) pass(c *gin.Context, a *limiter.Admission) {
	status := http.StatusInternalServerError
	defer func() { a.Done(status) }()
	if a.NeedsContext() {
		c.Request = c.Request.WithContext(limiter.NewContext(c.Request.Context(), a))
	}
	if a.NeedsStatus() || a.HoldsLeases() {
		c.Writer = &writer{ResponseWriter: c.Writer, admission: a}
	}
	if a.Degraded() {
		g.degrade(c, a)
	} else {
		c.Next()
	}
	status = c.Writer.Status() // not reached by a panic
}

// degrade answers a request over the limit of a Degrade rule.
func (g *gate) degrade(c *gin.Context, a *limiter.Admission) {
	if g.degraded == nil {
		if answer, ok := a.Answer(); ok {
			c.Abort()
			write(c, answer)
			return
		}
	}
	g.next(c, true)
}

// next has the request answered by the handlers, or by the fallback.
func (g *gate) next(c *gin.Context, degraded bool) {
	if !degraded || g.degraded == nil {
		c.Next()
		return
	}
	c.Abort()
	g.degraded(c)
}
