package ginmw

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// New returns middleware that has l decide about every request. A request that
// meets l more than once is counted the first time; see [limiter.Limiter.Counted].
// A nil limiter answers 503.
func New(l *limiter.Limiter, opts ...Option) gin.HandlerFunc {
	g := &gate{options: options{refused: problem, failed: problem}, limiter: l}
	for _, set := range opts {
		set(&g.options)
	}
	return g.handle
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

func turnAway(c *gin.Context, a *limiter.Admission, write func(*gin.Context, *limiter.Admission)) {
	defer a.Done(a.Outcome().Status())
	c.Abort()
	write(c, a)
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
	g.next(c, a.Degraded())
	status = c.Writer.Status() // not reached by a panic
}

// next has the request answered.
func (g *gate) next(c *gin.Context, degraded bool) {
	if !degraded || g.degraded == nil {
		c.Next()
		return
	}
	c.Abort()
	g.degraded(c)
}
