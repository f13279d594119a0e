package ginmw

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
)

// New returns middleware that has l decide about every request. A nil limiter
// answers 503.
func New(l *core.Limiter, opts ...Option) gin.HandlerFunc {
	g := &gate{options: options{refused: answer, failed: answer}, limiter: l}
	for _, set := range opts {
		set(&g.options)
	}
	return g.handle
}

// gate stands before the handlers after it.
type gate struct {
	options
	limiter *core.Limiter
}

func (g *gate) handle(c *gin.Context) {
	if g.skip != nil && g.skip(c) {
		return
	}
	a := g.limiter.Admit(request{c})
	a.SetHeaders(c.Writer.Header())
	switch a.Outcome() {
	case core.Refused:
		turnAway(c, a, g.refused)
	case core.Failed:
		turnAway(c, a, g.failed)
	default:
		g.pass(c, a)
	}
}

func turnAway(c *gin.Context, a *core.Admission, write func(*gin.Context, *core.Admission)) {
	defer a.Done(a.Outcome().Status())
	c.Abort()
	write(c, a)
}

func (g *gate) pass(c *gin.Context, a *core.Admission) {
	status := http.StatusInternalServerError
	defer func() { a.Done(status) }()
	if a.NeedsContext() {
		c.Request = c.Request.WithContext(core.NewContext(c.Request.Context(), a))
	}
	if a.HoldsLeases() {
		c.Writer = &writer{c.Writer, a}
	}
	if g.degraded != nil && a.Degraded() {
		c.Abort()
		g.degraded(c)
	} else {
		c.Next()
	}
	status = c.Writer.Status() // not reached by a panic
}
